"""Scale of resource groups: rounds of the estimate in PIP-82 through the job, Kafka to Kafka."""

import time
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Final

from benchmarks.kit.entities import listed
from benchmarks.kit.fixtures import spark
from benchmarks.kit.machine import counted_twice, cpu_s, peak_bytes, process_tree
from benchmarks.kit.progress import Progress
from benchmarks.kit.result import Result, Row
from benchmarks.kit.stack import Stack, work_dir
from benchmarks.load.rounds import POLICIES, ROUND_MS, Cluster
from benchmarks.load.writing import RowCounter, Writer, produce
from benchmarks.spark.idiom import shared_out
from benchmarks.spark.stages import idiom_seconds
from streaming.contract.topics import Topics
from streaming.job.spark.settings import JobSettings, Profile
from weir.stack.topics import ensure_topics

TITLE = "Scale of resource groups: a round of reports on Kafka to all shares on Kafka"
DURATION_S = 87
TARGET_S: Final = 0.8
TARGET_BYTES: Final = 30e6
"""Of reports and shares of a round together."""
TARGET_MEMORY: Final = 2 * 2**30
JSON_TARGET_S: Final = 1.0
PIP_BYTES: Final = 56e6
"""Of all reports of a round, by the estimate in PIP-82."""
PARTITIONS: Final = 2
"""Of Weir's topics, and tasks of the stateful stage: one a core of the machine that the target is for."""
_LIMIT_S: Final = 60.0
_AHEAD_ROUNDS: Final = 1000
_EXPIRY_ROUNDS: Final = 10
"""After so many rounds nobody is a member who does not report any more."""
_ROUND: Final = 4
"""Place of the column `round` among those of a share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scale:
    """The cluster that reports; rounds that warm the job up, and that are measured; one of usual size whose
    proxies report as JSON, and its rounds; the idiom's; entities in the admin API's list.
    """

    cluster: Cluster
    warm: int
    rounds: int
    usual: Cluster
    usual_rounds: int
    idiom: Cluster
    idiom_rounds: int
    entities: int


def _scale(smoke: bool) -> _Scale:
    # In the future, so that the job's own ticks, which have the clock's time, close none of these rounds.
    start = time.time_ns() // 1_000_000 // ROUND_MS + _AHEAD_ROUNDS
    if smoke:
        small, tiny = (Cluster(groups=groups, brokers=10, spread=5, start=start) for groups in (200, 20))
        return _Scale(
            cluster=small, warm=1, rounds=1, usual=small, usual_rounds=1, idiom=tiny, idiom_rounds=1,
            entities=3_000,
        )  # fmt: skip
    return _Scale(
        cluster=Cluster(groups=100_000, brokers=100, spread=5, start=start), warm=6, rounds=5,
        usual=Cluster(groups=1_000, brokers=10, spread=5, start=start), usual_rounds=4,
        idiom=Cluster(groups=4_000, brokers=100, spread=5), idiom_rounds=2, entities=100_000,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What the job showed in the rounds that were measured.

    Attributes:
        seconds: of each round.
        usual: the same of rounds of usual size, as JSON.
        writing: seconds of each round until all reports stood on Kafka.
        job_s: processor time of the job, all rounds together.
        broker_s: the same of the broker.
        read: bytes of the reports of a round, as they stand on Kafka.
        written: the same of its decisions.
        disk: bytes of the checkpoint at the end, with what is kept of earlier batches.
        jvm: most memory that the job's JVM held, bytes.
        python: the same of its Python workers, all together.
        twice: bytes of that which workers share, as far as they still did at the end.
    """

    seconds: list[float]
    usual: list[float]
    writing: list[float]
    job_s: float
    broker_s: float
    read: float
    written: float
    disk: int
    jvm: int
    python: int
    twice: int


def run(smoke: bool, progress: Progress) -> Result:
    """Rounds through the job, then two of a smaller cluster through the idiom."""
    scale = _scale(smoke)
    # Or the job would bury reports of rounds that are to come.
    rounds = scale.warm + scale.rounds + _EXPIRY_ROUNDS + scale.usual_rounds
    ahead_ms = (_AHEAD_ROUNDS + rounds + 1) * ROUND_MS
    job = {"profile": Profile.THROUGHPUT.value, "shuffle_partitions": PARTITIONS, "max_ahead_ms": ahead_ms}
    settings = {"job": job}
    with Stack(work_dir(), settings=settings, policies=POLICIES, partitions=PARTITIONS) as stack:
        progress.step("starting the job", 0.05)
        ready = stack.start_job()
        found = _rounds(stack, ready, scale, progress)
        stack.stop("job")
        idiom = _idiom(stack, scale, progress)
    with Stack(work_dir()) as stack:
        progress.step("listing entities", 0.95)
        entities = listed(stack, scale.entities)
    rows = _rows(found, scale, idiom) + entities.rows()
    return Result(name="scale", title=TITLE, rows=rows, notes=_notes(scale))


