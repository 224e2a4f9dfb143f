"""A broker's stream of responses: runs, own answers between them, large ones, bad ones."""

import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from traffic_kit import fetch_response

from enforcer.core.metrics import Traffic
from enforcer.kafka.addresses.brokers import Repeats
from enforcer.kafka.guard.answers import Rewrite
from enforcer.kafka.part import Slot
from enforcer.kafka.pipeline import responses
from enforcer.kafka.pipeline.responses import Responses
from enforcer.wire.kafka.addresses import Rewriter
from streaming.contract.errors import WeirError

LIMIT_BYTES = 50_000
FETCH, LIST_GROUPS, METADATA, API_VERSIONS = 1, 16, 3, 18


def response(correlation_id: int, body: bytes = b"") -> bytes:
    """A framed response."""
    return struct.pack(">ii", 4 + len(body), correlation_id) + body


class Client:
    """Where the answers arrive."""

    def __init__(self, *slots: Slot, rewrite: Rewrite | None = None, limit_bytes: int = LIMIT_BYTES) -> None:
        self.traffic = Traffic()
        self.writes: list[bytes] = []
        rewrite = rewrite or Rewriter(lambda *_: ("p", 1), lambda: 0)
        self.responses = Responses(limit_bytes, rewrite, self.traffic, Repeats())
        self.responses.write = lambda data: self.writes.append(bytes(data))
        self.responses.answers.extend(slots)
        self.responses.due.extend(slots)

    @property
    def data(self) -> bytes:
        """All that arrived."""
        return b"".join(self.writes)


def test_a_run_is_one_write() -> None:
    """Responses that need no change leave as they came, together, and are counted."""
    client = Client(*(Slot(LIST_GROUPS, 0, number) for number in range(3)))
    data = b"".join(response(number, b"body") for number in range(3))
    client.responses.take(data)
    assert client.writes == [data] and client.traffic.bytes_out == len(data)
    assert not client.responses.answers and not client.responses.due


def test_own_answers_keep_their_place() -> None:
    """An answer of the proxy's own leaves between those of the broker, all in one write."""
    own = Slot(LIST_GROUPS, 0, 2)
    own.response = struct.pack(">i", 2)
    client = Client(Slot(LIST_GROUPS, 0, 1), Slot(LIST_GROUPS, 0, 3))
    client.responses.answers.insert(1, own)
    client.responses.take(response(1) + response(3))
    assert client.writes == [response(1) + response(2) + response(3)]


def test_later_answers_wait_for_an_own_one_that_is_missing() -> None:
    """Answers leave in the order of the requests, whoever gives them."""
    own = Slot(LIST_GROUPS, 0, 1)
    client = Client(Slot(LIST_GROUPS, 0, 2))
    client.responses.answers.appendleft(own)
    client.responses.take(response(2))
    assert client.writes == []
    own.response = struct.pack(">i", 1)
    client.responses.flush()
    assert client.data == response(1) + response(2)


def test_what_is_ready_before_a_bad_answer_leaves() -> None:
    """Who asked for it would ask again for what was done: a topic that it has created itself is there."""

    def finish(_: bytes) -> bytes:
        raise WeirError("it cannot be read")

    own, bad = Slot(LIST_GROUPS, 0, 1), Slot(LIST_GROUPS, 0, 2)
    client = Client(own, bad)
    bad.response, bad.finish = struct.pack(">i", 2), finish
    client.responses.flush()
    own.response = struct.pack(">i", 1)
    with pytest.raises(WeirError):
        client.responses.flush()
    assert client.data == response(1)


def test_a_lookup_of_our_own_does_not_reach_the_client() -> None:
    """What the proxy asked for itself is handed to who asked."""
    taken: list[bytes] = []
    client = Client(Slot(LIST_GROUPS, 0, 1))
    client.responses.due.appendleft(Slot(METADATA, 12, 9, taken.append))
    client.responses.take(response(9, b"counts") + response(1))
    assert taken == [response(9, b"counts")[4:]] and client.data == response(1)


def test_a_large_response_passes_while_it_comes() -> None:
    """It is not gathered; an answer that is ready meanwhile waits for its end."""
    own = Slot(LIST_GROUPS, 0, 2)
    client = Client(Slot(LIST_GROUPS, 0, 1))
    client.responses.answers.append(own)
    data = response(1, bytes(30_000))
    client.responses.take(data[:100])
    own.response = struct.pack(">i", 2)
    client.responses.flush()
    client.responses.take(data[100:20_000])
    assert client.data == data[:20_000]
    client.responses.take(data[20_000:])
    assert client.data == data + response(2)


@pytest.mark.parametrize(
    "data",
    [
        response(7), response(1) + response(1), struct.pack(">ib", 1, 0),
        struct.pack(">ii", LIMIT_BYTES + 1, 1),
    ],
)
def test_what_fits_no_request_is_refused(data: bytes) -> None:
    """A broker that lost step: what fitted before has been passed on, the rest has not."""
    client = Client(Slot(LIST_GROUPS, 0, 1))
    with pytest.raises(WeirError):
        client.responses.take(data)
    assert client.data in (b"", response(1))


