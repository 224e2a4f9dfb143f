"""Ten thousand subscriptions with a dispatch limit each: what that costs the proxy and the job.

`python -m benchmarks.dispatch BOOTSTRAP GROUPS TOPICS` is the process that reads: asked by a line, it tells
how many records each group has got.
"""

import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import Consumer

from benchmarks.kit.machine import cpu_s, resident_bytes
from benchmarks.kit.progress import Progress
from benchmarks.kit.result import Result, Row
from benchmarks.kit.stack import Stack, work_dir
from benchmarks.load.asked import LIMIT_S, Asked, say
from benchmarks.load.writing import fill_topics, make_topics
from streaming.contract.errors import WeirError

TITLE: Final = "Dispatch limits: 10,000 subscriptions through one proxy"
DURATION_S: Final = 80
_LIMIT_S: Final = 60.0
_SETTLE_S: Final = 5.0
_NAMESPACE: Final = "namespaces.public/default"
_NEVER: Final = 10_000_000
"""A rate that is never reached."""
_SIZE: Final = 100
_AT_ONCE: Final = 1_000
"""Records that are taken from a consumer at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much is measured.

    Attributes:
        groups: consumer groups.
        topics: that each reads.
        records: in each topic.
        rate: messages a second of each subscription.
        window_s: for which that is watched.
    """

    groups: int = 20
    topics: int = 500
    records: int = 60
    rate: int = 1
    window_s: float = 20.0


