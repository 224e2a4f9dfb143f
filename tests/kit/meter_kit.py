"""Proxies, their clients and the real law in one process, in simulated time: what shares do to traffic."""

from collections.abc import Generator, Mapping
from functools import cache
from typing import Any, TypeVar, cast

import orjson
from clock_kit import Waiter
from context_kit import read
from kafka.protocol.consumer import FetchRequest
from kafka_kit import decode
from message_kit import Record
from naming_kit import Naming
from traffic_kit import batch, fetch_request, fetch_response, produce

from benchmarks.kit.lone_proxy import context
from enforcer.core import bounds
from enforcer.core.account import PUBLISH, Wait
from enforcer.core.law import Clock
from enforcer.core.lines import Claim
from enforcer.core.metrics import Metrics
from enforcer.core.settings import ProxySettings
from enforcer.kafka.shares.connection_meter import AdmittedProduce, ConnectionMeter
from enforcer.kafka.shares.frame_meter import FrameMeter
from enforcer.laws.shares.decisions import slots_of
from enforcer.laws.shares.meter import Meter
from enforcer.laws.shares.newcomers import SETTLE_MS
from enforcer.laws.shares.topic_accounts import TopicAccounts
from enforcer.laws.shares.usage import UsageReports
from enforcer.wire.kafka.frames import FETCH, RequestHeader
from enforcer.wire.kafka.traffic import fetching
from streaming.columns.json_rows import objects
from streaming.columns.packed import unpack
from streaming.contract.decisions import Share
from streaming.laws.law import StepContext
from streaming.policy.policy_set import PolicySet
from weir.simulate.failures.world import stepped

Result = TypeVar("Result")
EPOCH_MS = 1_795_166_668_000
ROUND = {"resourceUsagePublishIntervalInSecs": 1}
TOPIC = "acme.orders.t"
POLICIES: dict[str, Any] = {
    "broker": ROUND,
    "resourcegroups.rg1": {"publishRateInMsgs": 300},
    "namespaces.acme/orders": {"resourcegroup": "rg1"},
}
GROUPS: dict[str, Any] = {
    "resourcegroups.rg1": {"publishRateInMsgs": 100, "dispatchRateInBytes": 400_000},
    "resourcegroups.rg2": {"publishRateInMsgs": 1_000},
    "namespaces.acme/orders": {"resourcegroup": "rg1"},
    "tenants.acme": {"resourcegroup": "rg2"},
}
ALICE = {"quotas[user=alice]": {"producer_byte_rate": 1_000, "consumer_byte_rate": 2_000}}
STEP_MS = 5
DECIDE_MS = 300
"""From a report to its decision, as the real job takes."""


class Desk:
    """A meter with a clock that a test sets; everything that it reports is kept.

    Args:
        policies: path -> value, in force from the start.
        now_ms: the steady clock at the start.
        settings: of the proxy.
    """

    def __init__(
        self, policies: Mapping[str, Any], proxy_id: str = "p1", now_ms: float = 0.0, **settings: Any
    ) -> None:
        self.now_ms = now_ms
        self.full = False
        self.events: list[dict[str, Any]] = []
        self.packs: list[bytes] = []
        self.settings = ProxySettings(**settings)
        self.clock = Clock(steady_ms=lambda: self.now_ms, wall_ms=lambda: EPOCH_MS + int(self.now_ms))
        self.meter = Meter(self.settings, self.clock)
        self.frames = FrameMeter(self.meter)
        self.topics = TopicAccounts(self.meter, str, bounds.TOPICS_MAX, 249)
        self.meter.set_policies(PolicySet(dict(policies)))
        self.metrics = Metrics(self.settings.metric_subjects)
        self.proxy_id = proxy_id
        self.context = context(
            self.clock, proxy_id=proxy_id, settings=self.settings, metrics=self.metrics,
            send_usage=self.send, send_usage_pack=self.send_pack,
        )  # fmt: skip
        self.reports = UsageReports(self.context, self.meter)

    def report(self, after_ms: float = 1_000.0) -> None:
        """Time passes, and what was used is reported."""
        self.now_ms += after_ms
        self.reports.report()

    def send(self, event: Mapping[str, Any], key: str) -> bool:
        """Take a report."""
        assert key == self.proxy_id
        if not self.full:
            self.events.append(orjson.loads(orjson.dumps(event)))
        return not self.full

    def send_pack(self, value: bytes, key: str) -> bool:
        """Take a packed report, which counts as what its rows say."""
        assert key == self.proxy_id
        if not self.full:
            self.packs.append(value)
            self.events += [orjson.loads(row) for row in objects(*unpack(value)).to_pylist()]
        return not self.full

    def share(self, group: str = "rg1", ttl_ms: int = 3_000, ts: int = EPOCH_MS, **rates: float) -> None:
        """A share of this proxy arrives; without rates it is removed."""
        share(self.meter, ts, group, ttl_ms, **rates)

    def take(self, value: bytes) -> None:
        """A decision arrives."""
        (share,) = read(Record(value))
        assert isinstance(share, Share)
        if share.broker == self.proxy_id:
            self.meter.take_share(share)
        elif share.limits:
            self.meter.newcomers.stand(slots_of([share.group]), self.now_ms, share.ttl_ms)


