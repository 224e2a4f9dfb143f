"""Deliveries, samples and reports of packs: read in bulk they give what their JSON objects give."""

from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pack_kit import ARRIVED, Event, json_records, packed_records, rows_of, stepped, taken
from property_kit import tries

from streaming.contract.errors import BadEvent
from streaming.laws.registry import LAWS

T0 = 1_795_166_700_000
BIG = 2**63 - 1
TOPICS = ["persistent://acme/a/t1", 'persistent://acme/b/"é', "no topic"]
COUNTS = st.sampled_from([0, 1, 6, 10, 45, 300, 2**53, BIG, -1])
TIMES = st.none() | st.integers(0, 200_000).map(lambda ago: T0 - ago) | st.just(-5)
RATE = {"dispatchThrottlingRateInMsg": 10, "dispatchThrottlingRateInByte": 1000}
EVICT = {"policy": "consumer_backlog_eviction"}
POLICIES: dict[str, Any] = {
    "namespaces.acme/a": {
        "subscriptionDispatchRate": RATE,
        "backlogQuotaMap": {
            "destination_storage": {"limitSize": 100, **EVICT},
            "message_age": {"limitTime": 60, **EVICT},
        },
    },
    "broker": {"dispatchThrottlingRateInMsg": 40, "preciseBacklogSize": True},
    "backpressure.partitions.*": {"algorithm": "vegas", "useWindowed": False},
}
SAMPLE = st.fixed_dictionaries(
    {"rtt_ns": st.sampled_from([1, 10**7, 3 * 10**8, BIG, 0, -7]), "inflight": COUNTS},
    optional={"start_ns": st.sampled_from([-(2**63), 0, BIG]), "did_drop": st.booleans()},
)
LISTED = st.tuples(
    st.none() | st.integers(-5, 5), st.sampled_from([1, 10**7, 3 * 10**8, 0]), COUNTS, st.booleans()
).map(list)
LEDGER = st.fixed_dictionaries(
    {"id": st.integers(0, 6), "entries": COUNTS, "size": COUNTS}, optional={"closeTime": TIMES}
)
SUBSCRIPTION = st.fixed_dictionaries(
    {"name": st.sampled_from(["a", "b", "é"]), "ledger": st.integers(-2, 7), "entry": st.integers(-2, 12)},
    optional={"durable": st.booleans(), "oldestPublishTime": TIMES},
)
FIELDS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "dispatch_usage": {
        "broker": st.sampled_from(["b1", "b2"]),
        "topic": st.sampled_from(TOPICS),
        "subscription": st.sampled_from(["s1", "s\n"]),
        "msgs": COUNTS,
        "bytes": COUNTS,
        "entries": COUNTS,
        "backlog": st.booleans(),
        "avg_publish_entry_bytes": st.sampled_from([0.0, 30.0, 0.3, -1.0]),
        "proxy": st.sampled_from(["p1", "p2"]),
    },
    "latency": {"partition": st.sampled_from(["p", "q"])},
    "backlog": {
        "topic": st.sampled_from(TOPICS),
        "ledgers": st.lists(LEDGER, max_size=3),
        "subscriptions": st.lists(SUBSCRIPTION, max_size=3),
    },
}
COMMON = {
    "applied_ts": st.sampled_from([T0 - 5, T0 + 70_000, ARRIVED + 60_001]),
    "v": st.sampled_from([0, 1, 2]),
    "broker": st.just("b1"),
}
LAW_OF = {type: law.name for law in LAWS.by_name.values() for type in law.readers}


@st.composite
def histories(draw: st.DrawFn, type: str) -> list[list[Event]]:
    """Some batches of events, right for the most part, in and out of order."""
    batches, number = list[list[Event]](), 0
    for _ in range(draw(st.integers(1, 3))):
        batch = []
        for _ in range(draw(st.integers(1, 12))):
            event: Event = {"type": type, "id": f"e{number}", "ts": T0 + draw(st.integers(-2000, 70_000))}
            event |= {name: draw(values) for name, values in FIELDS[type].items()}
            if type == "latency":
                event |= draw(SAMPLE | st.fixed_dictionaries({"samples": st.lists(LISTED, max_size=4)}))
            for name, values in COMMON.items():
                if draw(st.integers(0, 19)) == 0:
                    event[name] = draw(values)
            if draw(st.integers(0, 9)) == 0:
                del event[draw(st.sampled_from(sorted(set(event) - {"type", "id", "ts"})))]
            batch.append(event)
            number += 1
        batches.append(batch)
    return batches


