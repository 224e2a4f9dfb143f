"""Consumers under limits of dispatch in simulated time: real laws and parts, a model of broker and client.

The model's broker does a broker's arithmetic (docs/pulsar/dispatch.md): it sends whole entries while it has
permits, reads as many entries at a time as it has permits, and counts below zero. Its client acknowledges
each entry as it comes, and gives permits again for each half of its queue.
"""

from collections import defaultdict, deque
from collections.abc import Mapping
from itertools import count
from typing import Any

from clock_kit import SteadyClock
from part_link_kit import PartLink
from sample_kit import sample_of

from benchmarks.kit.lone_proxy import context, enforce
from enforcer.core.feeds.policies import Policies
from enforcer.core.law import Clock
from enforcer.core.metrics import Metrics
from enforcer.core.settings import ProxySettings
from enforcer.laws.dispatch.dispatch import Dispatch
from enforcer.laws.dispatch.smoothing import Smoothing
from enforcer.laws.shares.meter import Meter
from enforcer.pulsar.delivery.context import DeliveryContext
from enforcer.pulsar.delivery.limits import Laws
from enforcer.pulsar.delivery.part import DeliveryPart
from enforcer.pulsar.link import Part
from enforcer.wire.pulsar import frames
from enforcer.wire.pulsar.commands import build, command, parse
from enforcer.wire.pulsar.schema import CLASSES, new_body

EPOCH_MS = 1_795_166_700_000
TOPIC = "persistent://acme/orders/t1"
LATENCY_MS = 1.0
READ_MAX = 100
NAMESPACE = "namespaces.acme/orders"


def message(consumer: int, number: int, msgs: int = 1, size: int = 100, **fields: Any) -> bytes:
    """A MESSAGE whose entry has a number; `size` of its payload."""
    published = fields.pop("published", 1)
    metadata = CLASSES["MessageMetadata"](sequence_id=number, publish_time=published, **fields)
    if msgs != 1:
        metadata.num_messages_in_batch = msgs
    # The producer's name, which no rule reads.
    content = b"\x0a\x01p" + metadata.SerializeToString()
    behind = b"\x0e\x01\0\0\0\0" + len(content).to_bytes(4, "big") + content
    # Whatever it holds, a message of a batch takes some bytes.
    behind += b"x" * (size if msgs == 1 else max(size, 6 * msgs))
    body = new_body(frames.MESSAGE, consumer_id=consumer)
    body.message_id.ledger_id, body.message_id.entry_id = 1, number
    return build(frames.MESSAGE, body, behind)


def per_subscription(msgs: int = -1, size: int = -1, period: int = 1) -> dict[str, Any]:
    """Policies with a rate of each subscription."""
    rate = {
        "dispatchThrottlingRateInMsg": msgs,
        "dispatchThrottlingRateInByte": size,
        "ratePeriodInSecond": period,
    }
    return {NAMESPACE: {"subscriptionDispatchRate": rate}}


class World(SteadyClock):
    """One proxy: time, laws, desk.

    Args:
        policies: in force from the start.
        start_ms: how far into a period it begins.
    """

    def __init__(self, policies: Mapping[str, Any] | None = None, start_ms: float = 300.0) -> None:
        super().__init__(start_ms)
        self.events: list[Mapping[str, Any]] = []
        settings = ProxySettings(namespace_pattern="persistent://tenant/namespace/topic")
        self.clock = Clock(steady_ms=lambda: self.now_ms, wall_ms=self.brokers_ms)
        self.metrics = Metrics(10)
        self.policies = Policies(self.brokers_ms)
        self.meter = Meter(settings, self.clock)
        self.context = context(
            self.clock, settings=settings, metrics=self.metrics, policies=self.policies,
            send_usage=self._send,
        )  # fmt: skip
        self.dispatch = Dispatch(self.context, self.meter)
        laws = Laws(self.dispatch, self.meter, self.brokers_ms, Smoothing(1_000))
        self.desk = DeliveryContext(laws, self.metrics, self.call_later)
        self.put(policies or {})

    def brokers_ms(self) -> int:
        """The time, ms since the epoch."""
        return EPOCH_MS + int(self.now_ms)

    def put(self, changes: Mapping[str, Any], ms: float = 0.0) -> None:
        """Policies from now on; then so much time passes."""
        ts = self.brokers_ms()
        enforce(self.policies, ts, changes)
        self.dispatch.look()
        self.meter.set_policies(self.policies.at(ts))
        if ms:
            self.run(ms)

    def count(self, name: str, **labels: str) -> float:
        """A metric, `weir_consumer_...`."""
        return sample_of(self.metrics.registry, f"weir_consumer_{name}", labels)

    def _send(self, event: Mapping[str, Any], key: str) -> bool:
        self.events.append(dict(event))
        return True


