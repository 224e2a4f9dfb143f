"""Clients that wait as they are told and try again."""

from pathlib import Path
from typing import Any

import pytest
from event_kit import TOPIC, delivery, report, sample
from hypothesis import given
from hypothesis import strategies as st
from law_kit import policy, quota, refund, request
from plan_kit import dispatched, grouped, outcomes, plan_of, planned, quotas_of

from weir.plan.sides import Plan
from weir.plan.waiting.queues import HELD_MAX_MS, TRIES

LIMITED = quotas_of(alice=1)
"""Ten at once, one a second."""
ASKED = st.tuples(st.integers(0, 20_000), st.integers(0, 6), st.sampled_from("ab"))
"""A request's time, its mutations, and who sends it."""


def waited(plan: Plan, whose: str = "user=alice") -> list[Any]:
    """Outcomes of those that wait, under what is tried, and the longest delay."""
    row = next(row for row in plan.waiting_rows.values() if row.whose == whose)
    return [row.counts.outcomes[1].tolist(), row.delay_ms[1]["max"]]


def test_what_is_refused_is_tried_again_when_its_wait_is_over(tmp_path: Path) -> None:
    """As recorded two are refused; waiting, all get through, each behind the one before."""
    asked = [request(f"a{n}", n, 12) for n in range(3)]
    plan = plan_of(tmp_path, asked, {}, LIMITED)
    assert outcomes(plan, "user=alice")[1] == [1, 0, 2]
    # 10 - 12 is 2 s of debt, then 12 s more.
    assert waited(plan) == [[1, 2, 0], 14_000 - 2]


def test_only_what_was_refused_is_tried_again(tmp_path: Path) -> None:
    """Items that got through are neither asked nor charged twice."""
    asked = [request("a", 0, 12, 3), request("b", 20_000, 10)]
    assert waited(plan_of(tmp_path, asked, {}, LIMITED)) == [[1, 1, 0], 2000]


def test_a_client_gives_up_after_so_many_tries_or_an_hour(tmp_path: Path) -> None:
    """Then it counts as refused; what came behind it is sent when it can be, or not at all."""
    greedy = [request(f"g{n}", n, 1, user="alice", client_id=f"c{n}") for n in range(2 * TRIES)]
    plan = plan_of(tmp_path, [request("first", 0, 11), *greedy], {}, quotas_of(alice=1e-4))
    # 10,000 s of debt is more than anybody waits.
    assert waited(plan)[0] == [1, 0, 2 * TRIES]
    queued = [request(f"q{n}", n, 11) for n in range(3)]
    counts, longest = waited(plan_of(tmp_path, queued, {}, quotas_of(alice=1e-3)))
    assert counts[2] == 1 and longest <= HELD_MAX_MS


def test_rivals_for_one_bucket_use_up_their_tries(tmp_path: Path) -> None:
    """Whoever comes second each time is refused for good at last."""
    first = [request("debt", 0, 11, client_id="x")]
    rivals = [request(f"r{n}", 1, 11, client_id=f"c{n}") for n in range(TRIES + 5)]
    counts, _ = waited(plan_of(tmp_path, first + rivals, {}, LIMITED))
    assert counts[2] == 6


def test_an_older_client_waits_before_it_goes_on(tmp_path: Path) -> None:
    """It is never refused; its next request comes when its wait is over."""
    asked = [request(f"a{n}", n, 12, strict=False) for n in range(2)]
    assert waited(plan_of(tmp_path, asked, {}, LIMITED)) == [[0, 2, 0], 2000 - 1 + 12_000]


def test_refunds_keep_their_place(tmp_path: Path) -> None:
    """What is given back is there for the next."""
    asked = [request("a", 0, 12), refund(1, 0, 12), request("b", 2, 5)]
    assert waited(plan_of(tmp_path, asked, {}, LIMITED)) == [[2, 0, 0], 0]


def test_a_sampled_rate_waits_too(tmp_path: Path) -> None:
    """By the same law, with its windows."""
    entry = {"entity": {"user": "alice"}, "controller_mutation_rate": 1, "algorithm": "sampled_rate"}
    asked = [request(f"a{n}", n, 20) for n in range(2)]
    counts, longest = waited(plan_of(tmp_path, asked, {}, {"quotas": [entry]}))
    assert counts == [1, 1, 0] and longest > 1000


SAMPLED: dict[str, Any] = {"controller_mutation_rate": 1, "algorithm": "sampled_rate"}


@pytest.mark.parametrize(
    ("before", "events", "expected", "longest_s"),
    [
        # The debt is paid at the old rate when the new one comes: a bucket that is full then stays full.
        (
            quotas_of(alice=1),
            [request("a", 0, 100), policy(200_000, "quotas[user=alice]", quota(0.001, 10)),
             request("b", 201_000, 5)],
            [2, 0, 0], 0,
        ),
        # What is tried again is judged by what holds then: by the old rate it had waited for 20 s.
        (
            quotas_of(alice=0.1),
            [request("a", 0, 12), request("b", 1, 12),
             policy(10_000, "quotas[user=alice]", quota(0.001, 10))],
            [1, 1, 0], 1900,
        ),
        # The quota is another level's by then, which bob has used up: it was charged to nobody.
        (
            quotas_of(alice=0.1),
            [request("a", 0, 12, client_id="c"), request("b", 1, 12, client_id="c"),
             policy(10_000, "quotas[user=alice]", None),
             policy(10_001, "quotas[client-id=c]", quota(0.1, 10)),
             request("x", 15_000, 20, user="bob", client_id="c")],
            [1, 1, 0], 100,
        ),
        # A change of another's quota leaves windows as they are.
        (
            {"quotas": [{"entity": {"user": "alice"}, **SAMPLED}]},
            [request("a", 0, 20), policy(1, "quotas[user=bob]", quota(1)), request("b", 2, 20)],
            [1, 1, 0], 1,
        ),
    ],
)  # fmt: skip
def test_quotas_hold_from_their_time_on(
    tmp_path: Path, before: Any, events: list[Any], expected: list[int], longest_s: int
) -> None:
    """Of the log's own side, where policies change: balances and windows go on as the law has them."""
    row = plan_of(tmp_path, events, before, {}).waiting_rows["mutation", "user=alice"]
    assert row.counts.outcomes[0].tolist() == expected and row.delay_ms[0]["max"] >= longest_s * 1000


