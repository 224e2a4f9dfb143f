"""The operator by hand: chunks, state, output columns, sizes."""

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest
from law_kit import T0, policy, quota, request
from pyspark.sql.streaming.state import GroupState
from spark_kit import LIVE, SHARDS, TASKS, TOPICS, group_state, output_rows, record_columns

from streaming.columns.sent import stamps
from streaming.job import schemas
from streaming.job.grouping_keys import grouping_keys_of
from streaming.job.operator import Input, group_function
from streaming.job.output_columns import RECORD_BYTES_MAX, VALUE_BYTES_KEPT
from streaming.job.spark.arrow_serializer import Columns
from streaming.job.spark.counts import BatchCounts
from streaming.laws.law import StepContext
from streaming.laws.shard import STATE_VERSION

ALICE = "user=alice"
KEY = (grouping_keys_of(SHARDS, TASKS)["mutation"][0],)


def alice(name: str, at_ms: int, mutations: int, **fields: Any) -> tuple[int, int, dict[str, Any]]:
    """A request of alice that its proxy stamped, as a record whose offset is its time."""
    return schemas.EVENT, at_ms, request(name, at_ms, mutations, subject=ALICE, **fields)


LIMIT = (schemas.POLICY, 0, policy(0, "quotas[user=alice]", quota(1, 10)))
EVENTS = [alice(str(number), number * 100, 3) for number in range(1, 9)]


def run(chunks: list[Columns], state: GroupState, given: Input = LIVE) -> list[dict[str, Any]]:
    """Output rows of one call, the value parsed."""
    schema = schemas.REPLAY_OUTPUT if given.context.replay else schemas.OUTPUT
    found = list(group_function(given)(KEY, iter(chunks), state))
    rows = [row for columns in found for row in output_rows(columns, schema)]
    return [row | {"value": orjson.loads(row["value"])} for row in rows]


def test_chunks_and_their_order_change_nothing() -> None:
    """One chunk, many, or many in reverse: the same output and state."""
    whole = group_state()
    expected = run([record_columns([LIMIT, *EVENTS])], whole)
    assert {row["value"]["outcome"] for row in expected} == {"allow", "reject"}
    for records in ([LIMIT, *EVENTS], [*EVENTS[::-1], LIMIT]):
        state = group_state()
        assert run([record_columns([record]) for record in records], state) == expected
        assert state.get == whole.get


def test_batches_carry_the_state_on() -> None:
    """Two batches decide as one does, and the state names its version."""
    whole = run([record_columns([LIMIT, *EVENTS])], group_state())
    state = group_state()
    parts = [run([record_columns(part)], state) for part in ([LIMIT, *EVENTS[:4]], EVENTS[4:])]
    assert parts[0] + parts[1] == whole
    assert state.get[0] == STATE_VERSION


def test_what_was_sent_again_is_left_out_and_counted() -> None:
    """In the same batch and in later ones, also behind one in which nobody says what he sent; for ever so."""
    stamp = stamps(b"producer")
    first, second, third = (stamp() for _ in range(3))
    tallies: list[BatchCounts] = []
    given = replace(LIVE, counts=cast(Any, SimpleNamespace(add=tallies.append)))
    state = group_state()
    # By the time of its second copy it would have been rejected.
    same = [alice("a", 1, 8), alice("b", 2, 8), alice("a", 3, 8)]
    rows = run([record_columns(same, sent=[first, second, first])], state, given)
    rows += run([record_columns([LIMIT, alice("x", 4, 1)])], state, given)
    rows += run([record_columns([alice("b", 5, 8), alice("c", 6, 1)], sent=[second, third])], state, given)
    rows += run([record_columns([alice("a", 7, 8)], sent=[first])], state, given)
    assert [row["value"]["id"] for row in rows] == ["a", "b", "x", "c"]
    counted = [(tally.totals["copies",], tally.totals["events", "mutation"]) for tally in tallies]
    assert counted == [(1, 2), (0, 1), (1, 1), (1, 0)]


def test_each_topic_has_an_order_of_its_own() -> None:
    """A proxy says on another topic that it is alive, which may be read before what it asked earlier."""
    stamp = stamps(b"producer")
    asked, alive = stamp(), stamp()
    usage = (schemas.USAGE, 1, {"type": "alive", "id": "p-1", "proxy": "p", "ts": T0})
    given = replace(LIVE, names=(*TOPICS, "weir.usage"))
    state = group_state()
    assert run([record_columns([LIMIT, usage], sent=[b"", alive])], state, given) == []
    (row,) = run([record_columns([alice("a", 1, 1)], sent=[asked])], state, given)
    assert row["value"]["id"] == "a"


