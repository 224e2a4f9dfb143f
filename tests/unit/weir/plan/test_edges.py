"""Plans of strange logs: nothing in them, numbers at their ends, the same policies on both sides."""

from pathlib import Path
from typing import Any

import pytest
from event_kit import backlog, delivery, ledger, report, sample, subscription, tick
from hypothesis import given
from hypothesis import strategies as st
from law_kit import policy, quota, refund, request
from plan_kit import dispatched, grouped, planned, quotas_of

from weir.plan.comparison import SAME
from weir.plan.shown.page import page
from weir.plan.shown.summary import summary
from weir.plan.shown.table import shown

HUGE = 2**63 - 1
ENDLESS = {"rg1": {"publishedMsg": HUGE}}
ALL: dict[str, Any] = {
    **quotas_of(alice=1), **dispatched(10), **grouped(40),
    "backpressure": {"partitions": {"*": {"algorithm": "vegas"}}},
}  # fmt: skip
TINY: dict[str, Any] = {
    **quotas_of(alice=1e-9), **dispatched(1), **grouped(1),
    "backpressure": {"partitions": {"*": {"algorithm": "fixed", "fixed": {"limit": 1}}}},
}  # fmt: skip
USERS = ("alice", "bob")
STRANGE: dict[str, list[Any]] = {
    "nothing": [],
    "ticks": [tick(0), tick(60_000)],
    "a refund": [refund(0, 0, 5)],
    "policies": [policy(0, "quotas[user=alice]", quota(1))],
    "no events": [{"type": "nonsense"}],
    "no items": [request("a", 0)],
    "huge": [
        request("a", 0, HUGE, HUGE), request("b", 1, HUGE), delivery(0, msgs=HUGE, size=HUGE),
        delivery(1, msgs=1), report(0, "b1", ENDLESS), report(1000, "b1", ENDLESS),
        report(2000, "b1", ENDLESS, period_ms=1), sample("s", 0, 9e12, inflight=HUGE),
        sample("t", 1, 9e12, inflight=HUGE), backlog([ledger(1, HUGE, HUGE)], subscription("s", 1, -1)),
    ],
}  # fmt: skip


def told(given_: Any) -> None:
    """All forms of it can be made."""
    summary(given_.plans, given_.proven)
    page(given_)
    for plan in given_.plans:
        shown(plan, given_.proven, 80)
        shown(plan, given_.proven, 200)


@pytest.mark.parametrize("name", STRANGE)
def test_strange_logs_can_be_planned(tmp_path: Path, name: str) -> None:
    """Neither a traceback nor a warning, whatever is in it, and nothing differs from itself."""
    found = planned(tmp_path, STRANGE[name], {}, ALL, TINY, totals=True)
    told(found)
    same = planned(tmp_path, STRANGE[name], ALL, ALL, totals=True)
    told(same)
    assert {row.fate for row in same.plans[0].rows} <= {SAME} and same.plans[0].recorded.first is None


def test_whom_one_of_several_files_limits_has_all_sides(tmp_path: Path) -> None:
    """Zeros where nothing limits: `bob` had no `against`, and `alice` not the second file's name."""
    log = [request("a", 0, 1), request("b", 1, 1, user="bob")]
    found = planned(tmp_path, log, {}, quotas_of(alice=1), quotas_of(bob=1), totals=True)
    subjects = summary(found.plans, found.proven)["subjects"]
    sides = ("policies", "against", "after1.yaml")
    for user, events in (("alice", [0, 1, 0]), ("bob", [0, 0, 1])):
        own = subjects[f"user={user}"]
        assert [own[side]["events"] for side in sides] == events
        assert own["flips"] == own["after1.yaml"]["flips"] == {"allow_to_refuse": 0, "refuse_to_allow": 0}


MOMENTS, COUNTS = st.integers(0, 20_000), st.integers(0, 200)
EVENTS = st.one_of(
    st.builds(lambda at, n, user: request(f"r{at}", at, n, user=user), MOMENTS, COUNTS,
              st.sampled_from(USERS)),
    st.builds(lambda at, n: delivery(at, msgs=n), MOMENTS, COUNTS),
    st.builds(lambda at, broker, n: report(at, broker, {"rg1": {"publishedMsg": n}}), MOMENTS,
              st.sampled_from(USERS), COUNTS),
    st.builds(lambda at, rtt, n: sample(f"s{at}", at, rtt, inflight=n), MOMENTS, st.integers(1, 900), COUNTS),
    st.builds(refund, MOMENTS, MOMENTS, COUNTS),
    st.builds(tick, MOMENTS),
)  # fmt: skip


@given(st.lists(EVENTS, max_size=12))
def test_all_laws_together(tmp_path_factory: pytest.TempPathFactory, events: list[Any]) -> None:
    """Each decision is counted once on each side, in both runs; what waits is never decided twice."""
    plan = planned(tmp_path_factory.mktemp("plan"), events, ALL, TINY).plans[0]
    for row in plan.rows:
        other = plan.waiting_rows.get((row.law, row.whose))
        assert other is not None
        if row.law != "shares":
            assert other.counts.outcomes.sum(axis=1).tolist() == row.counts.outcomes.sum(axis=1).tolist()
        assert row.counts.outcomes[0].sum() == row.counts.outcomes[1].sum()
