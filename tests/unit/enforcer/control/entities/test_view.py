"""Each law's decisions and events as rows of one list."""

from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
from entity_kit import (
    TOPIC,
    admission,
    backlog,
    decided,
    dispatch,
    latency,
    reported,
    request,
    share,
    slots,
    usage,
    view,
)
from message_kit import Record

from enforcer.control.answers.shown import one, page, summary
from enforcer.control.entities.feed import decisions_of
from enforcer.control.entities.laws import Entity, Law
from streaming.contract.errors import BadEvent

T = 1_795_166_700_000
DEBT = {"tokens": -60.0, "throttle_time_ms": 12_000, "rejected": ["t9"]}


def row(made: Any, now_ms: int, law: Law) -> dict[str, Any]:
    """The only row of a law."""
    (found,), total = page(made, now_ms, by="used", law=law)
    assert total == 1
    return found


def test_a_bucket_in_debt_waits_until_it_is_paid_off() -> None:
    """Limit and entry of the policy, what is gone of the burst, the rest of the wait, and since when."""
    made = view()
    decided(made, admission(T, tokens=-60.0, mutations=560), admission(T + 1_000, **DEBT))
    found = row(made, T + 3_000, Law.MUTATION)
    assert found["entity"] == "user=alice" and found["law"] == "mutation"
    assert (found["limit"], found["unit"], found["entry"]) == (5.0, "mutations/s", "quotas[user=alice]")
    assert found["waiting_ms"] == 10_000 and found["refused"] == 1
    assert found["since"] == "2026-11-20T09:25:01.000Z"
    assert found["used"] >= 5.5 and found["fraction"] == found["used"] / 5
    assert found["burst_left"] == -50.0 and found["empty_s"] == 0.0
    paid = row(made, T + 75_000, Law.MUTATION)
    assert (paid["waiting_ms"], paid["refused"], paid["since"]) == (0, 0, None)


def test_waits_with_short_pauses_are_one_stretch() -> None:
    """Who is let in and held back again has waited since the first time; after a rest it begins anew."""
    made = view()
    decided(made, admission(T, throttle_time_ms=1_000, tokens=-5.0))
    decided(made, admission(T + 2_000, throttle_time_ms=1_000, tokens=-5.0))
    assert row(made, T + 2_500, Law.MUTATION)["since"] == "2026-11-20T09:25:00.000Z"
    decided(made, admission(T + 60_000, throttle_time_ms=1_000, tokens=-5.0))
    assert row(made, T + 60_500, Law.MUTATION)["since"] == "2026-11-20T09:26:00.000Z"


def test_use_of_the_last_minute_counts_where_the_bucket_is_full_again() -> None:
    """80 % of the limit all the time is 80 %, though the bucket refills in between."""
    made = view(policies={"quotas[user=alice]": {"controller_mutation_rate": 5}})
    for second in range(80):
        decided(made, admission(T + 1_000 * second, tokens=51.0, mutations=4))
    assert 0.7 < row(made, T + 80_000, Law.MUTATION)["fraction"] < 0.9


def test_a_repeated_admission_is_not_counted_again() -> None:
    """It says how much is left, and no more."""
    made = view()
    decided(made, admission(T, **DEBT))
    decided(made, {**admission(T, **DEBT), "repeat": True}, at=T + 30_000)
    assert row(made, T + 30_000, Law.MUTATION)["refused"] == 1


def test_a_group_is_the_sum_of_its_members_in_its_nearest_dimension() -> None:
    """Reports of two proxies, one of them held back."""
    made = view()
    reported(made, usage(T, "p1", 400), usage(T, "p2", 550, throttled_ms=700))
    decided(made, share(T + 1, "p1", 42.0), share(T + 1, "p2", 58.0))
    found = row(made, T + 100, Law.SHARES)
    assert (found["entity"], found["unit"], found["dimension"]) == ("rg1", "msgs/s", "publishRateInMsgs")
    assert (found["used"], found["limit"], found["waiting_ms"]) == (95.0, 100.0, 700)
    assert found["entry"] == "resourcegroups.rg1"
    whole = one(made, None, Entity(Law.SHARES, "rg1"), T + 100)
    assert whole is not None and whole["share_sum"] == 100.0
    assert whole["shares"] == [
        {"proxy": "p1", "share": 42.0, "used": 40.0},
        {"proxy": "p2", "share": 58.0, "used": 55.0},
    ]


def test_members_that_say_nothing_any_more_use_nothing() -> None:
    """A report holds for two periods."""
    made = view()
    reported(made, usage(T, "p1", 400, throttled_ms=10))
    assert row(made, T + 30_000, Law.SHARES)["used"] == 0.0
    assert row(made, T + 30_000, Law.SHARES)["waiting_ms"] == 0


