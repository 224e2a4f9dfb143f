"""What would have differed: all laws' verdicts beside each other."""

from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np
import orjson
import pyarrow as pa
import pytest
from event_kit import TOPIC, backlog, delivery, ledger, report, sample, subscription
from hypothesis import given
from hypothesis import strategies as st
from law_kit import T0, policy, quota, request
from plan_kit import dispatched, grouped, outcomes, plan_of, quotas_of

from streaming.contract.fields import TS_MAX_MS
from weir.plan.comparison import HELPED, HURT, SAME, Comparison
from weir.plan.delays import Delays
from weir.plan.shown.page import _add_hours
from weir.plan.sides import Plan
from weir.plan.verdicts import EXACT_MAX, REFUSED, Verdicts

EVICT = {"destination_storage": {"limitSize": 100, "policy": "consumer_backlog_eviction"}}
HOLD = {"destination_storage": {"limitSize": 100, "policy": "producer_request_hold"}}


def test_who_is_hurt_and_who_is_helped(tmp_path: Path) -> None:
    """Flips both ways, by subject; those who are hurt most come first."""
    users = ("alice", "bob", "eve")
    asked = [request(f"{user}{n}", n * 1000, 5, user=user) for n in range(6) for user in users]
    plan = plan_of(tmp_path, asked, quotas_of(alice=5, bob=1, eve=5), quotas_of(alice=1, bob=5, eve=5))
    assert [(row.whose, row.fate, row.counts.refused, row.counts.allowed) for row in plan.rows] == [
        ("user=alice", HURT, 2, 0), ("user=eve", SAME, 0, 0), ("user=bob", HELPED, 0, 2),
    ]  # fmt: skip
    assert outcomes(plan, "user=alice") == [[6, 0, 0], [4, 0, 2]]
    first = plan.recorded.first
    assert first is not None and (first.ts, first.id, first.whose) == (T0 + 3000, "alice3", "user=alice")


def test_a_subject_that_only_one_side_limits_is_one_row(tmp_path: Path) -> None:
    """Whom nobody limits on one side is compared with what limits it on the other."""
    asked = [request(f"a{n}", 0, 20) for n in range(3)]
    plan = plan_of(tmp_path, asked, {}, quotas_of(alice=1))
    assert outcomes(plan, "user=alice") == [[3, 0, 0], [1, 0, 2]]
    assert [row.entries for row in plan.rows] == [[[], ["quotas[user=alice]"]]]
    plan = plan_of(tmp_path, asked, quotas_of(alice=1), {})
    assert [(row.whose, row.fate) for row in plan.rows] == [("user=alice", HELPED)]


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("law", ["shares", "limit", "dispatch", "backlog"])
def test_a_law_that_only_one_side_has(tmp_path: Path, law: str, turned: bool) -> None:
    """It says nothing at all on the other."""
    tick = {"type": "tick", "ts": T0 + 60_000}
    events, limits = {
        "shares": ([report(n * 1000, "b1", {"rg1": {"publishedMsg": 80}}) for n in range(4)], grouped(40)),
        "limit": (
            [sample(f"s{n}", n, 10, inflight=30) for n in range(3)],
            {"backpressure": {"partitions": {"*": {"algorithm": "fixed", "fixed": {"limit": 20}}}}},
        ),
        "dispatch": ([delivery(n * 100, 20) for n in range(3)], dispatched(10)),
        "backlog": (
            [backlog([ledger(1, 10, 1000)], subscription("s", 1, -1))],
            {"namespaces": {"acme/orders": {"backlogQuotaMap": HOLD}}},
        ),
    }[law]
    rows = plan_of(tmp_path, [*events, tick], *(({}, limits) if turned else (limits, {}))).rows
    assert {row.fate for row in rows} <= {HURT if turned else HELPED, SAME}


def test_what_is_tried_holds_whatever_the_log_says(tmp_path: Path) -> None:
    """Changes of policy in the log are of the log's own side alone."""
    change = policy(500, "quotas[user=alice]", quota(1, 10))
    asked = [request(f"a{n}", n * 1000, 8) for n in range(6)]
    plan = plan_of(tmp_path, [change, *asked], quotas_of(alice=8), quotas_of(alice=8))
    assert outcomes(plan, "user=alice")[1] == [6, 0, 0]
    assert outcomes(plan, "user=alice")[0][2] > 0


