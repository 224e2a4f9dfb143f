"""A request as the last one goes the short way: never one that would be read if it came in two pieces."""

import struct
import uuid
from collections.abc import Callable
from weakref import ref

import pytest
from concurrency_kit import Times, limiter_at
from connection_kit import METADATA, Rig, framed, frames_of
from hypothesis import example, given
from hypothesis import strategies as st
from lane_kit import BODIES, FETCH, HEARTBEAT, LIST_GROUPS, asked, metadata, numbered, produce, under_way

from enforcer.core import bounds
from enforcer.kafka.guard.protected import KNOWN_BYTES, LastRequest, OwnTopics
from enforcer.kafka.part import Slot
from enforcer.kafka.pipeline.lane import Lane
from enforcer.kafka.pipeline.requests import STREAMED_FROM_BYTES, Requests
from enforcer.kafka.pipeline.responses import Responses
from streaming.contract.topics import Topics
from streaming.policy.policy_set import PolicySet

ACKS_AT = 13
MINE, OURS = uuid.UUID(int=1).bytes, uuid.UUID(int=2).bytes
Step = bytes | Callable[[Rig], None]


def learn(rig: Rig) -> None:
    """The id of a topic of Weir's becomes known."""
    rig.protected.learn([OURS])


def limit(rig: Rig) -> None:
    """Clients with one name get a quota."""
    rig.desk.limit("quotas[client-id=c]", controller_mutation_rate=1)


def free(rig: Rig) -> None:
    """And lose it."""
    rig.desk.limit("quotas[client-id=c]")


def say(_rig: Rig) -> None:
    """The broker answers all that it has got."""


def half(_rig: Rig) -> None:
    """It has begun to; the end is missing."""


def begin(_rig: Rig) -> None:
    """Not even the length is here."""


def mute(rig: Rig) -> None:
    """The client has to wait a second, which passes."""
    rig.connection.pacer.mute(1_000)
    rig.connection._pump()
    rig.desk.pass_ms(1_001)


def said_by_broker(rig: Rig, begun: int) -> list[bytes]:
    """Its answers to what it has got from a place on."""
    return [
        framed(frame[4:8] + BODIES[frame[:4]])
        for frame in rig.upstream.sent[begun:]
        if frame[:4] in BODIES and not (frame[:2] == b"\0\0" and frame[ACKS_AT : ACKS_AT + 2] == b"\0\0")
    ]


DELETED = asked(20, 1, struct.pack(">ih", 1, 13) + b"weir.policies" + struct.pack(">i", 1_000))
"""What we answer ourselves."""
STEPS: tuple[Step, ...] = (
    produce(b"mine"), produce(b"mine", size=60), produce(b"mine", acks=0), produce(b"weir.policies"),
    produce(b"weir.policies", acks=0), produce(MINE, version=13), produce(OURS, version=13),
    produce(b"mine", version=8), produce(b"long" * 20), metadata(b"mine"), metadata(b"mine", b"d"),
    metadata(b"yours"), metadata(b"weir.policies"), asked(HEARTBEAT, 4, b"\0beat"), asked(18, 0, b""),
    asked(18, 99, b""), asked(LIST_GROUPS, 0, b"x"), asked(FETCH, 11, bytes(30)), learn, limit, free, say,
    say, half, begin, mute, DELETED,
)  # fmt: skip


SAID = {say: slice(None), half: slice(-3), begin: slice(3)}


def pieces(data: bytes, cut: int) -> tuple[bytes, ...]:
    """All of it, or its first bytes and the others."""
    return (data[:cut], data[cut:]) if cut else (data,)


class _Play:
    """Plays steps, by the short way and the long one, or, in pieces, by the long one alone."""

    def __init__(self, whole: bool) -> None:
        self.rig, self._cut = Rig(), 0 if whole else 9
        self._answered, self._left = 0, b""
        if not whole:
            self.rig.connection._open_lane = lambda: None

    def run(self, steps: list[list[Step]]) -> tuple[bytes, bytes, list[int]]:
        """What the broker and the client got, and what is still under way; steps of a list come together."""
        number = 0
        for together in steps:
            data = b""
            for step in together:
                if isinstance(step, bytes):
                    data, number = data + numbered(step, number), number + 1
                elif step in SAID:
                    self._say(SAID[step])
                else:
                    step(self.rig)
            for piece in pieces(data, self._cut) if data else ():
                self.rig.connection.data_received(piece)
        return self.rig.upstream.data, self.rig.client.data, under_way(self.rig)

    def _say(self, some: slice) -> None:
        frames = self.rig.upstream.sent
        said = self._left + b"".join(said_by_broker(self.rig, self._answered))
        self._answered = len(frames)
        whole, said = said, said[some]
        self._left = whole[len(said) :]
        for piece in pieces(said, self._cut) if said and not self.rig.client.closed else ():
            self.rig.connection.upstream_received(piece)


