"""Partitions under policies: which entry applies, what a change does, what is written live, what is kept."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from event_kit import T0, Event, sample
from usage_kit import NOW, fold, limit_policy, reloaded, replay, timeline_of

from streaming.laws.concurrency import table as concurrency_table
from streaming.laws.concurrency.law import FORGET_MS
from streaming.laws.concurrency.table import STANDS_MS, ConcurrencyTable
from streaming.policy.timeline import PolicyTimeline

PLAIN = {"algorithm": "aimd", "useWindowed": False}
ALL, ORDERS = "backpressure.partitions.*", "backpressure.partitions.orders-3"
LONG = FORGET_MS - 1


def bad(at_ms: int, partition: str = "orders-3") -> Event:
    """A sample that lowers an AIMD limit: 100, 90, 81, 72, 64."""
    return sample(f"{partition}@{at_ms}", at_ms, 300, 30, partition=partition)


def limits(events: list[Event], timeline: PolicyTimeline) -> list[int]:
    """The limit after each sample."""
    return [decision["limit"] for decision in replay(events, timeline)]


def test_a_partitions_own_entry_wins_over_the_one_for_all_others() -> None:
    """Exact name, else "*"; a partition that nothing matches gets no decision."""
    own = {"algorithm": "fixed", "fixed": {"limit": 7}}
    events = [bad(0), bad(1, "orders-4")]
    assert limits(events, timeline_of({ALL: PLAIN, ORDERS: own})) == [7, 90]
    assert limits(events, timeline_of({ORDERS: PLAIN})) == [90]
    assert limits(events, timeline_of({})) == []
    assert fold(ConcurrencyTable(), events, timeline_of({}), NOW) == []


def test_a_change_of_parameters_starts_a_partition_afresh() -> None:
    """From initialLimit of the new settings; a sample at the very time of the change counts as after it."""
    timeline = timeline_of({ALL: PLAIN}, [(2, ALL, PLAIN | {"aimd": {"initialLimit": 50, "minLimit": 2}})])
    assert limits([bad(0), bad(1), bad(2), bad(3)], timeline) == [90, 81, 45, 40]


def test_a_change_of_algorithm_starts_afresh_even_if_it_is_taken_back_unseen() -> None:
    """Nobody asked in between, but the policy was another one."""
    timeline = timeline_of({ALL: PLAIN}, [(2, ALL, PLAIN | {"algorithm": "vegas"}), (3, ALL, PLAIN)])
    assert limits([bad(0), bad(1), bad(4)], timeline) == [90, 81, 90]
    gone = timeline_of({ALL: PLAIN}, [(2, ALL, None), (4, ALL, PLAIN)])
    assert limits([bad(0), bad(1), bad(3), bad(5)], gone) == [90, 81, 90]


def test_the_same_in_other_words_changes_nothing() -> None:
    """Defaults spelled out, another unit, keys of another algorithm, an entry of its own."""
    spelled = PLAIN | {"aimd": {"requestTimeout": "0.2s", "maxLimit": 1000}, "vegas": {"alpha": 9}}
    changes = [(1, ALL, spelled), (2, ORDERS, PLAIN), (3, "backpressure.partitions.other", PLAIN)]
    assert limits([bad(0), bad(1), bad(2), bad(3)], timeline_of({ALL: PLAIN}, changes)) == [90, 81, 72, 64]


@pytest.fixture
def table() -> ConcurrencyTable:
    """Of no partition yet."""
    return ConcurrencyTable()


def test_a_sample_that_is_applied_later_says_so(table: ConcurrencyTable) -> None:
    """As of a batch after that of a newer one."""
    timeline = timeline_of({ALL: PLAIN})
    (first,), (late,) = (fold(table, [bad(at)], timeline, NOW) for at in (1_000, 0))
    assert "applied_ts" not in first and (late["ts"], late["applied_ts"]) == (T0, T0 + 1_000)


@pytest.mark.parametrize("between", ["nothing", "a batch", "a checkpoint", "a sweep"])
def test_batches_do_not_show(table: ConcurrencyTable, between: str) -> None:
    """A change of policy lands the same whether its neighbours come in one batch or two."""
    changes = [(2, ALL, PLAIN | {"aimd": {"initialLimit": 50}}), (3, ALL, PLAIN)]
    timeline = timeline_of({ALL: PLAIN}, changes)
    first, second = [bad(0), bad(1)], [bad(4), bad(5)]
    if between == "nothing":
        assert limits(first + second, timeline) == [90, 81, 90, 81]
        return
    fold(table, first, timeline)
    if between == "a checkpoint":
        table = reloaded(table)
    if between == "a sweep":
        table.sweep(timeline, T0 + 3)
        timeline.forget_before(T0 + 3)
    assert [decision["limit"] for decision in fold(table, second, timeline)] == [90, 81]


def test_a_change_at_a_partitions_newest_event_was_seen_already(table: ConcurrencyTable) -> None:
    """However far back the batch must look for other partitions."""
    timeline = timeline_of({ALL: PLAIN}, [(2, ALL, PLAIN | {"aimd": {"initialLimit": 50}})])
    fold(table, [bad(1, "b"), bad(2, "a")], timeline)
    found = fold(table, [bad(3, "a"), bad(4, "b"), bad(5, "c")], timeline)
    assert [decision["limit"] for decision in found] == [40, 45, 45]


def test_a_policy_that_comes_too_late_still_starts_afresh(table: ConcurrencyTable) -> None:
    """It rewrites the past of a partition: what was learned under the other one is not used."""
    fold(table, [bad(0), bad(1)], timeline_of({ALL: PLAIN}))
    other = timeline_of({ALL: PLAIN}, [(0, ALL, PLAIN | {"aimd": {"initialLimit": 50}})])
    assert [decision["limit"] for decision in fold(table, [bad(2)], other)] == [45]


def test_time_never_goes_back(table: ConcurrencyTable) -> None:
    """A straggler is decided by the policies of its partition's newest time, under its own ts."""
    timeline = timeline_of({ALL: PLAIN}, [(5, ALL, PLAIN | {"aimd": {"initialLimit": 50}})])
    fold(table, [bad(6)], timeline, NOW)
    (decision,) = fold(table, [bad(1)], timeline, NOW)
    assert (decision["limit"], decision["ts"]) == (40, T0 + 1)


