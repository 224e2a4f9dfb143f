"""The laws while parts fail, by the code of proxies and job in simulated time: what is exceeded and missed.

Each law has a log that wants more than its limit, at all proxies.
"""

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest
from event_kit import T0, Event, backlog, delivery, ledger, report, sample, subscription
from law_kit import request

from streaming.contract.fields import INT64_MAX
from weir.simulate.failures.demand import Demand
from weir.simulate.failures.excess import Found
from weir.simulate.failures.figures import (
    EXCEEDED,
    HOLDS,
    NOT_TOUCHED,
    NOTHING,
    UNBOUND,
    _against,
    figures,
    table,
)
from weir.simulate.failures.picture import _said
from weir.simulate.failures.scenario import SCENARIOS, SPANS, Failures

AT_MS = 60_000
QUOTA = {"controller_mutation_rate": 1.0, "controller_mutation_burst": 10.0}
DISPATCH = {"dispatchThrottlingRatePerSubscriptionInMsg": 20}
BACKLOG = {"limitSize": 10_000_000, "policy": "producer_exception", "actions": True}
USED = {"publishedMsg": 10, "publishedBytes": 5_000_000}
POLICIES: dict[str, Any] = {
    "quotas[user=alice]": QUOTA | {"producer_byte_rate": 1_000_000},
    "broker": DISPATCH | {"resourceUsagePublishIntervalInSecs": 10},
    "namespaces.acme/orders": {"backlogQuotaMap": {"destination_storage": BACKLOG}},
    "backpressure.partitions.*": {"algorithm": "fixed", "fixed": {"limit": 20}},
}


LOGS: Mapping[str, list[Event]] = {
    # Three times the rate of alice, for three minutes.
    "mutation": [request(f"m{n}", n * 1_000, 3) for n in range(180)],
    # Three brokers want half as much again as alice's rate, each as much, for ten minutes.
    "shares": [
        report(n * 10_000, broker, {"quota/user=alice": USED}, period_ms=10_000)
        for n in range(1, 60) for broker in ("x", "y", "z")
    ],
    # One and a half times the rate of a subscription.
    "dispatch": [delivery(n * 200, msgs=6, size=600, entries=1) for n in range(900)],
    # Twice the limit in flight, for half a second in each two.
    "concurrency": [sample(f"l{n}", n * 2_000, 500, inflight=40) for n in range(90)],
    # A topic that nobody reads grows by 6 MB a minute.
    "backlog": [
        backlog([ledger(1, n, n * 6_000_000)], subscription("s", 1, -1, ago_ms=0), at_ms=n * 60_000)
        for n in range(15)
    ],
}  # fmt: skip


def of(events: Iterable[Mapping[str, Any]]) -> Demand:
    """A log of some events, in order."""
    demand = Demand()
    for event in events:
        demand.take(orjson.dumps(event), "")
    return demand


def tried(law: str, *scenarios: str, policies: Mapping[str, Any] = POLICIES, **given: Any) -> dict[str, Any]:
    """Scenario -> what its row says, of one law alone."""
    demand = of(LOGS[law])
    failures = Failures(**{"at": T0 + AT_MS, "away_s": 60, "tried": scenarios or SCENARIOS, **given})
    rows = figures(demand, policies, failures)["rows"]
    return {row["scenario"]: row for row in rows if row["law"] == law}


def of_laws(*quick: str) -> list[Any]:
    """Of each law; the others take long, and `test_command.py` has a failure of each."""
    return [pytest.param(law, marks=[pytest.mark.soak] * (law not in quick)) for law in LOGS]


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds are 10 s here: three of them before a failure, six while it lasts, three after it."""
    for law in LOGS:
        monkeypatch.setitem(SPANS, law, (30, 60, 30))


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds are enough for who empties a bucket in five."""
    monkeypatch.setitem(SPANS, "mutation", (10, 20, 10))


