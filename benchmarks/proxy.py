"""What the Kafka proxy costs, beside Kafka alone, HAProxy and Kroxylicious: round trips, CPU, throughput."""

import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Final

from benchmarks.kit.machine import resident_bytes
from benchmarks.kit.progress import Progress
from benchmarks.kit.result import Result, Row
from benchmarks.kit.sides import DIRECT, PROXY, Sides, Tls
from benchmarks.kit.stack import Stack, work_dir
from benchmarks.load import perf_tools
from benchmarks.load.frames import (
    Line,
    api_versions_request,
    fetch_request,
    flood,
    metadata_request,
    produce_request,
)
from benchmarks.load.writing import delete_topic, make_topics, topic_id
from benchmarks.peers.kafka_proxies import KafkaProxies
from benchmarks.peers.kroxylicious import HEAP_MB, VERSION
from weir.stack.kafka import Sasl

TITLE = "The Kafka proxy: through it and straight to Kafka"
DURATION_S = 510
SMALL_PER_CORE: Final = 60_000.0
CONNECTIONS: Final = 32
IDLE_MB: Final = 300
_WORKERS: Final = 2
_SEVERAL: Final = f"through --workers {_WORKERS}"
_MB: Final = 1_048_576


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """How much of everything: `rounds` of tools, `turns` of what is short.

    `records` is record size in bytes -> records that a run of the producer tool sends, by TLS a quarter; the
    consumer tool reads what all of those runs have sent.
    """

    rounds: int
    turns: int
    pings: int
    flood_s: float
    warm_s: float
    idle: int
    records: dict[int, int]


_FULL = _Plan(
    rounds=2, turns=8, pings=750, flood_s=0.3, warm_s=2.0, idle=5_000,
    records={100: 800_000, 1_000: 160_000, 100_000: 2_400},
)  # fmt: skip
_SMOKE = _Plan(rounds=1, turns=1, pings=100, flood_s=0.1, warm_s=0.0, idle=20, records={1_000: 1_000})