def test_a_subscription_gets_nothing_while_its_counter_has_nothing(tmp_path: Path) -> None:
    """Thirty at ten a second hold the next ones up to the third period."""
    given = [delivery(at, msgs=count) for at, count in ((0, 30), (100, 1), (5000, 1))]
    assert waited(plan_of(tmp_path, given, {}, dispatched(10)), f"{TOPIC}/sub1") == [[2, 1, 0], 2900]


@pytest.mark.parametrize(
    ("before", "after", "given", "at_ms", "expected"),
    [
        # 3,600 at one a second would hold the next up for an hour; a second later a thousand are.
        (1, 1000, ((0, 3600), (100, 1)), 1000, [[1, 1, 0], 2900]),
        # What was delivered under the wide rate is paid off by it.
        (1000, 1, ((0, 5000), (11_000, 1)), 10_000, [[2, 0, 0], 0]),
    ],
)
def test_changed_rates_hold_for_who_waits_from_then_on_and_not_before(
    tmp_path: Path, before: int, after: int, given: Any, at_ms: int, expected: Any
) -> None:
    """It waited as long as the former rate said, and debts were paid by the later one."""
    change = policy(at_ms, "namespaces.acme/orders", dispatched(after)["namespaces"]["acme/orders"])
    events = sorted([change, *(delivery(at, msgs) for at, msgs in given)], key=lambda event: event["ts"])
    row = plan_of(tmp_path, events, dispatched(before), {}).waiting_rows["dispatch", f"{TOPIC}/sub1"]
    assert [row.counts.outcomes[0].tolist(), row.delay_ms[0]["max"]] == expected


def test_a_broker_sends_later_what_is_beyond_its_share(tmp_path: Path) -> None:
    """It uses no more than it may, so the group does not overshoot once shares stand; the rest waits."""
    use = (40, 60, 40, 0, 0)
    told = [report(n * 1000, "b1", {"rg1": {"publishedMsg": used}}) for n, used in enumerate(use)]
    plan = plan_of(tmp_path, told, {}, grouped(40))
    row = plan.waiting_rows["shares", "rg1"]
    # 20 that are left wait half a second, behind the next 40 too; then there is room.
    assert row.counts.outcomes[1].tolist() == [3, 2, 0]
    assert row.delay_ms[1]["max"] == 500 and row.overshoot[1] == 0.0


@given(st.lists(st.tuples(st.integers(0, 20_000), st.sampled_from("ab"), st.integers(0, 9)), max_size=12))
def test_reports_within_their_shares_are_as_recorded(
    tmp_path_factory: pytest.TempPathFactory, told: list[tuple[int, str, int]]
) -> None:
    """Round by round, and those of silence between, the law says the same as of the log at once."""
    events = [report(at, broker, {"rg1": {"publishedMsg": used}}) for at, broker, used in told]
    plan = plan_of(tmp_path_factory.mktemp("plan"), events, {}, grouped(1000))
    recorded, waiting = (
        [row.counts.outcomes[1].tolist() for row in rows] for rows in (plan.rows, plan.waiting_rows.values())
    )
    assert recorded == waiting


def test_no_more_is_in_flight_than_the_limit(tmp_path: Path) -> None:
    """A limit that a load beyond it would have pulled up learns from what it lets through."""
    aimd = {"backpressure": {"partitions": {"*": {"algorithm": "aimd", "useWindowed": False}}}}
    seen = [sample(f"s{n}", n, 300 if n < 20 else 10, inflight=90) for n in range(40)]
    plan = plan_of(tmp_path, seen, {}, aimd)
    recorded, waiting = plan.rows[0], plan.waiting_rows["concurrency", "orders-3"]
    assert waiting.delay_ms[1]["max"] >= recorded.delay_ms[1]["max"] > 0


@pytest.mark.parametrize("strict", [True, False])
@given(st.lists(ASKED, min_size=1, max_size=9))
def test_where_nothing_is_held_both_runs_agree(
    tmp_path_factory: pytest.TempPathFactory, strict: bool, asked: list[tuple[int, int, str]]
) -> None:
    """Without limits that anybody meets, nobody waits; with them, no more are refused than as recorded."""
    events = [
        request(f"r{n}", at, count, client_id=client, strict=strict)
        for n, (at, count, client) in enumerate(asked)
    ]
    folder = tmp_path_factory.mktemp("plan")
    wide = {"quotas": [{"entity": {"user": "alice"}, "controller_mutation_rate": 1000}]}
    free, limited = planned(folder, events, {}, wide, LIMITED).plans
    assert outcomes(free, "user=alice", waiting=True)[1] == [len(asked), 0, 0]
    recorded, waiting = (outcomes(limited, "user=alice", waiting=which)[1] for which in (False, True))
    assert sum(waiting) == len(asked) and waiting[2] <= recorded[2]
    if recorded[0] == len(asked):
        assert waiting == recorded
