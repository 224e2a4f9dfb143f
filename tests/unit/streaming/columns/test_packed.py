"""Packed records: what goes in comes out, and what is none is refused before it does harm."""

import random
import struct

import pyarrow as pa
import pytest
from law_kit import request
from pack_kit import json_of, packed, stream_of

from streaming.columns import announced
from streaming.columns import packed as packed_module
from streaming.columns.json_columns import columns_of
from streaming.columns.json_rows import objects
from streaming.columns.packed import (
    CONTENT_TYPE,
    DECODED_BYTES,
    ROWS_MAX,
    columns_in,
    decoded_bytes,
    is_packed,
    pack,
    plain_form,
    schema_of,
    unpack,
)
from streaming.contract.errors import BadEvent

REQUESTS = [request(f"r{number}", number, 1, 2, user=f"u{number % 3}") for number in range(100)]
REPORTS = [
    {"type": "group_usage", "id": "b", "broker": "b1", "usage": {"g1": {"publishedMsg": 5}, "g2": {}}},
    {"type": "group_usage", "id": "c", "broker": "b2", "usage": {}},
]


def objects_of(value: bytes) -> list[bytes]:
    type, rows = unpack(value)
    return objects(type, rows).to_pylist()


def test_rows_mean_what_their_objects_say() -> None:
    assert [line for value in packed(REQUESTS) for line in objects_of(value)] == json_of(REQUESTS)


def test_the_header_says_whether_a_record_is_packed() -> None:
    assert is_packed([("x", None), ("content-type", CONTENT_TYPE.encode())])
    assert is_packed([("content-type", CONTENT_TYPE)])
    assert not is_packed([("content-type", b"application/json")])
    assert not is_packed(None)


def test_a_record_has_at_most_so_many_bytes_and_order_is_kept() -> None:
    rows = columns_of(REQUESTS).drop_columns("type")
    values = list(pack("request", rows, most=3_000))
    assert len(values) > 2
    assert max(map(len, values)) <= 3_000
    assert [line for value in values for line in objects_of(value)] == json_of(REQUESTS)
    assert list(pack("request", rows.slice(0, 0))) == []


