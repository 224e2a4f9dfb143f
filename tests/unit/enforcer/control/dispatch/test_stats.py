"""What `GET .../{topic}/stats` says of deliveries."""

from typing import Any

import pytest
from delivery_kit import T, decide, deliver

from enforcer.control.dispatch.stats import Deliveries, TopicStats, topic_stats
from enforcer.control.dispatch.table import CUTS, DeliveryTable
from streaming.policy.policy_set import PolicySet

OF_SUB = {"namespaces.a/b": {"subscriptionDispatchRate": {"dispatchThrottlingRateInMsg": 10}}}
OF_TOPIC = {f"topics.{T}": {"dispatchRate": {"dispatchThrottlingRateInByte": 1_000, "ratePeriodInSecond": 5}}}


def shown(table: DeliveryTable, now_ms: int, entries: Any = OF_SUB) -> dict[str, Any]:
    """The stats, as the description has them."""
    stats = topic_stats(table, T, PolicySet(entries), now_ms)
    assert stats is not None
    TopicStats.model_validate(stats, strict=True, extra="forbid")
    return stats


def test_names_are_pulsars() -> None:
    """PIP-406's, of all levels and dimensions."""
    words = {"msgs": "Msg", "bytes": "Bytes"}
    assert list(Deliveries.model_fields)[-len(CUTS) :] == [
        f"dispatchThrottled{words[dimension]}EventsBy{level.capitalize()}Limit" for level, dimension in CUTS
    ]


@pytest.fixture
def table() -> DeliveryTable:
    """It is empty."""
    return DeliveryTable(10)


def test_proxies_and_brokers_are_summed(table: DeliveryTable) -> None:
    """With the part of each; a broker's over its subscriptions."""
    deliver(table, 10_000, msgs=10)
    deliver(table, 10_000, msgs=20, proxy="p2")
    deliver(table, 10_000, msgs=30, broker="b2")
    deliver(table, 10_000, msgs=5, subscription="r")
    decide(table, ts=10_000)
    decide(table, ts=10_000, proxy="p2", limited_by={"level": "broker", "dimension": "bytes"})
    stats = shown(table, 20_000)
    assert (stats["msgOutCounter"], stats["bytesOutCounter"]) == (65, 6_500)
    assert (stats["msgRateOut"], stats["msgThroughputOut"]) == (6.5, 650.0)
    own = stats["subscriptions"]["s"]
    assert (own["msgOutCounter"], own["msgRateOut"]) == (60, 6.0)
    assert own["dispatchThrottledMsgEventsBySubscriptionLimit"] == 1
    assert stats["dispatchThrottledBytesEventsByBrokerLimit"] == 1
    first, second = own["brokers"]
    assert (first["broker"], first["msgOutCounter"], second["msgOutCounter"]) == ("b1", 30, 30)
    assert [(part["proxy"], part["msgOutCounter"]) for part in first["proxies"]] == [("p1", 10), ("p2", 20)]
    assert first["proxies"][0]["reportedTime"] == 10_000
    assert [(part["broker"], part["msgOutCounter"]) for part in stats["brokers"]] == [("b1", 35), ("b2", 30)]


def test_a_topic_without_deliveries_is_not_known() -> None:
    """As in Pulsar."""
    assert topic_stats(DeliveryTable(1), T, PolicySet({}), 0) is None


def test_counters_go_on_with_time(table: DeliveryTable) -> None:
    """The law's own example: 30 delivered at 10 per second leave nothing in two periods, then 10."""
    decide(table, ts=1_000, acquired={"subscription": {"msgs": 30, "bytes": None}}, throttle_time_ms=3_000)
    at_once = shown(table, 1_000)["subscriptions"]["s"]
    assert at_once["available"] == {"msgs": 0, "bytes": None}
    assert at_once["acquired"] == {"subscription": {"msgs": 30, "bytes": None}}
    assert at_once["debt"] == {"msgs": 20, "bytes": None}
    assert at_once["limitedBy"] == {"level": "subscription", "dimension": "msgs"}
    assert (at_once["resumeTime"], at_once["decidedTime"]) == (4_000, 1_000)
    later = shown(table, 3_999)["subscriptions"]["s"]
    assert (later["debt"]["msgs"], later["resumeTime"]) == (0, 4_000)
    free = shown(table, 4_000)["subscriptions"]["s"]
    assert (free["available"]["msgs"], free["limitedBy"], free["resumeTime"]) == (10, None, None)
    # The clock of whoever asks may be behind the broker's.
    assert shown(table, 500)["subscriptions"]["s"]["resumeTime"] == 4_000


