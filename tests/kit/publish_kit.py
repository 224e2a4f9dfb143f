"""Connections of Pulsar's without sockets, whose publishing part and clock a test drives."""

from collections.abc import Mapping
from itertools import count
from typing import Any

from backlog_kit import HOLD, decision, quota
from clock_kit import SteadyClock
from message_kit import kind_of
from part_link_kit import PartLink
from sample_kit import sample_of

from benchmarks.kit.lone_proxy import context, enforce
from enforcer.core.feeds.policies import Policies
from enforcer.core.law import Clock
from enforcer.core.metrics import Metrics
from enforcer.core.settings import ProxySettings
from enforcer.laws.backlog.blocks import Blocks
from enforcer.laws.concurrency.limiter import Limiter
from enforcer.laws.shares.meter import Meter
from enforcer.pulsar.proxy import NAMES
from enforcer.pulsar.publish.context import PublishContext
from enforcer.pulsar.publish.part import PublishingPart
from enforcer.pulsar.settings import PulsarSettings
from enforcer.wire.pulsar import frames
from enforcer.wire.pulsar.commands import build, command, parse
from enforcer.wire.pulsar.schema import CLASSES, new_body
from streaming.policy.policy_set import PolicySet

TEN: dict[str, Any] = {
    "resourcegroups.ten": {"publishRateInMsgs": 10},
    "namespaces.acme/limited": {"resourcegroup": "ten"},
}
"""Ten messages a second for one namespace."""
LIMITED, FREE = "persistent://acme/limited/a", "persistent://acme/free/b"


class World(SteadyClock):
    """A meter, a clock and connections.

    Attributes:
        meter: all accounts.
        known: policies as they were read, for blocks.
        blocks: topics that take nothing of their producers.
        actions: what was logged of these.
        desk: what the connections share.

    Args:
        policies: path -> value, in force from the start.
        pulsar: settings of Pulsar's proxy alone.
    """

    def __init__(self, policies: Mapping[str, Any] | None = None, **pulsar: Any) -> None:
        super().__init__()
        self.settings = ProxySettings(namespace_pattern=NAMES)
        clock = Clock(steady_ms=lambda: self.now_ms, wall_ms=self._wall_ms)
        self.meter = Meter(self.settings, clock)
        # One that is alone may use all of each limit.
        self.meter.newcomers.set_alive(1, -10_000.0)
        self.metrics = Metrics(10)
        self.known = Policies(clock.wall_ms)
        self.actions: list[Mapping[str, Any]] = []
        self.blocks = Blocks(
            context(
                clock, settings=self.settings, metrics=self.metrics, policies=self.known,
                send_action=self._note,
            )
        )  # fmt: skip
        own = PulsarSettings(**pulsar)
        self.desk = PublishContext(self.meter, self.settings, own, self.metrics, self.blocks)
        self.links: list[FakeLink] = []
        self.set(policies or {})
        self.call_later(1_000, self._second)

    def set(self, policies: Mapping[str, Any]) -> None:
        """These policies are in force now."""
        self.meter.set_policies(PolicySet(dict(policies)))

    def block(self, topic: str, policy: str = HOLD, size: float = 10_240, ms: float = 0.0) -> None:
        """A topic's backlog is so large, and its quota 5,000 bytes; then so much time passes."""
        path = f"topics.{topic}"
        if path not in self.known.at(self._wall_ms()).entries:
            enforce(self.known, self._wall_ms(), {path: quota(policy)})
            self.blocks.look()
        self.blocks.take([decision(topic, size, ts=self._wall_ms())])
        if ms:
            self.run(ms)

    def lift(self, topic: str) -> None:
        """It is inside again."""
        self.block(topic, size=100)

    def _wall_ms(self) -> int:
        return 10**12 + int(self.now_ms)

    def _note(self, event: Mapping[str, Any], key: str, *, acked: Any = None) -> bool:
        assert key == event["topic"] and acked is not None
        self.actions.append(event)
        return True

    def join(self, limiter: Limiter | None = None, user: str = "ANONYMOUS") -> "FakeLink":
        """A client comes."""
        link = FakeLink(self, limiter, user)
        self.links.append(link)
        return link

    def _second(self) -> None:
        """Connections are looked at."""
        self.call_later(1_000, self._second)
        for link in self.links:
            link.part.check(self.now_ms)

    def number(self, name: str, **labels: str) -> float:
        """A metric."""
        return sample_of(self.metrics.registry, name, labels)


