"""What the Kafka proxy costs, beside Kafka alone and Kroxylicious: round trips, CPU, throughput."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.kit.machine import cpu_s
from benchmarks.kit.progress import Progress
from benchmarks.kit.result import Result, Row, percentile
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
from benchmarks.peers.build import Unavailable
from benchmarks.peers.kroxylicious import HEAP_MB, VERSION, build, built, kroxylicious

TITLE = "The Kafka proxy: through it and straight to Kafka"
DURATION_S = 200
ADDED_US: Final = {50.0: 50.0, 99.0: 200.0}
"""Targets of the added round trip by percentile."""
SMALL_PER_CORE: Final = 60_000.0
PRODUCE_SHARE, CONSUME_SHARE = 0.95, 0.85
CONNECTIONS: Final = 32
_DIRECT, _PROXY, _PEER = "straight to Kafka", "through the proxy", "through Kroxylicious"
_WORKERS: Final = 2
_SEVERAL: Final = f"through --workers {_WORKERS}"
_AHEAD: Final = "ahead"
_MB: Final = 1_048_576
_ADMIN_LIMIT_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """How much of everything.

    `records` is record size in bytes -> records that a run of the producer tool sends; the consumer tool
    reads what all of those runs have sent.
    """

    rounds: int
    pings: int
    flood_s: float
    warm_s: float
    records: dict[int, int]


_FULL = _Plan(
    rounds=2, pings=3_000, flood_s=1.0, warm_s=2.0,
    records={100: 800_000, 1_000: 160_000, 100_000: 2_400},
)  # fmt: skip
_SMOKE = _Plan(rounds=1, pings=100, flood_s=0.1, warm_s=0.0, records={1_000: 1_000})


@dataclass(slots=True)
class _Sum:
    """Work done and time taken, over all rounds of one side."""

    amount: float = 0.0
    seconds: float = 0.0
    cpu_s: float = 0.0

    @property
    def rate(self) -> float:
        """Work per second."""
        return self.amount / self.seconds


class _Bench:
    """One run of everything.

    Args:
        plan: how much.
        stack: Kafka, and the proxy in front of it.
        progress: told how far it is.
        peer: process id and address of Kroxylicious; None: it is not here.
    """

    def __init__(self, plan: _Plan, stack: Stack, progress: Progress, peer: tuple[int, str] | None) -> None:
        proxy = stack.start_proxy(decided=False)
        self._plan = plan
        self._stack = stack
        self._progress = progress
        self._pids = {_PROXY: int(proxy["pid"])}
        self._address = {_DIRECT: stack.bootstrap, _PROXY: str(proxy["listen"])}
        if peer is not None:
            self._pids[_PEER], self._address[_PEER] = peer
        self._admin = AdminClient({"bootstrap.servers": stack.bootstrap})
        self._begun = time.monotonic()
        self.rows: list[Row] = []
        self.series: dict[str, list[float]] = {}

    def run(self) -> None:
        """Measure everything."""
        topic = self._topic("small")
        for request in (api_versions_request(), metadata_request(topic)):
            # A JVM compiles what runs often; both proxies have the same to warm up with.
            for side in list(self._pids) if self._plan.warm_s else ():
                flood(self._address[side], request, connections=4, depth=1, seconds=self._plan.warm_s)
        self._ping("ApiVersions", api_versions_request())
        self._ping("Metadata", metadata_request(topic))
        for connections, depth in ((1, 100), (CONNECTIONS, 10)):
            self._small(connections, depth)
        for record_bytes, count in self._plan.records.items():
            self._tools(record_bytes, count)
            self._sockets(record_bytes)
        self._several()

    def _each(self, what: str) -> Iterator[str]:
        """The sides in turn, in each round in another order: what else the machine does then hits all."""
        for number in range(self._plan.rounds):
            for side in list(self._address)[:: -1 if number % 2 else 1]:
                self._stack.check()
                fraction = (time.monotonic() - self._begun) / DURATION_S
                self._progress.step(f"{what}, {side}", min(0.98, 0.02 + fraction))
                yield side

    def _measured(self, what: str, work: Callable[[str], tuple[float, float]]) -> dict[str, _Sum]:
        """Work of all sides; `work` gets an address and returns amount and seconds."""
        sums = {side: _Sum() for side in self._address}
        for side in self._each(what):
            before = self._cpu_s(side)
            amount, seconds = work(self._address[side])
            total = sums[side]
            total.amount += amount
            total.seconds += seconds
            total.cpu_s += self._cpu_s(side) - before
        return sums

    def _cpu_s(self, side: str) -> float:
        """Processor time of what stands between client and Kafka."""
        return cpu_s(self._pids[side]) if side in self._pids else 0.0

    def _ping(self, name: str, request: bytes) -> None:
        samples: dict[str, list[float]] = {side: [] for side in self._address}
        spent = dict.fromkeys(self._address, 0.0)
        for side in self._each(f"{name} one by one"):
            line = Line(self._address[side])
            line.round_trips_us(request, self._plan.pings // 10)
            before = self._cpu_s(side)
            samples[side] += line.round_trips_us(request, self._plan.pings)
            spent[side] += self._cpu_s(side) - before
            line.close()
        ordered = {side: sorted(values) for side, values in samples.items()}
        for percent, aim in ADDED_US.items():
            at = {side: percentile(values, percent) for side, values in ordered.items()}
            direct, through = at[_DIRECT], at[_PROXY]
            self.rows.append(
                Row(
                    what=f"{name} round trip, p{percent:.0f}",
                    value=through, unit="us", baseline=direct, baseline_what=_DIRECT,
                    target=f"< {aim:.0f} us more", met=through - direct < aim,
                )
            )  # fmt: skip
            self._beside(f"{name} round trip, p{percent:.0f}", at, "us", less=True)
        each = {side: 1e6 * spent[side] / len(samples[side]) for side in self._pids}
        self._note_cpu(f"{name} one by one", each, "us CPU/request")
        self.series |= {f"{name} {side}, us": values for side, values in samples.items()}

    def _small(self, connections: int, depth: int) -> None:
        what = f"ApiVersions, {connections} x {depth} under way"
        request = api_versions_request()

        def work(address: str) -> tuple[float, float]:
            return flood(address, request, connections=connections, depth=depth, seconds=self._plan.flood_s)

        sums = self._measured(what, work)
        self._compare(what, sums, "requests/s")
        per_core = {side: sums[side].amount / max(sums[side].cpu_s, 0.01) for side in self._pids}
        what += ": per second of the proxy's CPU"
        self.rows.append(
            Row(
                what=what, value=per_core[_PROXY], unit="requests/s",
                target=f"> {SMALL_PER_CORE:,.0f}/s", met=per_core[_PROXY] > SMALL_PER_CORE,
            )
        )  # fmt: skip
        self._beside(what, per_core, "requests/s")

    def _tools(self, record_bytes: int, count: int) -> None:
        size, topic = _size(record_bytes), self._topic(f"tool-{record_bytes}")
        produced = count * len(self._address) * self._plan.rounds

        def produce(address: str) -> tuple[float, float]:
            rate = perf_tools.produce(address, topic, count=count, record_bytes=record_bytes)
            return count * record_bytes / _MB, count * record_bytes / _MB / rate

        def consume(address: str) -> tuple[float, float]:
            rate = perf_tools.consume(address, topic, count=produced)
            return produced * record_bytes / _MB, produced * record_bytes / _MB / rate

        what = f"kafka-producer-perf-test, {size}"
        self._compare(what, self._measured(what, produce), "MiB/s", PRODUCE_SHARE)
        what = f"kafka-consumer-perf-test, {size}"
        self._compare(what, self._measured(what, consume), "MiB/s", CONSUME_SHARE)

    def _sockets(self, record_bytes: int) -> None:
        size, topic = _size(record_bytes), self._topic(f"socket-{record_bytes}")
        put, get = produce_request(topic, record_bytes), fetch_request(self._topic_id(f"tool-{record_bytes}"))
        line = Line(self._address[_DIRECT])
        answer_bytes = line.ask(get)
        line.close()

        def work(request: bytes, depth: int, each_bytes: int) -> Callable[[str], tuple[float, float]]:
            def some(address: str) -> tuple[float, float]:
                done, seconds = flood(
                    address, request, connections=CONNECTIONS, depth=depth, seconds=self._plan.flood_s
                )
                return done * each_bytes / _MB, seconds

            return some

        what = f"Produce, {CONNECTIONS} connections, {size}"
        self._compare(what, self._measured(what, work(put, 2, len(put))), "MiB/s", PRODUCE_SHARE)
        what = f"Fetch, {CONNECTIONS} connections, {size}"
        self._compare(what, self._measured(what, work(get, 1, answer_bytes)), "MiB/s", CONSUME_SHARE)
        self._admin.delete_topics([topic])[topic].result(_ADMIN_LIMIT_S)

    def _several(self) -> None:
        """Processes that share a port, beside one alone: the same work of many connections."""
        started = self._stack.start_proxy(decided=False, workers=_WORKERS)
        self._pids = {_PROXY: self._pids[_PROXY], _SEVERAL: int(started["pid"])}
        self._address = {_PROXY: self._address[_PROXY], _SEVERAL: str(started["listen"])}
        small, get = api_versions_request(), fetch_request(self._topic_id(f"tool-{min(self._plan.records)}"))
        # Each of them has asked its broker, and knows what it answers.
        flood(self._address[_SEVERAL], small, connections=CONNECTIONS, depth=1, seconds=self._plan.warm_s)
        for what, request, depth in (("ApiVersions", small, 10), ("Fetch", get, 1)):

            def some(address: str, request: bytes = request, depth: int = depth) -> tuple[int, float]:
                return flood(
                    address, request, connections=CONNECTIONS, depth=depth, seconds=self._plan.flood_s
                )

            sums = self._measured(f"{what}, {_SEVERAL}", some)
            self.rows.append(
                Row(
                    what=f"{what}, {CONNECTIONS} connections, {_SEVERAL}",
                    value=sums[_SEVERAL].rate, unit="requests/s",
                    baseline=sums[_PROXY].rate, baseline_what="through one process",
                )
            )  # fmt: skip

    def _compare(self, what: str, sums: dict[str, _Sum], unit: str, share: float | None = None) -> None:
        direct, through = sums[_DIRECT].rate, sums[_PROXY].rate
        self.rows.append(
            Row(
                what=what, value=through, unit=unit, baseline=direct, baseline_what=_DIRECT,
                target="" if share is None else f">= {share:g} x",
                met=None if share is None else through >= share * direct,
            )
        )  # fmt: skip
        self._beside(what, {side: total.rate for side, total in sums.items()}, unit)
        if share is not None:
            each = {side: 1e3 * sums[side].cpu_s / sums[side].amount for side in self._pids}
            self._note_cpu(what, each, "ms CPU/MiB")

    def _beside(self, what: str, by_side: dict[str, float], unit: str, *, less: bool = False) -> None:
        """Ours beside the peer's, if it is here.

        Args:
            what: was measured.
            by_side: the figures.
            unit: theirs.
            less: is better.
        """
        if _PEER not in by_side:
            return
        ours, peer = by_side[_PROXY], by_side[_PEER]
        self.rows.append(
            Row(
                what=what, value=ours, unit=unit, baseline=peer, baseline_what=_PEER,
                target=_AHEAD, met=ours < peer if less else ours > peer,
            )
        )  # fmt: skip

    def _note_cpu(self, what: str, by_side: dict[str, float], unit: str) -> None:
        what += ": the proxy's CPU"
        if _PEER in by_side:
            self._beside(what, by_side, unit, less=True)
        else:
            self.rows.append(Row(what=what, value=by_side[_PROXY], unit=unit))

    def _topic(self, name: str) -> str:
        self._admin.create_topics([NewTopic(name, 1)])[name].result(_ADMIN_LIMIT_S)
        return name

    def _topic_id(self, name: str) -> bytes:
        found = self._admin.describe_topics(TopicCollection([name]))[name].result(_ADMIN_LIMIT_S).topic_id
        high, low = int(found.get_most_significant_bits()), int(found.get_least_significant_bits())
        return high.to_bytes(8, "big", signed=True) + low.to_bytes(8, "big", signed=True)


def _size(record_bytes: int) -> str:
    return f"{record_bytes} B" if record_bytes < 1_000 else f"{record_bytes // 1_000} kB"


def run(smoke: bool, progress: Progress) -> Result:
    """Measure the same work straight to Kafka, through the proxy and through Kroxylicious, in turn."""
    plan = _SMOKE if smoke else _FULL
    settings = {"proxy": {"broker_port_base": 0}}
    skipped = list[str]()
    progress.step("starting Kafka and the proxies", 0.0)
    with ExitStack() as running:
        stack = running.enter_context(Stack(work_dir(), settings=settings))
        peer = None
        try:
            if smoke and not built():
                raise Unavailable("kroxylicious: not fetched, and a smoke run fetches nothing")
            build()
            peer = running.enter_context(kroxylicious(stack.bootstrap, stack.folder))
        except Unavailable as reason:
            skipped.append(str(reason))
        bench = _Bench(plan, stack, progress, peer)
        bench.run()
    return Result(
        name="proxy", title=TITLE, rows=bench.rows, notes=_notes(plan), series=bench.series, skipped=skipped
    )


def _notes(plan: _Plan) -> list[str]:
    return [
        f"All sides in turn, {plan.rounds} rounds, the order reversed each time; rates are of all rounds.",
        f"Kroxylicious {VERSION} runs without filters, at its defaults, with a heap of {HEAP_MB} MiB; before "
        f"the first measurement each proxy gets {plan.warm_s:.0f} s of each small request to warm up.",
        "The client, Kafka and the proxies share the machine's cores: what the proxy takes, the others lack.",
        f"Round trips: one connection, {plan.pings} after {plan.pings // 10} of warm-up in each round.",
        "Kafka's tools run at their defaults, with one producer or consumer, each in a new JVM; a "
        "consumer's rate is that while fetching.",
        f"With {CONNECTIONS} connections a client over plain sockets sends ready-made requests: its own "
        "work would hide the proxy's: batches of 16 kB or one record, two under way on each; fetches of up "
        "to 1 MiB, one under way.",
        f"With --workers {_WORKERS} the same {CONNECTIONS} connections, beside client and broker.",
        "No policy is in force and no job runs; CPU is that of a proxy's whole process, kernel included.",
    ]
