"""The law of shares: the numbers of PIP-82, docs/contract.md 3.2 and docs/protocol_notes.md 4.1."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from event_kit import T0, Event, tick
from event_kit import report as group_usage
from usage_kit import batch_from, decide, decisions_of, entry_of

from streaming.laws.law import Decision
from streaming.laws.shares.intake import NO_SOURCE
from streaming.laws.shares.law import NOT_REPORTED, share_out
from streaming.laws.shares.table import SharesTable
from streaming.policy.timeline import PolicyTimeline

ROUND = T0 // 60_000
MINUTE = 60_000
LIMITS = {"resourcegroups.rg1": {"publishRateInMsgs": 100}}


def report(round_number: int, broker: str, msgs: float, *, at_ms: int = 0, **fields: Any) -> Event:
    """What a broker published per second in the minute before round `round_number`, all in group rg1."""
    usage = {fields.pop("group", "rg1"): {"publishedMsg": int(msgs * 60)} | fields.pop("counts", {})}
    return group_usage(round_number * MINUTE + at_ms, broker, usage, MINUTE, **fields)


def reports(*rounds: dict[str, float]) -> list[Event]:
    """One report a broker and round."""
    return [report(n, broker, msgs) for n, used in enumerate(rounds) for broker, msgs in used.items()]


def shares(decisions: Iterable[Decision], dimension: str = "publishRateInMsgs") -> list[list[float]]:
    """The shares by round, each in order of broker."""
    by_round: dict[int, list[float]] = {}
    for decision in decisions:
        if decision["limits"] is not None:
            by_round.setdefault(decision["round"], []).append(decision["limits"][dimension])
    return [by_round[number] for number in sorted(by_round)]


def run(events: list[Event], policies: dict[str, Any] | None = None) -> list[Decision]:
    return decide(SharesTable(), events, PolicyTimeline(policies or LIMITS), end=True)


@pytest.mark.parametrize(
    ("used", "expected"),
    [
        ((10, 50, 30), (11.11, 55.56, 33.33)),  # the residual: trace C
        ((10, 80, 30), (8.33, 66.67, 25.00)),  # over the limit: trace D
        ((10, 80), (11.11, 88.89)),  # trace A, 10 against 80
        ((40,), (100,)),  # alone: all of it
    ],
)
def test_proportional_split(used: tuple[int, ...], expected: tuple[float, ...]) -> None:
    """PIP-82 divides what is left, or missing, in proportion to use."""
    decided = run(reports({f"b{n}": msgs for n, msgs in enumerate(used)}))
    assert shares(decided)[0] == pytest.approx(expected, abs=0.005)


def test_stealing_goes_half_way() -> None:
    """80/20 becomes 65/35, then 57.5/42.5 and 53.75/46.25 while both use all they have (traces B and E)."""
    decided = run(
        reports({"b1": 80, "b2": 20}, {"b1": 80, "b2": 20}, {"b1": 65, "b2": 35}, {"b1": 57.5, "b2": 42.5})
    )
    assert shares(decided) == [[80, 20], [65, 35], [57.5, 42.5], [53.75, 46.25]]


def test_room_is_not_wasted() -> None:
    """Shares 70/30 and usage 70/20 move to 74/26, then 76/24 (PIP-82's under-use example)."""
    decided = run(reports({"b1": 70, "b2": 30}, {"b1": 70, "b2": 20}, {"b1": 74, "b2": 20}))
    assert shares(decided)[1:] == [[74, 26], [76, 24]]


def test_member_that_comes_back_recovers() -> None:
    """An idle member is told so and gets a part again when it reports: not one message a second (trace B)."""
    decided = run(
        reports({"b1": 50, "b2": 50}, {"b1": 50, "b2": 0}, {"b1": 100, "b2": 10}, {"b1": 90, "b2": 9})
    )
    removed = [decision for decision in decided if decision["limits"] is None]
    assert [(d["broker"], d["round"], d["removed"]) for d in removed] == [("b2", ROUND + 1, "idle")]
    assert "usage" not in removed[0]
    assert shares(decided)[1] == [100]
    assert shares(decided)[2] == pytest.approx([90.91, 9.09], abs=0.01)
    assert shares(decided)[3] == pytest.approx([70.45, 29.55], abs=0.01)


@pytest.mark.parametrize(("throttled_ms", "share"), [(2999, 50), (3000, 75)])
def test_hungry_by_what_is_throttled(throttled_ms: int, share: float) -> None:
    """A member throttled for 5 % of the period wants more, whatever it used."""
    counts = {"throttledMs": {"publishRateInMsgs": throttled_ms}}
    first = reports({"b1": 10, "b2": 10})
    decided = run([*first, report(1, "b1", 5, counts=counts), report(1, "b2", 5, counts={"throttledMs": {}})])
    # Not hungry: 5 against 5 in proportion. Hungry: half the way from 50 to 100 - 1.1 * 5, to the limit.
    assert shares(decided)[1][0] == pytest.approx(50 if share == 50 else 72.25)


def test_share_of_an_unused_dimension_is_forgotten() -> None:
    """A member that pauses in one dimension is new in it when it comes back: proportional, not half-way."""
    policies = {"resourcegroups.rg1": {"publishRateInMsgs": 100, "dispatchRateInMsgs": 100}}
    stays = {"dispatchedMsg": 60}
    rounds = [(80, 20), (80, 0), (80, 20)]
    events = [
        report(n, broker, msgs, counts=stays)
        for n, pair in enumerate(rounds)
        for broker, msgs in zip(("b1", "b2"), pair, strict=True)
    ]
    last = [d["limits"]["publishRateInMsgs"] for d in run(events, policies) if d["round"] == ROUND + 2]
    assert last == [80.0, 20.0]


def test_silent_member_expires_after_the_rounds_allowed() -> None:
    """Its report is taken for 5 rounds more, then it is told and the others get its part."""
    events = [report(0, "dead", 50), *(report(n, "b1", 50) for n in range(8))]
    decided = run(events)
    removed = [d for d in decided if d["limits"] is None]
    assert [(d["broker"], d["round"], d["removed"]) for d in removed] == [("dead", ROUND + 6, "expired")]
    assert shares(decided)[5:] == [[50, 50], [100], [100]]


def test_rounds_without_reports_are_closed_while_there_are_members() -> None:
    """A silent group writes nothing until its members expire, and that in its own round, however late."""
    a_year = 365 * 24 * 60
    decided = run([report(0, "b1", 50), report(a_year, "b1", 50)])
    told = [(d["round"] - ROUND, d.get("removed")) for d in decided]
    assert told == [(0, None), (6, "expired"), (a_year, None)]


def test_tick_closes_the_rounds_of_every_group() -> None:
    """A round is closed by a tick at its end, not before; what a tick decides answers the tick."""
    table, timeline = SharesTable(), PolicyTimeline(LIMITS)
    entries = [entry_of(report(0, "b1", 50), 3), entry_of(tick(MINUTE - 1), 4)]
    assert len(table.fold(batch_from(entries, timeline))) == 0
    ((source, decision),) = decisions_of(table.fold(batch_from([entry_of(tick(MINUTE), 5)], timeline)))
    assert (source, decision["round"]) == (5, ROUND)
    assert decide(table, [tick(6 * MINUTE)], timeline) == []
    assert [d["removed"] for d in decide(table, [tick(7 * MINUTE)], timeline)] == ["expired"]
    assert len(table) == 0


def test_end_closes_open_rounds_once() -> None:
    """At the end of the input groups with a report in their open round are decided, others are not."""
    table, timeline = (
        SharesTable(),
        PolicyTimeline(LIMITS | {"resourcegroups.rg2": LIMITS["resourcegroups.rg1"]}),
    )
    decide(table, [report(0, "b1", 50), tick(MINUTE)], timeline)
    decide(table, [report(1, "b1", 50, group="rg2")], timeline)
    ended = decisions_of(table.fold(batch_from([], timeline, end=True)))
    assert [(source, d["group"]) for source, d in ended] == [(NO_SOURCE, "rg2")]


def test_stale_reports_are_ignored_and_counted() -> None:
    """Older than its broker's last one, or more than two rounds older than the group's newest."""
    table, timeline = SharesTable(), PolicyTimeline(LIMITS)
    decide(table, [report(4, "b1", 10)], timeline)
    decide(table, [report(3, "b1", 99)], timeline)
    decide(table, [report(1, "b2", 99)], timeline)
    assert table.stale_reports == 2
    decide(table, [report(2, "b3", 30)], timeline)
    assert table.stale_reports == 2
    decided = decide(table, [], timeline, end=True)
    assert [(d["broker"], d["round"]) for d in decided] == [("b1", ROUND + 4), ("b3", ROUND + 4)]
    assert shares(decided) == [[25, 75]]


def test_unknown_groups_are_skipped() -> None:
    """A group that no policy names, or limits, gets no decision and keeps nothing for ever."""
    table, timeline = SharesTable(), PolicyTimeline({"resourcegroups.free": {"publishRateInMsgs": -1}})
    events = [
        report(0, "b1", 50),
        report(0, "b1", 50, group="free"),
        report(0, "b1", 5, group="quota/user=a"),
    ]
    assert decide(table, events, timeline, end=True) == []
    table.sweep(timeline, T0 + 7 * MINUTE)
    assert len(table) == 0


def test_sweep_keeps_reports_that_may_count_yet() -> None:
    """A report of a group without limits takes part once there is one, as long as it has not expired."""
    for swept_rounds, expected in ((5, [60.0, 40.0]), (6, [100.0])):
        timeline = PolicyTimeline({"resourcegroups.rg1": {}})
        timeline.apply("resourcegroups.rg1", {"publishRateInMsgs": 100}, T0 + MINUTE)
        table = SharesTable()
        decide(table, [report(0, "b1", 30)], timeline)
        decide(table, [tick(MINUTE)], PolicyTimeline({"resourcegroups.rg1": {}}))
        table.sweep(timeline, T0 + swept_rounds * MINUTE + 1)
        events = [report(swept_rounds, "b2", 20)]
        assert shares(decide(table, events, timeline, end=True)) == [expected]


def test_limits_in_force_at_the_close_count() -> None:
    """A change during the round counts for it; one after its end does not; a removed group is silent."""
    timeline = PolicyTimeline(LIMITS)
    timeline.apply("resourcegroups.rg1", {"publishRateInMsgs": 200, "shadow": True}, T0 + MINUTE)
    timeline.apply("resourcegroups.rg1", {"publishRateInMsgs": 300}, T0 + 2 * MINUTE + 1)
    timeline.apply("resourcegroups.rg1", None, T0 + 3 * MINUTE + 1)
    events = reports(*[{"b1": 30.0, "b2": 10.0}] * 4)
    decided = decide(SharesTable(), events, timeline, end=True)
    assert [sum(row) for row in shares(decided)] == pytest.approx([200, 200, 300])
    assert [d["shadow"] for d in decided] == [True] * 4 + [False] * 2


def test_dimension_that_is_no_longer_limited_ends_membership() -> None:
    """A member that uses nothing limited any more is told so, at the end of a round without reports too."""
    timeline = PolicyTimeline(LIMITS)
    timeline.apply("resourcegroups.rg1", {"dispatchRateInMsgs": 5}, T0 + 2 * MINUTE)
    decided = decide(SharesTable(), [report(0, "b1", 50), tick(5 * MINUTE)], timeline)
    assert [(d["round"], d.get("removed")) for d in decided] == [(ROUND, None), (ROUND + 1, "idle")]


def test_length_of_rounds_changes_with_the_next_round() -> None:
    """An open round keeps its end; the next one begins there and ends on the new grid."""
    timeline = PolicyTimeline({**LIMITS, "broker": {"resourceUsagePublishIntervalInSecs": 60}})
    timeline.apply("broker", {"resourceUsagePublishIntervalInSecs": 45}, T0 + 30_000)
    events = [report(0, "b1", 50), report(1, "b1", 50), report(2, "b1", 50, at_ms=20_000)]
    decided = decide(SharesTable(), events, timeline, end=True)
    # Of the grid of 45 s, T0 + 30 s, 75 s, 120 s and 165 s are near.
    assert [d["ts"] - T0 for d in decided] == [60_000, 75_000, 165_000]
    assert [d["round"] for d in decided] == [ROUND, (T0 + 30_000) // 45_000, (T0 + 120_000) // 45_000]


def test_byte_quotas_are_groups() -> None:
    """producer_byte_rate and consumer_byte_rate of a quota are shared out as quota/SUBJECT."""
    policies = {
        "quotas[user=alice]": {"producer_byte_rate": 1000, "controller_mutation_rate": 1},
        "quotas[user=<default>]": {"producer_byte_rate": 7, "consumer_byte_rate": 500, "shadow": True},
    }
    counts = {"publishedBytes": 6000, "dispatchedBytes": 600}
    events = [report(0, broker, 0, group="quota/user=alice", counts=counts) for broker in ("b1", "b2")]
    decided = run(events, policies)
    assert [d["id"] for d in decided] == [f"quota/user=alice/{b}@{ROUND}" for b in ("b1", "b2")]
    assert decided[0]["limits"] == {"publishRateInBytes": 500.0, "dispatchRateInBytes": 250.0}
    assert decided[0]["shadow"] is False
    (only,) = run([report(0, "b1", 0, group="quota/user=bob", counts=counts)], policies)
    assert only["limits"] == {"publishRateInBytes": 7.0, "dispatchRateInBytes": 500.0}
    assert only["shadow"] is True


@pytest.mark.parametrize(
    ("group", "rate"),
    [
        ("quota/user=alice,client-id=x", 1.0), ("quota/user=bob,client-id=x", 2.0),
        ("quota/client-id=x", 3.0), ("quota/client-id=y", None), ("quota/nonsense", None), ("quota/", None),
    ],
)  # fmt: skip
def test_byte_quota_by_subject(group: str, rate: float | None) -> None:
    """A subject's rate comes from the first level that charges that very subject."""
    policies = {
        "quotas[user=alice,client-id=x]": {"producer_byte_rate": 1},
        "quotas[user=<default>,client-id=x]": {"producer_byte_rate": 2},
        "quotas[client-id=x]": {"producer_byte_rate": 3},
    }
    decided = run([report(0, "b1", 0, group=group, counts={"publishedBytes": 5})], policies)
    assert [d["limits"]["publishRateInBytes"] for d in decided] == ([] if rate is None else [rate])


def test_extreme_limits_stay_finite() -> None:
    """Any limit that a policy may hold gives finite shares for any counts."""
    for rate in (5e-324, 1.7e308):
        used = [report(n, b, 0, counts={"publishedMsg": 2**63 - 1}) for n in range(3) for b in ("b1", "b2")]
        decided = run(used, {"resourcegroups.rg1": {"publishRateInMsgs": rate}})
        assert np.isfinite(shares(decided)).all()
        assert (np.array(shares(decided)) > 0).all()


def test_nobody_takes_part_in_a_dimension() -> None:
    """A limited dimension that nobody uses gives nobody a share in it."""
    nothing = np.zeros(2)
    assert np.isnan(share_out(5.0, nothing, np.full(2, NOT_REPORTED, np.int8), nothing)).all()
