"""What each of many connections costs the Kafka proxy, and what limits do that nobody reaches."""

import socket
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.kit.machine import cpu_s, resident_bytes
from benchmarks.kit.progress import Progress
from benchmarks.kit.result import Result, Row
from benchmarks.kit.stack import Stack, work_dir
from benchmarks.load.frames import (
    FETCH_MAX_BYTES,
    Line,
    api_versions_request,
    connect,
    fetch_request,
    flood,
    keep_asking,
    produce_request,
)
from benchmarks.load.writing import make_topics, topic_id

TITLE: Final = "Many connections, and limits in force"
DURATION_S: Final = 87
NONE: Final = "no limits"
_WORKERS: Final = 2
_ONE_PROCESS, _FIRST = "one process", "the fewest connections"
_ENDLESS: Final = 1_000_000_000_000
_NAMESPACE: Final = "namespaces.public/default"
_GROUP: Final[dict[str, Any]] = {
    "resourcegroups.all": {"publishRateInBytes": _ENDLESS, "dispatchRateInBytes": _ENDLESS},
    _NAMESPACE: {"resourcegroup": "all"},
}
_RATES: Final[dict[str, Any]] = {"subscriptionDispatchRate": {"dispatchThrottlingRateInMsg": _ENDLESS}}
_CONCURRENCY: Final[dict[str, Any]] = {
    "backpressure.partitions.*": {"algorithm": "fixed", "fixed": {"limit": 1_000}}
}
LIMITS: Final[dict[str, dict[str, Any]]] = {
    NONE: {},
    "a group": _GROUP,
    "dispatch": {_NAMESPACE: _RATES},
    "concurrency": _CONCURRENCY,
    "all three": {**_GROUP, **_CONCURRENCY, _NAMESPACE: {**_GROUP[_NAMESPACE], **_RATES}},
}
"""What is in force -> policies whose limits nobody reaches."""
_MB: Final = 1_048_576
_SMALL: Final = "ApiVersions"
_SETTINGS: Final = {"proxy": {"broker_port_base": 0}}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """How much of everything.

    Attributes:
        connections: to one proxy, rising.
        window_s: of each measurement.
        rounds: in each of which every set of limits has its turn.
        clients: connections through limits.
        record_bytes: of the records that they produce.
    """

    connections: tuple[int, ...] = (1, 100, 1_000, 5_000)
    window_s: float = 1.0
    rounds: int = 1
    clients: int = 32
    record_bytes: int = 1_000


_SMOKE: Final = _Plan(connections=(1, 20), window_s=0.1, rounds=1)


