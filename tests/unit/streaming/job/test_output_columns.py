"""What leaves the live job: many decisions of one partition packed, in their order; all else one by one."""

from base64 import b64encode
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest

from streaming.columns import outputs as outputs_module
from streaming.columns.json_columns import columns_of
from streaming.columns.json_rows import objects
from streaming.columns.outputs import DecisionRows, DecisionTexts, Outputs
from streaming.columns.packed import CONTENT_TYPE, HEADER, is_packed, unpack
from streaming.columns.records import Pack, Records
from streaming.contract.topics import Topics
from streaming.job.output_columns import NEVER, RECORD_BYTES_MAX, PackRule, limit_record_size, output_columns
from streaming.job.schemas import OUTPUT
from streaming.job.spark.counts import counts_of
from streaming.laws.dispatch.table import DECISION
from streaming.laws.name_hashes import partition_of

TOPICS = Topics()
PARTITIONS = 3


def admissions(count: int, subjects: int = 7, **fields: Any) -> DecisionRows:
    rows = [
        {"id": f"r{n}", "ts": n, "subject": f"user=u{n % subjects}", "limit": None if n % 5 else 2.0} | fields
        for n in range(count)
    ]
    names = pa.array([f"user=u{n}" for n in range(subjects)])
    return DecisionRows(
        type="admission", rows=columns_of(rows), source=np.arange(count), keys=names,
        key=np.arange(count) % subjects,
    )  # fmt: skip


def shares(count: int, brokers: int = 2) -> DecisionRows:
    rows = [{"id": f"s{n}", "ts": n, "group": f"g{n}", "broker": f"b{n % brokers}"} for n in range(count)]
    keys = pa.array([f"{row['group']}/{row['broker']}" for row in rows])
    return DecisionRows(type="share", rows=columns_of(rows), source=np.arange(count), keys=keys)


def deliveries(large: int = 1, **fields: Any) -> Outputs:
    """Decisions on dispatch of some brokers and topics, and the same said again; two have long names."""
    rows = [
        {
            "id": f"d{n}", "ts": n, "broker": f"b{n % 5}", "topic": f"t{n % 3}",
            "subscription": "s" * (large if n in (7, 8) else 1),
        } | fields
        for n in range(40)
    ]  # fmt: skip
    keys = pa.array([f"{row['topic']}/{row['subscription']}" for row in rows])
    decided = DecisionRows(type="dispatch", rows=columns_of(rows), source=np.arange(40), keys=keys)
    again = DECISION.columns([(0, {"type": "dispatch", **row, "repeat": True}) for row in rows])
    return Outputs(columns=[decided, again])


def records(count: int) -> Records:
    """What they are on."""
    offsets, none = [*range(count)], [0] * count
    return Records(topic=["t"] * count, partition=none, offset=offsets, ts=none, value=[b"{}"] * count)


def pieces(outputs: Outputs, packing: PackRule | None) -> list[list[dict[str, Any]]]:
    """Rows of the sink, piece by piece."""
    names = [field.split()[0] for field in OUTPUT.split(", ")]
    found = output_columns(outputs, TOPICS, packing)
    return [pa.RecordBatch.from_arrays(columns, names).to_pylist() for columns in found]


def sent(outputs: Outputs, least: int = 4) -> list[dict[str, Any]]:
    """Rows of the sink."""
    return [row for rows in pieces(outputs, PackRule(least=least, partitions=PARTITIONS)) for row in rows]


def written(row: dict[str, Any]) -> list[bytes]:
    """The decisions of a row of the sink."""
    headers = [(one["key"], one["value"]) for one in row["headers"] or ()]
    if not is_packed(headers):
        return [row["value"]]
    type, rows = unpack(row["value"])
    return objects(type, rows).to_pylist()


def test_each_partition_has_its_decisions_in_their_order() -> None:
    outputs = Outputs(columns=[admissions(100)])
    wanted: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}
    places = partition_of(outputs.column("key"), PARTITIONS).tolist()
    for place, value in zip(places, outputs.value, strict=True):
        wanted[place].append(value)
    rows = sent(outputs)
    assert {row["partition"]: written(row) for row in rows} == {n: v for n, v in wanted.items() if v}
    assert {(row["topic"], row["key"]) for row in rows} == {(TOPICS.decisions, b"")}
    assert rows[0]["headers"] == [{"key": HEADER, "value": CONTENT_TYPE.encode()}]