def test_deliveries_wait_for_the_counter_that_is_nearest_to_its_limit() -> None:
    """The peak of the last minute, and the rest of the throttle."""
    made = view()
    decided(made, dispatch(T, 25, 2_000), dispatch(T + 500, 3, 0, broker="broker-2"))
    found = row(made, T + 500, Law.DISPATCH)
    assert (found["entity"], found["unit"]) == (f"{TOPIC}/sub1", "msgs/s")
    assert (found["used"], found["limit"], found["waiting_ms"]) == (25.0, 10.0, 1_500)
    assert found["entry"] == "namespaces.acme/orders.subscriptionDispatchRate"


def test_requests_in_flight_wait_when_all_slots_are_taken() -> None:
    """The limit is a decision, what is in flight an event; what was given up was refused."""
    made = view()
    decided(made, slots(T, 20))
    reported(made, latency(T + 10, 20, dropped=True))
    found = row(made, T + 20, Law.CONCURRENCY)
    assert (found["used"], found["limit"], found["unit"]) == (20.0, 20.0, "slots")
    assert (found["waiting_ms"], found["refused"]) == (9, 1)
    assert found["entry"] == "backpressure.partitions.*"
    reported(made, latency(T + 1_000, 3))
    assert row(made, T + 1_100, Law.CONCURRENCY)["waiting_ms"] == 0


def test_what_is_in_flight_is_read_as_the_job_reads_it() -> None:
    """Flags of packed records are numbers, samples may be objects, and no time is beyond all measure."""
    made = view()
    decided(made, slots(T, 20))
    asked = {"rtt_ns": 9_000_000, "inflight": 20}
    for samples in ([[0, 9_000_000, 20, 1]], [{**asked, "did_drop": True}]):
        reported(made, {**latency(T + 10, 0), "samples": samples})
    found = row(made, T + 20, Law.CONCURRENCY)
    assert (found["used"], found["waiting_ms"], found["refused"]) == (20.0, 9, 2)
    with pytest.raises(BadEvent):
        reported(made, {**latency(T + 30, 0), "samples": [[0, 1e300, 20, False]]})
    assert row(made, T + 20, Law.CONCURRENCY) == found


def test_a_backlog_over_its_quota_holds_producers() -> None:
    """How long that takes nobody knows: it is said for how long it has lasted."""
    made = view()
    decided(made, backlog(T, 900))
    assert row(made, T + 1, Law.BACKLOG)["fraction"] == 0.9
    decided(made, backlog(T + 60_000, 1_500))
    found = row(made, T + 61_000, Law.BACKLOG)
    assert (found["waiting_ms"], found["used"], found["limit"]) == (1_000, 1500.0, 1000.0)
    assert found["entry"] == "namespaces.acme/orders.backlogQuotaMap.destination_storage"


def test_in_shadow_nobody_waits() -> None:
    """What would have been stands apart."""
    made = view()
    decided(made, admission(T, **DEBT, shadow=True))
    found = row(made, T, Law.MUTATION)
    assert (found["waiting_ms"], found["refused"], found["since"]) == (0, 0, None)
    assert found["shadow"] == {"waiting_ms": 12_000, "refused": 1, "since": "2026-11-20T09:25:00.000Z"}
    assert summary(made, T)["waiting"] == summary(made, T)["refused"] == 0


def test_decisions_of_candidates_are_read_here_alone() -> None:
    """They stand beside in the console, and nobody goes by them."""
    tried = {**admission(T, **DEBT), "candidate": "tight"}
    ((_, fields, _),) = decisions_of(Record(tried, ts=T))  # type: ignore[arg-type]
    assert fields["candidate"] == "tight"


def test_a_decision_from_far_ahead_is_none() -> None:
    """An entity would be shown as waiting until then, whatever came; by clocks that differ a little it is.

    A record whose writer is behind goes by our clock.
    """
    for ahead_ms, found in ((60_000, 1), (60_001, 0)):
        ts = T + ahead_ms
        for said in (admission(ts, **DEBT), dispatch(ts, 25, 2_000), slots(ts, 20), backlog(ts, 1_500)):
            for record_ms, own_ms in ((T, 0), (T - 120_000, T)):
                record: Any = Record(said, ts=record_ms)
                assert len(decisions_of(record, wall_ms=partial(int, own_ms))) == found


