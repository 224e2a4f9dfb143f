"""The stateless step: rows for shards, of any records, however they are cut into batches."""

import sys
from typing import Any

import orjson
import pyarrow as pa
import pytest
from pack_kit import packed, records_with

from streaming.job import routing as placing
from streaming.job import schemas
from streaming.job.grouping_keys import grouping_keys_of
from streaming.job.routing import ROUTED_COLUMNS, line_router, live_router
from streaming.laws.law import StepContext
from streaming.laws.name_hashes import shard_of
from streaming.laws.registry import LAWS
from streaming.laws.routing import policy_shards, routes
from streaming.laws.shard import step
from streaming.policy.timeline import PolicyTimeline

SHARDS, TASKS = 4, 2
NAMES = ("r", "p", "t", "t", "r", "t", "r", "t")
AHEAD_MS = 500
USAGE = {f"g{number}": {"publishedMsg": number} for number in range(10)}
REPORT = {"type": "group_usage", "broker": "b", "period_ms": 1, "usage": USAGE}
VALUES = [
    orjson.dumps(REPORT),
    orjson.dumps({"type": "tick"}),
    orjson.dumps(REPORT | {"usage": {"é": {"publishedMsg": 1}} | USAGE}),
    b"rubbish",
    orjson.dumps({"type": "latency", "partition": "p", "rtt_ns": 1, "inflight": 1}),
    orjson.dumps(REPORT | {"usage": {"g": {"publishedMsg": -1}}}),
    orjson.dumps(REPORT | {"ts": 3, "broker": "c"}),
    orjson.dumps(REPORT | {"ts": 7 + AHEAD_MS, "broker": "d"}),
    *(
        orjson.dumps(event | {"ts": 8 + AHEAD_MS})
        for event in (REPORT, REPORT | {"usage": {"é": {"publishedMsg": 1}} | USAGE}, {"type": "tick"})
    ),
]


def header_of(i: int) -> bytes | None:
    """What the record with that number says of who sent it."""
    return b"stamp %d" % i if i % 2 else None


def rows_of(batches: Any) -> list[tuple[Any, ...]]:
    """Rows with their values read, in an order that says nothing."""
    found = []
    for batch in batches:
        assert batch.schema == ROUTED_COLUMNS
        for row in batch.to_pylist():
            try:
                value = orjson.loads(row["value"])
            except orjson.JSONDecodeError:
                value = row["value"].decode()
            found.append((*list(row.values())[:-1], value))
    return sorted(found, key=repr)


def expected(origins: tuple[int, int], name: str, ts: int | None, **more: Any) -> list[tuple[Any, ...]]:
    more |= {"shards": SHARDS, "max_ahead_ms": AHEAD_MS}
    numbers = grouping_keys_of(SHARDS, TASKS)
    found = []
    for i, value in enumerate(VALUES):
        for place in routes(value, default_id=name.format(i), default_ts=ts, **more):
            number, origin = numbers[place.law][place.shard], origins[place.for_all]
            read = orjson.loads(place.value) if value != b"rubbish" else "rubbish"
            found.append((number, origin, 0, i, ts or 0, None if ts is None else header_of(i), read))
    return sorted(found, key=repr)


def live() -> pa.RecordBatch:
    columns = {
        "origin": pa.array([schemas.USAGE] * len(VALUES), pa.int32()),
        "partition": pa.array([0] * len(VALUES), pa.int32()),
        "offset": pa.array(range(len(VALUES)), pa.int64()),
        "ts": pa.array([7] * len(VALUES), pa.int64()),
        "sent": pa.array(map(header_of, range(len(VALUES))), pa.binary()),
        "value": pa.array(VALUES, pa.binary()),
    }
    return pa.record_batch(columns)


def of_origin(origin: int, values: list[bytes]) -> pa.RecordBatch:
    """Records of a topic."""
    batch = live().slice(0, len(values)).set_column(0, "origin", pa.array([origin] * len(values), pa.int32()))
    return batch.set_column(5, "value", pa.array(values, pa.binary()))