def test_live_rows_have_topic_and_key() -> None:
    """A decision goes to its topic under its subject's key, a dead letter to its own and names its record."""
    broken = (schemas.EVENT, 77, {"type": "unheard-of", "ts": T0})
    rows = run([record_columns([LIMIT, alice("a", 5, 1), broken])], group_state())
    decision = next(row for row in rows if row["topic"] == "weir.decisions")
    letter = next(row for row in rows if row["topic"] == "weir.deadletter")
    assert list(decision) == ["topic", "key", "value", "partition", "headers"] and len(rows) == 2
    assert (decision["key"], decision["value"]["id"]) == (ALICE.encode(), "a")
    assert (letter["key"], letter["value"]["topic"], letter["value"]["offset"]) == (
        b"", TOPICS[schemas.EVENT], 77
    )


@pytest.mark.parametrize("ahead_ms", [0, -2_500, 90_000])
def test_the_time_of_the_batch_reaches_the_law(ahead_ms: int) -> None:
    """A request processed after its deadline is marked late, one processed before is not.

    By the brokers' clock, which is so far ahead of that of the job's host, as a tick says.
    """
    tick = schemas.POLICY, 1, {"type": "tick", "ts": T0, "brokers_ahead_ms": ahead_ms}
    records = [LIMIT, tick, alice("a", 0, 1, deadline_ms=2000)]
    late = run([record_columns(records)], group_state(processed_ts=T0 - ahead_ms + 2001))
    in_time = run([record_columns(records)], group_state(processed_ts=T0 - ahead_ms + 2000))
    assert late[0]["value"].get("late") is True
    assert "late" not in in_time[0]["value"]


def test_a_dead_letter_too_large_for_the_broker_keeps_the_beginning_of_its_record() -> None:
    """Or the sink would refuse it, and the query would fail on it again after every restart."""
    event = alice("a", 1, 1, nonsense="x" * RECORD_BYTES_MAX)
    event[2]["items"] = None
    (row,) = run([record_columns([event])], group_state())
    assert row["topic"] == "weir.deadletter"
    assert "dead letter has" in row["value"]["reason"]
    assert len(row["value"]["value_base64"]) == VALUE_BYTES_KEPT * 4 // 3
    assert len(orjson.dumps(row["value"])) <= RECORD_BYTES_MAX


@pytest.mark.parametrize("others", [[], [alice("b", 0, 1)]])
def test_a_decision_too_large_for_the_broker_becomes_a_dead_letter(
    others: list[tuple[int, int, dict[str, Any]]],
) -> None:
    """And is tallied as that, neither among decisions nor for their age.

    Its request was as large, which only a raised limit of the topic lets in.
    """
    large = alice("a", 1, 1)
    large[2]["items"] = [{"name": "n" * 1000, "mutations": 5}] * 1100
    tallies: list[BatchCounts] = []
    given = replace(LIVE, counts=cast(Any, SimpleNamespace(add=tallies.append)))
    rows = run([record_columns([LIMIT, large, *others])], group_state(processed_ts=7), given)
    (letter,) = (row for row in rows if row["topic"] == "weir.deadletter")
    assert letter["key"] == b"" and "decision has" in letter["value"]["reason"]
    ages = {7: T0} if others else {}
    totals = Counter({
        ("events", "mutation"): 1 + len(others), ("decisions",): len(others), ("dead_letters",): 1
    })  # fmt: skip
    assert tallies == [BatchCounts(totals=totals, oldest=ages)]


def test_a_replayed_line_is_named_by_file_and_line() -> None:
    """Without `id` an event takes base name and line; its output says where it stood."""
    context = StepContext(initial={}, replay=True, fail_fast=True)
    given = Input(context=context, shards=SHARDS, tasks=TASKS, names=("a.jsonl", "b.jsonl"))
    origin, at_ms, event = alice("", 3, 1)
    del event["id"]
    (row,) = run([record_columns([(origin, at_ms, event)], partition=1)], group_state(), given)
    assert (row["id"], row["file"], row["line"]) == ("b.jsonl:3", 1, 3)