def test_what_proxies_only_ask_is_nobody() -> None:
    """A probe costs nothing."""
    made = view()
    decided(made, admission(T, id="p1-1-probe", subject="user=probe"))
    assert page(made, T, by="used") == ([], 0)


def test_a_limit_of_0_limits_nobody_and_loses_nothing_that_was_read_with_it() -> None:
    """No law says one, but anyone with access to the cluster could write it."""
    made = view()
    decided(made, admission(T, subject="user=bob", limit=0, tokens=None), admission(T, tokens=400.0))
    assert row(made, T, Law.MUTATION)["entity"] == "user=alice"


def test_what_candidates_decide_changes_no_row() -> None:
    """It stands beside, by the candidate's name."""
    made = view()
    decided(made, admission(T, tokens=400.0), {**admission(T + 1, **DEBT), "candidate": "tight"})
    whole = one(made, None, Entity(Law.MUTATION, "user=alice"), T + 1)
    assert whole is not None and whole["waiting_ms"] == 0
    assert whole["candidates"]["tight"]["throttle_time_ms"] == 12_000 and len(whole["decisions"]) == 1


def test_who_follows_decisions_is_told_of_those_in_force() -> None:
    """A candidate's has the id and time of the live one: an open page would show whichever came first."""
    made, told = view(), list[Any]()
    made.watch[lambda _, fields: told.append(fields)] = None
    live = admission(T, tokens=400.0)
    decided(made, {**admission(T, **DEBT), "candidate": "tight"}, live, {**live, "repeat": True})
    assert told == [live]


def test_an_entity_tells_all() -> None:
    """Reason, ladder, shares of proxies that decide, newest decisions first, and what would help."""
    made = view()
    reported(made, *({"type": "alive", "ts": T, "proxy": name} for name in ("p1", "p2")))
    reported(made, request(T, 700))
    decided(made, admission(T, tokens=-100.0, mutations=600), admission(T + 5, **DEBT))
    reported(made, request(T + 10, 300))
    whole = one(made, None, Entity(Law.MUTATION, "user=alice"), T + 1_005)
    assert whole is not None
    assert whole["reason"] == (
        "user=alice has used 5.94 mutations/s of 5 by quotas[user=alice]; -55 left at once:"
        " it waits 11 s and it was refused once in the last minute, since 2026-11-20 09:25:00 UTC."
    )
    assert [level for level in whole["ladder"] if level["won"]] == [
        {"level": "3", "entry": "quotas[user=alice]", "limit": 5.0, "won": True}
    ]
    assert whole["shares"][0]["share"] == whole["shares"][1]["share"] == 2.5 and whole["share_sum"] == 5.0
    assert [each["ts"] for each in whole["decisions"]] == [T + 5, T]
    assert (whole["help"]["limit"], whole["help"]["burst"]) == (5.0, 1000.0)
    assert "1,000 mutations" in whole["help"]["text"]
    assert len(whole["history"]) == 30 and whole["history"][-1][2] == 5.0


def test_a_clock_that_was_ahead_leaves_no_hole() -> None:
    """This machine's, when somebody looked: what is told then by the brokers' clock is shown all the same."""
    made, alice = view(), Entity(Law.MUTATION, "user=alice")
    decided(made, admission(T, mutations=600), dispatch(T, 5, 0))
    for now_ms in (T + 3_600_000, T):
        assert one(made, None, alice, now_ms) is not None
    decided(made, admission(T + 10_000, mutations=60), dispatch(T + 10_000, 25, 2_000))
    assert row(made, T + 10_000, Law.DISPATCH)["used"] == 25.0
    whole = one(made, None, alice, T + 10_000)
    assert whole is not None and whole["shares"] == [{"proxy": "p1", "share": None, "used": 66.0}]
    assert whole["history"][-1] == [T, 33.0, 5.0]


def test_with_the_default_burst_a_greater_rate_helps() -> None:
    """The burst grows with it: 11 s of the rate."""
    made = view(policies={"quotas[user=alice]": {"controller_mutation_rate": 5}})
    reported(made, request(T, 100), request(T + 1, 10, validate_only=True))
    decided(made, admission(T, tokens=-45.0, mutations=100, throttle_time_ms=9_000))
    whole = one(made, None, Entity(Law.MUTATION, "user=alice"), T + 5)
    assert whole is not None and whole["help"]["limit"] == 9.1 and whole["help"]["burst"] is None
    later = one(made, None, Entity(Law.MUTATION, "user=alice"), T + 3_700_000)
    assert later is not None and later["help"] is None


