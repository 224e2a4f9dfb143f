"""What a check of a Kafka cluster's backlogs takes: 2,000 topics and 6,000 groups, in a process of its own.

`python -m benchmarks.backlog BOOTSTRAP` is that process: it makes a check for every line of its input, a JSON
object with settings and wants, and answers with a line that says what it took.
"""

import asyncio
import sys
import time
from collections import deque
from contextlib import closing, suppress
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

import orjson
from kafka import KafkaAdminClient, TopicPartition
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

from benchmarks.kit.machine import cpu_s, peak_bytes
from benchmarks.kit.progress import Progress
from benchmarks.kit.result import Result, Row
from benchmarks.kit.stack import Stack, work_dir
from benchmarks.load.asked import Asked, say
from benchmarks.load.writing import fill_topics, make_topics
from streaming.collect.backlog.cluster import RoundQuestion
from streaming.collect.kafka import groups
from streaming.collect.kafka.cluster import KafkaCluster
from streaming.contract.errors import WeirError
from streaming.contract.namespaces import Namespaces
from streaming.contract.topics import Cluster, Topics

TITLE: Final = "Backlogs: one check of a Kafka cluster"
DURATION_S: Final = 64
GROUPS: Final = 3
"""Of each topic."""
CHECK_S: Final = 5.0
MEMORY_MIB: Final = 300.0
"""Targets."""
_SIZE: Final = 200
_LIMIT_S: Final = 60.0
_PATTERN: Final = "tenant.namespace.topic"
_IN_FLIGHT: Final = 32
_NAIVE: Final = 1
"""Offsets in a request: an OffsetFetch for each group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scale:
    """How much of everything: topics, records in each, checks of each kind."""

    topics: int = 2_000
    records: int = 2
    checks: int = 3


_SMOKE: Final = _Scale(topics=40, records=2, checks=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Check:
    """What one check took: seconds, its process's own processor time, the most bytes it has had resident."""

    seconds: float
    cpu_s: float
    peak: int


class _Collector(Asked):
    """The process that checks."""

    def __init__(self, bootstrap: str, topics: int, offsets: int) -> None:
        super().__init__("-m", "benchmarks.backlog", bootstrap, str(offsets))
        self._topics = topics

    def check(self, *, precise: bool = False) -> _Check:
        """One check.

        Raises:
            WeirError: it did not read all topics, or ended.
        """
        before = cpu_s(self.pid)
        answer = self.ask({"precise": precise})
        if answer["failures"] or answer["reports"] != self._topics:
            raise WeirError(f"a check has not read all: {answer}")
        return _Check(seconds=answer["seconds"], cpu_s=cpu_s(self.pid) - before, peak=peak_bytes(self.pid))


def run(smoke: bool, progress: Progress) -> Result:
    """Fill a cluster and check it: unchanged, grown, with publish times, and naively."""
    scale = _SMOKE if smoke else _Scale()
    with Stack(work_dir()) as stack:
        progress.step(f"filling {scale.topics} topics with {GROUPS} groups each", 0.0)
        names = [f"acme.orders.t{number:05d}" for number in range(scale.topics)]
        make_topics(stack.bootstrap, *names)
        fill_topics(stack.bootstrap, names, scale.records, _SIZE)
        _commit(stack.bootstrap, names)
        progress.step("checking", 0.7)
        with _Collector(stack.bootstrap, len(names), groups.OFFSETS_PER_REQUEST) as own:
            first = own.check()
            same = [own.check() for _ in range(scale.checks)]
            grown = []
            for _ in range(scale.checks):
                fill_topics(stack.bootstrap, names, 1, _SIZE)
                grown.append(own.check())
            progress.step("reading publish times", 0.85)
            # The first one finds the way to every topic.
            own.check(precise=True)
            precise = own.check(precise=True)
        progress.step("checking with a request for each group", 0.9)
        with _Collector(stack.bootstrap, len(names), _NAIVE) as naive:
            naive.check()
            slow = naive.check()
    return _result(scale, first, same, grown, precise, slow)