@pytest.mark.parametrize("law", of_laws("shares", "backlog"))
def test_bounds_hold_whatever_fails(law: str) -> None:
    """Of each law that a failure can touch; what is missed is some of what one proxy would let through."""
    rows = tried(law)
    assert list(rows) == list(SCENARIOS)
    for scenario, row in rows.items():
        assert row["verdict"] in (HOLDS, NOT_TOUCHED), row
        if row["verdict"] == HOLDS:
            assert row["over"] <= row["bound"] and 0 <= row["missed_percent"] <= 100, (scenario, row)
    assert rows["none"]["verdict"] == HOLDS


@pytest.mark.usefixtures("brief")
def test_one_proxy_decides_as_the_law() -> None:
    """An item beyond, and nothing is missed, with the job and without it; nobody takes a lost one's place."""
    rows = tried("mutation", "none", "job-away", "proxy-lost", proxies=1, away_s=20)
    for scenario in ("none", "job-away"):
        row = rows[scenario]
        assert row["missed"] == 0 and 0 < row["over"] <= row["bound"] == 3, row
    assert rows["proxy-lost"]["verdict"] == NOT_TOUCHED


def test_a_strict_quota_is_open_while_the_job_is_away() -> None:
    """Requests pass once they have waited (proxy.on_late_decision: allow), which no bound covers."""
    policies = {"quotas[user=alice]": QUOTA | {"decide": "strict"}}
    rows = tried("mutation", "none", "job-away", policies=policies)
    assert rows["none"]["verdict"] == HOLDS and rows["none"]["over"] <= 4.5
    away = rows["job-away"]
    assert away["bound"] is None and away["over"] > 60 and away["beyond_for_s"] > 60


def test_shares_are_halved_after_three_rounds_without_the_job() -> None:
    """Three minutes away: of 30 s all passes, of the rest half."""
    rows = tried("shares", "none", "job-away", away_s=180)
    assert rows["none"]["missed"] < 5_000_000
    assert 60_000_000 < rows["job-away"]["missed"] < 90_000_000
    assert rows["job-away"]["over"] <= rows["none"]["bound"]


def test_a_backlog_grows_until_somebody_decides() -> None:
    """Its producers are let in until the first check that finds it beyond, or the job is back."""
    rows = tried("backlog", "none", "job-away", away_s=180)
    assert 0 < rows["none"]["over"] < rows["job-away"]["over"] <= rows["job-away"]["bound"]


def test_a_quota_that_is_raised_meanwhile_is_the_raised_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backlog beyond the former one is beyond nothing."""
    quota = {"backlogQuotaMap": {"destination_storage": BACKLOG | {"limitSize": 10**12}}}
    raised = {
        "type": "policy", "ts": T0 + AT_MS - 20_000, "path": "namespaces.acme/orders", "version": 2,
        "value": quota,
    }  # fmt: skip
    events = sorted([raised, *LOGS["backlog"]], key=lambda event: event["ts"])
    monkeypatch.setitem(LOGS, "backlog", events)
    assert tried("backlog", "none")["none"]["over"] == 0


def test_a_backlog_that_only_falls_is_within_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is beyond it; less than nothing was taken for what is written, and that for the bound."""
    falling = [
        said | {"ledgers": [ledger(1, 9, (15 - n) * 600_000)]} for n, said in enumerate(LOGS["backlog"])
    ]
    monkeypatch.setitem(LOGS, "backlog", falling)
    row = tried("backlog", "none")["none"]
    assert (row["verdict"], row["over"], row["bound"]) == (HOLDS, 0, 0)


def test_who_got_nothing_at_all_has_missed_it() -> None:
    """Whoever got least was left out."""

    def ran(**passed: float) -> Any:
        found = Found(0)
        for name, units in passed.items():
            found.of(name).even(0, units, 1.0, 10.0)
        return SimpleNamespace(found=found, bound=lambda *_: 9.0)

    facts: Any = None
    row = _against(ran(a=1.0), ran(a=1.0, b=5.0), facts, 0)
    assert (row["missed_whose"], row["missed"], row["missed_percent"]) == ("b", 5.0, 100.0)