def test_few_of_a_partition_leave_one_by_one() -> None:
    outputs = Outputs(columns=[admissions(30)])
    count = Counter(partition_of(outputs.column("key"), PARTITIONS).tolist())
    least = sorted(count.values())[-1]
    rows = sent(outputs, least)
    alone = [row for row in rows if row["headers"] is None]
    assert sum(row["headers"] is not None for row in rows) == sum(n >= least for n in count.values())
    assert len(alone) == sum(n for n in count.values() if n < least)
    assert {row["key"] for row in alone} <= {key.encode() for key in outputs.listed("key")}
    # Where packed ones of their subjects go, also when the topic has got more partitions meanwhile.
    places = partition_of(pa.array([row["key"].decode() for row in alone]), PARTITIONS).tolist()
    assert [row["partition"] for row in alone] == places
    assert sorted(value for row in rows for value in written(row)) == sorted(outputs.value)
    # And nothing is packed where too few are there in all.
    assert [row["value"] for row in sent(outputs, 31)] == outputs.value


def test_shares_are_packed_by_the_one_that_they_are_for() -> None:
    rows = sent(Outputs(columns=[shares(60)]))
    for row in rows:
        brokers = {orjson.loads(value)["broker"] for value in written(row)}
        assert {row["key"].decode()} == brokers or row["headers"] is None
    assert sum(map(len, map(written, rows))) == 60
    assert {row["key"] for row in rows if row["headers"] is not None} == {b"b0", b"b1"}


def test_a_receiver_with_a_long_name_has_room_for_it_in_its_records() -> None:
    """It is the key of what is packed for it, and a record that a broker refuses ends the query for ever."""
    text = b64encode(np.random.default_rng(1).bytes(900_000)).decode()
    broker, groups = text[:250_000], [text[place:][:30_000] for place in range(250_000, 850_000, 30_000)]
    keys = [f"{group}/{broker}" for group in groups]
    said = zip(keys, groups, strict=True)
    rows = columns_of([{"id": f"{key}@1", "ts": 1, "group": group, "broker": broker} for key, group in said])
    decided = DecisionRows(type="share", rows=rows, source=np.arange(len(keys)), keys=pa.array(keys))
    sizes = [len(row["key"]) + len(row["value"]) for row in sent(Outputs(columns=[decided]))]
    assert max(sizes) <= RECORD_BYTES_MAX and len(sizes) < len(keys)


def test_few_for_each_of_many_are_written_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """To write a row alone costs as much as thousands at once: many proxies of few groups would cost that."""
    made: list[int] = []

    def noted(type: str, rows: pa.RecordBatch, end: str) -> pa.Array:
        made.append(len(rows))
        return objects(type, rows, end=end)

    monkeypatch.setattr(outputs_module, "objects", noted)
    rows = sent(Outputs(columns=[shares(60, brokers=20)]))
    assert made == [60]
    assert sorted(orjson.loads(row["value"])["id"] for row in rows) == sorted(f"s{n}" for n in range(60))


@pytest.mark.parametrize("least", [4, NEVER])
def test_decisions_of_a_broker_keep_their_order_whatever_their_topics(least: int) -> None:
    """Dispatch decisions go where their broker belongs, packed, one by one and said again."""
    found = sent(deliveries(), least)
    brokers = [f"b{n}" for n in range(5)]
    places = dict(zip(brokers, partition_of(pa.array(brokers), PARTITIONS).tolist(), strict=True))
    seen: dict[str, list[str]] = {}
    for row in found:
        for value in written(row):
            one = orjson.loads(value)
            assert row["partition"] == places[one["broker"]]
            seen.setdefault(one["broker"], []).append(one["id"])
    assert all(ids == [*dict.fromkeys(ids)] * 2 for ids in seen.values())
    assert all((row["headers"] is None) == (row["key"] != b"") for row in found)


def test_dead_letters_and_texts_leave_one_by_one_before_and_between() -> None:
    outputs = Outputs(columns=[admissions(20)])
    outputs.add_dead_letter(b'{"type":"dead_letter"}', ts=None, source=0)
    values = [b'{"type":"limit","id":"l"}'] * 20
    own = {"id": ["l"] * 20, "ts": [0] * 20, "value": pa.array(values, pa.large_binary())}
    text = DecisionTexts(
        type="limit", rows=pa.RecordBatch.from_pydict(own), keys=pa.array(["p"] * 20),
        source=np.zeros(20, np.int64),
    )  # fmt: skip
    outputs.add(text)
    rows = sent(outputs)
    assert (rows[0]["topic"], rows[0]["headers"]) == (TOPICS.deadletter, None)
    assert [row["value"] for row in rows if row["headers"] is None][1:] == values


