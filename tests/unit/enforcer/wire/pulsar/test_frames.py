"""Frames of Pulsar: cut anywhere, of any kind, and what cannot be one."""

from itertools import accumulate

import pytest
from each_kit import each
from hypothesis import given
from hypothesis import strategies as st
from message_kit import kind_of
from property_kit import tries
from pulsar_rig import connect, split

from enforcer.wire.pulsar import frames
from enforcer.wire.pulsar.commands import build, command
from enforcer.wire.pulsar.frames import BadFrame, Reason, Splitter, message_parts
from enforcer.wire.pulsar.schema import new_body

LIMIT = 100_000


def raw(body: bytes, message: bytes = b"") -> bytes:
    """A frame whose command is these bytes."""
    size = len(body)
    return (size + 4 + len(message)).to_bytes(4, "big") + size.to_bytes(4, "big") + body + message


def empty(kind: int) -> bytes:
    """A frame with an empty body, of any kind."""
    return build(kind, new_body(frames.PING))


class Seen:
    """What a splitter hands on."""

    def __init__(self, wanted: set[int], limit: int = LIMIT) -> None:
        self.splitter = Splitter(self._pass, self._take, limit)
        self.splitter.wanted = frozenset(wanted)
        self.data = b""
        self.taken: list[tuple[int, bytes]] = []
        self.whole = True
        self.runs = 0
        self.stops_at: set[int] = set()

    def _pass(self, data: bytes, unfinished: bool) -> None:
        assert data
        self.data += data
        self.whole, self.runs = not unfinished, self.runs + 1

    def _take(self, kind: int, frame: bytes) -> None:
        assert self.whole, "in the middle of another frame"
        self.taken.append((kind, frame))
        self.data += frame
        if len(self.taken) in self.stops_at:
            self.splitter.stopped = True


FRAMES = st.one_of(
    st.sampled_from([empty(kind) for kind in (1, 2, 6, 9, 15, 16, 18, 19, 68, 127)]),
    st.builds(
        lambda size, text: command(frames.LOOKUP, topic=text, request_id=size),
        st.integers(0, 2**64 - 1),
        st.text(max_size=300),
    ),
    st.builds(
        lambda many, payload: build(frames.SEND, new_body(frames.SEND, producer_id=many), payload),
        st.integers(0, 2**40),
        st.binary(max_size=2_000),
    ),
)


