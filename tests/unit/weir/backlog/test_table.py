"""The table of `weir backlog`: order, units, what a row says."""

import random
from typing import Any

import orjson
from event_kit import EVICT, quotas

from streaming.policy.policy_set import PolicySet
from weir.backlog.decisions import Decisions
from weir.backlog.table import HEAD, Row, human_bytes, human_seconds, is_of, ordered, table

NOW = 1_795_166_700_000
HOLD, REFUSE = "producer_request_hold", "producer_exception"


POLICIES = PolicySet(
    {
        "topics.persistent://a/n/size": quotas(size=1000, actions=True),
        "topics.persistent://a/n/age": quotas(seconds=60, policy=HOLD),
        "topics.persistent://a/n/both": quotas(size=4000, seconds=60),
        "topics.persistent://a/n/zero": quotas(size=0, policy=REFUSE),
        "topics.persistent://a/n/0 s": quotas(seconds=0),
    }
)


def row(name: str, size: float = 0, age: int = -1, policies: PolicySet = POLICIES, **more: Any) -> Row:
    """The row of a topic `persistent://a/n/NAME`."""
    fields = {
        "type": "backlog", "id": "k", "ts": NOW - 12_000, "topic": f"persistent://a/n/{name}",
        "backlogSize": size, "oldestBacklogMessageAgeSeconds": age,
        "oldestBacklogMessageSubscriptionName": "slow" if size else None, "ttl_ms": 60_000,
    }  # fmt: skip
    newest = Decisions()
    newest.take(orjson.dumps(fields | more), NOW - 11_000)
    found = newest.of_topic.get(f"persistent://a/n/{name}")
    assert found is not None
    return Row.of(found, policies)


def cells(one: Row, now_ms: int = NOW) -> dict[str, str]:
    """The words of a row beside the titles of its columns; of a title that is empty, those before it."""
    head, line = table([one], now_ms, 1)
    starts = [head.index(title) for title in HEAD if title] + [len(line) + 1]
    found = {"": line[: starts[0]].strip()}
    for title, first, end in zip(filter(None, HEAD), starts, starts[1:], strict=False):
        found[title] = line[first:end].strip()
    return found


def test_the_nearest_to_its_quota_comes_first() -> None:
    """By the nearer of both quotas; those without one last, by size; in ties by name."""
    expected = [
        row("zero", 1),  # nothing is allowed: as far beyond as can be
        row("size", 2000),
        row("both", 1000, 90),  # 25 % and 150 %
        row("age", 10**9, 60),
        row("both-partition-0", 2000, 20),  # a partition goes by its topic
        row("0 s", 10**6, 500),
        row("large", 3000),
        row("a", 10),
        row("b", 10),
    ]
    names = [one.found.decision.topic for one in expected]
    for seed in range(20):
        shuffled = list(expected)
        random.Random(seed).shuffle(shuffled)
        assert [one.found.decision.topic for one in ordered(shuffled)] == names


def test_equal_is_not_exceeded() -> None:
    """As in the law: greater only, 0 bytes is a limit, 0 s and an unknown age are none."""
    assert [row("size", size).exceeded for size in (999, 1000, 1001)] == [False, False, True]
    assert [row("age", 5, age).exceeded for age in (60, 61, -1)] == [False, True, False]
    assert [row("zero", size).exceeded for size in (0, 1)] == [False, True]
    assert not row("0 s", 5, 10**6).exceeded and not row("0 s", 5, 10**6).limited


def test_a_row_that_is_beyond_its_quota() -> None:
    """Size and age beside their limits with percent, whom it is for, what the policies say and would cost."""
    evict = [
        {"subscription": "slow", "ledger": 1, "entry": 9, "entries": 10},
        {"subscription": "x", "before_publish_time": 5},
    ]
    assert cells(row("both", 4136, 200, evict=evict)) == {
        "": "!",
        "TOPIC": "persistent://a/n/both",
        "SIZE": "4.0 KiB / 3.9 KiB  103 %",
        "AGE": "3m20s / 1m  333 %",
        "OLDEST": "slow",
        "POLICY": "consumer_backlog_eviction (reported only)",
        "WOULD EVICT": "10 entries of slow, what is too old of x",
        "LOOKED AT": "12s ago",
    }
    many = [{"subscription": name, "ledger": 1, "entry": 9, "entries": 7} for name in "abc"]
    assert cells(row("both", 4136, evict=many))["WOULD EVICT"] == "21 entries of 3 subscriptions"


def test_a_row_within_its_quota_and_one_without() -> None:
    """What is carried out is said; nothing behind, no name; what nobody says again is stale."""
    within = cells(row("size", 999))
    assert (within[""], within["SIZE"], within["AGE"]) == ("", "999 B / 1000 B  99 %", "-")
    assert within["POLICY"] == "consumer_backlog_eviction (carried out)"
    free = cells(row("other", 0), NOW + 50_000)
    assert [free[title] for title in ("SIZE", "AGE", "OLDEST", "POLICY", "WOULD EVICT", "LOOKED AT")] == [
        "0 B", "-", "-", "-", "-", "1m2s ago, stale",
    ]  # fmt: skip
    assert cells(row("zero", 3))["SIZE"] == "3 B / 0 B  over"


def test_different_policies_are_named_by_their_type() -> None:
    """Each with whether it is carried out."""
    own = quotas(size=5, seconds=5, policy=HOLD)
    own["backlogQuotaMap"]["message_age"] = {"limitTime": 5, "policy": EVICT, "actions": True}
    policies = PolicySet({"namespaces.a/n": own})
    said = cells(row("t", policies=policies))["POLICY"]
    assert said == f"size: {HOLD} (reported only), time: {EVICT} (carried out)"


def test_the_table_is_bounded_and_says_how_many_more() -> None:
    """A last line; none if all are shown."""
    some = [row(f"t{number}", 5) for number in range(3)]
    assert table(some, NOW, 2)[3:] == ["... and 1 more; --limit shows them, --topic T one"]
    assert len(table(some, NOW, 3)) == 4


def test_names_forge_no_lines_and_push_no_columns() -> None:
    """Anybody may name a subscription; a long name widens its own row alone."""
    hostile = "a\nb\x1b[2K\u202e"
    lines = table([row("t", 5, oldestBacklogMessageSubscriptionName=hostile), row("x" * 500, 1)], NOW, 9)
    assert all(line.isprintable() for line in lines)
    assert "a\\nb\\x1b[2K\\u202e" in lines[1]
    assert lines[0].index("SIZE") < 110 < lines[2].index("1 B")


def test_units() -> None:
    """At their borders."""
    assert [human_bytes(2**10 - 1), human_bytes(2**10), human_bytes(2.0**80)] == [
        "1023 B", "1.0 KiB", f"{2.0**20:.1f} EiB",
    ]  # fmt: skip
    assert [human_bytes(size) for size in (2**20 - 60, 2**20 - 1)] == ["1023.9 KiB", "1.0 MiB"]
    assert [human_seconds(s) for s in (0, 59, 60, 3_599, 3_600, 86_399, 86_400)] == [
        "0s", "59s", "1m", "59m59s", "1h", "23h59m", "1d",
    ]  # fmt: skip


def test_partitions_are_of_their_topic() -> None:
    """By Pulsar's naming; a name that only begins alike is another topic."""
    topic = "persistent://a/n/t"
    names = (topic, f"{topic}-partition-0", f"{topic}-partition-01", f"{topic}2", f"{topic}2-partition-0")
    assert [is_of(name, topic) for name in names] == [True, True, False, False, False]