class Entry:
    """One of a backlog."""

    def __init__(self, number: int, msgs: int, size: int) -> None:
        self.number, self.msgs, self.size = number, msgs, size


class ModelLink(PartLink):
    """One connection, with its broker on one side and its client on the other.

    Args:
        world: the proxy.
        batched: the broker reads as many entries as it has permits, as for Exclusive; else one by one.

    Attributes:
        still: the broker sends nothing.
        got: by consumer: when, which entry, how many messages.
        forwarded, given: permits, by consumer.
        answers_stats: the broker says what permits it has.
        blocks: it says that it keeps new permits aside.
        stats_asked: how often it was asked.
    """

    def __init__(self, world: World, *, batched: bool = True) -> None:
        super().__init__(world, "alice")
        self.world = world
        self.batched = batched
        self.backlogs: dict[int, deque[Entry]] = {}
        self.unacked: dict[int, list[Entry]] = {}
        self.permits: dict[int, int] = {}
        self.forwarded: dict[int, int] = {}
        self.given: dict[int, int] = {}
        self.got: dict[int, list[tuple[float, int, int]]] = {}
        self.other: list[tuple[int, Any]] = []
        self.answers_stats, self.blocks, self.stats_asked = True, False, 0
        self.still = False
        self._queue: dict[int, int] = {}
        self._entries: defaultdict[int, count[int]] = defaultdict(count)
        self._taken: dict[int, int] = {}
        self._down: deque[bytes] = deque()
        self.part = DeliveryPart(self, world.desk)
        self.parts.append(self.part)

    # What the part sees ------------------------------------------------------------------------------------

    def to_broker(self, frame: bytes) -> None:
        """A frame reaches the broker a moment later."""
        if frame[9] == frames.FLOW:
            body = parse(frame)
            self.forwarded[body.consumer_id] += body.message_permits
        self.call_later(LATENCY_MS, lambda: self._at_broker(frame))

    def to_client(self, frame: bytes) -> None:
        """A frame reaches the client."""
        body = parse(frame)
        if frame[9] != frames.MESSAGE:
            self.other.append((frame[9], body))
            return
        number = body.consumer_id
        if number not in self._queue:
            return
        entry = next(each for each in self.unacked[number] if each.number == body.message_id.entry_id)
        self.unacked[number].remove(entry)
        self.got[number].append((self.world.now_ms, entry.number, entry.msgs))
        self._taken[number] += entry.msgs
        if self._taken[number] * 2 >= self._queue[number]:
            self.flow(number, self._taken[number])
            self._taken[number] = 0

    def pause_broker(self, part: Part) -> None:
        """Nothing is read from the broker."""
        self.broker_read, self.stalled = False, True

    def resume_broker(self, part: Part) -> None:
        """It is again."""
        self.broker_read, self.stalled = True, False
        self.call_later(0, self._read)

    # What the client does ----------------------------------------------------------------------------------

    def subscribe(
        self, number: int, subscription: str = "sub", topic: str = TOPIC, queue: int = 100, kind: int = 0
    ) -> None:
        """A consumer begins, with its permits."""
        self.from_client(
            command(
                frames.SUBSCRIBE, topic=topic, subscription=subscription, sub_type=kind, consumer_id=number,
                request_id=1_000 + number,
            )
        )  # fmt: skip
        self.backlogs.setdefault(number, deque())
        # What was sent and not acknowledged comes first.
        self.backlogs[number].extendleft(reversed(self.unacked.pop(number, [])))
        self.unacked[number] = []
        self.permits[number] = self.forwarded[number] = self.given[number] = self._taken[number] = 0
        self.got.setdefault(number, [])
        self._queue[number] = queue
        self.down(command(frames.SUCCESS, request_id=1_000 + number))
        self.flow(number, queue)

    def flow(self, number: int, permits: int) -> None:
        """The client gives permits."""
        self.given[number] += permits
        self.from_client(command(frames.FLOW, consumer_id=number, message_permits=permits))

    def redeliver(self, number: int) -> None:
        """The client asks for all again that it has not acknowledged."""
        self.from_client(command(frames.REDELIVER, consumer_id=number))

    def close_consumer(self, number: int) -> None:
        """The client ends a consumer."""
        self._queue.pop(number, None)
        self.from_client(command(frames.CLOSE_CONSUMER, consumer_id=number, request_id=2_000 + number))

    def publish(self, number: int, entries: int, msgs: int = 1, size: int = 100, ms: float = 0.0) -> None:
        """A consumer's backlog grows; then so much time passes."""
        backlog = self.backlogs[number]
        backlog.extend(Entry(next(self._entries[number]), msgs, size) for _ in range(entries))
        self._serve(number)
        if ms:
            self.world.run(ms)

    def seconds_pass(self, seconds: int) -> None:
        """Each with its look at the connection."""
        for _ in range(seconds):
            self.world.run(1_000)
            self.part.check(self.world.now_ms)

    def down(self, frame: bytes) -> None:
        """A frame from the broker, in a moment; one after the other."""
        self._down.append(frame)
        self.call_later(LATENCY_MS, self._read)

    # ---------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        while self._down and self.broker_read:
            self.from_broker(self._down.popleft())

    def _at_broker(self, frame: bytes) -> None:
        kind, body = frame[9], parse(frame)
        if kind == frames.FLOW:
            assert body.message_permits, "a broker ends the connection"
            self.permits[body.consumer_id] += body.message_permits
            self._serve(body.consumer_id)
        elif kind == frames.CONSUMER_STATS:
            self.stats_asked += 1
            answer = {"availablePermits": self.permits[body.consumer_id] % 2**64}
            if self.blocks:
                answer["blockedConsumerOnUnackedMsgs"] = True
            if self.answers_stats:
                self.down(command(frames.CONSUMER_STATS_RESPONSE, request_id=body.request_id, **answer))
        elif kind == frames.REDELIVER:
            number = body.consumer_id
            self.backlogs[number].extendleft(reversed(self.unacked[number]))
            self.unacked[number] = []
            self._serve(number)

    def _serve(self, number: int) -> None:
        backlog = self.backlogs[number]
        while self.permits[number] > 0 and backlog and not self.still:
            for _ in range(min(self.permits[number], READ_MAX, len(backlog)) if self.batched else 1):
                entry = backlog.popleft()
                self.unacked[number].append(entry)
                self.permits[number] -= entry.msgs
                self.down(message(number, entry.number, entry.msgs, entry.size))


def reading(
    policies: Mapping[str, Any] | None = None, *, start_ms: float = 300.0, batched: bool = True,
    answers_stats: bool = True, blocks: bool = False, **consumer: Any,
) -> tuple[World, ModelLink]:  # fmt: skip
    """A connection with consumer 1, see World, ModelLink and subscribe."""
    world = World(policies, start_ms)
    link = ModelLink(world, batched=batched)
    link.answers_stats, link.blocks = answers_stats, blocks
    link.subscribe(1, **consumer)
    return world, link