def test_beyond_a_limit_of_nothing_is_no_part_of_it() -> None:
    """It was told as 0 %, as if nothing were beyond."""
    found, head = Found(0), {"scenario": "none", "law": "backlog"}
    found.of("t").stand(1_000, 500, 0)
    traffic: Any = SimpleNamespace(found=found, bound=lambda *_: 9.0)
    row = head | _against(traffic, traffic, traffic, 0)
    assert (row["over"], row["over_percent"]) == (500, None)
    line = table({"titles": {"none": "none"}, "rows": [row], "left_out": {}})[1]
    assert " 500  " in line and line.endswith("0 (0.0 %)") and line.count("%") == 1
    assert _said(row, "over_percent") == "- (500; bound 9, exceeded)"


def test_what_is_beyond_all_numbers_of_json_stops_there() -> None:
    """Reports may say up to 2**63 - 1 each: their sum ended `--json` in a traceback."""
    found = Found(0)
    for at in range(1, 4):
        found.of("t").by_period(at, INT64_MAX, 10, 1_000)
    traffic: Any = SimpleNamespace(found=found, bound=lambda *_: found["t"].largest * 3)
    row = _against(traffic, traffic, cast(Any, None), 0)
    assert (row["over"], row["bound"]) == (INT64_MAX, INT64_MAX) and orjson.dumps(row)


@pytest.mark.usefixtures("brief")
def test_what_cannot_be_simulated_says_why() -> None:
    """No events, or no policy."""
    assert tried("mutation", "none", policies={})["none"]["why"] == "no policy limits what came then"
    assert tried("dispatch", "none", at=T0 + 10**9)["none"]["verdict"] == NOTHING


@pytest.mark.parametrize("law", of_laws("shares"))
def test_what_is_only_tracked_limits_nobody(law: str) -> None:
    """Of each law."""
    assert tried(law, "none", policies=POLICIES | {"mode": "track"})["none"]["verdict"] == NOTHING


@pytest.mark.usefixtures("brief")
def test_policies_change_as_in_the_log() -> None:
    """A quota that is removed while the job is away limits nobody from then on."""
    gone = {"type": "policy", "id": "c", "ts": T0 + 61_000, "path": "quotas[user=alice]", "value": None}
    demand = of([*LOGS["mutation"], gone])
    failures = Failures(at=T0 + 62_000, away_s=20, tried=("none", "job-away"))
    rows = figures(demand, POLICIES, failures)["rows"]
    assert [row["over"] for row in rows if row["law"] == "mutation"] == [0, 0]


def test_the_table_names_what_is_exceeded() -> None:
    """And that there is no bound, and what a law is not touched by."""
    none = dict.fromkeys(("missed_whose", "why"))
    row = {"scenario": "late", "law": "dispatch", "verdict": EXCEEDED, "whose": "x" * 40, "over": 151.0,
           "over_percent": 5.8, "bound": 121.0, "exceeded_by": 30.0, "beyond_for_s": 7.97, "missed": 0.0,
           "missed_percent": 0.0, **none}  # fmt: skip
    open_row = row | {"bound": None, "exceeded_by": None, "verdict": UNBOUND}
    untouched = {"scenario": "late", "law": "shares", "verdict": NOT_TOUCHED, "why": "because"}
    result = {"titles": {"late": "late"}, "rows": [row, open_row, untouched], "left_out": {"dispatch": 7}}
    lines = table(result)
    assert "121        exceeded by 30" in lines[1] and f"..{'x' * 26} " in lines[1] and "8 s" in lines[1]
    assert "none       no bound" in lines[2] and lines[3].endswith("not touched: because")
    assert lines[4].endswith(": dispatch: 7") and "'Several proxies'" in lines[5]
    large = row | {"exceeded_by": 1_234_567.0}
    assert "exceeded by 1,234,567 8 s" in table(result | {"rows": [large]})[1]