@pytest.mark.parametrize(("records", "size"), [(1024, 2**24), (2, 2**24), (1024, 1), (1024, 600)])
def test_live_records_go_where_the_parser_sends_them(
    records: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plain reports and all others alike; so many records or bytes at once."""
    monkeypatch.setattr(placing, "RECORDS_AT_ONCE", records)
    monkeypatch.setattr(placing, "BYTES_AT_ONCE", size)
    origins = schemas.USAGE, schemas.TICK
    found = rows_of(live_router(NAMES, SHARDS, TASKS, max_ahead_ms=AHEAD_MS)([live(), live().slice(0, 0)]))
    assert found == expected(origins, "t-0-{}", 7, timeline=None)
    # What is too far ahead is one record, whole, for a shard that buries what cannot be used.
    far = [row for row in found if row[3] >= len(VALUES) - 3]
    assert sorted((row[3], row[-1]) for row in far) == [
        (i, orjson.loads(VALUES[i])) for i in range(len(VALUES) - 3, len(VALUES))
    ]
    assert {row[0] for row in far} <= set(grouping_keys_of(SHARDS, TASKS)[LAWS.reporting.name])
    assert {row[1] for row in far} == {schemas.USAGE}


def test_single_requests_go_by_the_key_that_is_said() -> None:
    """Beside reports, which say none; nobody looks at what they hold."""
    keys = ["user=a", "user=é,client-id=b", "user=c", "", "x"]
    origin = pa.array([schemas.EVENT] * len(keys), pa.int32())
    batch = live().slice(0, len(keys)).set_column(0, "origin", origin)
    reports = live().append_column("routing_key", pa.nulls(len(VALUES), pa.binary()))
    routed = pa.array([key.encode() for key in keys])
    both = pa.concat_batches([reports, batch.append_column("routing_key", routed)])
    found = rows_of(live_router(NAMES, SHARDS, TASKS, max_ahead_ms=AHEAD_MS)([both]))
    numbers = grouping_keys_of(SHARDS, TASKS)[LAWS.on_requests.name]
    own = {row[3]: row[0] for row in found if row[1] == schemas.EVENT}
    assert own == {i: numbers[shard_of(key, SHARDS)] for i, key in enumerate(keys)}
    origins = schemas.USAGE, schemas.TICK
    assert [row for row in found if row[1] != schemas.EVENT] == expected(origins, "t-0-{}", 7, timeline=None)


def test_packed_reports_on_the_topic_of_requests_are_buried_as_single_ones_are() -> None:
    """Cut up they were decided: who may write requests, and no reports, could change anybody's shares."""
    reports = [REPORT, REPORT | {"broker": "c"}]
    (value,) = packed(reports)
    origins = pa.array([schemas.PACKED_EVENT, schemas.PACKED_USAGE], pa.int32())
    batch = live().slice(0, 2).set_column(0, "origin", origins)
    batch = batch.set_column(5, "value", pa.array([value] * 2, pa.binary()))
    routed = live_router(NAMES, SHARDS, TASKS, max_ahead_ms=AHEAD_MS)([batch])
    whole, *cut = [row for rows in routed for row in rows.to_pylist()]
    numbers = grouping_keys_of(SHARDS, TASKS)
    assert (whole["offset"], whole["origin"], whole["value"]) == (0, schemas.PACKED_EVENT, value)
    assert cut and {row["grouping_key"] for row in cut} <= set(numbers["shares"])
    shard = numbers[LAWS.on_requests.name].index(whole["grouping_key"])
    records = records_with([value], [True], ts=7)
    _, outputs = step(LAWS.on_requests.name, shard, None, records, StepContext(processed_ts=7))
    assert outputs.listed("sink") == ["deadletter"] * len(reports)


def test_policies_go_where_they_are_asked_for() -> None:
    """Beside reports in one batch; what is no policy goes to whoever writes the dead letter."""
    policies = [
        orjson.dumps({"type": "policy", "path": "resourcegroups.g", "value": {"publishRateInMsgs": 1}}),
        orjson.dumps({"type": "policy", "path": "broker", "value": {}}),
        orjson.dumps({"type": "policy", "path": "nowhere", "value": {}}),
        orjson.dumps(REPORT),
        b"rubbish",
    ]
    batch = of_origin(schemas.POLICY, policies)
    origins = schemas.USAGE, schemas.TICK
    numbers = grouping_keys_of(SHARDS, TASKS)
    wanted = [
        (numbers[law][shard], schemas.POLICY, 0, i, 7, header_of(i), value)
        for i, value in enumerate(policies)
        for law, own in policy_shards(value, default_ts=7, shards=SHARDS)
        for shard in own
    ]
    both = pa.Table.from_batches([live(), batch]).combine_chunks().to_batches()
    found = rows_of(live_router(NAMES, SHARDS, TASKS, max_ahead_ms=AHEAD_MS)(both))
    of_policies = [row for row in found if row[1] == schemas.POLICY]
    read = {value: "rubbish" if value == b"rubbish" else orjson.loads(value) for value in policies}
    assert of_policies == sorted(((*row[:-1], read[row[-1]]) for row in wanted), key=repr)
    assert [row for row in found if row[1] != schemas.POLICY] == expected(origins, "t-0-{}", 7, timeline=None)


def test_what_all_shards_get_is_copied_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand large policies for 64 shards made a column of more than 2 GiB, which ended the process."""
    value = orjson.dumps({"type": "policy", "ts": 1, "path": "broker", "value": {}, "reason": "x" * 300})
    monkeypatch.setattr(placing, "BYTES_AT_ONCE", 5 * len(value))
    values = pa.array([value] * 10, pa.binary())
    lines = pa.record_batch({"file": [0] * 10, "line": range(10), "value": values})
    (report,) = packed([REPORT | {"x": "x" * 2_000}])
    copies = 10 * sum(len(own) for _, own in policy_shards(value, default_ts=1, shards=SHARDS))
    live_records = live_router(NAMES, SHARDS, TASKS, max_ahead_ms=AHEAD_MS)
    for router, given, count in (
        (live_records, of_origin(schemas.POLICY, [value] * 10), copies),
        (live_records, of_origin(schemas.PACKED_USAGE, [report] * 2), SHARDS),
        (line_router(("f",), PolicyTimeline({}).to_json(), SHARDS, TASKS), lines, copies),
    ):
        sizes = list(map(len, router([given])))
        assert sum(sizes) == count and max(sizes) <= 5


def test_a_policy_for_many_shards_costs_what_one_for_few_does() -> None:
    """A hundred thousand of them for 64 shards of each law were taken in hand copy by copy, for seconds."""
    value = orjson.dumps({"type": "policy", "ts": 1, "path": "broker", "value": {}})
    batch = of_origin(schemas.POLICY, [value] * 10)

    def calls(shards: int) -> int:
        router, counted = live_router(NAMES, shards, TASKS, max_ahead_ms=AHEAD_MS), 0
        numbers = grouping_keys_of(shards, TASKS)
        copies = 10 * sum(len(numbers[law]) for law, _ in policy_shards(value, default_ts=1, shards=shards))

        def count(*_: object) -> None:
            nonlocal counted
            counted += 1

        before = sys.getprofile()
        sys.setprofile(count)
        try:
            assert sum(map(len, router([batch]))) == copies
        finally:
            sys.setprofile(before)
        return counted

    calls(4)
    assert calls(64) < 1.2 * calls(4)


def test_lines_of_files_have_no_time_of_their_own() -> None:
    """A report without `ts` is not plain there: it becomes a dead letter, as in the local engine.

    And nothing is too far ahead of it.
    """
    batch = pa.record_batch({"file": [0] * len(VALUES), "line": range(len(VALUES)), "value": VALUES})
    batch = batch.set_column(2, "value", pa.array(VALUES, pa.binary()))
    timeline = PolicyTimeline({})
    origins = schemas.EVENT, schemas.POLICY
    found = rows_of(line_router(("f",), timeline.to_json(), SHARDS, TASKS)([batch]))
    assert found == expected(origins, "f:{}", None, timeline=timeline)
    shares = grouping_keys_of(SHARDS, TASKS)["shares"]
    assert {row[3] for row in found if row[0] in shares} == {6, 7, 8, 9, 10}


def test_no_more_is_read_at_once_than_allowed() -> None:
    """One record at least, however large it is."""
    sizes = [5, 1, 1, 1, 9, 3, 3, 4]
    batch = pa.record_batch({"value": pa.array([b"." * size for size in sizes], pa.binary())})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(placing, "RECORDS_AT_ONCE", 2)
        found = [list(map(len, part["value"].to_pylist())) for part in placing._stretches(batch, 6)]
    assert found == [[5, 1], [1, 1], [9], [3, 3], [4]]
