"""A client's stream of requests: what passes unread, what must be read, where it is cut."""

import struct

import pytest
from each_kit import each
from hypothesis import given
from hypothesis import strategies as st

from enforcer.kafka.guard.apis import FILTERED
from enforcer.kafka.guard.protected import OwnTopics
from enforcer.kafka.part import Request, Slot
from enforcer.kafka.pipeline.requests import STREAMED_FROM_BYTES, UNREAD, Requests
from enforcer.wire.kafka.codec import request_layout
from enforcer.wire.kafka.frames import BadFrame, Reason, parse_header
from streaming.contract.topics import Topics

LIMIT_BYTES, ADMIN_BYTES, SMALL_BYTES = 50_000, 40_000, 30_000
METADATA, PRODUCE, LIST_GROUPS, CREATE_TOPICS = 3, 0, 16, 19
OPEN = OwnTopics(Topics(), active=False)


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

    def must_read(key: int, client_id: bytes) -> bool:
        return key == METADATA and client_id == b"limited"

    requests = Requests(LIMIT_BYTES, must_read, OPEN, lambda: OPEN)
    requests._limits = (ADMIN_BYTES, SMALL_BYTES, LIMIT_BYTES)
    requests.asked = frozenset({METADATA})
    return requests


class Reader:
    """A proxy's whole treatment of requests, without the proxy: passes runs on, reads the others."""

    def __init__(self, requests: Requests | None = None) -> None:
        self.requests = fresh() if requests is None else requests
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
    assert requests.run(slots, 2) and requests.waiting == 1 and requests.frames == 5


@each("version", [0, 2, 3, 8, 9, 13])
@each("transaction", [None, b"t" * 40])
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
    requests.add(request(CREATE_TOPICS, 4, 1) + request(LIST_GROUPS, 0, 2))
    frame = requests.next()
    assert frame is not None
    requests.put_back(Request(frame, parse_header(frame), ""))
    requests.count()
    assert requests.waiting == 2 and requests.frames == 2 and requests.next() == frame
    assert requests.waiting == 1 and requests.frames == 2


@each(
    ("length", "reason"),
    [(-1, Reason.NEGATIVE_LENGTH), (-(1 << 31), Reason.NEGATIVE_LENGTH), (LIMIT_BYTES + 1, Reason.TOO_LARGE)],
)
@each("more", [b"", bytes(20)])
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
        st.sampled_from([LIST_GROUPS, METADATA, CREATE_TOPICS, PRODUCE, 999]), st.integers(0, 9),
        st.sampled_from([0, 1, 30, STREAMED_FROM_BYTES]), st.sampled_from([b"", b"other", b"limited"]),
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


def guarded() -> Requests:
    """A connection's requests where topics under `weir.` must not pass, nor one with a certain id."""
    protected = OwnTopics(Topics(), active=True)
    protected.learn([b"W" * 16])
    requests = Requests(LIMIT_BYTES, lambda key, client_id: False, protected, lambda: OPEN)
    requests._limits = (ADMIN_BYTES, SMALL_BYTES, LIMIT_BYTES)
    return requests


@each("key", sorted(FILTERED & UNREAD.keys() - {PRODUCE}))
def test_a_request_that_could_name_weirs_topics_is_read(key: int) -> None:
    """By the bytes of a name or an id anywhere in it; without them it passes, JoinGroup always."""
    version = UNREAD[key][1]
    by_id = key in (1, 3, 8, 9, 78, 79)
    ours = b".\0\x0dweir.policies..", b".\x0eweir.policies.."
    passing = {b"..mine..": True, b"W" * 16: not by_id, b"..theirs.weir.policies..".rjust(300, b"."): True}
    for body, passes in (*((one, False) for one in ours), *passing.items()):
        requests = guarded()
        assert requests.add(request(key, version, 1, body))
        assert bool(requests.run([], 9)) is passes
    requests = guarded()
    assert requests.add(request(11, 5, 1, b"weir.")) and requests.run([], 9)


def produce_to(
    version: int, topics: list[bytes], transaction: bytes | None = None, records: int = 70
) -> bytes:
    """A framed Produce request with a partition of each topic."""
    parts = [
        {"Name": topic, "TopicId": topic.ljust(16, b"i")[:16],
         "PartitionData": [{"Index": 0, "Records": bytes(records)}]}
        for topic in topics
    ]  # fmt: skip
    body = {"TransactionalId": transaction, "Acks": 1, "TopicData": parts}
    return request(PRODUCE, version, 1, b"\0" * (version >= 9) + request_layout(0, version).write(body))


def cut_at(data: bytes, place: int) -> tuple[bytes, list[bytes]]:
    """What passes such a guard, and what is read, of requests that come in two pieces."""
    reader = Reader(guarded())
    reader.feed(data[:place])
    reader.feed(data[place:])
    return bytes(reader.passed), reader.read


@each("version", [0, 2, 3, 8, 9, 12])
@each(
    ("topics", "transaction", "passes"),
    [
        ([b"mine"], None, True), ([b"weir.usage"], None, False), ([b"mine", b"weir.usage"], None, False),
        ([b"mine", b"acme.weir.x"], b"txn", True), ([b"mine"], b"weir.policies", False),
        ([b"weir." + b"x" * 200], None, False), ([b"x" * 200 + b"weir."], None, True), ([], None, True),
    ],
)  # fmt: skip
def test_produce_passes_by_its_structure(
    version: int, topics: list[bytes], transaction: bytes | None, passes: bool
) -> None:
    """However it is cut: what has a topic of Weir's is read, what has none passes."""
    passes = passes or (version < 3 and transaction == b"weir.policies")
    for records in (70, 20_000):
        data = produce_to(version, topics, transaction, records)
        for cut in (*range(0, 120), len(data) - 1):
            assert cut_at(data, cut) == ((data, []) if passes else (b"", [data[4:]]))


