"""In front of a Pulsar: what its stats do not say of backlogs."""

import time
from typing import Any

from admin_api_kit import parts
from admin_backlog_kit import T, decision, eviction, report, take

from enforcer.control.backlog.filled_answers import fills
from enforcer.control.backlog.stats import OLDEST
from enforcer.control.parts import Parts

STATS = "/admin/v2/persistent/{tenant}/{namespace}/{topic}/stats"
PARTITIONED = "/admin/v2/persistent/{tenant}/{namespace}/{topic}/partitioned-stats"
QUOTA = {"backlogQuotaMap": {"destination_storage": {"limitSize": 700, "policy": "producer_exception"}}}
OLD = {"storageSize": 3, "backlogSize": 2, "msgRateOut": 1.0, "subscriptions": {"slow": {"msgBacklog": 1}}}
"""As a version before PIP-323 tells it."""
NEW = OLD | {"backlogQuotaLimitSize": 5, "backlogQuotaLimitTime": -1, "oldestBacklogMessageAgeSeconds": -1}


def filled(made: Parts, path: str, value: Any, topic: str = "t1") -> Any:
    """An answer, filled in."""
    return fills(made)[path]({"tenant": "acme", "namespace": "orders", "topic": topic}, value, "proxy")


def limited() -> Parts:
    """With a quota of size on the namespace."""
    made = parts()
    made.store.held["namespaces.acme/orders"] = QUOTA
    return made


def looked_at(topic: str = T) -> Parts:
    """And with a topic that was looked at just now."""
    made = limited()
    now = time.time_ns() // 1_000_000
    take(made.backlogs, [report(topic, ("slow", -1), ("own", 3), ts=now), decision(topic, ts=now)])
    take(made.backlogs, [eviction("slow", topic=topic, ts=now)])
    return made


def test_where_weir_knows_nothing_it_is_pulsars_answer() -> None:
    """Unchanged, whatever it is."""
    for path in (STATS, PARTITIONED):
        for value in (
            NEW, "text", None, [], {}, {"subscriptions": 5, "partitions": 6}, {"partitions": {"x": 7}},
        ):
            assert filled(parts(), path, value) == value
    assert filled(limited(), STATS, NEW, "a/b c") == NEW


def test_limits_are_weirs_where_it_has_a_quota() -> None:
    """Before any check too; Pulsar's others stay."""
    assert filled(limited(), STATS, NEW) == NEW | {"backlogQuotaLimitSize": 700}
    assert filled(limited(), STATS, OLD)["backlogQuotaLimitSize"] == 700


def test_what_an_old_pulsar_lacks_is_filled_in() -> None:
    """What it says stays; subscriptions that it does not know are not shown."""
    seen = filled(looked_at(), STATS, OLD)
    assert (seen["storageSize"], seen["backlogSize"], seen["msgRateOut"]) == (3, 2, 1.0)
    assert (seen["oldestBacklogMessageAgeSeconds"], seen["oldestBacklogMessageSubscriptionName"]) == (
        7,
        "slow",
    )
    assert (seen["backlogQuotaLimitSize"], seen["backlogQuotaLimitTime"]) == (700, -1)
    assert seen["evictionsBySizeQuota"]["msgs"] == 4
    assert list(seen["subscriptions"]) == ["slow"]
    assert (seen["subscriptions"]["slow"]["msgBacklog"], seen["subscriptions"]["slow"]["backlogSize"]) == (
        1,
        1_050,
    )


def test_a_new_pulsar_that_has_looked_knows_who_is_the_oldest() -> None:
    """Its age and name go together with nothing of ours."""
    for own in ({OLDEST[0]: 12, OLDEST[1]: "other"}, {OLDEST[0]: 0}, {OLDEST[0]: -1, OLDEST[1]: "other"}):
        seen = filled(looked_at(), STATS, OLD | own)
        assert {name: seen[name] for name in OLDEST if name in seen} == own


def test_a_new_pulsar_that_has_not_looked_is_told() -> None:
    """It says -1 and no name, whoever is behind."""
    seen = filled(looked_at(), STATS, NEW)
    assert [seen[name] for name in OLDEST] == [7, "slow"]


def test_nobody_behind_stays_nobody() -> None:
    """As each of the two says it: -1."""
    made, now = limited(), time.time_ns() // 1_000_000
    nobody = {OLDEST[0]: -1, OLDEST[1]: None}
    take(made.backlogs, [report(T, ts=now), decision(T, ts=now) | nobody])
    assert filled(made, STATS, NEW)[OLDEST[0]] == -1
    assert filled(made, STATS, NEW)[OLDEST[1]] is None


def test_partitions_are_filled_in_too() -> None:
    """Each by its own name."""
    name = f"{T}-partition-0"
    seen = filled(looked_at(name), PARTITIONED, OLD | {"partitions": {name: OLD, "x": OLD, "y": 5}})
    assert (seen["backlogQuotaLimitSize"], seen["evictionsBySizeQuota"]["times"]) == (700, 1)
    assert seen["partitions"][name]["evictionsBySizeQuota"]["times"] == 1
    assert seen["partitions"][name]["backlogQuotaLimitSize"] == 700
    assert (seen["partitions"]["x"], seen["partitions"]["y"]) == (OLD, 5)