def test_what_proxies_refused_by_themselves_is_asked_of_what_is_tried(tmp_path: Path) -> None:
    """They had told the subject to wait by the log's own policies: under any others it stayed refused."""
    asked = [request("a", 0, 20), request("b", 1000, 5, answered="not_before")]
    plan = plan_of(tmp_path, asked, quotas_of(alice=1), quotas_of(alice=100))
    assert outcomes(plan, "user=alice") == [[1, 0, 1], [2, 0, 0]]
    assert outcomes(plan_of(tmp_path, asked, quotas_of(alice=1), {}), "user=alice")[1] == [2, 0, 0]


def test_a_shadow_holds_nobody_back(tmp_path: Path) -> None:
    """It is decided and counted, so it is no refusal."""
    asked = [request(f"a{n}", 0, 20) for n in range(3)]
    shadow = {"quotas": [{**quotas_of(alice=1)["quotas"][0], "shadow": True}]}
    assert outcomes(plan_of(tmp_path, asked, {}, shadow), "user=alice")[1] == [3, 0, 0]


def test_probes_are_nobodys_requests(tmp_path: Path) -> None:
    """A proxy's question whether the job decides: refused while its user is in debt, it failed the gate."""
    asked = [request("a", 0, 20), request("p1-7-probe", 1, 0, validate_only=True)]
    plan = plan_of(tmp_path, asked, {}, quotas_of(alice=1))
    assert [outcomes(plan, "user=alice", waiting=which) for which in (False, True)] == [[[1, 0, 0]] * 2] * 2
    named = plan_of(tmp_path, [request("a", 0, 20), request("night-probe", 1, 5)], {}, quotas_of(alice=1))
    assert outcomes(named, "user=alice") == [[2, 0, 0], [1, 0, 1]]


def test_hours_add_up(tmp_path: Path) -> None:
    """Each hour has its own counts."""
    asked = [request(f"a{n}", n * 1_800_000, 20, 20) for n in range(4)]
    plan = plan_of(tmp_path, asked, {}, quotas_of(alice=0.001))
    row = plan.rows[0]
    assert len(row.hours) == 2
    assert sum(counts.outcomes for counts in row.hours.values()).tolist() == row.counts.outcomes.tolist()
    assert sum(counts.refused for counts in row.hours.values()) == row.counts.refused == 4
    total = {hour: counts.outcomes.tolist() for hour, counts in plan.recorded.hours().items()}
    assert total == {hour: counts.outcomes.tolist() for hour, counts in row.hours.items()}


def test_delays_of_deliveries(tmp_path: Path) -> None:
    """Throttled by as much as a decision says; percentiles are those of all decisions."""
    given = [delivery(n * 1000, msgs=30, topic=TOPIC) for n in range(4)]
    row = plan_of(tmp_path, given, dispatched(100), dispatched(10)).rows[0]
    assert row.law == "dispatch" and row.counts.outcomes.tolist() == [[4, 0, 0], [0, 4, 0]]
    assert row.delay_ms == [{"p50": 0, "p99": 0, "max": 0}, {"p50": 5000, "p99": 9000, "max": 9000}]
    assert (row.worst_ms, row.entries[1]) == (9000, ["namespaces.acme/orders.subscriptionDispatchRate"])


def test_a_broker_beyond_its_share_is_throttled_and_its_group_overshoots(tmp_path: Path) -> None:
    """By the share that it had: in its first round nobody had one."""
    told = [report(n * 1000, "b1", {"rg1": {"publishedMsg": 80}}) for n in range(4)]
    row = plan_of(tmp_path, told, grouped(100), grouped(40)).rows[0]
    assert (row.law, row.whose) == ("shares", "rg1")
    assert row.counts.outcomes.tolist() == [[4, 0, 0], [1, 3, 0]]
    assert row.delay_ms[1]["max"] == 1000 and row.overshoot == [0.0, 1.0]