@given(st.lists(FRAMES, max_size=12), st.sets(st.sampled_from([1, 6, 18, 23, 127])), st.data())
def test_any_cutting_gives_the_same(sent: list[bytes], wanted: set[int], data: st.DataObject) -> None:
    """However a stream is cut, all of it goes on in order, and each wanted frame is taken whole."""
    stream = b"".join(sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    seen = Seen(wanted)
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        seen.splitter.feed(stream[start:end])
    assert seen.data == stream and seen.whole
    assert seen.taken == [(kind_of(frame), frame) for frame in sent if kind_of(frame) in wanted]
    assert seen.splitter.frames == len(sent)
    assert not seen.splitter.partial and seen.splitter.held_bytes == 0


@tries(1_200)
@given(
    st.lists(FRAMES, min_size=3, max_size=12), st.sets(st.sampled_from([6, 18, 23]), min_size=1),
    st.sets(st.integers(1, 12)), st.data(),
)
def test_whoever_goes_on_gets_all_whole_frames(
    sent: list[bytes], wanted: set[int], stops_at: set[int], data: st.DataObject
) -> None:
    """However a stream is cut, and wherever it is stopped: no whole frame waits for what comes behind it."""
    stream = b"".join(sent)
    ends = [0, *accumulate(map(len, sent))]
    near = st.builds(int.__add__, st.sampled_from(ends), st.sampled_from([-9, 0, 0, 9]))
    cuts = sorted(min(max(cut, 0), len(stream)) for cut in data.draw(st.lists(near, min_size=3, max_size=12)))
    seen = Seen(wanted)
    seen.stops_at = stops_at
    splitter = seen.splitter
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        splitter.stopped |= data.draw(st.booleans())
        splitter.feed(stream[start:end])
        if end < len(stream) and data.draw(st.booleans()):
            continue
        while splitter.stopped:
            splitter.stopped = False
            splitter.feed(b"")
        assert len(seen.data) >= max(one for one in ends if one <= end)
    assert seen.data == stream and seen.whole and not splitter.partial
    assert seen.taken == [(kind_of(frame), frame) for frame in sent if kind_of(frame) in wanted]


@given(st.lists(FRAMES, min_size=1, max_size=12))
def test_what_nobody_wants_leaves_at_once(sent: list[bytes]) -> None:
    """A run of frames is one write; of the last one all that has come goes on, once its kind is known."""
    stream = b"".join(sent)
    seen = Seen(set())
    seen.splitter.feed(stream)
    assert seen.runs == 1
    seen = Seen(set())
    seen.splitter.feed(stream[:-1])
    assert len(stream) - len(seen.data) <= 17
    seen.splitter.feed(stream[-1:])
    assert seen.data == stream


def test_a_large_frame_is_not_gathered_unless_it_is_wanted() -> None:
    """Half a large SEND passes; where somebody wants it it is kept until it is whole."""
    frame = build(frames.SEND, new_body(frames.SEND, producer_id=1), bytes(50_000))
    seen = Seen(set())
    seen.splitter.feed(frame[:30_000])
    assert len(seen.data) == 30_000 and not seen.whole and seen.splitter.held_bytes == 0
    # From the next frame on.
    seen.splitter.wanted = frozenset({frames.SEND})
    seen.splitter.feed(frame[30_000:] + frame[:30_000])
    assert seen.data == frame and seen.splitter.held_bytes == 30_000 and seen.splitter.partial
    seen.splitter.feed(frame[30_000:])
    assert seen.taken == [(frames.SEND, frame)]


def test_a_stopped_stream_is_kept() -> None:
    """Nothing behind a frame that stops it is handed on, until somebody goes on."""
    seen = Seen({frames.CONNECT})
    seen.stops_at = {1}
    splitter = seen.splitter
    splitter.feed(connect() + empty(18))
    splitter.feed(empty(19)[:5])
    assert seen.data == connect() and splitter.held_bytes == 18
    splitter.stopped = False
    splitter.feed(b"")
    assert seen.data == connect() + empty(18)
    splitter.feed(empty(19)[5:])
    assert seen.data == connect() + empty(18) + empty(19)


@each(
    ("data", "reason"),
    [
        ((LIMIT + 1).to_bytes(4, "big") + bytes(20), Reason.TOO_LARGE),
        (b"\xff" * 20, Reason.TOO_LARGE),
        (bytes(12), Reason.BAD_SIZE),
        (b"\0\0\0\x10\0\0\0\x0d" + bytes(20), Reason.BAD_SIZE),
        (b"\0\0\0\x07\0\0\0\x03" + bytes(20), Reason.BAD_SIZE),
        # Something else than the kind comes first.
        (raw(b"\x32\x02\x08\x01\x08\x06"), Reason.BAD_COMMAND),
        # A kind of two bytes.
        (raw(b"\x08\x80\x01\x82\x08\x00"), Reason.BAD_COMMAND),
        # The body of another kind.
        (raw(b"\x08\x06\x2a\x00"), Reason.BAD_COMMAND),
        (raw(b"\x08\x12\x9a\x01\x00"), Reason.BAD_COMMAND),
        # A second kind behind the body: which one counts?
        (raw(b"\x08\x12\x92\x01\x00\x08\x06\x32\x00"), Reason.BAD_COMMAND),
        (raw(b"\x08\x06\x32\x00\x08\x05"), Reason.BAD_COMMAND),
        (raw(b"\x08\x06\x32\x05\x08\x01"), Reason.BAD_COMMAND),
        # A length that does not end.
        (raw(b"\x08\x06\x32" + b"\xff" * 12), Reason.BAD_COMMAND),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", Reason.TOO_LARGE),
    ],
)
def test_what_is_no_frame(data: bytes, reason: Reason) -> None:
    """Each ends the stream with its reason; what came before it was handed on."""
    for pieces in ([data], [data[n : n + 1] for n in range(len(data))]):
        seen = Seen({frames.SEND})
        seen.splitter.feed(empty(18))
        with pytest.raises(BadFrame) as caught:
            for piece in pieces:
                seen.splitter.feed(piece)
        assert caught.value.reason is reason and seen.data == empty(18) and not seen.taken


@given(st.binary(max_size=200), st.integers(1, 50))
def test_noise(data: bytes, step: int) -> None:
    """Bytes of any sort pass or end the stream, and never more is kept than has come."""
    seen = Seen(set(range(0, 128, 3)))
    try:
        for start in range(0, len(data), step):
            seen.splitter.feed(data[start : start + step])
    except BadFrame:
        return
    assert len(seen.data) + seen.splitter.held_bytes <= len(data)


def test_a_long_length_is_read() -> None:
    """A body length of more bytes than it needs is what brokers read, too."""
    frame = raw(b"\x08\x06\x32\x82\x00\x08\x07")
    seen = Seen({frames.SEND})
    seen.splitter.feed(frame)
    assert seen.taken == [(frames.SEND, frame)]
    assert kind_of(frame) == frames.SEND


@pytest.mark.parametrize("checked", [b"", b"\x0e\x01\1\2\3\4"])
@pytest.mark.parametrize("entry", [b"", b"\x0e\x02\0\0\0\3abc"])
def test_parts_of_a_message(entry: bytes, checked: bytes) -> None:
    """Metadata and payload are found with and without a checksum, and behind what the broker adds."""
    message = entry + checked + b"\0\0\0\5metaspayload"
    frame = build(frames.MESSAGE, new_body(frames.MESSAGE, consumer_id=1), message)
    start, at, payload = message_parts(frame)
    assert frame[start:] == message
    assert frame[at:payload] == b"metas" and frame[payload:] == b"payload"


@each(
    "message",
    [b"", b"\x0e\x01", b"\x0e\x01\0\0\0\0", b"\0\0\0\1", b"\xff\xff\xff\xff", b"\x0e\x02" + b"\xff" * 4],
)
def test_no_message(message: bytes) -> None:
    """What has no room for its metadata is none."""
    frame = build(frames.SEND, new_body(frames.SEND, producer_id=1), message)
    with pytest.raises(BadFrame):
        message_parts(frame)


def test_split_agrees() -> None:
    """The kit's own way to cut a stream."""
    assert split(empty(18) + connect()) == [empty(18), connect()]