class FakeLink(PartLink):
    """A connection; keeps what is sent.

    Attributes:
        part: its publishing.
        sent: what the broker got: (kind, body), each with the time.
        got: what the client got.
    """

    def __init__(self, world: World, limiter: Limiter | None, user: str) -> None:
        super().__init__(world, user)
        self.world, self.limiter = world, limiter
        self.sent: list[tuple[float, int, Any]] = []
        self.got: list[tuple[int, Any]] = []
        self._requests = count(1)
        self.part = PublishingPart(self, world.desk)
        self.parts.append(self.part)

    def to_broker(self, frame: bytes) -> None:
        """See link.Link."""
        self.sent.append((self.world.now_ms, kind_of(frame), parse(frame)))

    def to_client(self, frame: bytes) -> None:
        """See link.Link."""
        kind = kind_of(frame)
        self.got.append((kind, None if kind == 19 else parse(frame)))

    def end(self, why: str) -> None:
        """See link.Link."""
        raise AssertionError(why)

    def down(self, kind: int, **fields: Any) -> None:
        """The broker sends a frame."""
        self.from_broker(command(kind, **fields))

    def ask(self, producer_id: int, topic: str) -> int:
        """The client asks for a producer; returns the request's id."""
        request_id = next(self._requests)
        numbers = {"producer_id": producer_id, "request_id": request_id}
        self.from_client(command(frames.PRODUCER, topic=topic, **numbers))
        return request_id

    def make(self, producer_id: int, topic: str) -> None:
        """It gets it."""
        self.down(frames.PRODUCER_SUCCESS, request_id=self.ask(producer_id, topic))

    def send(self, producer_id: int, *sequence_ids: int, **message: Any) -> None:
        """The client sends messages, see send_frame."""
        for sequence_id in sequence_ids:
            self.from_client(send_frame(producer_id, sequence_id, **message))

    def receipt(self, producer_id: int, *sequence_ids: int) -> None:
        """The broker answers them."""
        for sequence_id in sequence_ids:
            self.down(frames.SEND_RECEIPT, producer_id=producer_id, sequence_id=sequence_id)

    def refuse(self, producer_id: int, sequence_id: int) -> None:
        """The broker refuses one."""
        self.down(frames.SEND_ERROR, producer_id=producer_id, sequence_id=sequence_id, error=9, message="no")

    def fail(self, request_id: int) -> None:
        """The broker refuses a request."""
        self.down(frames.ERROR, request_id=request_id, error=6, message="no")

    def close(self, producer_id: int) -> int:
        """The client closes a producer; returns the request's id."""
        request_id = next(self._requests)
        self.from_client(command(frames.CLOSE_PRODUCER, producer_id=producer_id, request_id=request_id))
        return request_id

    def closings(self) -> list[int]:
        """Request ids of the CLOSE_PRODUCERs that the broker got."""
        return [body.request_id for _, kind, body in self.sent if kind == frames.CLOSE_PRODUCER]

    def arrived(self, producer_id: int) -> list[int]:
        """Sequence ids that the broker got of a producer, in order."""
        sends = [body for _, kind, body in self.sent if kind == frames.SEND]
        return [body.sequence_id for body in sends if body.producer_id == producer_id]

    def kinds(self) -> list[int]:
        """What the broker got."""
        return [kind for _, kind, _ in self.sent]


def joined(
    *topics: str, policies: Mapping[str, Any] | None = None, **pulsar: Any
) -> tuple[World, FakeLink]:  # fmt: skip
    """A client with producers 1, 2, ... of these topics; the rest as in World."""
    world = World(policies, **pulsar)
    link = world.join()
    for producer_id, topic in enumerate(topics, 1):
        link.make(producer_id, topic)
    return world, link


def send_frame(
    producer_id: int,
    sequence_id: int,
    *,
    claimed: int | None = None,
    batch: int | None = None,
    payload: bytes = b"x" * 100,
    compression: int = 0,
    highest: int = 0,
    **fields: Any,
) -> bytes:
    """A SEND.

    Args:
        producer_id: whose.
        sequence_id: its number.
        claimed: messages by the command.
        batch: messages by the metadata.
        payload: what is in it.
        compression: how.
        highest: highest_sequence_id.
        fields: others of the command.
    """
    # What is None is left out.
    metadata = CLASSES["MessageMetadata"](
        sequence_id=sequence_id, publish_time=1, num_messages_in_batch=batch, compression=compression or None
    )
    body = new_body(
        frames.SEND, producer_id=producer_id, sequence_id=sequence_id, num_messages=claimed,
        highest_sequence_id=highest or None, **fields,
    )  # fmt: skip
    # The producer's name, which no rule reads.
    content: bytes = b"\x0a\x01p" + metadata.SerializeToString()
    message = b"\x0e\x01" + bytes(4) + len(content).to_bytes(4, "big") + content + payload
    return build(frames.SEND, body, message)
