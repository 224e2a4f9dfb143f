"""What time it is for the live job: what was asked too late, and what it is too late to say."""

from collections.abc import Sequence
from typing import Any

import pytest
from law_kit import T0, Shard, quota, request

from streaming.laws.present import CLOCK_MS

Event = dict[str, Any]
MINUTE, DAY = 60_000, 86_400_000
POLICIES: dict[str, dict[str, Any]] = {
    "mutation": {"quotas[user=alice]": quota(1, 5)},
    "shares": {"resourcegroups.rg1": {"publishRateInMsgs": 100}},
    "concurrency": {"backpressure.partitions.*": {"algorithm": "aimd", "useWindowed": False}},
    "dispatch": {"broker": {"dispatchThrottlingRateInMsg": 1}},
}


class Live(Shard):
    """One shard of a job whose host's clock is ahead of the brokers' by `skew_ms`."""

    def __init__(self, law: str, skew_ms: int = 0) -> None:
        super().__init__(POLICIES[law], law=law, replay=False)
        self.skew_ms = skew_ms

    def at(self, now: int, *written: tuple[int, Event], partitions: Sequence[int] = ()) -> list[Event]:
        """The decisions of a batch that begins at `now`, with records of these times (the brokers')."""
        times, events = zip(*written, strict=True)
        decided = self.step(events, now + self.skew_ms, times, partitions)
        assert not self.dead_letters
        return decided


def question(name: str) -> Event:
    """A strict question of a proxy that waits for two seconds."""
    asked = request(name, 0, 1, subject="user=alice", deadline_ms=2000, on_late="reject")
    del asked["ts"]
    return asked


def tick(**said: int) -> Event:
    return {"type": "tick", **said}


def report(broker: str, rate: int = 10) -> Event:
    usage = {"rg1": {"publishedMsg": rate * 60}}
    return {"type": "group_usage", "broker": broker, "period_ms": MINUTE, "usage": usage}


def sample(name: str, rtt_ms: int = 300) -> Event:
    told = {"partition": "broker-1", "rtt_ns": rtt_ms * 1_000_000, "inflight": 80}
    return {"type": "latency", "id": name, **told}


def late(decisions: Sequence[Event]) -> list[bool]:
    return [decision.get("late", False) for decision in decisions]


@pytest.mark.parametrize("skew_ms", [0, 2_500, -2_500, 9_000])
def test_lateness_is_judged_by_the_brokers_clock(skew_ms: int) -> None:
    """Whatever the clock of the job's host says, and before any tick has told by how much it differs."""
    live = Live("mutation", skew_ms)
    for number in range(3):
        asked = T0 + number * 100
        assert late(live.at(asked + 50, (asked, question(f"q{number}")))) == [False]
    # The job was away for a while: the newest record is as old as the question.
    assert late(live.at(T0 + 10_000, (T0 + 7_000, question("old")))) == [True]
    # A part of what is read then is as new as can be.
    at = T0 + 20_000
    assert late(live.at(at, (at - 9_000, question("x")), (at - 10, question("y")))) == [True, False]


def test_what_is_late_is_late_for_a_job_that_knows_nothing_yet() -> None:
    """A host's clock is not that much ahead: what is so old was asked while there was no job."""
    assert late(Live("mutation").at(T0 + CLOCK_MS + 2_000, (T0, question("q")))) == [False]
    assert late(Live("mutation").at(T0 + CLOCK_MS + 2_001, (T0, question("q")))) == [True]


def test_a_tick_says_what_the_brokers_clock_is() -> None:
    """Also that it is less far ahead than was known, as when the host's clock was set forward."""
    live = Live("mutation")
    live.at(T0 + 10, (T0, question("a")), (T0, tick(brokers_ahead_ms=0)))
    live.skew_ms = 5_000
    assert late(live.at(T0 + 1_000, (T0 + 900, question("b")))) == [True], "nobody has told yet"
    live.at(T0 + 2_000, (T0 + 1_900, tick(brokers_ahead_ms=-5_000)))
    assert late(live.at(T0 + 3_000, (T0 + 1_500, question("c")))) == [False]
    assert late(live.at(T0 + 4_000, (T0 + 1_900, question("d")))) == [True]
    # One of somebody who does not know changes nothing; of two the newer one counts.
    live.at(T0 + 5_000, (T0 + 4_900, tick()))
    assert late(live.at(T0 + 6_000, (T0 + 3_900, question("e")))) == [True]
    live.skew_ms = 0
    two = [(T0 + 6_000, tick(brokers_ahead_ms=-5_000)), (T0 + 6_500, tick(brokers_ahead_ms=0))]
    live.at(T0 + 7_000, *two)
    assert late(live.at(T0 + 8_000, (T0 + 5_900, question("f")))) == [True]