def _result(
    scale: _Scale, first: _Check, same: list[_Check], grown: list[_Check], precise: _Check, slow: _Check
) -> Result:
    of = f"{scale.topics:,} topics and {GROUPS * scale.topics:,} groups"
    naive = "one OffsetFetch a group"
    seconds = median(one.seconds for one in same)
    rows = [
        Row(
            f"a check of {of}", seconds, "s", baseline=slow.seconds, baseline_what=naive,
            target=f"< {CHECK_S:g} s", met=max(one.seconds for one in same) < CHECK_S,
        ),
        Row(
            "the collector's processor time of it", median(one.cpu_s for one in same), "s",
            baseline=slow.cpu_s, baseline_what=naive,
        ),
        Row("a check when every topic has grown", median(one.seconds for one in grown), "s"),
        Row("the first check, with the time index", first.seconds, "s"),
        Row("a check with publish times that are known", precise.seconds, "s"),
        Row(
            "most memory of the collector, publish times read", precise.peak / 2**20, "MiB",
            target=f"< {MEMORY_MIB:g} MiB", met=precise.peak / 2**20 < MEMORY_MIB,
        ),
    ]  # fmt: skip
    notes = [
        f"Each topic has one partition and {scale.records} records of {_SIZE} bytes before the first check; "
        "each group has a committed offset in one topic and no members. Broker and collector share the "
        "machine.",
        f"Medians of {scale.checks} checks with nothing new and after a record in every topic; the others, "
        "and the baseline, of one.",
    ]
    return Result(name="backlog", title=TITLE, rows=rows, notes=notes)


def _commit(bootstrap: str, names: list[str]) -> None:
    """A committed offset of every group, as a tool does it: without joining."""
    options = {"bootstrap_servers": [bootstrap], "max_in_flight_requests_per_connection": 2 * _IN_FLIGHT}
    with closing(KafkaAdminClient(**options)) as client:
        manager = client._manager
        node = next(iter(manager.cluster.brokers())).node_id
        waiting: deque[tuple[Any, Any]] = deque()
        wanted = deque((name, f"{name}-{number}", number) for name in names for number in range(GROUPS))
        deadline = time.monotonic() + 2 * _LIMIT_S
        while wanted or waiting:
            if time.monotonic() > deadline:
                raise WeirError("offsets were not committed in time")
            while wanted and len(waiting) < _IN_FLIGHT:
                one = wanted.popleft()
                waiting.append((one, manager.call_soon(manager.send, _commit_request(*one), node)))
            one, future = waiting.popleft()
            while not future.is_done and time.monotonic() < deadline:
                time.sleep(0.0005)
            if not future.is_done or future.exception or future.value.topics[0].partitions[0].error_code:
                # The coordinator is not there yet; being asked for it creates the topic of offsets.
                wanted.append(one)
                with suppress(KafkaError):
                    client.list_group_offsets({"nobody": None})
                time.sleep(0.05)


def _commit_request(topic: str, group: str, offset: int) -> Any:
    offsets = {TopicPartition(topic, 0): OffsetAndMetadata(offset, "", -1)}
    return KafkaAdminClient._alter_group_offsets_request(group, offsets)


async def _serve(bootstrap: str, offsets: int) -> None:
    """The process that checks, told by its input."""
    groups.OFFSETS_PER_REQUEST = offsets  # type: ignore[misc]  # measured against the constant
    cluster = KafkaCluster(Cluster(bootstrap, Topics("weir")), Namespaces(_PATTERN))
    for line in sys.stdin:
        precise = orjson.loads(line)["precise"]
        begun = time.monotonic()
        looked = await cluster.look(RoundQuestion(precise_age=precise, expires=lambda topic: False))
        answer = {
            "seconds": time.monotonic() - begun,
            "reports": sum(len(one.subscriptions) == GROUPS for one in looked.reports),
            "failures": [] if precise else looked.failures,
        }
        say(answer)
    cluster.close()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], int(sys.argv[2])))
