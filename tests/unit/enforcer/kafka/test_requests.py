"""A client's stream of requests: what passes unread, what must be read, where it is cut."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enforcer.kafka.link import Slot
from enforcer.kafka.protocol.frames import BadFrame, Reason
from enforcer.kafka.requests import STREAMED_FROM_BYTES, Requests

LIMIT_BYTES = 50_000
METADATA, PRODUCE, LIST_GROUPS, CREATE_TOPICS = 3, 0, 16, 19


def request(key: int, version: int, correlation_id: int, body: bytes = b"", client_id: bytes = b"c") -> bytes:
    """A framed request."""
    payload = struct.pack(">hhih", key, version, correlation_id, len(client_id)) + client_id + body
    return struct.pack(">i", len(payload)) + payload


def produce(version: int, acks: int, transaction: bytes | None = None) -> bytes:
    """A framed Produce request, its records replaced by zeros."""
    if version >= 9:
        name = b"\0" if transaction is None else bytes([len(transaction) + 1]) + transaction
        return request(PRODUCE, version, 1, b"\0" + name + struct.pack(">h", acks) + bytes(9))
    name = struct.pack(">h", -1 if transaction is None else len(transaction)) + (transaction or b"")
    return request(PRODUCE, version, 1, name * (version >= 3) + struct.pack(">h", acks) + bytes(9))


def fresh() -> Requests:
    """A connection's requests, where the Metadata requests of one client must be read."""
    return Requests(LIMIT_BYTES, lambda key, client_id: key == METADATA and client_id == b"limited")


class Reader:
    """A proxy's whole treatment of requests, without the proxy: passes runs on, reads the others."""

    def __init__(self) -> None:
        self.requests = fresh()
        self.passed = b""
        self.read: list[bytes] = []
        self.slots: list[Slot] = []

    def feed(self, data: bytes) -> None:
        """Take what the socket gave."""
        if self.requests.passing:
            self.passed += self.requests.take_body(data)
        elif not self.requests.add(data):
            return
        while self.requests.left_bytes:
            run = self.requests.run(self.slots, 1_000_000)
            self.passed += run
            if not run:
                frame = self.requests.next()
                if frame is None:
                    return
                self.read.append(frame)


def test_unread_requests_leave_as_one_piece() -> None:
    """Three requests that no rule needs are the very bytes that came, with a slot for each."""
    data = b"".join(request(LIST_GROUPS, 0, number) for number in range(3))
    requests, slots = fresh(), list[Slot]()
    assert requests.add(data)
    assert requests.run(slots, 9) is data
    assert [slot.correlation_id for slot in slots] == [0, 1, 2] and requests.frames == 3


def test_a_run_ends_at_a_request_that_a_rule_needs() -> None:
    """What comes before leaves, the request itself is handed out whole."""
    wanted = request(CREATE_TOPICS, 5, 2, b"body")
    reader = Reader()
    reader.feed(request(LIST_GROUPS, 0, 1) + wanted + request(LIST_GROUPS, 0, 3))
    assert reader.read == [wanted[4:]]
    assert reader.passed == request(LIST_GROUPS, 0, 1) + request(LIST_GROUPS, 0, 3)


def test_metadata_is_read_for_a_client_that_must_not_create_topics() -> None:
    """The same request passes unread for everybody else, for clients without a name too."""
    limited, other = (request(METADATA, 4, 1, bytes(5), name) for name in (b"limited", b"other"))
    nameless = struct.pack(">ihhihi", 14, METADATA, 1, 2, -1, 0)
    reader = Reader()
    reader.feed(other + nameless + limited)
    assert reader.passed == other + nameless and reader.read == [limited[4:]]


def test_a_run_ends_when_there_is_no_room() -> None:
    """No more requests leave than may wait for answers."""
    requests, slots = fresh(), list[Slot]()
    requests.add(b"".join(request(LIST_GROUPS, 0, number) for number in range(5)))
    assert requests.run(slots, 2) == request(LIST_GROUPS, 0, 0) + request(LIST_GROUPS, 0, 1)
    requests.count()
    assert len(slots) == 2 and requests.waiting == 3 and requests.frames == 5
    assert requests.run(slots, 4) and requests.waiting == 1 and requests.frames == 5


@pytest.mark.parametrize("version", [0, 2, 3, 8, 9, 13])
@pytest.mark.parametrize("transaction", [None, b"t" * 40])
def test_produce_without_acks_takes_no_slot(version: int, transaction: bytes | None) -> None:
    """acks is found in every version, with a transactional id and without."""
    for acks in (0, 1, -1):
        reader = Reader()
        reader.feed(produce(version, acks, transaction))
        assert len(reader.slots) == abs(acks) and reader.read == [] and reader.passed


