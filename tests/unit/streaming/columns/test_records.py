"""Rows of packed records among the records of a shard: the same ones, in however few packs they are kept."""

import pyarrow as pa
import pytest
from pack_kit import packed, records_with, stream_of

from streaming.columns.packed import pack, stream, unpack
from streaming.columns.records import Records
from streaming.laws.pack_routing import PLACE

KINDS = {"api": "CreateTopics", "strict": True}


def events(first: int, count: int, **more: object) -> list[dict[str, object]]:
    """Requests that differ in their id, of few users."""
    return [
        {"type": "request", "id": f"r{i}", "user": f"u{i % 3}", **KINDS, **more}
        for i in range(first, first + count)
    ]


def of(values: list[bytes]) -> Records:
    """Records that are all packed."""
    return records_with(values, [True] * len(values))


def test_packs_that_are_alike_are_kept_together_and_say_the_same() -> None:
    """Each row keeps its object, its record and its number in it."""
    parts = [events(0, 40), events(40, 30), events(70, 50)]
    alone = [of(packed(part)) for part in parts]
    together = of([value for part in parts for value in packed(part)])
    assert len(together.packs) == 1 and len(together) == 120
    assert [together.value_of(i) for i in range(120)] == [
        one.value_of(i) for one in alone for i in range(len(one))
    ]
    places = [(record, row) for record, part in enumerate(parts) for row in range(len(part))]
    assert [together.order_of(i)[1:] for i in range(120)] == places
    partition, offset, row = together.arrivals()
    assert partition.tolist() == [0] * 120
    assert list(zip(offset.tolist(), row.tolist(), strict=True)) == places
    assert together.name_of(75) == "weir.requests-0-2/5"


def test_packs_of_other_columns_or_types_stay_apart_in_their_order() -> None:
    """And what cannot be unpacked comes before them, as ever."""
    parts = [events(0, 20), events(20, 20, late=True), events(40, 20), events(60, 20)]
    refunds = [{"type": "refund", "id": f"f{i}", "of": "x"} for i in range(20)]
    values = [*(packed(part)[0] for part in parts), *packed(refunds), b"nothing"]
    records = of(values)
    assert [(pack.first, pack.type, len(pack)) for pack in records.packs] == [
        (1, "request", 20), (21, "request", 20), (41, "request", 40), (81, "refund", 20),
    ]  # fmt: skip
    assert list(records.unusable) == [0] and records.value_of(0) == b"nothing"
    assert b'"r59"' in records.value_of(60) and b'"r60"' in records.value_of(61)


def test_what_every_shard_got_is_not_put_to_the_rest() -> None:
    """Rows of a pack have come by one way, and laws look at its first one."""
    values = [packed(events(first, 20))[0] for first in (0, 20, 40)]
    records = records_with(values, [True] * 3, broadcast=[False, True, True])
    assert [len(pack) for pack in records.packs] == [20, 40]


def test_parts_of_records_keep_their_rows_numbers() -> None:
    """Parts of two records, cut by routing key: rows 1 and 3 of one, row 0 of the other."""
    _, rows = unpack(packed(events(0, 20))[0])
    cuts = []
    for offset, taken in ((7, [1, 3]), (8, [0])):
        some = rows.take(pa.array(taken))
        for name, said in zip(PLACE, (0, offset, 5, taken), strict=True):
            column = said if isinstance(said, list) else [said] * len(taken)
            some = some.append_column(name, pa.array(column))
        cuts.append(stream("request", some))
    records = records_with(cuts, [True] * 2, places=[(0, 7), (0, 8)], cut=[True] * 2)
    assert len(records.packs) == 1
    assert [records.order_of(i) for i in range(3)] == [(0, 7, 1), (0, 7, 3), (0, 8, 0)]
    assert list(records.ts) == [5, 5, 5]


def test_names_that_are_null_in_a_dictionary_are_written_out() -> None:
    """Arrow puts no two of such dictionaries together."""
    names = pa.DictionaryArray.from_arrays(pa.array([0, 1, 1], pa.int32()), pa.array(["a", None]))
    value = stream_of(pa.record_batch({"user": names}))
    records = of([value, value])
    assert [len(pack) for pack in records.packs] == [6]
    assert records.value_of(0) == records.value_of(3) == b'{"type":"request","user":"a"}'


def test_together_they_are_no_more_than_a_record_may_be() -> None:
    """One name of 2 MB, said twenty times a record: two of these would be too much decompressed."""
    names = pa.DictionaryArray.from_arrays(pa.array([0] * 20, pa.int32()), pa.array(["x" * 2_000_000]))
    value = stream_of(pa.record_batch({"user": names}), options=pa.ipc.IpcWriteOptions(compression="lz4"))
    assert [len(pack) for pack in of([value, value]).packs] == [20, 20]


@pytest.mark.parametrize(("most", "left_out"), [(80_000, []), (50_000, [4]), (20_000, [0, 1, 4])])
@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [4, 3, 1, 2, 0]])
def test_who_says_too_much_by_the_byte_is_left_out(
    most: int, left_out: list[int], order: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """36 records with one id of 600 bytes in 100,000 rows each: no column held it, and the law failed on all.

    Whole records and parts alike, and the same ones in whatever order a batch comes.
    """
    monkeypatch.setattr("streaming.columns.records.COLUMN_BYTES", most)
    names = pa.DictionaryArray.from_arrays(pa.array([0] * 40, pa.int32()), pa.array(["x" * 600]))
    large = stream_of(pa.record_batch({"id": names}))
    rows = pa.record_batch({"id": names, **{name: [1] * 40 for name in PLACE}})
    values = [large, stream("request", rows), *(packed(events(at, 40))[0] for at in (0, 40)), large]
    records = records_with(
        [values[i] for i in order], [True] * 5, places=[(1, i) for i in order], cut=[i == 1 for i in order]
    )
    told = {int(records.offset[at]): records.value_of(at) for at in records.unusable}
    assert told == {i: values[i] for i in left_out}
    held = [i for i in order if i not in left_out]
    assert [records.order_of(i)[1] for i in range(len(told), len(records))] == [
        i for i in held for _ in range(40)
    ]
    for reason in records.unusable.values():
        assert reason.startswith("24040 bytes decompressed of ") and "with others of its batch" in reason


def test_rows_without_bytes_are_counted() -> None:
    """Nulls take none, but each is an event."""
    (value,) = pack("request", pa.record_batch({"user": pa.nulls(600_000)}))
    assert [len(pack) for pack in of([value, value]).packs] == [600_000, 600_000]
