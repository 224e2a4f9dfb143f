"""What is kept of deliveries and the decisions on them."""

import pytest
from delivery_kit import T, decide, deliver

from enforcer.control.dispatch.table import CUTS, DeliveryTable, RecentDeliveries


def test_deliveries_are_counted_by_subscription_broker_and_proxy() -> None:
    """Totals since the first that was read."""
    table = DeliveryTable(10)
    for ts in (1_000, 2_000):
        deliver(table, ts)
    deliver(table, 3_000, proxy="p2")
    rows = list(table.of_topic(T))
    assert [(key.proxy, row.msgs, row.bytes, row.entries, row.reported_ts) for key, row in rows] == [
        ("p1", 20, 2_000, 2, 2_000),
        ("p2", 10, 1_000, 1, 3_000),
    ]
    assert list(table.of_topic("persistent://a/b/other")) == []


def test_what_held_back_is_counted_once() -> None:
    """Repeats are not."""
    table = DeliveryTable(10)
    decide(table)
    decide(table, ts=2_000)
    decide(table, ts=2_000, repeat=True)
    decide(table, ts=3_000, limited_by=None)
    decide(table, ts=4_000, limited_by={"level": "topic", "dimension": "bytes"})
    ((_, row),) = table.of_topic(T)
    cuts = {cut: count for cut, count in zip(CUTS, row.cuts, strict=True) if count}
    assert cuts == {("subscription", "msgs"): 2, ("topic", "bytes"): 1}


def test_the_newest_decision_holds_a_counter() -> None:
    """Of a broker and a topic whatever subscription it is about; an older one that comes late does not."""
    table = DeliveryTable(10)
    decide(table, ts=5_000)
    decide(table, ts=4_000, subscription="r")
    decide(table, ts=6_000, topic="persistent://a/b/u")
    found = [counter.decided for counter in table.counters("b1", T, "s")]
    assert [decision and decision.at for decision in found] == [6_000, 5_000, 5_000]
    assert [counter.decided and counter.decided.at for counter in table.counters("b1", T, None)] == [
        6_000,
        5_000,
    ]


def test_the_table_is_bounded() -> None:
    """Who was silent longest goes first, with counters that nobody needs any more, and is counted."""
    table = DeliveryTable(2)
    decide(table)
    deliver(table, 2_000, subscription="r", broker="b2")
    deliver(table, 3_000)
    deliver(table, 4_000, subscription="q")
    assert (len(table.rows), table.rows.dropped) == (2, 1)
    assert [key.subscription for key, _ in table.of_topic(T)] == ["q", "s"]
    with pytest.raises(KeyError):
        table.counters("b2", T, None)
    for number in range(2):
        deliver(table, 5_000, topic="persistent://a/b/u", subscription=str(number))
    assert list(table.of_topic(T)) == []
    assert (len(table.rows), table.rows.dropped) == (2, 3)
    with pytest.raises(KeyError):
        table.counters("b1", T, None)


def test_rates_are_those_of_the_last_minute() -> None:
    """Since the first delivery if that is not so long ago; one second at least; late ones count."""
    recent = RecentDeliveries(100_000)
    recent.add(100_000, 10, 1_000)
    assert recent.rates(100_000) == (10.0, 1_000.0)
    assert recent.rates(105_000) == (2.0, 200.0)
    recent.add(130_000, 20, 2_000)
    recent.add(120_000, 30, 3_000)
    assert recent.rates(140_000) == (1.5, 150.0)
    assert recent.rates(175_000) == (50 / 55, 5_000 / 55)
    assert recent.rates(400_000) == (0.0, 0.0)
    for ts in range(400_000, 600_000, 1_000):
        recent.add(ts, 5, 0)
    assert recent.rates(600_000 - 1) == (5 * 60 / 59.999, 0.0)