def test_a_large_request_passes_while_it_comes() -> None:
    """Its beginning is sent on at once, the rest as it comes; it is counted when it is whole."""
    data = request(LIST_GROUPS, 0, 1, bytes(STREAMED_FROM_BYTES))
    reader = Reader()
    reader.feed(data[:100])
    assert reader.passed == data[:100] and len(reader.slots) == 1
    assert reader.requests.incomplete and reader.requests.frames == 0
    reader.feed(data[100:5_000])
    reader.feed(data[5_000:] + request(LIST_GROUPS, 0, 2))
    assert reader.passed == data + request(LIST_GROUPS, 0, 2)
    assert not reader.requests.incomplete and reader.requests.frames == 2


def test_a_large_request_that_must_be_read_is_gathered() -> None:
    """Only what no rule needs passes before it is whole."""
    data = request(CREATE_TOPICS, 5, 1, bytes(STREAMED_FROM_BYTES))
    reader = Reader()
    for start in range(0, len(data), 1_000):
        assert reader.read == [] and reader.passed == b""
        reader.feed(data[start : start + 1_000])
    assert reader.read == [data[4:]]


def test_what_was_put_back_comes_again() -> None:
    """A request that has to wait stays at the front and is counted once."""
    requests = fresh()
    requests.add(request(CREATE_TOPICS, 5, 1) + request(LIST_GROUPS, 0, 2))
    frame = requests.next()
    assert frame is not None
    requests.put_back(frame)
    requests.count()
    assert requests.waiting == 2 and requests.frames == 2 and requests.next() == frame
    assert requests.waiting == 1 and requests.frames == 2


@pytest.mark.parametrize(
    ("length", "reason"),
    [(-1, Reason.NEGATIVE_LENGTH), (-(1 << 31), Reason.NEGATIVE_LENGTH), (LIMIT_BYTES + 1, Reason.TOO_LARGE)],
)
@pytest.mark.parametrize("more", [b"", bytes(20)])
def test_absurd_length_is_refused_before_its_payload(length: int, reason: Reason, more: bytes) -> None:
    """Four bytes are enough to refuse a frame, whether it would be passed on, read or counted."""
    data = struct.pack(">i", length) + more
    for look in (lambda r: r.run([], 9), lambda r: r.next(), lambda r: r.count()):
        requests = fresh()
        requests.add(data[:3])
        requests.run([], 9)
        requests.add(data[3:])
        with pytest.raises(BadFrame) as caught:
            look(requests)
        assert caught.value.reason is reason


FRAMES = st.lists(
    st.builds(
        lambda key, version, size, name: request(key, version, 7, bytes(size), name),
        st.sampled_from([LIST_GROUPS, METADATA, CREATE_TOPICS, PRODUCE, 999]),
        st.integers(0, 9),
        st.sampled_from([0, 1, 30, STREAMED_FROM_BYTES]),
        st.sampled_from([b"", b"other", b"limited"]),
    ),
    max_size=12,
)


@given(FRAMES, st.lists(st.sampled_from([1, 3, 4, 13, 14, 15, 40, 7_000, 20_000]), min_size=1, max_size=40))
def test_any_cutting_loses_nothing(frames: list[bytes], sizes: list[int]) -> None:
    """However the network cuts the stream, each request passes or is read once, whole and in order."""
    stream, whole, cut = b"".join(frames), Reader(), Reader()
    for frame in frames:
        whole.feed(frame)
    start, turn = 0, 0
    while start < len(stream):
        size = sizes[turn % len(sizes)]
        cut.feed(stream[start : start + size])
        start, turn = start + size, turn + 1
    assert (cut.passed, cut.read) == (whole.passed, whole.read)
    assert len(cut.slots) == len(whole.slots) and cut.requests.frames == len(frames)
    assert len(cut.passed) + sum(len(frame) + 4 for frame in cut.read) == len(stream)


@given(st.lists(st.binary(max_size=50), max_size=10))
def test_garbage_is_refused_or_waits(pieces: list[bytes]) -> None:
    """Garbage parses or raises BadFrame."""
    reader = Reader()
    try:
        for piece in pieces:
            reader.feed(piece)
    except BadFrame:
        return
    assert len(reader.passed) + sum(len(frame) + 4 for frame in reader.read) <= sum(map(len, pieces))