def test_levels_apply_together(table: DeliveryTable) -> None:
    """Topic and broker counters are those of the newest decision, whatever subscription that was on."""
    policies = OF_SUB | OF_TOPIC | {"broker": {"dispatchThrottlingRateInMsg": 100}}
    nothing = {"msgs": 0, "bytes": 0}
    decide(
        table,
        ts=10_000,
        acquired={"broker": nothing, "topic": nothing, "subscription": {"msgs": 4, "bytes": 0}},
    )
    decide(
        table,
        ts=10_100,
        subscription="r",
        acquired={
            "broker": {"msgs": 95, "bytes": None},
            "topic": {"msgs": None, "bytes": 2_500},
            "subscription": {"msgs": 9, "bytes": 0},
        },
    )
    stats = shown(table, 10_100, policies)
    own = stats["subscriptions"]["s"]
    assert own["available"] == {"msgs": 5, "bytes": 0}
    assert own["acquired"]["subscription"] == {"msgs": 4, "bytes": None}
    assert own["limitedBy"] == {"level": "topic", "dimension": "bytes"}
    assert own["resumeTime"] == 20_000
    assert stats["subscriptions"]["r"]["available"] == {"msgs": 1, "bytes": 0}
    assert (stats["available"], stats["debt"]) == ({"msgs": 5, "bytes": 0}, {"msgs": 0, "bytes": 1_500})
    assert list(stats["acquired"]) == ["broker", "topic"]
    assert stats["brokers"][0]["limitedBy"] == {"level": "topic", "dimension": "bytes"}


def test_several_brokers_leave_what_they_leave_together(table: DeliveryTable) -> None:
    """Held back until the last of them goes on; where nothing limits there is no number."""
    decide(table, ts=1_000, acquired={"subscription": {"msgs": 25, "bytes": None}})
    decide(table, ts=1_000, broker="b2", acquired={"subscription": {"msgs": 3, "bytes": None}})
    own = shown(table, 1_000)["subscriptions"]["s"]
    assert own["available"] == {"msgs": 7, "bytes": None}
    assert own["acquired"] == {"subscription": {"msgs": 28, "bytes": None}}
    assert (own["debt"]["msgs"], own["resumeTime"]) == (15, 3_000)
    assert [part["resumeTime"] for part in own["brokers"]] == [3_000, None]
    free = shown(table, 1_000, {})["subscriptions"]["s"]
    assert free["available"] == free["debt"] == {"msgs": None, "bytes": None}
    assert (free["acquired"], free["limitedBy"]) == ({}, None)


def test_before_the_first_decision_nothing_is_known(table: DeliveryTable) -> None:
    """Null, and not as if nothing limited."""
    deliver(table, 1_000)
    stats = shown(table, 1_000)
    own = stats["subscriptions"]["s"]
    assert (own["available"], own["debt"], own["decidedTime"]) == (None, None, None)
    assert stats["available"] is None


def test_without_counters_a_decision_holds_while_it_throttles(table: DeliveryTable) -> None:
    """Of a job that does not say them."""
    decide(table, ts=1_000)
    own = shown(table, 1_999)["subscriptions"]["s"]
    assert (own["available"], own["resumeTime"]) == ({"msgs": 0, "bytes": None}, 2_000)
    assert own["limitedBy"] == {"level": "subscription", "dimension": "msgs"}
    own = shown(table, 2_000)["subscriptions"]["s"]
    assert (own["available"], own["limitedBy"], own["decidedTime"]) == (None, None, 1_000)