def fetched(version: int, with_endpoints: bool) -> tuple[Slot, bytes]:
    """A Fetch response of zeros, perhaps with a tagged section at its end that is not empty."""
    end = b"\1\5\1\0" if with_endpoints else b"\0\0\0"
    return Slot(FETCH, version, 1), response(1, b"\0" + bytes(10) + b"\1" * 30 + end)


@pytest.mark.parametrize(("version", "with_endpoints"), [(12, False), (15, True), (16, False), (18, False)])
def test_fetched_records_pass_unread(version: int, with_endpoints: bool) -> None:
    """Where no addresses of new leaders can be, the response leaves as the bytes that came."""
    slot, data = fetched(version, with_endpoints)
    client = Client(slot)
    client.responses.take(data)
    assert client.writes == [data]


def test_addresses_of_new_leaders_are_read() -> None:
    """From version 16 a Fetch response that may end in addresses goes to who replaces them."""
    slot, data = fetched(16, with_endpoints=True)
    client = Client(slot, rewrite=lambda key, version, frame: b"%d %d %d" % (key, version, len(frame)))
    client.responses.take(data)
    assert client.data[4:] == b"1 16 %d" % (len(data) - 4)


@given(
    st.integers(11, 17), st.lists(st.integers(0, 30_000), max_size=8),
    st.lists(st.integers(1, 40_000), min_size=1, max_size=8),
)  # fmt: skip
def test_records_that_move_past_us_leave_in_their_place(
    version: int, moves: list[int], sizes: list[int]
) -> None:
    """However much of them moves, and when: the client gets the same bytes, and they are counted."""
    large = fetch_response(version, {"a": [b"x" * 30_000, b"y" * 40_000], "b": [b"z" * 10]})
    stream = response(1, large[4:]) + response(2, b"next")
    client = Client(Slot(FETCH, version, 1), Slot(LIST_GROUPS, 0, 2), limit_bytes=1 << 20)
    pos, turn = 0, 0

    def move(unread: int) -> int:
        nonlocal pos
        count = min(unread, moves.pop()) if moves else 0
        client.writes.append(stream[pos : pos + count])
        pos += count
        return count

    client.responses.move = move
    with pytest.MonkeyPatch.context() as patch:
        # A tenth of what is worth it, with answers as much smaller: a stream may come byte by byte.
        patch.setattr(responses, "MOVED_FROM_BYTES", responses.MOVED_FROM_BYTES // 10)
        patch.setattr(responses, "MOVED_FROM_READ_BYTES", responses.MOVED_FROM_READ_BYTES // 10)
        while pos < len(stream):
            piece = stream[pos : pos + sizes[turn % len(sizes)]]
            pos, turn = pos + len(piece), turn + 1
            client.responses.take(piece)
    assert client.data == stream and not client.responses.answers
    assert client.traffic.bytes_out == len(stream)


def test_little_is_not_worth_moving() -> None:
    """Nor what is read: the move is asked for the records of a large response, after a large read."""
    asked = list[int]()
    client = Client(Slot(FETCH, 17, 1), limit_bytes=1 << 20)
    client.responses.move = lambda unread: asked.append(unread) or 0
    stream = response(1, fetch_response(17, {"a": [b"x" * 500_000]})[4:])
    for size in (10_000, 100_000, 300_000, 90_025):
        client.responses.take(stream[:size])
        stream = stream[size:]
    # After the second piece; behind the first little was there, behind the third little is to come.
    assert len(asked) == 1 and 390_000 < asked[0] < 400_000


CASES: list[Callable[[int], tuple[Slot, bytes]]] = [
    lambda number: (Slot(LIST_GROUPS, 0, number), b""),
    lambda number: (Slot(LIST_GROUPS, 0, number), bytes(20_000)),
    lambda number: (Slot(FETCH, 12, number), bytes(300)),
    lambda number: (Slot(FETCH, 16, number), bytes(18_000)),
    lambda number: (Slot(METADATA, 1, number), struct.pack(">iiihi", 1, 0, 5, 0, 9) + bytes(10)),
    # Kept as it is, and so known when it comes again.
    lambda number: (Slot(API_VERSIONS, 0, number), struct.pack(">hihhh", 0, 1, 3, 0, 12)),
]


@given(
    st.lists(st.sampled_from(CASES), max_size=10),
    st.lists(st.sampled_from([1, 3, 4, 7, 8, 9, 100, 19_000, 40_000]), min_size=1, max_size=30),
)
def test_any_cutting_gives_the_same_answers(
    cases: list[Callable[[int], tuple[Slot, bytes]]], sizes: list[int]
) -> None:
    """However the network cuts the stream, the client gets the same bytes."""
    made = [case(number) for number, case in enumerate(cases)]
    stream = b"".join(response(slot.correlation_id, body) for slot, body in made)
    client = Client(*(slot for slot, _ in made))
    start, turn = 0, 0
    while start < len(stream):
        size = sizes[turn % len(sizes)]
        client.responses.take(stream[start : start + size])
        start, turn = start + size, turn + 1
    assert client.data == stream and not client.responses.answers
