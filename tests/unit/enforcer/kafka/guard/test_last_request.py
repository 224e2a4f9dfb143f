"""A request as the last one passes unread: never one that would be read if it came in two pieces."""

import struct
import uuid
from collections.abc import Callable
from weakref import ref

import pytest
from connection_kit import METADATA, PRODUCE, Rig, framed, frames_of
from hypothesis import given
from hypothesis import strategies as st

from enforcer.kafka.guard.protected import KNOWN_BYTES, LastRequest, OwnTopics
from enforcer.kafka.pipeline.requests import STREAMED_FROM_BYTES, Requests
from streaming.contract.topics import Topics
from streaming.policy.policy_set import PolicySet

LIST_GROUPS, HEARTBEAT, FETCH = 16, 12, 1
MINE, OURS = uuid.UUID(int=1).bytes, uuid.UUID(int=2).bytes
Step = bytes | Callable[[Rig], None]


def asked(key: int, version: int, body: bytes, name: bytes = b"c") -> bytes:
    """A framed request whose correlation id is 0."""
    return framed(struct.pack(">hhih", key, version, 0, len(name)) + name + body)


def produce(topic: bytes, acks: int = 1, version: int = 9, size: int = 40) -> bytes:
    """A framed Produce request for one topic."""
    if version < 13:
        topic = bytes([len(topic) + 1]) + topic
    return asked(PRODUCE, version, b"\0\0" + struct.pack(">hi", acks, 1_000) + b"\2" + topic + bytes(size))


def metadata(topic: bytes, name: bytes = b"c") -> bytes:
    """A framed Metadata request, version 4, that may create its topic."""
    return asked(METADATA, 4, struct.pack(">ih", 1, len(topic)) + topic + b"\1", name)


def learn(rig: Rig) -> None:
    """The id of a topic of Weir's becomes known."""
    rig.protected.learn([OURS])


def limit(rig: Rig) -> None:
    """Clients with one name get a quota."""
    rig.desk.limit("quotas[client-id=c]", controller_mutation_rate=1)


def free(rig: Rig) -> None:
    """And lose it."""
    rig.desk.limit("quotas[client-id=c]")


STEPS: tuple[Step, ...] = (
    produce(b"mine"), produce(b"mine", size=60), produce(b"mine", acks=0), produce(b"weir.policies"),
    produce(b"weir.policies", acks=0), produce(MINE, version=13), produce(OURS, version=13),
    produce(b"mine", version=8), produce(b"long" * 20), metadata(b"mine"), metadata(b"mine", b"d"),
    metadata(b"yours"), metadata(b"weir.policies"), asked(HEARTBEAT, 4, b"\0beat"), asked(18, 0, b""),
    asked(18, 99, b""), asked(LIST_GROUPS, 0, b"x"), asked(FETCH, 11, bytes(30)), learn, limit, free,
)  # fmt: skip


def numbered(request: bytes, number: int) -> bytes:
    """A request with a correlation id."""
    return request[:8] + struct.pack(">i", number) + request[12:]


def run(steps: list[Step], whole: bool) -> tuple[bytes, bytes]:
    """What the broker and the client got when requests came whole, or each in two pieces."""
    rig = Rig()
    for number, step in enumerate(steps):
        if not isinstance(step, bytes):
            step(rig)
            continue
        data = numbered(step, number)
        for piece in (data,) if whole else (data[:9], data[9:]):
            rig.connection.data_received(piece)
    return rig.upstream.data, rig.client.data


@given(st.lists(st.sampled_from(STEPS), max_size=20), st.booleans())
def test_what_passes_is_what_would_have_passed(steps: list[Step], twice: bool) -> None:
    """Whatever comes before and between, topics learnt and quotas set among it."""
    said = [step for step in steps for _ in range(1 + twice)]
    assert run(said, whole=True) == run(said, whole=False)


@pytest.mark.parametrize(
    "step", [produce(b"mine"), produce(MINE, version=13), metadata(b"mine"), asked(HEARTBEAT, 4, b"\0beat")]
)
def test_the_second_is_not_looked_at(step: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes to the broker as it came; what it is compared with is all that is done."""
    rig = Rig()
    rig.connection.data_received(numbered(step, 1))
    with monkeypatch.context() as patched:
        patched.setattr(Requests, "run", None)
        rig.connection.data_received(numbered(step, 2))
    assert rig.upstream.data == numbered(step, 1) + numbered(step, 2)
    assert [slot.correlation_id for slot in rig.connection._responses.due] == [1, 2]


def test_a_large_one_passes_while_it_comes() -> None:
    """The second as the first, and what follows it is cut at its end."""
    rig = Rig()
    large = produce(b"mine", size=3 * STREAMED_FROM_BYTES)
    for number in range(3):
        data = numbered(large, number) + numbered(metadata(b"mine"), number + 10)
        for start in range(0, len(data), STREAMED_FROM_BYTES):
            rig.connection.data_received(data[start : start + STREAMED_FROM_BYTES])
    assert [frame[4:8] for frame in frames_of(rig.upstream.data)] == [
        struct.pack(">i", number + more) for number in range(3) for more in (0, 10)
    ]
    assert rig.metrics.traffic.frames_in == 6


def test_of_two_in_one_piece_none_is_kept() -> None:
    """The second is answered, the first is not: neither is one that is like the first."""
    rig = Rig()
    quiet, loud = produce(b"mine", acks=0), produce(b"mine")
    rig.connection.data_received(numbered(quiet, 1) + numbered(loud, 2))
    rig.connection.data_received(numbered(quiet, 3))
    assert [slot.correlation_id for slot in rig.connection._responses.due] == [2]


def test_what_is_kept_is_short() -> None:
    """A long request is not kept, and a set of policies is not kept alive."""
    protected, rules = OwnTopics(Topics(), active=True), [PolicySet()]
    known = LastRequest(protected, lambda: rules[-1])
    for size, kept in ((KNOWN_BYTES, True), (KNOWN_BYTES + 1, False)):
        long = metadata(b"t" * (size - len(metadata(b""))))
        known.keep(long, size, METADATA, 4, 1)
        assert (known.key == METADATA) is kept
    known.keep(metadata(b"t"), len(metadata(b"t")), METADATA, 4, 1)
    assert known.is_like(metadata(b"t"), len(metadata(b"t")))
    gone = ref(rules[0])
    rules[:] = [PolicySet(version=2)]
    assert gone() is None and not known.is_like(metadata(b"t"), len(metadata(b"t")))