class _Bench:
    """One run of everything."""

    def __init__(self, plan: _Plan, stack: Stack, progress: Progress) -> None:
        self._plan, self._stack, self._progress = plan, stack, progress
        self._begun = time.monotonic()
        self.rows: list[Row] = []
        # Of one process, by what and unit.
        self._alone: dict[str, float] = {}

    def many(self, workers: int = 1) -> None:
        """More and more connections to a proxy that has had no others; each asks and waits."""
        side = f", --workers {workers}" if workers > 1 else ""
        started = self._stack.start_proxy(decided=False, workers=workers)
        address, pid = str(started["listen"]), int(started["pid"])
        request, lines = api_versions_request(), list[socket.socket]()
        size = self._answer_bytes(address, request)
        before = resident_bytes(pid)
        # As many as there can be only once: it is their connecting that takes long.
        for count in self._plan.connections[: None if workers == 1 else -1]:
            self._tell(f"{count:,} connections{side}")
            lines += [connect(address) for _ in range(count - len(lines))]
            # The first answers are those that a proxy has to find out.
            keep_asking(lines, request, size, depth=1, seconds=0.0)
            spent = cpu_s(pid)
            done, taken = keep_asking(lines, request, size, depth=1, seconds=self._plan.window_s)
            spent = cpu_s(pid) - spent
            of = f"{count:,} connection{'s' * (count > 1)}"
            self._beside_one("ApiVersions", of, side, done / taken, "requests/s")
            self._beside_one("the proxy's CPU", of, side, 1e6 * spent / done, "us CPU/request")
        grown = (resident_bytes(pid) - before) / len(lines)
        self._beside_one("memory of each", of, side, grown / 1024, "KiB")
        for line in lines:
            line.close()

    def _beside_one(self, what: str, of: str, side: str, value: float, unit: str) -> None:
        """More connections beside the fewest, several processes beside one."""
        first = self._alone.get(what) if not side else self._alone.get(of + what)
        self._add(f"{of}{side}: {what}", value, unit, first, _ONE_PROCESS if side else _FIRST)
        if not side:
            self._alone[of + what] = value
            self._alone.setdefault(what, value)

    def limits(self) -> None:
        """The same requests through a proxy for each set of limits, in turn."""
        plan, requests = self._plan, self._requests()
        sizes = {what: self._answer_bytes(self._stack.bootstrap, each) for what, each in requests.items()}
        with ExitStack() as running:
            started, stack = dict[str, tuple[int, str]](), self._stack
            for side, policies in LIMITS.items():
                stack = running.enter_context(
                    Stack(work_dir(), settings=_SETTINGS, policies=policies, beside=stack)
                )
                ready = stack.start_proxy(decided=False)
                started[side] = int(ready["pid"]), str(ready["listen"])
            spent = {(what, side): 0.0 for what in requests for side in started}
            done = dict(spent)
            # The first round is to warm up.
            for number in range(plan.rounds + 1):
                for what, side in list(spent)[:: (-1) ** number]:
                    self._tell(f"{what}, {side}")
                    pid, address = started[side]
                    before = cpu_s(pid)
                    count, _ = flood(
                        address, requests[what], connections=plan.clients, depth=2, seconds=plan.window_s / 2
                    )
                    spent[what, side] += (cpu_s(pid) - before) * (number > 0)
                    done[what, side] += count * (number > 0)
        for what, side in spent:
            each, least = (spent[what, one] / done[what, one] for one in (side, NONE))
            size = (len(requests[what]) + sizes[what]) / _MB
            for scale, of, unit in ((1e6, "a request", "us"), (1e3 / size, "a MiB", "ms")):
                if what != _SMALL or unit == "us":
                    beside = None if side == NONE else scale * least
                    self._add(f"{what}, {side}: CPU for {of}", scale * each, unit, beside)

    def _requests(self) -> dict[str, bytes]:
        """A small one, one that produces, and one that fetches a megabyte that is there."""
        topic, bootstrap = "limited", self._stack.bootstrap
        make_topics(bootstrap, topic)
        put = produce_request(topic, self._plan.record_bytes)
        flood(bootstrap, put, connections=1, depth=2 * FETCH_MAX_BYTES // len(put), seconds=0.0)
        get = fetch_request(topic_id(bootstrap, topic))
        return {_SMALL: api_versions_request(), "Produce, batches of 16 kB": put, "Fetch, 1 MiB": get}

    def _answer_bytes(self, address: str, request: bytes) -> int:
        line = Line(address)
        size = line.ask(request)
        line.close()
        return size

    def _add(
        self, what: str, value: float, unit: str, baseline: float | None = None, beside: str = NONE
    ) -> None:
        self.rows.append(Row(what, value, unit, baseline=baseline, baseline_what=beside))

    def _tell(self, what: str) -> None:
        self._stack.check()
        self._progress.step(what, min(0.98, 0.1 + (time.monotonic() - self._begun) / DURATION_S))


def run(smoke: bool, progress: Progress) -> Result:
    """Connections to one process and to two, then the same load under different limits."""
    plan = _SMOKE if smoke else _Plan()
    progress.step("starting Kafka", 0.0)
    with Stack(work_dir(), settings=_SETTINGS) as stack:
        bench = _Bench(plan, stack, progress)
        for workers in (1, _WORKERS):
            bench.many(workers)
        bench.limits()
    notes = [
        f"Connections: plain sockets, one ApiVersions under way on each, for {plan.window_s:g} s; client, "
        "Kafka and proxies share the machine's cores, and Kafka has a connection for each, too.",
        f"Limits: {plan.clients} connections, two requests under way on each, {plan.rounds} rounds of "
        f"{plan.window_s / 2:g} s in turn after one to warm up; nobody reaches them, no job runs. Records "
        f"have {plan.record_bytes} bytes.",
    ]
    return Result(name="many", title=TITLE, rows=bench.rows, notes=notes)
