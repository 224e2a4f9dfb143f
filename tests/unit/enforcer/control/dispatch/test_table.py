"""What is kept of deliveries and the decisions on them."""

from typing import Any

import pytest
from delivery_kit import DECISION, T, decide, deliver
from each_kit import each

from enforcer.control.dispatch.table import CUTS, DeliveryTable, dispatch_of
from streaming.contract.errors import BadEvent
from streaming.laws.dispatch.law import NONE


@pytest.fixture
def table() -> DeliveryTable:
    """It is empty."""
    return DeliveryTable(10)


def test_deliveries_are_counted_by_subscription_broker_and_proxy(table: DeliveryTable) -> None:
    """Totals since the first that was read."""
    for ts in (1_000, 2_000):
        deliver(table, ts)
    deliver(table, 3_000, proxy="p2")
    rows = table.of_topic(T, 3_000)
    assert [(key.proxy, row.msgs, row.bytes, row.reported_ts) for key, row in rows] == [
        ("p1", 20, 2_000, 2_000),
        ("p2", 10, 1_000, 3_000),
    ]
    assert table.of_topic("persistent://a/b/other", 3_000) == []


def test_what_held_back_is_counted_once(table: DeliveryTable) -> None:
    """Repeats are not."""
    decide(table)
    decide(table, ts=2_000)
    decide(table, ts=2_000, repeat=True)
    decide(table, ts=3_000, limited_by=None)
    decide(table, ts=4_000, limited_by={"level": "topic", "dimension": "bytes"})
    ((_, row),) = table.of_topic(T, 5_000)
    cuts = {cut: count for cut, count in zip(CUTS, row.cuts, strict=True) if count}
    assert cuts == {("subscription", "msgs"): 2, ("topic", "bytes"): 1}


def test_the_newest_decision_holds_a_counter(table: DeliveryTable) -> None:
    """Of a broker and a topic whatever subscription it is about; an older one that comes late does not."""
    decide(table, ts=5_000)
    decide(table, ts=4_000, subscription="r")
    decide(table, ts=6_000, topic="persistent://a/b/u")
    names = ("b1", T, "s")
    found = [table.newest(*names[:depth]) for depth in (1, 2, 3)]
    assert [decision and decision.at for decision in found] == [6_000, 5_000, 5_000]
    decide(table, ts=6_000, throttle_time_ms=7)
    newest = table.newest("b1")
    assert newest is not None and newest.topic == T and newest.throttle_ms == 7  # of one time the last read


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"limited_by": None, "available": {"msgs": None, "bytes": 2**63 - 1}},
        {"acquired": {"broker": {"msgs": 0, "bytes": None}, "topic": {"msgs": None, "bytes": 3},
                      "subscription": {"msgs": 1, "bytes": 2}}},
    ],
)  # fmt: skip
def test_a_decision_is_kept_as_it_was_said(table: DeliveryTable, fields: dict[str, Any]) -> None:
    """Nulls too."""
    decide(table, **fields)
    assert table.newest("b1", T, "s") == dispatch_of(DECISION | {"proxy": "p1"} | fields)


def test_the_table_is_bounded() -> None:
    """Who was silent longest goes first, with counters that nobody needs any more, and is counted."""
    table = DeliveryTable(2)
    decide(table)
    deliver(table, 2_000, subscription="r", broker="b2")
    deliver(table, 3_000)
    deliver(table, 4_000, subscription="q")
    assert (len(table.rows), table.rows.dropped) == (2, 1)
    assert [key.subscription for key, _ in table.of_topic(T, 4_000)] == ["q", "s"]
    assert table.newest("b2") is None and table.newest("b1", T, "s") is not None
    for number in range(2):
        deliver(table, 5_000, topic="persistent://a/b/u", subscription=str(number))
    assert table.of_topic(T, 5_000) == []
    assert (len(table.rows), table.rows.dropped) == (2, 3)
    assert table.newest("b1", T) is None


def test_rates_are_those_of_the_last_minute(table: DeliveryTable) -> None:
    """Since the first delivery if that is not so long ago; one second at least; late ones count."""

    def rates(now_ms: int) -> tuple[float, float]:
        ((_, row),) = table.of_topic(T, now_ms)
        return row.rates

    deliver(table, 100_000, msgs=10)
    assert rates(100_000) == (10.0, 1_000.0)
    assert rates(105_000) == (2.0, 200.0)
    deliver(table, 130_000, msgs=20)
    deliver(table, 120_000, msgs=30)
    assert rates(140_000) == (1.5, 150.0)
    assert rates(175_000) == (50 / 55, 5_000 / 55)
    assert rates(400_000) == (0.0, 0.0)
    for ts in range(400_000, 600_000, 1_000):
        deliver(table, ts, msgs=5)
    assert rates(600_000 - 1)[0] == pytest.approx(5 * 60 / 59.999)


def test_sums_beyond_64_bits_are_cut(table: DeliveryTable) -> None:
    """Whatever somebody writes."""
    for _ in range(2):
        deliver(table, 1_000, msgs=(2**63 - 1) // 100)
    ((_, row),) = table.of_topic(T, 1_000)
    assert row.bytes == 2**63 - 1 and row.rates[1] == pytest.approx(2.0**63)


def test_a_decision_is_read() -> None:
    """Without counters and proxy, as of a reporter that is none, and with them."""
    found = dispatch_of(DECISION)
    assert (found.at, found.throttle_ms, found.proxy, found.repeated) == (1_000, 1_000, "", False)
    assert (found.available, CUTS[found.limited_by]) == ((0, NONE), ("subscription", "msgs"))
    assert found.acquired is None
    more = {"acquired": {"subscription": {"msgs": 11, "bytes": None}, "topic": {"msgs": 3}}}
    found = dispatch_of(DECISION | more | {"proxy": "p1", "applied_ts": 1_500, "repeat": True})
    assert (found.at, found.proxy, found.repeated) == (1_500, "p1", True)
    assert found.acquired == ((NONE, NONE), (3, NONE), (11, NONE))


def test_packed_nulls_are_absent() -> None:
    """What limits nobody."""
    fields = {name: value for name, value in DECISION.items() if name != "limited_by"}
    assert dispatch_of(fields | {"available": {"msgs": None, "bytes": None}}).limited_by == NONE


@each(
    "wrong",
    [
        {"limited_by": {}}, {"limited_by": "x"}, {"limited_by": {"level": "x", "dimension": "msgs"}},
        {"available": []}, {"available": {"msgs": -1}}, {"acquired": {"topic": 5}}, {"ts": None},
        {"throttle_time_ms": 1.5}, {"broker": 5}, {"topic": "t1"}, {"acquired": {"topic": {"msgs": "1"}}},
    ],
)  # fmt: skip
def test_what_is_no_decision_is_refused(wrong: dict[str, Any]) -> None:
    """Anyone with access to the cluster could write to the topic."""
    with pytest.raises(BadEvent):
        dispatch_of(DECISION | wrong)