def _rounds(stack: Stack, ready: dict[str, Any], scale: _Scale, progress: Progress) -> _Found:
    pid, broker, topics = ready["pid"], stack.kafka.pids[0], stack.topics
    seconds, writing = [], []
    total = scale.warm + scale.rounds
    spent = sizes = (0.0, 0.0)
    with (
        RowCounter(stack.bootstrap, topics.decisions, _ROUND) as decisions,
        Writer(stack.bootstrap) as writer,
    ):
        for number in range(total):
            progress.step(f"round {number + 1} of {total}", 0.2 + 0.5 * number / total)
            if number == scale.warm:
                spent = cpu_s(pid), cpu_s(broker)
                sizes = _log_bytes(stack, topics.usage), _log_bytes(stack, topics.decisions)
            took = _round(stack, writer, scale.cluster, number, decisions, packed=True)
            if number >= scale.warm:
                seconds.append(took[1])
                writing.append(took[0])
        job_s, broker_s = cpu_s(pid) - spent[0], cpu_s(broker) - spent[1]
        read, written = _log_bytes(stack, topics.usage), _log_bytes(stack, topics.decisions)
        memory = {each: peak_bytes(each) for each in process_tree(pid)}
        twice = counted_twice(memory)
        usual = _usual(stack, writer, scale, decisions, progress)
    jvm = memory.pop(ready["jvm_pid"])
    del memory[pid]
    return _Found(
        seconds=seconds, usual=usual, writing=writing, job_s=job_s, broker_s=broker_s,
        read=(read - sizes[0]) / scale.rounds, written=(written - sizes[1]) / scale.rounds,
        disk=sum(file.stat().st_size for file in stack.checkpoint.rglob("*") if file.is_file()),
        jvm=jvm, python=sum(memory.values()), twice=twice,
    )  # fmt: skip


def _usual(
    stack: Stack, writer: Writer, scale: _Scale, decisions: RowCounter, progress: Progress
) -> list[float]:
    """Seconds of rounds of usual size as JSON; the others leave before, since nobody reports of them."""
    progress.step("rounds of usual size", 0.7)
    first = scale.warm + scale.rounds
    # The first round tells all others that they are gone, if enough time has passed.
    cluster = replace(scale.usual, start=scale.usual.start + first + _EXPIRY_ROUNDS)
    decisions.wait_quiet(_LIMIT_S)
    writer.write(stack.topics.usage, [(b"", cluster.tick(-1))])
    decisions.wait_quiet(_LIMIT_S)
    return [
        _round(stack, writer, cluster, number, decisions, packed=False)[1]
        for number in range(scale.usual_rounds)
    ]


def _round(
    stack: Stack, writer: Writer, cluster: Cluster, number: int, decisions: RowCounter, *, packed: bool
) -> tuple[float, float]:
    """Seconds from before the first report is sent until all stand on Kafka, and until all shares do."""
    records = list(cluster.reports(number, packed=packed))
    wanted = decisions.count + cluster.entries
    begun = time.monotonic()
    writer.write(stack.topics.usage, records, packed=packed)
    sent = time.monotonic()
    writer.write(stack.topics.usage, [(b"", cluster.tick(number))])
    decisions.wait(wanted, _LIMIT_S, stack.check)
    return sent - begun, time.monotonic() - begun


def _log_bytes(stack: Stack, topic: str) -> int:
    """Bytes of a topic's log on the broker's disk, which are those that went over the wire."""
    return sum(file.stat().st_size for file in stack.kafka.data_dir.rglob(f"{topic}-*/*.log"))