def test_live_writes_one_decision_a_partition_and_batch_when_it_changed(table: ConcurrencyTable) -> None:
    """Under the newest sample's id; a partition's first is written in any case."""
    timeline = timeline_of({ALL: PLAIN})
    idle = sample("idle", 9, 14, 1, partition="b")
    first = fold(table, [bad(0), bad(1), idle, bad(10)], timeline, NOW)
    assert [(d["id"], d["limit"]) for d in first] == [("idle", 100), ("orders-3@10", 72)]
    assert fold(reloaded(table), [idle | {"ts": T0 + 11}], timeline, NOW) == []
    up_and_down = [sample("up", 12, 14, partition="b"), sample("down", 13, 300, 9, partition="b")]
    assert [d["limit"] for d in fold(table, up_and_down, timeline, NOW)] == [90]
    assert [d["limit"] for d in replay(up_and_down, timeline)] == [101, 90]


def test_live_tells_of_a_fresh_start(table: ConcurrencyTable) -> None:
    """A new algorithm is written even if its limit is the same number."""
    timeline = timeline_of({ALL: PLAIN}, [(5, ALL, PLAIN | {"algorithm": "fixed", "fixed": {"limit": 90}})])
    assert [d["limit"] for d in fold(table, [bad(0)], timeline, NOW)] == [90]
    assert [d["algorithm"] for d in fold(table, [bad(6)], timeline, NOW)] == ["fixed"]
    assert fold(table, [bad(7)], timeline, NOW) == []


def test_only_rows_that_say_nothing_are_swept(table: ConcurrencyTable) -> None:
    """A learned limit stays for a week in which the partition is idle; one at its start leaves."""
    timeline = timeline_of({ALL: PLAIN, "backpressure.partitions.c": {"algorithm": "fixed"}})
    fold(table, [bad(0, "a"), sample("b", 1, 14, 1, partition="b"), bad(2, "c")], timeline, NOW)
    assert len(table) == 3
    table.sweep(timeline, T0)
    assert len(table) == 3, "too young to be judged"
    table.sweep(timeline, T0 + LONG)
    assert table.names.to_pylist() == ["a"]
    assert [d["limit"] for d in fold(table, [bad(LONG, "a")], timeline)] == [81]


@pytest.mark.parametrize("swept", [False, True])
def test_a_week_without_a_sample_starts_a_partition_afresh(table: ConcurrencyTable, swept: bool) -> None:
    """Also within one batch, as in a replay, and whether its row has left meanwhile or not."""
    timeline = timeline_of({ALL: PLAIN})
    assert limits([bad(0), bad(LONG), bad(LONG + FORGET_MS), bad(LONG + FORGET_MS + 1)], timeline) == [
        90, 81, 90, 81
    ]  # fmt: skip
    fold(table, [bad(0), bad(1)], timeline, NOW)
    if swept:
        table.sweep(timeline, T0 + FORGET_MS)
        assert len(table) == 1
        table.sweep(timeline, T0 + 1 + FORGET_MS)
        assert len(table) == 0
    # Written though it is the limit that was written last but one.
    assert [d["limit"] for d in fold(table, [bad(1 + FORGET_MS)], timeline, NOW)] == [90]


def stands(table: ConcurrencyTable, at_ms: int, timeline: PolicyTimeline, *partitions: str) -> list[bool]:
    names, over = pa.array(partitions, pa.string()), np.zeros(len(partitions), dtype=np.bool_)
    found: list[bool] = table.stand(names, over, T0 + at_ms, timeline).tolist()
    return found