def alone(meter: Meter, now_ms: float = 0.0) -> None:
    """There is no other proxy, and was none a while ago: all of each limit is its own."""
    meter.newcomers.set_alive(1, now_ms - SETTLE_MS)


def share(meter: Meter, ts: int, group: str = "rg1", ttl_ms: int = 3_000, **rates: float) -> None:
    """A share arrives at a meter; without rates it is removed."""
    meter.take_share(Share(group=group, broker="p1", ts=ts, ttl_ms=ttl_ms, limits=rates or None, usage={}))


def whole(steps: Generator[None, None, Result]) -> Result:
    """What comes of something that is done in steps."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return cast(Result, done.value)


def publish(desk: Desk, records: int, size: int = 0, topic: str = TOPIC) -> Wait | None:
    """Records pass; returns the wait that they cost."""
    return desk.topics.bill([(topic, records, size)]).charge(PUBLISH, desk.now_ms).wait


def send_bytes(desk: Desk, user: str, client_id: str, direction: int, size: int) -> Wait | None:
    """Bytes of a user pass; returns the wait that they cost."""
    account = desk.meter.of_user(user, client_id, direction)
    if account is None:
        return None
    desk.meter.unmetered += account is desk.meter.nowhere
    return account.charge(direction, 0, size, desk.now_ms)


class Waiting(Waiter):
    """A connection that waits (lines.Waiter)."""

    @property
    def claim(self) -> Claim:
        """Its place."""
        return self, "t", "g"


def used(meter: Meter) -> dict[str, list[int]]:
    """Records and bytes by account."""
    return {name: account.used for name, account in meter.accounts.items() if any(account.used)}


def many_groups(count: int, rate: int = 10_000) -> dict[str, Any]:
    """Policies of the groups g0, g1, ..., each with a namespace t/n0, t/n1, ..."""
    policies: dict[str, Any] = {}
    for number in range(count):
        policies[f"resourcegroups.g{number}"] = {"publishRateInMsgs": rate}
        policies[f"namespaces.t/n{number}"] = {"resourcegroup": f"g{number}"}
    return policies


@cache
def _batch(count: int) -> bytes:
    return batch(count, size=100)


@cache
def _request(count: int) -> tuple[bytes, RequestHeader]:
    return produce(9, {TOPIC: [_batch(count)]})


@cache
def _fetch() -> tuple[bytes, RequestHeader]:
    return fetch_request(12, {TOPIC: 1})


@cache
def _response(count: int) -> bytes:
    return fetch_response(12, {TOPIC: [_batch(count)]})


class Client:
    """A client of one proxy that wants so many records a second, and waits as told (line_up.Pause).

    Args:
        desk: its proxy.
        demand: records per second.
        lump: records that it sends, or fetches, at once at most.
        dispatch: it consumes.
        in_bytes: what passes is noted as bytes of batches, not records.
    """

    def __init__(
        self, desk: Desk, demand: float, lump: int = 10, dispatch: bool = False, in_bytes: bool = False
    ) -> None:
        self.demand = demand
        self.passed: list[tuple[float, int]] = []
        self._desk = desk
        self._lump = lump
        self._dispatch = dispatch
        self._in_bytes = in_bytes
        self._backlog = 0.0
        self._until_ms = 0.0
        self._paused = False
        naming = Naming(desk.frames.names, Waiter(), desk.clock.steady_ms)
        self._connection_meter = ConnectionMeter(desk.frames, desk.metrics, self, naming)

    def pause(self, wait_ms: float) -> None:
        """Wait (line_up.Pause)."""
        self._until_ms = self._desk.now_ms + wait_ms
        self._paused = True

    def wake(self) -> None:
        """Look again (line_up.Pause)."""
        if self._paused:
            self._until_ms = self._desk.now_ms

    def advance(self, passed_ms: float) -> None:
        """Live on for so long."""
        self._backlog = min(self._backlog + self.demand * passed_ms / 1000, 50_000.0)
        while self._backlog >= 1 and self._desk.now_ms >= self._until_ms:
            count = min(int(self._backlog), self._lump)
            self._paused = False
            told_ms = self._fetch(count) if self._dispatch else self._produce(count)
            if told_ms is None:
                continue
            self._until_ms = self._desk.now_ms + told_ms
            self._backlog -= count
            amount = len(_batch(count)) if self._in_bytes else count
            self.passed.append((self._desk.now_ms, amount))

    def _produce(self, count: int) -> int | None:
        admitted = self._connection_meter.produce(*_request(count), "ANONYMOUS")
        return None if admitted is None else admitted.told_ms

    def _fetch(self, count: int) -> int | None:
        if self._connection_meter.fetch(*_fetch(), "ANONYMOUS") is None:
            return None
        header = RequestHeader(FETCH, 12, 1, "c", 0)
        return whole(self._connection_meter.fetched(_response(count), header, "ANONYMOUS"))[1]

    def rate(self, from_ms: float, to_ms: float) -> float:
        """What passed per second between two times."""
        return sum(count for at, count in self.passed if from_ms <= at < to_ms) * 1000 / (to_ms - from_ms)


class World:
    """Three or so proxies, their clients, and the job.

    Args:
        policies: in force from the start.
    """

    def __init__(self, policies: Mapping[str, Any]) -> None:
        self.now_ms = 0.0
        self.desks: dict[str, Desk] = {}
        self.clients: dict[str, Client] = {}
        self.job_up = True
        self._policies = dict(policies)
        self._changes: list[bytes] = []
        self._body: bytes | None = None
        self._offset = 0
        self._on_the_way: list[tuple[float, bytes]] = []
        self._tick_ms = 450.0
        self._change(self._policies)

    def start(self, name: str, demand: float, **client: Any) -> None:
        """A proxy with one client comes."""
        self.desks[name] = Desk(self._policies, name, self.now_ms)
        self.clients[name] = Client(self.desks[name], demand, **client)

    def set(self, path: str, value: dict[str, Any]) -> None:
        """A policy changes now."""
        self._policies[path] = value
        self._change({path: value})
        for desk in self.desks.values():
            desk.meter.set_policies(PolicySet(dict(self._policies)))

    def kill(self, name: str) -> None:
        """A proxy dies with its client."""
        del self.desks[name]
        self.clients[name].demand = 0.0

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end_ms = self.now_ms + seconds * 1000
        while self.now_ms < end_ms:
            self.now_ms += STEP_MS
            for number, (name, desk) in enumerate(self.desks.items()):
                desk.now_ms = self.now_ms
                self.clients[name].advance(STEP_MS)
                if (self.now_ms + 190 * number) % 1000 < STEP_MS:
                    desk.meter.look()
                    desk.reports.report()
            if self.now_ms >= self._tick_ms:
                self._tick_ms += 1000
                self._decide([b'{"type":"tick"}'])
            told = [event for desk in self.desks.values() for event in _taken(desk.events)]
            self._decide([orjson.dumps(event) for event in told])
            while self._on_the_way and self._on_the_way[0][0] <= self.now_ms:
                _, value = self._on_the_way.pop(0)
                for desk in self.desks.values():
                    desk.take(value)

    def rate(self, from_ms: float, to_ms: float) -> float:
        """What all clients got through per second."""
        return sum(client.rate(from_ms, to_ms) for client in self.clients.values())

    def peak(self, from_ms: int, to_ms: int) -> float:
        """The highest rate over any five seconds."""
        return max(self.rate(start, start + 5_000) for start in range(from_ms, to_ms - 4_999, 100))

    def _change(self, entries: Mapping[str, Any]) -> None:
        for path, value in entries.items():
            ts = EPOCH_MS + int(self.now_ms)
            self._changes.append(orjson.dumps({"type": "policy", "path": path, "value": value, "ts": ts}))

    def _decide(self, events: list[bytes]) -> None:
        if not self.job_up or not events:
            return
        now_ts = EPOCH_MS + int(self.now_ms)
        given = [("weir.policies", now_ts, change) for change in self._changes]
        given += [("weir.usage", now_ts, event) for event in events]
        self._changes = []
        context = StepContext(processed_ts=now_ts, fail_fast=True)
        self._body, outputs = stepped("shares", self._body, self._offset, given, context)
        self._offset += len(given)
        assert "dead_letter" not in outputs.type, outputs.value
        self._on_the_way += [(self.now_ms + DECIDE_MS, value) for value in outputs.value]


def _taken(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    taken, events[:] = list(events), []
    return taken


class Line(Waiter):
    """A connection: how it was paused, and look-ups that a test answers."""

    def __init__(self, desk: "Desk", proven: bool = True) -> None:
        super().__init__()
        naming = Naming(desk.frames.names, self, desk.clock.steady_ms, proven)
        self.connection_meter = ConnectionMeter(desk.frames, desk.metrics, self, naming)

    def produce(
        self, count: int, topic: str = TOPIC, version: int = 9, user: str = "bob"
    ) -> AdmittedProduce | None:
        """Produce some records."""
        frame, header = produce(version, {topic: [batch(count)]})
        return self.connection_meter.produce(frame, header, user)

    def told(self, count: int, user: str = "bob") -> int:
        """Produce some records, which must be admitted; returns the throttle time."""
        admitted = self.produce(count, user=user)
        assert admitted is not None
        return admitted.told_ms


def sessions(
    line: Line, version: int, topics: Mapping[str, int], epoch: int, answer: bytes = b"", **more: Any
) -> int:
    """max_bytes of a Fetch request as it is forwarded; the broker answers so, or with nothing."""
    frame, header = fetch_request(version, topics, max_bytes=50_000_000, epoch=epoch, **more)
    admitted = line.connection_meter.fetch(frame, header, "bob")
    assert admitted is not None
    sent, limit = admitted
    assert len(sent) == len(frame) and limit == fetching(sent, header).limit_bytes
    meter, response = line.connection_meter, answer or fetch_response(version, {})
    whole(meter.fetched(response, header, "bob", limit, meter.asking))
    decode(FetchRequest, version, sent)
    return fetching(sent, header).limit_bytes