def _idiom(stack: Stack, scale: _Scale, progress: Progress) -> float:
    """Seconds per entry of one group a resource group, in its last round."""
    progress.step("Spark for the idiom", 0.75)
    folder = stack.folder / "session"
    folder.mkdir()
    settings = JobSettings(profile=Profile.THROUGHPUT, shuffle_partitions=PARTITIONS)
    topics = Topics("idiom.")
    ensure_topics(replace(stack.cluster, topics=topics), partitions=PARTITIONS)
    took = 0.0
    with spark(settings, folder) as session:
        for number in range(scale.idiom_rounds):
            progress.step("the idiom", 0.8 + 0.1 * number)
            produce(stack.bootstrap, topics.usage, scale.idiom.reports(number))
            took = idiom_seconds(
                shared_out, session.spark, bootstrap=stack.bootstrap, read=topics.usage,
                write=topics.decisions, checkpoint=folder / "checkpoint", limit_s=_LIMIT_S,
            )  # fmt: skip
    return took / scale.idiom.entries


def _rows(found: _Found, scale: _Scale, idiom: float) -> list[Row]:
    entries, took = scale.cluster.entries, median(found.seconds)
    all_us, held = scale.rounds * entries / 1e6, found.jvm + found.python - found.twice
    usual, wire = median(found.usual), found.read + found.written
    return [
        Row(
            f"a round of {entries:,} reports by group and broker", took, "s", baseline=idiom * entries,
            baseline_what="applyInPandasWithState by resource group",
            target=f"< {TARGET_S} s", met=took < TARGET_S,
        ),
        Row(
            f"a round of {scale.usual.entries:,} reports as JSON, of {scale.usual.brokers} proxies", usual,
            "s", target=f"< {JSON_TARGET_S:.0f} s", met=usual < JSON_TARGET_S,
        ),
        Row("the slowest round", max(found.seconds), "s"),
        Row("of a round: until all reports stand on Kafka", median(found.writing), "s"),
        Row("job: processor time", found.job_s / all_us, "us/entry"),
        Row("broker beside it: processor time", found.broker_s / all_us, "us/entry"),
        Row(
            "reports of a round on the wire", found.read / 1e6, "MB",
            baseline=PIP_BYTES / 1e6 * entries / 500_000, baseline_what="estimate in PIP-82",
        ),
        Row("shares of a round on the wire", found.written / 1e6, "MB"),
        Row(
            "both together", wire / 1e6, "MB",
            target=f"<= {TARGET_BYTES / 1e6:.0f} MB", met=wire <= TARGET_BYTES,
        ),
        Row("checkpoint on disk, with earlier batches", found.disk / 1e6, "MB"),
        Row("JVM, most memory resident", found.jvm / 1e6, "MB"),
        Row("Python workers together, most memory resident", found.python / 1e6, "MB"),
        Row("both together at their peaks", (found.jvm + found.python) / 1e6, "MB"),
        Row(
            "both together at their peaks, memory that workers share counted once", held / 1e6, "MB",
            target="< 2 GiB", met=held < TARGET_MEMORY,
        ),
    ]  # fmt: skip


def _notes(scale: _Scale) -> list[str]:
    cluster = scale.cluster
    return [
        f"{cluster.groups:,} groups, each used through {cluster.spread} of {cluster.brokers} brokers; every"
        " broker reports all of its groups in every round, with other counts, in the proxy's form: one"
        " packed record. One dimension is limited. Profile throughput,"
        f" {PARTITIONS} partitions, {PARTITIONS} tasks.",
        "A round: all its reports are written as fast as one process can, by a producer that is connected"
        " before, then the tick that closes it; from before the first is sent to the last share, by a"
        f" consumer that counts the rows of the records on weir.decisions. Median of {scale.rounds} rounds,"
        " one after the other without a pause; the events' own times are 60 s apart.",
        f"{scale.warm} rounds before them warm the job up: the JVM's compilers work on while it is new, and"
        " a job runs for months.",
        "The limits are byte rates of a default quota, one policy entry; for a limit of its own for every"
        " group see below.",
        f"The idiom: one Spark group a resource group, {scale.idiom.groups:,} of them with"
        f" {scale.idiom.spread} brokers each, batch {scale.idiom_rounds}; Spark's own time, taken to as"
        " many entries as the job had.",
        "Producer, Kafka and job share the machine. Bytes on the wire are those of the broker's log, batches'"
        " heads included, not compressed.",
        "The admin API: a real `weir admin` that has read packed decisions of three laws, a tenth of which"
        " hold somebody back; pages of 50 rows over HTTP, each at least half a second after the one before.",
    ]