_SMOKE: Final = Scale(groups=2, topics=10, records=20, rate=1, window_s=3.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What was seen of a stretch of time.

    Attributes:
        seconds: how long.
        records: that the consumers got.
        proxy_s, job_s: processor time.
        resident: memory of the proxy at its end, bytes.
    """

    seconds: float
    records: int
    proxy_s: float
    job_s: float
    resident: int


class _Bench:
    """One stack with a proxy, and groups that come one after the other."""

    def __init__(self, stack: Stack, scale: Scale) -> None:
        self._stack, self._scale = stack, scale
        self._topics = [f"t{number:04}" for number in range(scale.topics)]
        make_topics(stack.bootstrap, *self._topics)
        fill_topics(stack.bootstrap, self._topics, scale.records, _SIZE, batch=1)
        self._job = stack.start_job()["pid"]
        ready = stack.start_proxy()
        self._proxy, self._listen = ready["pid"], ready["listen"]

    def _readers(self, name: str) -> Asked:
        groups = [f"{name}-{number:02}" for number in range(self._scale.groups)]
        words = (self._listen, " ".join(groups), " ".join(self._topics))
        return Asked("-m", "benchmarks.dispatch", *words)

    def read_all(self, name: str) -> Seen:
        """All groups read everything."""
        total = self._scale.groups * self._scale.topics * self._scale.records
        with self._readers(name) as readers:
            # All are there.
            readers.ask(None)
            begun, before = time.monotonic(), (cpu_s(self._proxy), cpu_s(self._job))
            while sum(counts := readers.ask(None)) < total:
                self._stack.check()
                if time.monotonic() - begun > _LIMIT_S:
                    raise WeirError(f"{sum(counts)} of {total} records in {_LIMIT_S:.0f} s")
                time.sleep(0.1)
            return self._seen(begun, total, before)

    def read_slowly(self, name: str) -> Seen:
        """All groups read for a while, once all of them read."""
        scale = self._scale
        with self._readers(name) as readers:
            begun = time.monotonic()
            while min(counts := readers.ask(None)) < scale.topics * scale.rate:
                self._stack.check()
                if time.monotonic() - begun > _LIMIT_S:
                    raise WeirError(f"the groups have got {counts} in {_LIMIT_S:.0f} s")
                time.sleep(0.1)
            time.sleep(_SETTLE_S)
            begun, before = time.monotonic(), (cpu_s(self._proxy), cpu_s(self._job))
            had = sum(readers.ask(None))
            time.sleep(scale.window_s)
            return self._seen(begun, sum(readers.ask(None)) - had, before)

    def _seen(self, begun: float, records: int, before: tuple[float, float]) -> Seen:
        return Seen(
            seconds=time.monotonic() - begun, records=records, proxy_s=cpu_s(self._proxy) - before[0],
            job_s=cpu_s(self._job) - before[1], resident=resident_bytes(self._proxy),
        )  # fmt: skip


def run(smoke: bool, progress: Progress) -> Result:
    """Measure without limits, with limits that are never reached, and with limits that hold."""
    scale = _SMOKE if smoke else Scale()
    with Stack(work_dir()) as stack:
        progress.step(f"filling {scale.topics} topics, starting", 0.0)
        bench = _Bench(stack, scale)
        progress.step("reading without limits", 0.4)
        free = bench.read_all("free")
        _limit(stack, _NEVER)
        progress.step("reading below limits", 0.5)
        below = bench.read_all("below")
        _limit(stack, scale.rate)
        progress.step(f"reading at {scale.rate} a second and subscription", 0.6)
        held = bench.read_slowly("held")
    return _result(scale, free, below, held)


def _limit(stack: Stack, rate: int) -> None:
    value: Mapping[str, Any] = {"subscriptionDispatchRate": {"dispatchThrottlingRateInMsg": rate}}
    stack.publish({_NAMESPACE: value})
    # In force 2 s after they are published.
    time.sleep(_SETTLE_S)


def _result(scale: Scale, free: Seen, below: Seen, held: Seen) -> Result:
    subscriptions = scale.groups * scale.topics
    none = "no limits"
    rows = [
        Row(
            "proxy's processor time a record, limits never reached", below.proxy_s / below.records * 1e6,
            "µs", baseline=free.proxy_s / free.records * 1e6, baseline_what=none,
        ),
        Row(
            "records a second, limits never reached", below.records / below.seconds, "records/s",
            baseline=free.records / free.seconds, baseline_what=none,
        ),
        Row(
            f"memory of the proxy with {subscriptions:,} subscriptions", below.resident / 2**20, "MiB",
            baseline=free.resident / 2**20, baseline_what=none,
        ),
        Row(
            f"delivered at {scale.rate} a second and subscription", held.records / held.seconds, "records/s",
            baseline=float(subscriptions * scale.rate), baseline_what="the limits together",
        ),
        Row("proxy's processor time then", held.proxy_s / held.seconds, "s/s"),
        Row("job's processor time then", held.job_s / held.seconds, "s/s"),
        Row("memory of the proxy then", held.resident / 2**20, "MiB"),
    ]  # fmt: skip
    notes = [
        f"{scale.groups} consumer groups (confluent-kafka) read {scale.topics} topics each; records of "
        f"{_SIZE} bytes, each a batch of its own; broker, job, proxy and consumers share the machine.",
    ]
    return Result(name="dispatch", title=TITLE, rows=rows, notes=notes)


class _Reader:
    """One group."""

    def __init__(self, bootstrap: str, group: str, topics: list[str], stopping: threading.Event) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap, "group.id": group, "client.id": group, "log_level": 0,
                "auto.offset.reset": "earliest", "enable.auto.commit": False,
                "queued.max.messages.kbytes": 4_096,
            }
        )  # fmt: skip
        self._consumer.subscribe(topics)
        self._stopping = stopping
        self.count = 0
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self.count += sum(each.error() is None for each in self._consumer.consume(_AT_ONCE, 0.1))
        self._consumer.close()


def _read(bootstrap: str, groups: str, topics: str) -> None:
    """Until the standard input ends."""
    stopping = threading.Event()
    readers = [_Reader(bootstrap, group, topics.split(), stopping) for group in groups.split()]
    for _ in sys.stdin:
        say([reader.count for reader in readers])
    stopping.set()
    deadline = time.monotonic() + LIMIT_S / 2
    for reader in readers:
        reader.thread.join(max(0.0, deadline - time.monotonic()))


if __name__ == "__main__":
    _read(*sys.argv[1:])