@example([[produce(b"mine")], [DELETED], [produce(b"mine")], [say]], 1)
@given(
    # Of few kinds, or hardly ever would one be as the last.
    st.lists(st.sampled_from(STEPS), min_size=2, max_size=5).flatmap(
        lambda few: st.lists(st.lists(st.sampled_from(few), min_size=1, max_size=3), max_size=20)
    ),
    st.integers(1, 3),
)
def test_what_passes_is_what_would_have_passed(steps: list[list[Step]], times: int) -> None:
    """Whatever comes before and between, answers, topics learnt and quotas set among it."""
    said = [together for together in steps for _ in range(times)]
    assert _Play(whole=True).run(said) == _Play(whole=False).run(said)


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
    assert under_way(rig) == [1, 2]


@pytest.mark.parametrize("step", [produce(b"mine"), metadata(b"mine"), asked(HEARTBEAT, 4, b"\0beat")])
def test_nor_is_its_answer(step: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the client's as the one before was."""
    rig = Rig()
    for number in (1, 2):
        rig.connection.data_received(numbered(step, number))
        rig.answer([struct.pack(">i", number) + BODIES[step[4:8]]])
    first = bytes(rig.client.data)
    with monkeypatch.context() as patched:
        patched.setattr(Responses, "take", None)
        rig.connection.data_received(numbered(step, 3) + numbered(step, 4))
        for number in (3, 4):
            rig.answer([struct.pack(">i", number) + BODIES[step[4:8]]])
    assert [frame[4:] for frame in frames_of(rig.client.data)] == 4 * [frames_of(first)[0][4:]]
    assert rig.client.answered() == [1, 2, 3, 4]
    traffic, out = rig.metrics.traffic, len(rig.client.data)
    assert (traffic.frames_in, traffic.bytes_in, traffic.bytes_out) == (4, 4 * len(step), out)


def test_what_answers_become_changes() -> None:
    """A broker that has moved is named where it is now."""
    rig, became = Rig(), []
    rig.rewrite = lambda key, version, response: response[:4] + b"%d" % len(became)
    rig.connect()
    for number in range(6):
        if number % 2 == 0:
            rig.brokers.repeats.clear()
        rig.connection.data_received(numbered(metadata(b"mine"), number))
        rig.answer([struct.pack(">i", number) + BODIES[struct.pack(">hh", METADATA, 4)]])
        became.append(frames_of(rig.client.data)[-1][4:])
    assert became == [b"0", b"0", b"2", b"2", b"4", b"4"]


def test_an_answer_that_names_a_new_leader_is_read() -> None:
    """The client would go past us."""
    rig, read = Rig(), list[bytes]()
    rig.rewrite = lambda _key, _version, response: read.append(response) or response
    rig.connect()
    with_tag = b"\1" + bytes(4) + b"\1\0\1\1"
    for number, body in enumerate((BODIES[b"\0\0\0\r"], BODIES[b"\0\0\0\r"], with_tag)):
        rig.connection.data_received(numbered(produce(MINE, version=13), number))
        rig.answer([struct.pack(">i", number) + body])
    assert read == [struct.pack(">i", 2) + with_tag]
    assert rig.client.answered() == [0, 1, 2]


@pytest.mark.parametrize(
    "event",
    [
        lambda rig: rig.connection.pause_writing(),
        lambda rig: rig.upstream.pause_writing(),
        lambda rig: rig.connection.drain(),
        lambda rig: rig.connection.eof_received(),
        lambda rig: rig.lose_client(),
        lambda rig: rig.connection.count_by(limiter_at(Times(), 10)),
    ],
)
def test_what_is_under_way_is_known_to_all(event: Callable[[Rig], None]) -> None:
    """Whoever ends or holds a connection, or counts what is under way, finds it."""
    rig = Rig()
    for number in range(3):
        rig.connection.data_received(numbered(produce(b"mine"), number))
    event(rig)
    assert [slot.correlation_id for slot in rig.connection._responses.due] == [0, 1, 2]
    rig.answer([struct.pack(">i", number) + BODIES[produce(b"mine")[4:8]] for number in range(3)])
    assert not rig.connection._responses.due


def begin_another(rig: Rig) -> None:
    """The client sends something else, and only a part of it."""
    rig.connection.data_received(produce(b"yours")[:20])


def let_one_pass(rig: Rig) -> None:
    """The client has to wait for long, so that one request of its is let through."""
    rig.connection.pacer.mute(100_000)
    rig.connection._pump()
    rig.desk.run(bounds.MUTE_SPLIT_MS + 1)


HINDRANCES: tuple[Callable[[Rig], None], ...] = (
    lambda rig: setattr(rig.connection._chain.laws[0], "active", True),
    lambda rig: rig.connection.pacer.mute(1_000) or rig.connection._pump(),
    let_one_pass,
    lambda rig: rig.connection.drain(),
    lambda rig: rig.connection.pause_writing(),
    lambda rig: rig.upstream.pause_writing(),
    lambda rig: rig.connection.count_by(limiter_at(Times(), 10)),
)


@pytest.mark.parametrize("event", (learn, limit, begin_another, *HINDRANCES))
def test_nothing_goes_the_short_way(event: Callable[[Rig], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """While, or once, something may be unusual: not the next one, nor one behind it."""
    rig, taken, take = Rig(), list[bool](), Lane.take
    monkeypatch.setattr(Lane, "take", lambda lane, data: taken.append(take(lane, data)) or taken[-1])
    for number in range(2):
        rig.connection.data_received(numbered(metadata(b"mine"), number))
    assert taken == [False, True]
    event(rig)
    for number in range(2, 3 if event in (learn, limit) else 5):
        rig.connection.data_received(numbered(metadata(b"mine"), number))
    assert not any(taken[2:])


@pytest.mark.parametrize("event", HINDRANCES)
def test_nor_does_what_comes_behind_a_large_one(
    event: Callable[[Rig], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of which the end still passes, so that nothing waits."""
    rig, taken, take = Rig(), list[bool](), Lane.take
    monkeypatch.setattr(Lane, "take", lambda lane, data: taken.append(take(lane, data)) or taken[-1])
    large = numbered(produce(b"mine", size=2 * STREAMED_FROM_BYTES), 1)
    rig.connection.data_received(numbered(produce(b"mine"), 0))
    rig.connection.data_received(large[:STREAMED_FROM_BYTES])
    event(rig)
    for data in (large[STREAMED_FROM_BYTES:], numbered(produce(b"mine"), 2)):
        rig.connection.data_received(data)
    assert not any(taken) and frames_of(rig.upstream.data)[1] == large[4:]


def test_nor_what_only_looks_like_one() -> None:
    """Records may hold anything, such as requests, where a piece of them begins, too."""
    rig, inner = Rig(), numbered(produce(b"mine"), 9)
    large = numbered(produce(b"mine", size=3 * STREAMED_FROM_BYTES), 1)
    large = large[:STREAMED_FROM_BYTES] + inner + large[STREAMED_FROM_BYTES + len(inner) :]
    for data in (numbered(produce(b"mine"), 0), large[:STREAMED_FROM_BYTES], inner):
        rig.connection.data_received(data)
    rig.connection.data_received(large[STREAMED_FROM_BYTES + len(inner) :])
    assert under_way(rig) == [0, 1] and frames_of(rig.upstream.data)[1:] == [large[4:]]


def test_nor_what_only_looks_like_an_answer() -> None:
    """Of one whose length is here the rest may begin with another length, and go on with what is asked."""
    rig, number = Rig(), struct.pack(">i", 12)
    said = framed(number + number + bytes(8))
    for piece, asked_for in ((said[:4], 12), (said[4:], 13)):
        rig.connection.data_received(numbered(asked(HEARTBEAT, 4, b"\0beat"), asked_for))
        rig.connection.upstream_received(piece)
    assert rig.client.data == said and under_way(rig) == [13]


def test_nor_what_is_longer_than_any_may_be() -> None:
    """It ends the connection, as ever; so does such an answer."""
    rig = Rig(max_frame_bytes=1_024)
    for number, size in enumerate((40, 40, 1_024)):
        rig.connection.data_received(numbered(produce(b"mine", size=size), number))
    assert rig.closed("bad_frame") == 1 and len(rig.upstream.sent) == 2
    rig = Rig(max_frame_bytes=1_024)
    rig.connection.data_received(numbered(produce(b"mine"), 0))
    rig.answer([struct.pack(">i", 0) + bytes(1_024)])
    assert rig.closed("bad_response") == 1 and not rig.client.data


def test_what_we_ask_ourselves_comes_behind() -> None:
    """By a timer, such as for the topics of a Streams group; its answer is nobody else's, whatever its id."""
    rig, got = Rig(), list[bytes]()
    for number in range(2):
        rig.connection.data_received(numbered(asked(HEARTBEAT, 4, b"\0beat"), number))
    rig.connection.send(Slot(METADATA, 4, 1, got.append), numbered(metadata(b"mine"), 1)[4:])
    rig.connection.data_received(numbered(asked(HEARTBEAT, 4, b"\0beat"), 1))
    kinds = [frame[:4] for frame in rig.upstream.sent]
    rig.answer([frame[4:8] + BODIES[kind] for frame, kind in zip(rig.upstream.sent, kinds, strict=True)])
    assert rig.client.answered() == [0, 1, 1] and [len(each) for each in got] == [4 + 18]


def test_who_is_asked_for_an_answer_gets_it() -> None:
    """It was asked for before the last request passed."""
    rig, got = Rig(), list[bytes]()
    slot = Slot(METADATA, 4, 7, got.append)
    for queue in (rig.connection._responses.due, rig.connection._responses.answers):
        queue.append(slot)
    for number in range(2):
        rig.connection.data_received(numbered(metadata(b"mine"), number))
    rig.answer([struct.pack(">i", 7) + BODIES[struct.pack(">hh", METADATA, 4)]])
    assert len(got) == 1 and not rig.client.data


@pytest.mark.parametrize("together", [1, 7])
def test_no_more_than_may_be_under_way(together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client is not read on until one is answered."""
    monkeypatch.setattr(bounds, "INFLIGHT_MAX", 20)
    rig = Rig()
    for number in range(0, 28, together):
        data = [numbered(produce(b"mine"), each) for each in range(number, number + together)]
        if rig.client.reading:
            rig.connection.data_received(b"".join(data))
    assert not rig.client.reading and len(rig.upstream.sent) == 20
    rig.answer([struct.pack(">i", number) + BODIES[produce(b"mine")[4:8]] for number in range(20)])
    assert rig.client.reading


def test_a_large_one_passes_while_it_comes() -> None:
    """The second as the first, and what follows it is cut at its end."""
    rig = Rig()
    large = produce(b"mine", size=3 * STREAMED_FROM_BYTES)
    for number in range(3):
        data = numbered(large, number) + numbered(metadata(b"mine"), number + 10)
        for start in range(0, len(data), STREAMED_FROM_BYTES):
            rig.connection.data_received(data[start : start + STREAMED_FROM_BYTES])
    ids = [int.from_bytes(frame[4:8]) for frame in frames_of(rig.upstream.data)]
    assert ids == [number + more for number in range(3) for more in (0, 10)]
    assert rig.metrics.traffic.frames_in == 6


def test_of_two_in_one_piece_none_is_kept() -> None:
    """The second is answered, the first is not: neither is one that is like the first."""
    rig = Rig()
    quiet, loud = produce(b"mine", acks=0), produce(b"mine")
    rig.connection.data_received(numbered(quiet, 1) + numbered(loud, 2))
    rig.connection.data_received(numbered(quiet, 3))
    assert under_way(rig) == [2]


def test_of_what_counts_on_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next of these is another one: no piece is cut out to be compared with it."""
    rig = Rig()
    monkeypatch.setattr(LastRequest, "keep", None)
    rig.connection.data_received(numbered(asked(LIST_GROUPS, 0, b"x"), 1))
    assert under_way(rig) == [1]


def test_what_is_kept_is_short() -> None:
    """A long request is not kept, and a set of policies is not kept alive."""
    protected, rules = OwnTopics(Topics(), active=True), [PolicySet()]
    known = LastRequest(protected, lambda: rules[-1])
    for size, kept in ((KNOWN_BYTES, True), (KNOWN_BYTES + 1, False)):
        long = metadata(b"t" * (size - len(metadata(b""))))
        known.keep(long, size, METADATA, 4, 1)
        assert (known.key == METADATA) is kept
    known.keep(metadata(b"t"), len(metadata(b"t")), METADATA, 4, 1)
    assert known.stands
    gone = ref(rules[0])
    rules[:] = [PolicySet(version=2)]
    assert gone() is None and not known.stands
