"""Packed events through a shard's step: what their JSON objects would have given, row by row."""

import base64

import orjson
import pyarrow as pa
import pytest
from law_kit import T0, quota, request
from pack_kit import Event, json_of, packed, records_with, stream_of

from streaming.columns.json_columns import columns_of
from streaming.columns.outputs import DEAD_LETTER, Outputs
from streaming.columns.packed import pack
from streaming.laws.law import LawSpec, StepContext
from streaming.laws.registry import LAWS
from streaming.laws.shard import step

POLICIES = {"quotas[user=alice]": quota(5, 20), "quotas[user=<default>]": quota(1, 2)}


def decided(law: str, values: list[bytes], packs: list[bool], context: StepContext) -> Outputs:
    _, outputs = step(law, 0, None, records_with(values, packs, ts=T0), context)
    return outputs


def mutation(values: list[bytes], packs: list[bool]) -> Outputs:
    return decided("mutation", values, packs, StepContext(initial=POLICIES, fail_fast=True))


@pytest.mark.parametrize("law", LAWS.by_name.values(), ids=LAWS.by_name)
def test_every_law_decides_packed_events_as_their_objects(law: LawSpec) -> None:
    made = (event for batch in law.warm_up.batches for event in batch)
    own = (event for event in made if event["type"] in law.readers and "samples" not in event)
    events = [{**event, "id": f"e{number}"} for number, event in enumerate(own)]
    events.sort(key=lambda event: str(event["type"]))
    context = StepContext(initial=law.warm_up.policies, fail_fast=True)
    single = decided(law.name, json_of(events), [False] * len(events), context)
    values = packed(events)
    many = decided(law.name, values, [True] * len(values), context)
    assert DEAD_LETTER not in single.type
    assert many.value == single.value
    assert len(events) == 1 or len(values) < len(events)


def test_rows_come_in_their_order_between_single_records() -> None:
    events = [request(name, 0, 3) for name in "abcde"]
    one = json_of(events)
    values = [one[0], *packed(events[1:4]), one[4]]
    assert mutation(values, [False, True, False]).value == mutation(one, [False] * 5).value
    # A pack that comes first is applied first, wherever it stands in the batch.
    assert mutation([*packed(events[:4]), one[4]], [True, False]).value == mutation(one, [False] * 5).value


def test_a_row_without_id_and_time_has_those_of_its_place() -> None:
    rows = columns_of([{"user": "alice", "items": [{"name": "t", "mutations": 1}]}] * 2)
    written = [orjson.loads(value) for value in mutation(list(pack("request", rows)), [True]).value]
    names = ["weir.requests-0-0/0", "weir.requests-0-0/1"]
    assert [(one["id"], one["ts"]) for one in written] == [(name, T0) for name in names]


def test_a_row_that_cannot_be_used_is_buried_alone() -> None:
    events: list[Event] = [request("a", 0, 1), request("b", 0, -1), request("c", 0, 1)]
    outputs = mutation(packed(events), [True])
    assert outputs.type == [DEAD_LETTER, "admission", "admission"]
    letter = orjson.loads(outputs.value[0])
    assert list(letter) == ["type", "reason", "topic", "partition", "offset", "row", "ts", "value_base64"]
    assert letter["row"] == 1
    assert "mutations: -1" in letter["reason"]
    assert base64.b64decode(letter["value_base64"]) == json_of(events)[1]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"no stream", "not an Arrow IPC stream"),
        (stream_of(columns_of([{"id": "a"}]), None), "weir.type"),
        (stream_of(pa.record_batch({"id": pa.array([], pa.string())})), "no row"),
    ],
)
def test_what_cannot_be_unpacked_is_buried_as_a_whole(value: bytes, reason: str) -> None:
    events = json_of([request("a", 0, 1)])
    outputs = mutation([events[0], value, *packed([request("b", 0, 1)])], [False, True, True])
    assert outputs.type == [DEAD_LETTER, "admission", "admission"]
    letter = orjson.loads(outputs.value[0])
    assert reason in letter["reason"]
    assert (letter["offset"], "row" in letter) == (1, False)
    assert base64.b64decode(letter["value_base64"]) == value


def test_bytes_of_columns_without_the_header_are_no_json() -> None:
    (value,) = packed([request("a", 0, 1)])
    assert "not JSON" in orjson.loads(mutation([value], [False]).value[0])["reason"]


@pytest.mark.parametrize(
    "event",
    [
        {"type": "tick", "ts": T0},
        {"type": "policy", "ts": T0, "path": "quotas[user=alice]", "value": quota(1)},
    ],
)
def test_what_is_for_all_shards_is_never_packed(event: Event) -> None:
    (letter,) = mutation(packed([event]), [True]).value
    assert "for all shards" in orjson.loads(letter)["reason"]


def test_a_type_that_nobody_knows_is_buried_row_by_row() -> None:
    outputs = mutation(packed([{"type": "unheard", "id": "a"}, {"type": "unheard", "id": "b"}]), [True])
    assert [orjson.loads(value)["row"] for value in outputs.value] == [0, 1]