@pytest.mark.parametrize("type", FIELDS)
@tries(80)
@given(st.data(), st.booleans())
def test_packs_give_what_their_objects_give(type: str, data: st.DataObject, live: bool) -> None:
    """Decisions byte for byte, and the same reasons for the same rows; live and in a replay."""
    batches = data.draw(histories(type))
    cut = data.draw(st.integers(0, 12))
    packs = [
        packed_records([rows_of(piece) for piece in (batch[:cut], batch[cut:]) if piece], type)
        for batch in batches
    ]
    law = LAW_OF[type]
    single = stepped(law, [json_records(batch) for batch in batches], POLICIES, live=live)
    assert stepped(law, packs, POLICIES, live=live) == single


@pytest.mark.parametrize("type", sorted(FIELDS.keys() - {"backlog"}))
@tries(40)
@given(st.data())
def test_what_is_read_in_bulk_is_what_the_parser_reads(type: str, data: st.DataObject) -> None:
    """No row too many, and of the usual ones none too few."""
    (batch, *_) = data.draw(histories(type))
    for event, was in zip(batch, taken(LAW_OF[type], packed_records([rows_of(batch)], type)), strict=True):
        try:
            read = LAWS.parse(orjson.dumps(event), default_id="", default_ts=ARRIVED, max_ahead_ms=60_000)
            right = getattr(read, "wrong", None) is None
        except BadEvent:
            right = False
        usual = all(sample[0] is not None for sample in event.get("samples", ()))
        assert was == right or (right and not usual)


DELIVERY = {"type": "dispatch_usage", "id": "d", "ts": T0, "broker": "b", "topic": TOPICS[0],
            "subscription": "s", "msgs": 1, "bytes": 1, "entries": 1, "backlog": True}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("msgs", pa.array([1, 2], pa.uint8())),
        ("msgs", pa.array([1, 2], pa.uint64())),
        ("broker", pa.DictionaryArray.from_arrays([1, 2], pa.array([None, "b", "b"]))),
        ("broker", pa.array(["b", "c"], pa.large_string())),
        ("avg_publish_entry_bytes", pa.array([3, None])),
        ("avg_publish_entry_bytes", pa.array([1.5, 2.5], pa.float32())),
        ("note", pa.array(["x", "y"])),
    ],
)
def test_columns_of_many_types_are_read_in_bulk(name: str, column: pa.Array) -> None:
    """Any integer, any text; a column that nobody knows does not count."""
    rows = rows_of([DELIVERY, DELIVERY | {"id": "e"}])
    rows = rows.drop_columns([name]) if name in rows.schema.names else rows
    records = packed_records([rows.append_column(name, column)], "dispatch_usage")
    assert taken("dispatch", records) == [True, True]
    objects = [orjson.loads(records.value_of(i)) for i in range(2)]
    single = stepped("dispatch", [json_records(objects)], POLICIES, live=True)
    assert stepped("dispatch", [records], POLICIES, live=True) == single


@pytest.mark.parametrize(
    ("name", "column", "reason"),
    [
        ("msgs", pa.array([1.0, 2.0]), "msgs: 1.0; an integer was expected"),
        ("msgs", pa.array([2**64 - 1, 1], pa.uint64()), "msgs: 18446744073709551615 is out of range"),
        ("msgs", pa.nulls(2), "msgs: missing"),
        ("topic", pa.array([1, 2]), "topic: 1; text was expected"),
        ("backlog", pa.array([1, 1]), "backlog: 1; true or false was expected"),
    ],
)
def test_columns_of_other_types_are_refused_row_by_row(name: str, column: pa.Array, reason: str) -> None:
    rows = rows_of([DELIVERY, DELIVERY | {"id": "e"}]).drop_columns([name]).append_column(name, column)
    _, reasons = stepped("dispatch", [packed_records([rows], "dispatch_usage")], POLICIES, live=True)
    assert reasons[0].startswith(reason)


def test_rows_without_a_name_are_called_by_their_place() -> None:
    """And their samples by that and theirs; what has no time has that of its record."""
    rows = pa.RecordBatch.from_pylist(
        [{"partition": "p", "samples": [[0, 10**7, 30, 0], [0, 10**7, 30, 1]]}] * 2
    )
    decisions, _ = stepped("concurrency", [packed_records([rows], "latency")], POLICIES, live=False)
    decided = [orjson.loads(value) for value in decisions]
    assert [one["id"] for one in decided] == [f"weir.usage-0-0/{row}/{k}" for row in (0, 1) for k in (0, 1)]
    assert {one["ts"] for one in decided} == {ARRIVED}