class _Bench:
    """One run of everything.

    Args:
        plan: how much.
        stack: Kafka, and the proxy in front of it.
        sides: who is measured.
    """

    def __init__(self, plan: _Plan, stack: Stack, sides: Sides) -> None:
        self._plan, self._stack, self._sides = plan, stack, sides
        self._tls = sides.context

    def run(self) -> None:
        """Measure everything."""
        sides, small = self._sides, self._topic("small")
        for request in (api_versions_request(), metadata_request(small)):
            # A JVM compiles what runs often; both proxies have the same to warm up with.
            for side in list(sides.pids) if self._plan.warm_s else ():
                self._flood(sides.address[side], request, connections=4, depth=1, seconds=self._plan.warm_s)
        sides.ping("ApiVersions", api_versions_request(), self._plan.pings, self._plan.turns)
        sides.ping("Metadata", metadata_request(small), self._plan.pings, self._plan.turns)
        if self._tls is not None:
            for offered in (False, True):
                self._connect(offered)
        for connections, depth in ((1, 100), (CONNECTIONS, 10)):
            self._small(connections, depth)
        for record_bytes, count in self._plan.records.items():
            self._tools(record_bytes, count)
            self._sockets(record_bytes)
        if self._tls is None:
            self._several()
        else:
            self._idle()

    def _flood(
        self, address: str, request: bytes, *, connections: int, depth: int, seconds: float = 0.0
    ) -> tuple[int, float]:
        seconds = seconds or self._plan.flood_s
        return flood(address, request, connections=connections, depth=depth, seconds=seconds, tls=self._tls)

    def _connect(self, offered: bool) -> None:
        """Connections one by one, each with one request, and if it is offered the session before."""
        request, resumed = api_versions_request(), Counter[str]()

        def work(address: str) -> tuple[int, float]:
            first = Line(address, self._tls)
            first.ask(request)
            session, done = first.session if offered else None, 0
            first.close()
            begun = time.perf_counter()
            while (taken := time.perf_counter() - begun) < self._plan.flood_s:
                line = Line(address, self._tls, session)
                line.ask(request)
                resumed[address] += line.resumed
                # A ticket is good once.
                session = line.session if offered else None
                line.close()
                done += 1
            return done, taken

        what = f"new connections with a request{', a session offered' if offered else ''}"
        sums = self._sides.measured(what, work, self._plan.turns)
        self._sides.compare(what, sums, "connections/s")
        each = {side: 1e3 * sums[side].cpu_s / sums[side].amount for side in self._sides.pids}
        self._sides.note_cpu(what, each, "ms CPU/connection")
        if offered:
            share = {
                side: 100 * resumed[self._sides.address[side]] / total.amount for side, total in sums.items()
            }
            self._sides.add(f"{what}: gone on with", share[PROXY], "%", share[DIRECT])

    def _small(self, connections: int, depth: int) -> None:
        sides, what = self._sides, f"ApiVersions, {connections} x {depth} under way"
        request = api_versions_request()

        def work(address: str) -> tuple[float, float]:
            return self._flood(address, request, connections=connections, depth=depth)

        sums = sides.measured(what, work, self._plan.turns)
        sides.compare(what, sums, "requests/s")
        per_core = {side: sums[side].amount / max(sums[side].cpu_s, 0.01) for side in sides.pids}
        what += ": per second of the proxy's CPU"
        met = per_core[PROXY] > SMALL_PER_CORE
        if self._tls is None:
            sides.add(what, per_core[PROXY], "requests/s", target=f"> {SMALL_PER_CORE:,.0f}/s", met=met)
        sides.beside(what, per_core, "requests/s")

    def _tools(self, record_bytes: int, count: int) -> None:
        sides, size, topic = self._sides, _size(record_bytes), self._topic(f"tool-{record_bytes}")
        produced = count * len(sides.address) * self._plan.rounds
        client = None if sides.tls is None else sides.tls.client

        def produce(address: str) -> tuple[float, float]:
            rate = perf_tools.produce(address, topic, count=count, record_bytes=record_bytes, client=client)
            return count * record_bytes / _MB, count * record_bytes / _MB / rate

        def consume(address: str) -> tuple[float, float]:
            rate = perf_tools.consume(address, topic, count=produced, client=client)
            return produced * record_bytes / _MB, produced * record_bytes / _MB / rate

        what = f"kafka-producer-perf-test, {size}"
        sides.compare(what, sides.measured(what, produce), "MiB/s", bytes_too=True)
        what = f"kafka-consumer-perf-test, {size}"
        sides.compare(what, sides.measured(what, consume), "MiB/s", bytes_too=True)

    def _sockets(self, record_bytes: int) -> None:
        sides, size, topic = self._sides, _size(record_bytes), self._topic(f"socket-{record_bytes}")
        put, get = produce_request(topic, record_bytes), self._fetch(record_bytes)
        turns = self._plan.turns
        line = Line(sides.address[DIRECT], self._tls)
        answer_bytes = line.ask(get)
        line.close()

        def work(request: bytes, depth: int, each_bytes: int) -> Callable[[str], tuple[float, float]]:
            def some(address: str) -> tuple[float, float]:
                done, seconds = self._flood(address, request, connections=CONNECTIONS, depth=depth)
                return done * each_bytes / _MB, seconds

            return some

        what = f"Produce, {CONNECTIONS} connections, {size}"
        sides.compare(what, sides.measured(what, work(put, 2, len(put)), turns), "MiB/s", bytes_too=True)
        what = f"Fetch, {CONNECTIONS} connections, {size}"
        sides.compare(what, sides.measured(what, work(get, 1, answer_bytes), turns), "MiB/s", bytes_too=True)
        delete_topic(self._stack.bootstrap, topic)

    def _several(self) -> None:
        """Processes that share a port, beside one alone: the same work of many connections."""
        started, sides = self._stack.start_proxy(decided=False, workers=_WORKERS), self._sides
        sides.pids = {PROXY: sides.pids[PROXY], _SEVERAL: int(started["pid"])}
        sides.address = {PROXY: sides.address[PROXY], _SEVERAL: str(started["listen"])}
        small, get = api_versions_request(), self._fetch(min(self._plan.records))
        # Each of them has asked its broker, and knows what it answers.
        flood(sides.address[_SEVERAL], small, connections=CONNECTIONS, depth=1, seconds=self._plan.warm_s)
        for what, request, depth in (("ApiVersions", small, 10), ("Fetch", get, 1)):

            def some(address: str, request: bytes = request, depth: int = depth) -> tuple[int, float]:
                return self._flood(address, request, connections=CONNECTIONS, depth=depth)

            sums = sides.measured(f"{what}, {_SEVERAL}", some, self._plan.turns)
            sides.add(
                f"{what}, {CONNECTIONS} connections, {_SEVERAL}", sums[_SEVERAL].rate, "requests/s",
                sums[PROXY].rate, "through one process",
            )  # fmt: skip

    def _idle(self) -> None:
        """What many connections take that have asked once, at a proxy that has had no others."""
        self._stack.stop("proxy")
        started = self._stack.start_proxy(decided=False, kafka=self._sides.address[DIRECT])
        lines, count = list[Line](), self._plan.idle
        pid, address, request = int(started["pid"]), str(started["listen"]), api_versions_request()
        before = resident_bytes(pid)
        for number in range(count):
            if not number % (count // 10):
                self._sides.tell(f"{number} idle connections")
            lines.append(Line(address, self._tls))
            lines[-1].ask(request)
        grown = (resident_bytes(pid) - before) / _MB
        for line in lines:
            # All of them were there: none was ended for memory.
            line.ask(request)
        for line in lines:
            line.close()
        what = f"memory of {count:,} idle connections"
        self._sides.add(what, grown, "MiB", target=f"< {IDLE_MB} MiB", met=grown < IDLE_MB)

    def _fetch(self, record_bytes: int) -> bytes:
        """A request for what the producer tool has sent."""
        return fetch_request(topic_id(self._stack.bootstrap, f"tool-{record_bytes}"))

    def _topic(self, name: str) -> str:
        make_topics(self._stack.bootstrap, name)
        return name


def _size(record_bytes: int) -> str:
    return f"{record_bytes} B" if record_bytes < 1_000 else f"{record_bytes // 1_000} kB"


def run(smoke: bool, progress: Progress) -> Result:
    """Measure the same work straight to Kafka, through the proxy, HAProxy and Kroxylicious, in turn; then all
    of it but HAProxy by TLS, both to clients and to Kafka.
    """
    plan, peers = _SMOKE if smoke else _FULL, KafkaProxies.here(smoke)
    rows, series, begun = list[Row](), dict[str, list[float]](), time.monotonic()
    slower = replace(plan, records={size: count // 4 for size, count in plan.records.items()})
    for tls, each in ((None, plan), (Tls.made_in(work_dir()), slower)):
        sides = _sides(each, progress, tls, begun, peers)
        rows += sides.rows
        # A picture of twice as many curves shows nothing.
        series = series or sides.series
    notes = _notes(plan, peers.least)
    return Result(name="proxy", title=TITLE, rows=rows, notes=notes, series=series, skipped=peers.skipped)


def _sides(plan: _Plan, progress: Progress, tls: Tls | None, begun: float, peers: KafkaProxies) -> Sides:
    """Start all, and measure."""
    progress.step("starting Kafka and the proxies", 0.0 if tls is None else 0.4)
    own: dict[str, Any] = {} if tls is None else tls.settings
    own["proxy"] = {"broker_port_base": 0, **own.get("proxy", {})}
    secured: dict[str, Any] = {} if tls is None else {"broker": tls.broker_properties, "sasl": Sasl()}
    behind = peers.behind() if tls is None else {}
    with ExitStack() as running:
        stack = running.enter_context(Stack(work_dir(), settings=own, behind=behind, **secured))
        kafka = stack.bootstrap if tls is None else stack.kafka.sasl_bootstrap
        proxy = stack.start_proxy(decided=False, kafka=kafka)
        pids, address = {PROXY: int(proxy["pid"])}, {DIRECT: kafka, PROXY: str(proxy["listen"])}
        for side, (pid, listen) in running.enter_context(
            peers.running(kafka, behind, stack.folder, tls)
        ).items():
            pids[side], address[side] = pid, listen
        sides = Sides(
            address, pids, plan.rounds, stack.check, progress, DURATION_S, tls=tls,
            before="" if tls is None else "TLS: ", begun=begun,
        )  # fmt: skip
        _Bench(plan, stack, sides).run()
    return sides


def _notes(plan: _Plan, least: str) -> list[str]:
    return [
        f"All sides in turn, {plan.rounds} rounds of Kafka's tools and {plan.turns} of all else, the order "
        "reversed each time; rates are those of the median round.",
        f"Kroxylicious {VERSION} runs without filters, at its defaults, with a heap of {HEAP_MB} MiB; before "
        f"the first measurement each proxy gets {plan.warm_s:.0f} s of each small request to warm up.",
        f"HAProxy {least or '(not here)'} is at its defaults too, in TCP mode with splice, before a listener "
        "of the broker that tells clients of it; not by TLS.",
        "The client, Kafka and the proxies share the machine's cores: what the proxy takes, the others lack.",
        f"Round trips: one connection, {plan.pings} after {plan.pings // 10} of warm-up in each round.",
        "Kafka's tools run at their defaults, with one producer or consumer, each in a new JVM; a "
        "consumer's rate is that while fetching.",
        f"With {CONNECTIONS} connections a client over plain sockets sends ready-made requests: its own "
        "work would hide the proxy's: batches of 16 kB or one record, two under way on each; fetches of up "
        "to 1 MiB, one under way.",
        f"With --workers {_WORKERS} the same {CONNECTIONS} connections, beside client and broker.",
        "By TLS each side has it to the client and to Kafka (TLS 1.3, P-256); a new connection has one "
        "request; where a session is offered, that of the one before, by its ticket.",
        "No policy is in force and no job runs; CPU is that of a proxy's whole process, kernel included.",
    ]