def test_parts_of_what_may_be_in_flight_are_no_traffic(tmp_path: Path) -> None:
    """Several enforcers report them; what was beyond one's part was told to wait, for up to an hour."""
    slots = {"partitions": {"*": {"algorithm": "fixed", "fixed": {"limit": 20}}}}
    limits = grouped(40) | {"backpressure": slots}
    used = {"inflight/broker-1": {"publishedMsg": 900_000}, "rg1": {"publishedMsg": 10}}
    told = [report(n * 1000, broker, used) for n in range(6) for broker in "ab"]
    plan = plan_of(tmp_path, told, {}, limits)
    assert [(row.law, row.whose) for row in plan.rows] == [*plan.waiting_rows] == [("shares", "rg1")]


def test_samples_beyond_the_limit_wait_for_their_part_of_a_round_trip(tmp_path: Path) -> None:
    """By the limit before each; the first one finds none."""
    def fixed(limit: int) -> dict[str, Any]:
        return {"backpressure": {"partitions": {"*": {"algorithm": "fixed", "fixed": {"limit": limit}}}}}

    seen = [sample(f"s{n}", n, 10, inflight=30) for n in range(3)]
    row = plan_of(tmp_path, seen, fixed(50), fixed(20)).rows[0]
    assert row.counts.outcomes.tolist() == [[3, 0, 0], [1, 2, 0]]
    assert row.delay_ms[1]["max"] == 5 and row.entries[0] == ["backpressure.partitions.*"]


def test_a_backlog_holds_or_refuses(tmp_path: Path) -> None:
    """Held producers are throttled; what is evicted is refused."""
    told = backlog([ledger(1, 10, 1000)], subscription("s", 1, -1))
    for quotas, after in ((HOLD, [0, 1, 0]), (EVICT, [0, 0, 1])):
        plan = plan_of(tmp_path, [told], {}, {"namespaces": {"acme/orders": {"backlogQuotaMap": quotas}}})
        assert outcomes(plan, TOPIC) == [[1, 0, 0], after]


@given(st.lists(st.lists(st.integers(0, 50), min_size=1), min_size=1, max_size=5))
def test_percentiles_are_the_least_that_so_many_do_not_exceed(parts: list[list[int]]) -> None:
    """However they come: as NumPy has them of all at once."""
    delays = Delays()
    for part in parts:
        delays.add(np.zeros(len(part), dtype=np.int64), np.array(part))
    every = [delay for part in parts for delay in part]
    expected = [int(np.percentile(every, percent, method="inverted_cdf")) for percent in (50, 99, 100)]
    assert list(delays.percentiles()[0].values()) == expected == list(delays.total().values())


def refusals(at: list[int], delay_ms: int) -> Verdicts:
    """Alice is refused, and told to wait."""
    none = np.zeros(len(at), dtype=np.int64)
    return Verdicts(
        law="mutation", source=np.arange(len(at)), ids=pa.array([str(ts) for ts in at]), ts=np.array(at),
        subjects=["user=alice"], subject=none, names=["user=alice"], name=none,
        outcome=np.full(len(at), REFUSED, dtype=np.int8), delay_ms=none + delay_ms, overshoot={},
    )  # fmt: skip


def test_sums_of_waits_stop_where_json_does() -> None:
    """Under a rate that is to let nobody in each refusal waits for ages: the summary ended in a traceback."""
    comparison = Comparison()
    for _ in range(2):
        comparison.add(None, refusals([0] * 600, EXACT_MAX))
    (row,) = comparison.rows()
    assert (row.fate, row.waited_ms) == (HURT, [0, 2**63 - 1])
    assert orjson.loads(orjson.dumps(row.waited_ms)) == row.waited_ms


def test_hours_are_told_as_far_as_they_are_drawn() -> None:
    """Of a clock that stood still, or ran away: no page was written, or one to "NoneZ"."""
    plan, main = Plan(name="tried"), Element("main")
    plan.recorded.add(None, refusals([0, TS_MAX_MS], 1))
    _add_hours(main, plan)
    times = main.find("div")
    assert times is not None
    assert [span.text for span in times] == ["1970-01-01T00:00Z", "1970-02-01T00:00Z"]