def test_without_packing_every_decision_is_json() -> None:
    outputs = Outputs(columns=[admissions(50)])
    (rows,) = pieces(outputs, None)
    assert [row["value"] for row in rows] == outputs.value
    assert [row["key"] for row in rows] == [name.encode() for name in outputs.listed("key")]
    same = {"topic": TOPICS.decisions, "partition": None, "headers": None}
    assert all(row | same == row for row in rows) and len(rows) == 50


@pytest.mark.parametrize("packing", [None, *(PackRule(least=n, partitions=PARTITIONS) for n in (30, NEVER))])
def test_much_leaves_in_pieces(monkeypatch: pytest.MonkeyPatch, packing: PackRule | None) -> None:
    """3,500 useless records of 500 KB made a column of more than 2 GiB, at every restart anew."""
    outputs = deliveries()
    outputs.add(admissions(90, subjects=9))
    for number in range(10):
        outputs.add_dead_letter(b"%d" % number * 200, ts=None, source=number)
    whole = pieces(outputs, packing)
    monkeypatch.setattr(outputs_module, "PIECE_BYTES", 600)
    parts = pieces(outputs, packing)
    assert [row for part in parts for row in part] == [row for part in whole for row in part]
    assert len(parts) > len(whole) + 20
    assert all(len(part) == 1 or sum(len(row["value"]) for row in part) < 4_000 for part in parts)
    replayed = [pa.table(piece.replayed(records(90))) for piece in outputs.pieces()]
    assert pa.concat_tables(replayed).to_pylist() == pa.table(outputs.replayed(records(90))).to_pylist()
    assert len(replayed) > 20


@pytest.mark.parametrize("size", [100, RECORD_BYTES_MAX // 6, RECORD_BYTES_MAX])
def test_what_is_too_large_is_found_without_writing_the_others(size: int) -> None:
    decided = admissions(3, rejected=["\x01" * size])
    exact = decided.sizes()
    assert decided.largest() >= exact.max()
    outputs = Outputs(columns=[decided])
    limit_record_size(outputs, records(3))
    assert outputs.type == ["dead_letter" if size > 100 else "admission"] * 3


def test_what_is_too_large_leaves_the_others_as_they_were() -> None:
    """They leave packed, each broker's to one partition, whatever its topics, and differences are counted."""
    outputs = deliveries(RECORD_BYTES_MAX, law="otherwise")
    kept = [value for value in outputs.value if len(value) < RECORD_BYTES_MAX]
    limit_record_size(outputs, records(40))
    totals = counts_of("dispatch", records(40), outputs, 0).totals
    assert sum(count for (metric, *_), count in totals.items() if metric == "differences") == 38
    found = sent(outputs)
    letters = [orjson.loads(row["value"]) for row in found if row["topic"] == TOPICS.deadletter]
    assert [letter["offset"] for letter in letters] == [7, 8, 0, 0]
    said = [(row, value) for row in found[4:] for value in written(row)]
    assert sorted(value for _, value in said) == sorted(kept)
    for row, value in said:
        broker = pa.array([orjson.loads(value)["broker"]])
        assert row["partition"] == partition_of(broker, PARTITIONS)[0]


def test_a_dead_letter_for_a_row_that_says_too_much_names_the_row() -> None:
    """As one for a row that cannot be used."""
    pack = Pack(0, "request", pa.record_batch({"id": ["a", "b", "c"]}), np.array([4, 5, 6]))
    outputs = Outputs(columns=[admissions(3, rejected=["x" * RECORD_BYTES_MAX])])
    limit_record_size(outputs, replace(records(3), value=[], packs=[pack]))
    assert [orjson.loads(value)["row"] for value in outputs.value] == [4, 5, 6]


def test_some_decisions_are_what_they_were() -> None:
    for decided in (admissions(30), shares(30)):
        values, keys = decided.column("value").to_pylist(), decided.column("key").to_pylist()
        which = np.array([7, 3, 29])
        some = decided.take(which)
        assert some.column("value").to_pylist() == [values[i] for i in which]
        assert some.column("key").to_pylist() == [keys[i] for i in which]
        assert some.source.tolist() == which.tolist()