def written_longer(data: bytes, before: bytes, number: bytes, after: bytes, size: int) -> bytes:
    """A framed request with the number between these bytes as a varint of too many bytes."""
    assert data.count(before + number + after) == 1
    longer = bytes([number[0] | 0x80, *[0x80] * (size - 2), 0])
    payload = data[4:].replace(before + number + after, before + longer + after)
    return struct.pack(">i", len(payload)) + payload


@each("transaction", [None, b"txn"])
@each("size", [2, 3, 4, 5])
@each("version", [9, 12, 13])
def test_a_number_longer_than_need_be_hides_nothing(
    version: int, size: int, transaction: bytes | None
) -> None:
    """Of the name, of the topics, of the header's tags: a broker takes it, so it is read as one does."""
    own_id = version == 13
    for topic, passes in ((b"W" * 16 if own_id else b"weir.policies", False), (b"mine", True)):
        length = bytes([len(topic) + 1])
        start = topic.ljust(16, b"i") if own_id else length + topic
        places = [(b"c", b"\0", b"\0" if transaction is None else b"\x04txn"), (b"", b"\2", start)]
        places += [] if own_id else [(b"\2", length, topic)]
        for place in places:
            for records in (70, 20_000):
                data = written_longer(produce_to(version, [topic], transaction, records), *place, size)
                for cut in (*range(0, 60, 3), len(data) - 1, len(data)):
                    assert cut_at(data, cut) == ((data, []) if passes else (b"", [data[4:]]))


@pytest.mark.parametrize("records", [70, 20_000])
@pytest.mark.parametrize("last", [0x10, 0x70])
def test_bits_beyond_32_hide_nothing(last: int, records: int) -> None:
    """A broker drops them; no client sends them, so whoever does is read, and refused as damaged."""
    spot = b"\x0eweir.policies"
    payload = produce_to(9, [spot[1:]], None, records)[4:]
    payload = payload.replace(spot, bytes([0x8E, 0x80, 0x80, 0x80, last]) + spot[1:])
    reader = Reader(guarded())
    reader.feed(struct.pack(">i", len(payload)) + payload)
    assert (reader.passed, reader.read) == (b"", [payload])
    with pytest.raises(BadFrame):
        reader.requests._protected.names_ours(payload, parse_header(payload))


def test_produce_by_id() -> None:
    """From version 13 on topics have ids."""
    for topics, passes in (([b"W" * 16], False), ([b"V" * 16], True), ([b"V" * 16, b"W" * 16], False)):
        requests = guarded()
        requests.add(produce_to(13, topics))
        assert bool(requests.run([], 9)) is passes


@pytest.mark.parametrize(
    ("key", "version", "name_bytes", "limit"),
    [
        (CREATE_TOPICS, 5, -1, ADMIN_BYTES), (17, 1, -1, SMALL_BYTES), (999, 0, -1, SMALL_BYTES),
        (LIST_GROUPS, 0, -1, LIMIT_BYTES),
        # Damaged ones of no log in: 14 bytes would keep others from the room for large requests.
        (PRODUCE, 3, -2, SMALL_BYTES), (PRODUCE, 99, -1, SMALL_BYTES), (PRODUCE, -1, -1, SMALL_BYTES),
    ],
)
def test_what_is_gathered_is_bounded(key: int, version: int, name_bytes: int, limit: int) -> None:
    """By its kind, as soon as its header is here; what passes unread may be as long as any."""
    for length in (limit, limit + 1):
        requests = fresh()
        requests.add(struct.pack(">ihhih", length, key, version, 1, name_bytes))
        if length == limit:
            requests.run([], 9)
            continue
        with pytest.raises(BadFrame) as caught:
            requests.run([], 9)
        assert caught.value.reason is Reason.TOO_LARGE


@pytest.mark.parametrize("version", [3, 9])
def test_a_head_that_comes_in_pieces_gathers_nothing(version: int) -> None:
    """A long Produce passes as soon as its acks are here, however long its client id is."""
    body = struct.pack(">h", -1) + struct.pack(">h", 1) if version < 9 else b"\0\0" + struct.pack(">h", 1)
    data = request(PRODUCE, version, 1, body + bytes(10_000), b"c" * 30_000)
    reader = Reader()
    for start in range(0, 32_000, 500):
        reader.feed(data[start : start + 500])
    assert len(reader.passed) >= 31_000 and reader.read == []


def test_what_might_pass_is_bounded_where_it_is_kept() -> None:
    """One that finds no slot is answered when it is whole."""
    begun = request(LIST_GROUPS, 0, 1, bytes(ADMIN_BYTES))[:100]
    kept, passing = fresh(), fresh()
    assert kept.add(begun) and passing.add(begun)
    assert passing.run([], 9)
    with pytest.raises(BadFrame):
        kept.gather()


def test_a_large_produce_passes_as_soon_as_its_topic_is_known() -> None:
    """Cut in front of the topic it waits for a few bytes more, and is not gathered."""
    reader = Reader(guarded())
    data = produce_to(9, [b"mine"], None, 30_000)
    reader.feed(data[:24])
    assert reader.passed == b""
    reader.feed(data[24:200])
    assert reader.passed == data[:200]