@pytest.mark.parametrize("skew_ms", [0, 9_000, -9_000])
def test_a_job_that_begins_anew_says_no_share_and_no_limit_of_days_ago(skew_ms: int) -> None:
    """It reads all of them, and says what stands once it has come to the present."""
    shares, limits = Live("shares", skew_ms), Live("concurrency", skew_ms)
    now = T0 + 3 * DAY
    rounds = [(T0 + n * MINUTE, report(broker)) for n in range(9) for broker in ("p1", "p2")]
    assert shares.at(now, *rounds) == []
    assert shares.withheld == 16
    assert limits.at(now, *((T0 + n * MINUTE, sample(f"l{n}")) for n in range(9))) == []
    for at in range(now - 10 * MINUTE, now, MINUTE):
        said = shares.at(now, (at, report("p1")), (at, report("p2")))
        assert bool(said) == (at >= now - 3 * MINUTE)
    # A limit of half an hour ago is in force still, and said again as soon as that is known.
    assert limits.at(now, (now - 30 * MINUTE, sample("last"))) == []
    (said,) = limits.at(now, (now - 10, tick()))
    assert (said["id"], said["repeat"]) == ("last", True)


def test_a_round_of_days_ago_that_ends_now_is_not_told_of() -> None:
    """Nobody has reported since; that its members have left is told to nobody either: it was long ago."""
    live, now = Live("shares"), T0 + 3 * DAY
    live.at(now - 1, (now - 1, tick(brokers_ahead_ms=0)))
    assert live.at(now, (T0, report("p1"))) == []
    assert live.at(now, (now, tick())) == []
    assert live.withheld == 2


def test_what_is_decided_in_time_is_said() -> None:
    """Up to its life time after its record; a limit has a minute, a share of short rounds one too."""
    for age_ms, count in ((0, 1), (MINUTE, 1), (MINUTE + 1, 0)):
        live = Live("concurrency")
        live.at(T0 - 1, (T0 - 1, tick(brokers_ahead_ms=0)))
        assert len(live.at(T0 + age_ms, (T0, sample("l")))) == count
        assert live.withheld == 1 - count


def test_members_in_a_partition_that_is_read_later_have_not_left() -> None:
    """Ticks are ahead of the reports of `p2`: that it has expired is said to nobody, and it has not."""
    live, now = Live("shares"), T0 + DAY
    for n in range(10):
        own = [(now - MINUTE * (10 - n), each) for each in (report("p1"), tick())]
        old = T0 + n * MINUTE, report("p2")
        assert live.at(now, *own, old, partitions=[0, 0, 1]) == []
    assert live.withheld
    said: list[Event] = []
    for n in range(3):
        at = now + n * MINUTE
        said += live.at(at, (at, report("p1")), (at, report("p2")), (at, tick()), partitions=[0, 1, 0])
    assert [one["broker"] for one in said if one["ts"] > now] == ["p1", "p2"] * 2
    assert not any("removed" in one for one in said)


def test_what_answers_an_event_is_always_said() -> None:
    """Receivers look at its time themselves, and a proxy waits for it."""
    delivery = {"broker": "b", "topic": "persistent://t/n/x", "subscription": "s", "msgs": 2, "bytes": 2}
    old = T0, {"type": "dispatch_usage", "id": "d", "entries": 2, "backlog": True, **delivery}
    assert [one["id"] for one in Live("dispatch").at(T0 + DAY, old)] == ["d"]
    assert late(Live("mutation").at(T0 + DAY, (T0, question("q")))) == [True]


def test_ticks_that_are_hours_ahead_of_the_requests_end_no_debt_and_no_policy() -> None:
    """They stand on another topic, and a job that catches up reads that to its end first."""
    live, now = Live("mutation"), T0 + DAY
    raised = {"type": "policy", "path": "quotas[user=alice]", "value": quota(1, 500)}
    live.at(now, (T0, request("a", 0, 100, subject="user=alice")), (now - 10 * MINUTE, raised))
    for n in range(1, 4):
        old = request(f"b{n}", n * MINUTE, 1, user="bob", subject="user=bob")
        assert live.at(now, (T0 + n * MINUTE, old), (now + n * MINUTE, tick()))
        live.at(now, (now + n * MINUTE, tick()))
    (decided,) = live.at(now, (T0 + 1000, request("c", 1000, 1, subject="user=alice")))
    assert (decided["outcome"], decided["tokens"], decided["policy_version"]) == ("reject", -94.0, 1)
