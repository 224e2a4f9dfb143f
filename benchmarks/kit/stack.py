"""A real Kafka, job and proxy for one benchmark: on free ports, in a folder, with limits, always stopped."""

import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

import yaml
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.kit.fixtures import broker, topic_prefix
from streaming.contract.errors import WeirError
from streaming.contract.topics import Cluster, Topics
from streaming.kafka_io.policy_topic import PolicyLog, Update, differences
from streaming.kafka_io.policy_turn import change_policies
from weir.stack.kafka import HOST, LocalKafka, Sasl, free_port
from weir.stack.parts import Change, Part
from weir.stack.scrape import fetch
from weir.stack.topics import ensure_topics

START_LIMIT_S: Final = 180.0
STOP_LIMIT_S: Final = 15.0
_SCRAPE_LIMIT_S: Final = 5.0
_POLL_S: Final = 0.1
_LISTEN: Final = "0A"  # a state of net/tcp

Labels = tuple[tuple[str, str], ...]


def work_dir() -> Path:
    """A new folder for a benchmark's stack; the runner removes it at the end, or keeps it with --keep."""
    return Path(tempfile.mkdtemp())


class Stack:
    """The parts of one benchmark; a context manager that starts Kafka and stops everything.

    Args:
        folder: for data, logs and checkpoints; created.
        settings: sections of weir.yaml, such as `{"job": {"profile": "throughput"}}`.
        policies: entries to publish before anything starts.
        partitions: of every topic of Weir but the policies.
        broker: further broker properties.
        sasl, behind: see fixtures.broker.
        beside: a stack that has started, on whose broker this one has topics of its own.
    """

    def __init__(
        self,
        folder: Path,
        *,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
        policies: Mapping[str, Any] | None = None,
        partitions: int = 1,
        broker: Mapping[str, str] | None = None,
        sasl: Sasl | None = None,
        behind: Mapping[int, int] | None = None,
        beside: "Stack | None" = None,
    ) -> None:
        self.folder = folder
        prefix = topic_prefix() if beside is None else f"beside-{beside.cluster.topics.prefix}"
        self.topics: Final = Topics(prefix)
        self.parts: dict[str, Part] = {}
        self._settings_file = folder / "weir.yaml"
        own = dict(settings or {})
        self._settings = {**own, "kafka": {**own.get("kafka", {}), "topic_prefix": prefix}}
        self._policies = policies or {}
        self._partitions = partitions
        self._broker, self._sasl, self._behind = broker or {}, sasl, behind
        self._kafka: LocalKafka | None = None if beside is None else beside.kafka
        self._running = ExitStack()

    @property
    def bootstrap(self) -> str:
        """`HOST:PORT` of Kafka."""
        return self.kafka.bootstrap

    @property
    def kafka(self) -> LocalKafka:
        """The cluster; WeirError before it was started."""
        if self._kafka is None:
            raise WeirError("Kafka was not started")
        return self._kafka

    @property
    def checkpoint(self) -> Path:
        """Folder of the job's checkpoints."""
        return self.folder / "checkpoint"

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        sections = {name: dict(own) for name, own in self._settings.items()}
        self._settings_file.write_text(yaml.safe_dump(sections))
        with ExitStack() as starting:
            if self._kafka is None:
                made = broker(self.folder / "kafka", self._broker, self._sasl, self._behind)
                self._kafka = starting.enter_context(made)
            ensure_topics(self.cluster, partitions=self._partitions)
            self.publish(self._policies)
            self._running = starting.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        with self._running:
            for name in list(self.parts)[::-1]:
                self.stop(name)

    @property
    def cluster(self) -> Cluster:
        """Where Weir's topics are."""
        return Cluster(self.bootstrap, self.topics)

    def publish(self, policies: Mapping[str, Any]) -> None:
        """Put policy entries in force."""

        def decide(log: PolicyLog) -> list[Update]:
            return differences(log, policies, ("file", "apply"), override=True)

        change_policies(self.cluster, decide, origin="file")

    def start_job(self) -> dict[str, Any]:
        """Start `weir job` and wait until its query works.

        Returns:
            Its ready file: `pid`, `jvm_pid`, `metrics`.

        Raises:
            WeirError: it ended, or was not ready in time; with the end of its log.
        """
        words = ["--checkpoint", str(self.checkpoint), "--log-dir", str(self.folder / "logs")]
        return self._wait_ready(self._start("job", words))

    def start_proxy(
        self, *, decided: bool = True, workers: int = 1, pulsar: str = "", kafka: str = ""
    ) -> dict[str, Any]:
        """Start `weir proxy` and wait until clients can use it.

        Args:
            decided: wait until the job has decided the proxy's probe, too; False where no job runs.
            workers: processes that share its port; a proxy of several stands beside one that is alone.
            pulsar: `HOST:PORT` of the Pulsar broker that it stands before instead of Kafka.
            kafka: `HOST:PORT` of another listener of the broker than the plain one.

        Returns:
            Its ready file: `pid`, `listen`, `metrics`, `brokers`; only `pid` and `listen` if not `decided`.

        Raises:
            WeirError: it ended, or was not ready in time; with the end of its log.
        """
        # Without a job there is no ready file, so the port has to be known beforehand.
        listen = f"{HOST}:{free_port()}"
        words = ["--listen", listen]
        if workers > 1:
            words += ["--workers", str(workers)]
        if pulsar:
            words += ["--pulsar", pulsar]
        if kafka:
            words += ["--kafka", kafka]
        part = self._start("proxy" if workers == 1 else "workers", words, command="proxy")
        if decided:
            return self._wait_ready(part)
        deadline = time.monotonic() + START_LIMIT_S
        while _listening(listen) < workers:
            if part.look() is not Change.NONE or time.monotonic() > deadline:
                raise WeirError(part.why())
            time.sleep(_POLL_S)
        return {"pid": part.child.pid, "listen": listen}

    def start_admin(self) -> dict[str, Any]:
        """Start `weir admin` and wait until it has read the policies.

        Returns:
            Its ready file: `pid`, `admin`, `metrics`.

        Raises:
            WeirError: it ended, or was not ready in time; with the end of its log.
        """
        return self._wait_ready(self._start("admin", ["--listen", f"{HOST}:0"]))

    def stop(self, name: str) -> None:
        """Stop a part, with TERM and then with KILL; nothing happens if it does not run."""
        part = self.parts.pop(name, None)
        if part is not None:
            part.child.stop(STOP_LIMIT_S)
            part.kill()

    def check(self) -> None:
        """Raise WeirError, with the end of its log, if a part has ended."""
        for part in self.parts.values():
            if not part.child.alive():
                raise WeirError(part.why())

    def metrics(self, name: str) -> dict[tuple[str, Labels], float]:
        """A part's metrics now: (sample name, sorted labels) -> value.

        Raises:
            WeirError: it does not answer.
        """
        url = (self.parts[name].ready or {})["metrics"]
        try:
            text = fetch(url, _SCRAPE_LIMIT_S)
        except OSError as error:
            raise WeirError(f"{name} does not answer at {url}: {error}") from error
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def _start(self, name: str, words: list[str], command: str | None = None) -> Part:
        if name in self.parts:
            raise WeirError(f"{name} runs already")
        common = ["--kafka", self.bootstrap, "--settings", str(self._settings_file)]
        part = Part(
            command or name, [*common, "--metrics", f"{HOST}:0", *words],
            log=self.folder / "logs" / f"{name}.log", run_dir=self.folder / "run" / name,
            start_s=START_LIMIT_S,
        )  # fmt: skip
        self.parts[name] = part
        part.start()
        return part

    def _wait_ready(self, part: Part) -> dict[str, Any]:
        while True:
            change = part.look()
            if change is Change.READY:
                return part.ready or {}
            if change is not Change.NONE:
                raise WeirError(part.why())
            time.sleep(_POLL_S)


def _listening(address: str) -> int:
    """How many sockets of this machine listen on a port (proc(5), net/tcp)."""
    port = f":{int(address.rpartition(':')[2]):04X}"
    sockets = [line.split()[1:4] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(local.endswith(port) and state == _LISTEN for local, _, state in sockets)