def test_rows_that_say_a_long_name_again_are_no_bomb(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients choose names of 32 kB: no reader took a record with 2,100 decisions about one of them."""
    monkeypatch.setattr(packed_module, "DECODED_BYTES", 20_000)
    rows = pa.record_batch({"id": [str(number) for number in range(100)], "user": ["x" * 1_000] * 100})
    values = list(pack("request", rows))
    assert [row for value in values for row in unpack(value)[1].to_pylist()] == rows.to_pylist()


def test_one_row_alone_may_be_larger() -> None:
    rows = pa.record_batch({"id": ["x" * 100, "y"]})
    assert [unpack(value)[1].num_rows for value in pack("request", rows, most=10)] == [1, 1]


def test_texts_that_repeat_are_dictionaries() -> None:
    rows = pa.record_batch({"id": [f"r{i}" for i in range(1000)], "user": ["alice"] * 1000})
    (value,) = pack("request", rows)
    _, read = unpack(value)
    assert pa.types.is_string(read["id"].type)
    assert pa.types.is_dictionary(read["user"].type)
    # A few of many rows carry no name that none of them has.
    users = pa.array([f"u{i}" for i in range(1000)]).dictionary_encode()
    narrow = pa.record_batch({"user": users}).slice(0, 1)
    assert len(next(pack("request", narrow))) < 1_000


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint16(), pa.int32(), pa.uint64()])
def test_any_integer_type_will_do(kind: pa.DataType) -> None:
    _, rows = unpack(stream_of(pa.record_batch({"api_version": pa.array([7, None], kind)})))
    assert rows["api_version"].equals(pa.array([7, None], pa.int64()))


def test_an_integer_beyond_64_bits_stays_what_it_is() -> None:
    _, rows = unpack(stream_of(pa.record_batch({"ts": pa.array([2**64 - 1], pa.uint64())})))
    assert rows["ts"].to_pylist() == [2**64 - 1]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[("g1", {"publishedMsg": 5}), ("g2", {"publishedMsg": None})]],
                 pa.map_(pa.string(), pa.struct([("publishedMsg", pa.int32())]))),
        pa.array([{"g1": {"publishedMsg": 5}, "g2": {"publishedMsg": None}}],
                 pa.struct([("g1", pa.struct([("publishedMsg", pa.int32())])),
                            ("g2", pa.struct([("publishedMsg", pa.int32())]))])),
    ],
)  # fmt: skip
def test_maps_and_structs_say_the_same(column: pa.Array) -> None:
    written = objects_of(stream_of(pa.record_batch({"usage": column}), "group_usage"))
    assert written == [b'{"type":"group_usage","usage":{"g1":{"publishedMsg":5},"g2":{}}}']


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int8()), pa.large_list(pa.int64()), pa.list_(pa.int32(), 2), pa.list_(pa.uint16())]
)
def test_lists_of_any_form(kind: pa.DataType) -> None:
    column = pa.array([[1, 2], [3, 4], None, [5, 6]], kind)
    assert plain_form(column.slice(1)).equals(pa.array([[3, 4], None, [5, 6]], pa.list_(pa.int64())))


def test_lists_in_no_list_may_leave_their_offsets_out() -> None:
    """As Java does. What was read instead went for a place before the first element: that ended the job."""
    nothing = pa.py_buffer(struct.pack("<i", -5)).slice(0, 0)
    none = pa.array([], pa.int64())
    lists = pa.Array.from_buffers(pa.list_(pa.int64()), 0, [None, nothing], children=[none])
    samples = pa.ListArray.from_arrays(pa.array([0, 0], pa.int32()), lists)
    assert decoded_bytes(pa.record_batch({"samples": samples})) == 1
    assert plain_form(samples).to_pylist() == [[]]


def test_batches_of_a_stream_are_one() -> None:
    encoded = [pa.array(names).dictionary_encode() for names in (["a", "b", "a"], ["c", "a"])]
    table = pa.Table.from_batches([pa.record_batch({"user": column}) for column in encoded])
    type, rows = unpack(stream_of(table))
    assert (type, rows["user"].to_pylist()) == ("request", ["a", "b", "a", "c", "a"])


def test_a_column_that_says_the_type_again_is_left_out() -> None:
    rows = pa.record_batch({"type": ["request"], "id": ["a"]})
    assert objects_of(stream_of(rows)) == [b'{"type":"request","id":"a"}']
    with pytest.raises(BadEvent, match="one type"):
        unpack(stream_of(rows, "refund"))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "not an Arrow IPC stream"),
        (b'{"type":"request"}', "not an Arrow IPC stream"),
        (stream_of(pa.record_batch({"id": ["a"]}), None), "weir.type: missing"),
        (stream_of(pa.record_batch({"id": pa.array([], pa.string())})), "no row"),
        (stream_of(pa.record_batch({"type": ["request"]})), "no column"),
        (stream_of(pa.record_batch({"id": [b"a"]})), "id: binary"),
        (stream_of(pa.record_batch({"ts": pa.array([1], pa.timestamp("ms"))})), "ts: timestamp"),
        (stream_of(pa.RecordBatch.from_arrays([pa.array([1])] * 2, ["a", "a"])), "twice"),
        (stream_of(pa.record_batch({"id": ["a"]}))[:-30], "not an Arrow IPC stream"),
        (stream_of(pa.record_batch({"id": pa.nulls(ROWS_MAX + 1)})), "rows"),
    ],
)  # fmt: skip
def test_what_is_no_packed_record_is_refused(value: bytes, reason: str) -> None:
    with pytest.raises(BadEvent, match=reason):
        unpack(value)


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_bomb_is_refused_before_it_is_decompressed(compression: str) -> None:
    rows = pa.record_batch({"id": ["a" * (DECODED_BYTES + 1)]})
    value = stream_of(rows, options=pa.ipc.IpcWriteOptions(compression=compression))
    before = pa.default_memory_pool().max_memory()
    del rows
    with pytest.raises(BadEvent, match=f"at most {DECODED_BYTES}"):
        unpack(value)
    assert pa.default_memory_pool().max_memory() == before


def test_a_buffer_of_less_than_nothing_hides_no_bomb() -> None:
    """Arrow looks at none that no column uses, so one of these could say so."""
    rows = pa.record_batch({"id": ["a" * (DECODED_BYTES + 1)], "last": ["b"]})
    value = stream_of(rows, options=pa.ipc.IpcWriteOptions(compression="lz4"))
    message = list(pa.ipc.MessageReader.open_stream(value))[-1]
    head, body = (bytearray(part.to_pybytes()) for part in (message.metadata, message.body))
    view = memoryview(head)
    batch = announced._target(view, announced._field(view, announced._int(view, "<I", 0), 2))
    buffers = announced._target(view, announced._field(view, batch, 2))
    last = buffers + 4 + 16 * (announced._int(view, "<I", buffers) - 1)
    struct.pack_into("<q", body, announced._int(view, "<q", last), -1)
    struct.pack_into("<q", head, last + 8, -(2**40))
    changed = value.replace(message.metadata.to_pybytes(), bytes(head))
    with pytest.raises(BadEvent, match=f"at most {DECODED_BYTES}"):
        unpack(changed.replace(message.body.to_pybytes(), bytes(body)))


def test_columns_of_views_are_refused_before_they_are_read() -> None:
    """They say how many buffers they have, and 2**31 of them ended the process: none is made for so many."""
    value = stream_of(pa.record_batch({"id": pa.array(["a" * 20], pa.string_view()), "ts": [1]}))
    for read in (unpack, lambda value: columns_in(value, "request", ["ts"])):
        with pytest.raises(BadEvent, match="a column of views"):
            read(value)


def test_the_type_is_told_without_reading_rows() -> None:
    """Of damaged rows too; of what is no stream, or says none, the reason."""
    (value,) = packed(REPORTS)
    assert schema_of(value)[0] == "group_usage"
    assert schema_of(value[: len(value) * 3 // 4])[0] == "group_usage"
    nameless = stream_of(pa.record_batch({"a": [1]}), None)
    for wrong, reason in ((b"x", "not an Arrow IPC stream"), (nameless, "weir.type: missing")):
        with pytest.raises(BadEvent, match=reason):
            schema_of(wrong)


def test_a_bomb_of_references_is_refused() -> None:
    large = pa.DictionaryArray.from_arrays(pa.array([0] * 1000), pa.array(["a" * 100_000]))
    value = stream_of(pa.record_batch({"id": large}))
    for read in (unpack, lambda value: columns_in(value, "request", ["id"])):
        with pytest.raises(BadEvent, match=f"at most {DECODED_BYTES}"):
            read(value)
    nulls = pa.array([[None]], pa.list_(pa.null())).take(pa.array([0] * 10))
    assert objects_of(stream_of(pa.record_batch({"items": nulls})))[0] == b'{"type":"request","items":[null]}'


def test_damaged_streams_are_refused_or_read_but_never_worse() -> None:
    """Bytes turned over anywhere: a length, an offset, a number of a dictionary, what is compressed."""
    draw = random.Random(7)
    whole = [packed(REQUESTS)[0], packed(REPORTS)[0], stream_of(columns_of(REQUESTS[:5]))]
    refused = 0
    for _ in range(3_000):
        value = bytearray(draw.choice(whole))
        for _ in range(draw.randrange(1, 4)):
            at = draw.randrange(len(value) - 8)
            if draw.random() < 0.5:
                value[at] ^= 1 << draw.randrange(8)
            else:
                struct.pack_into("<i", value, at, draw.choice([-1, 0, 1, 2**31 - 1, -(2**31), 65_536]))
        try:
            objects_of(bytes(value))
        except BadEvent:
            refused += 1
    assert 500 < refused < 3_000


@pytest.mark.parametrize("inside", [False, True])
def test_lists_beside_a_piece_are_not_written_with_it(inside: bool) -> None:
    """Of lists without an element Arrow writes where the texts of all others end."""
    names = [f"topic-{number}" for number in range(20_000)]
    column = pa.array([[]] * 2_000 + [[name] for name in names], pa.large_list(pa.large_string()))
    if inside:
        column = pa.StructArray.from_arrays([column], ["rejected"])
    pieces = list(pack("admission", pa.record_batch({"x": column}), 16_384))
    assert [row for piece in pieces for row in unpack(piece)[1]["x"].to_pylist()] == column.to_pylist()
    assert max(map(len, pieces)) <= 16_384 and len(pieces) < 40


def test_many_rows_are_cut_by_what_some_of_them_take() -> None:
    """However unlike those that are tried are to the others: no record is larger, and nothing is lost."""
    draw = random.Random(7)
    texts = [f"{draw.random()}" * (9 if 3_000 < i < 6_000 else 1) for i in range(20_000)]
    rows = pa.record_batch({"id": texts})
    for most in (20_000, 100_000, 400_000):
        values = list(pack("request", rows, most))
        assert all(len(value) <= most for value in values) and len(values) > 1
        assert [name for value in values for name in unpack(value)[1]["id"].to_pylist()] == texts
    assert len(list(pack("request", rows))) == 1