def test_lists_are_sorted_as_asked_and_paged() -> None:
    """By what is used, by wait, by refusals; each entity once."""
    made = view()
    decided(made, admission(T, **DEBT), dispatch(T, 25, 20_000), backlog(T, 500))
    reported(made, usage(T, "p1", 400))
    laws = {by: [found["law"] for found in page(made, T, by=by)[0]] for by in ("used", "wait", "refused")}
    assert laws["used"] == ["dispatch", "mutation", "backlog", "shares"]
    assert laws["wait"][:2] == ["dispatch", "mutation"] and laws["refused"][0] == "mutation"
    second, total = page(made, T, by="used", offset=1, limit=2)
    assert [found["law"] for found in second] == ["mutation", "backlog"] and total == 4


def test_who_waits_again_and_again_is_shown_between_its_waits() -> None:
    """What is read late would else show nobody; ten seconds after the last one it has ended."""
    made = view()
    decided(made, admission(T, tokens=-10.0, throttle_time_ms=2_000, outcome="throttle"))
    shown = [row(made, T + ms, Law.MUTATION) for ms in (500, 2_500, 11_999, 12_600)]
    assert [(each["waiting_ms"], each["since"] is None) for each in shown] == [
        (1_500, False), (2_000, False), (2_000, False), (0, True)
    ]  # fmt: skip


def test_who_is_silent_longest_makes_room() -> None:
    """The table is bounded, and says what it forgot; a row that is used again holds nothing of before."""
    made = view(rows_max=3)
    for number in range(5):
        decided(made, admission(T + number, **(DEBT if number < 2 else {}), subject=f"user=u{number}"))
    names = [found["entity"] for found in page(made, T + 10, by="used")[0]]
    assert sorted(names) == ["user=u2", "user=u3", "user=u4"] and made.table.rows.dropped == 2
    assert summary(made, T + 10)["waiting"] == 0


def test_who_has_left_a_group_takes_no_room() -> None:
    """Proxies that come back under other names, day by day, would have all groups of the living forgotten."""
    made = view(rows_max=3)
    decided(made, share(T, "lives", 5.0))
    for number in range(9):
        said = share(T + number, f"gone{number}", 5.0)
        decided(made, said, {**said, "limits": None})
    assert [name for name, *_ in made.members.of("rg1", 0, T + 10)] == ["lives"]
    decided(made, {**share(T + 10, "lives", 5.0), "limits": None})
    assert not made.members._groups.count and not list(made.members._groups.items())


def test_parts_are_silent_when_nothing_is_heard_of_them() -> None:
    """Proxies by their signs of life, the job by its ticks and decisions; where local went beyond the law."""
    made = view()
    reported(made, {"type": "alive", "ts": T, "proxy": "p1"}, {"type": "tick", "ts": T})
    decided(made, admission(T, **DEBT, law={"outcome": "reject", "rejected": ["t9"]}))
    told = summary(made, T + 25_000)
    assert {(part["part"], part["status"]) for part in told["parts"]} == {
        ("job", "ok"), ("batch", "ok"), ("round", "ok"), ("delay", "ok"), ("proxy", "silent"),
    }  # fmt: skip
    assert told["overshoot"] == [
        {"entity": "user=alice", "law": "mutation", "differences": 1, "over": 60.0, "bound": 500.0}
    ]
    assert told["mode"] == "enforce" and told["oldest_ms"] == 0
    reported(made, {"type": "alive", "ts": T + 25_000, "proxy": "p1", "leaving": True})
    assert all(part["part"] != "proxy" for part in summary(made, T + 25_000)["parts"])


def test_who_reads_late_is_told() -> None:
    """This process by the topics that it follows, the job by the newest decision, if that is new."""
    made = view()
    read = {"weir.usage": T - 20_000, "weir.requests": None}
    made.signs.readers = {topic: cast(Any, SimpleNamespace(read_to_ms=ms)) for topic, ms in read.items()}

    def late(now_ms: int) -> dict[str, tuple[str, int]]:
        parts = summary(made, now_ms)["parts"]
        return {part["name"]: (part["status"], part["age_ms"]) for part in parts
                if part["part"] in ("delay", "reader")}  # fmt: skip

    assert late(T) == {"weir.usage": ("behind", 20_000), "weir.requests": ("ok", 0), "job": ("ok", 0)}
    said = admission(T - 30_000)
    decided(made, said, at=T)
    assert late(T + 1)["job"] == ("behind", 30_000)
    # A repeated one is old by itself.
    said = {**admission(T - 90_000), "repeat": True}
    decided(made, said, at=T)
    assert late(T + 1)["job"] == ("behind", 30_000)
    assert late(T + 60_000)["job"] == ("ok", 0)