def test_a_limit_stands_for_an_hour_after_the_newest_sample() -> None:
    """Whether that changed it or not; after that the next one is written again, since not all know it."""
    timeline, table = timeline_of({ALL: PLAIN}), ConcurrencyTable()
    same = {"inflight": 1, "partition": "a"}
    assert [d["limit"] for d in fold(table, [bad(0, "a"), bad(0, "b")], timeline, NOW)] == [90, 90]
    assert fold(table, [sample("x", STANDS_MS - 1, 14, **same)], timeline, NOW) == []
    assert stands(table, STANDS_MS - 1, timeline, "b", "never seen", "a") == [True, False, True]
    assert stands(table, STANDS_MS, timeline, "b", "a") == [False, True]
    assert stands(table, 2 * STANDS_MS - 1, timeline, "a") == [False]
    again = [sample(str(at_ms), at_ms, 14, **same) for at_ms in (2 * STANDS_MS - 1, 2 * STANDS_MS)]
    assert [d["limit"] for d in fold(reloaded(table), again, timeline, NOW)] == [90]
    assert stands(table, 2 * STANDS_MS, timeline, "a") == [False]


@pytest.mark.parametrize("between", [None, PLAIN | {"aimd": {"maxLimit": 50, "initialLimit": 20}}])
def test_a_limit_stands_under_its_policy_only(between: dict[str, Any] | None) -> None:
    """Not when it is gone, nor when it has come back; what says the same in other words changes nothing."""
    changes = [(5, ALL, PLAIN | {"vegas": {"alpha": 9}}), (10, ALL, between), (20, ALL, PLAIN)]
    timeline, table = timeline_of({ALL: PLAIN}, changes), ConcurrencyTable()
    fold(table, [bad(0)], timeline, NOW)
    assert [stands(table, at_ms, timeline, "orders-3") for at_ms in (0, 9, 10, 19, 20, 99)] == [
        [True], [True], *([[False]] * 4)
    ]  # fmt: skip
    (afresh,) = fold(table, [bad(30)], timeline, NOW)
    assert afresh["limit"] == 90 and stands(table, 40, timeline, "orders-3") == [True]


def test_a_limit_at_its_start_stands_for_an_hour(table: ConcurrencyTable) -> None:
    """A fixed one is always there: a sweep took it away after five minutes, so that it was said no more."""
    timeline = timeline_of({ALL: {"algorithm": "fixed", "useWindowed": False}})
    fold(table, [bad(0)], timeline, NOW)
    table.sweep(timeline, T0 + STANDS_MS - 1)
    assert stands(table, STANDS_MS - 1, timeline, "orders-3") == [True]
    table.sweep(timeline, T0 + STANDS_MS)
    assert len(table) == 0


def test_a_row_whose_policy_is_gone_is_swept(table: ConcurrencyTable) -> None:
    """Nothing can be judged by it any more."""
    timeline = timeline_of({ALL: PLAIN}, [(5, ALL, None)])
    fold(table, [bad(0)], timeline)
    table.sweep(timeline, T0 + 4)
    assert len(table) == 1
    table.sweep(timeline, T0 + 5)
    assert len(table) == 0


def test_the_table_is_bounded(table: ConcurrencyTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond MAX_PARTITIONS those idle longest start afresh, ties by name; at once when live."""
    monkeypatch.setattr(concurrency_table, "MAX_PARTITIONS", 3)
    timeline = timeline_of({ALL: PLAIN})
    events = [bad(9, "e"), bad(1, "d"), bad(1, "a"), bad(2, "c"), bad(1, "b")]
    fold(table, events, timeline)
    assert len(table) == 5, "a replay has its whole input in hand"
    fold(table, events, timeline, NOW)
    assert sorted(table.names.to_pylist()) == ["c", "d", "e"]
    fold(table, [bad(10, "f")], timeline, NOW)
    assert sorted(table.names.to_pylist()) == ["c", "e", "f"]


def test_an_empty_table_survives_its_bytes() -> None:
    """Nothing known is a state too."""
    assert len(reloaded(ConcurrencyTable())) == 0


@pytest.mark.parametrize("value", [{}, {"useWindowed": False}, {"window": {"windowSize": 20}}])
def test_settings_that_differ_have_different_keys(value: dict[str, Any]) -> None:
    """And the defaults are AIMD with a window of 1 s."""
    key = concurrency_table.LimitSettings.of(limit_policy(**value)[ALL]).key
    others = [{"algorithm": "vegas"}, {"algorithm": "aimd-plain"}, {"aimd": {"maxLimit": 999}}]
    assert key not in [concurrency_table.LimitSettings.of(other).key for other in others]
    written = {"algorithm": "aimd", "useWindowed": True, "window": {"maxWindow": "1000ms"}}
    assert (key == concurrency_table.LimitSettings.of(written).key) == (value == {})
