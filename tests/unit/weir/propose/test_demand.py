"""What counts as asked for: tries again, dry runs, refunds, what was held back, whose it is."""

from pathlib import Path
from typing import Any

import pytest
from event_kit import Event, delivery, report
from law_kit import policy, quota, refund, request
from plan_kit import file_of
from propose_kit import entries_of, hourly, proposed

from streaming.columns.outputs import Outputs
from streaming.contract.fields import TS_MAX_MS
from streaming.laws.law import StepContext
from streaming.log.reading import read_records
from weir.propose.demand import MSGS, MUTATIONS, Demand, Kind
from weir.propose.run import asked_in


def asked(folder: Path, *events: Event, **policies: Any) -> dict[tuple[Kind, str], Demand]:
    """By kind and measure."""
    records = read_records([file_of(folder, "log.jsonl", *events)])
    context = StepContext(initial=policies, replay=True, fail_fast=True)
    return dict(asked_in(records, context, Outputs())[0])


def amounts(folder: Path, *events: Event, **policies: Any) -> list[float]:
    """How many mutations each item counts."""
    return asked(folder, *events, **policies)[Kind.USER, MUTATIONS].amount.tolist()


REFUSED = {"outcome": "reject", "rejected": ["t-0"], "throttle_time_ms": 9, "tokens": -1.0}


def test_what_is_tried_again_after_a_refusal_counts_once(tmp_path: Path) -> None:
    """By what the proxy decided; another client, another name, or one that got through is new demand."""
    asks = [request("t", at, 5, decided=REFUSED) for at in (0, 10, 20)]
    through = {"outcome": "allow", "rejected": [], "throttle_time_ms": 0, "tokens": 1.0}
    asks += [request("t", 30, 5, decided=through), request("t", 40, 5, decided=through)]
    asks += [request("t", 50, 5, user="bob"), request("u", 60, 5), request("t", 70, 5, client_id="c")]
    assert amounts(tmp_path, *asks) == [5.0, 0.0, 0.0, 0.0, 5.0, 5.0, 5.0, 5.0]


def test_what_the_job_refused_is_known_from_the_policies_of_the_log(tmp_path: Path) -> None:
    """Of the file in force at the start, and of the log."""
    asks = [request("a", 0, 20), request("b", 100, 5), request("b", 200, 5)]
    assert amounts(tmp_path, *asks) == [20.0, 5.0, 5.0]
    limit = quota(0.001, 10)
    assert amounts(tmp_path, *asks, **{"quotas[user=alice]": limit}) == [20.0, 5.0, 0.0]
    assert amounts(tmp_path, *asks, **{"quotas[user=alice]": {**limit, "shadow": True}}) == [20.0, 5.0, 5.0]
    assert amounts(tmp_path, policy(-1, "quotas[user=alice]", limit), *asks) == [20.0, 5.0, 0.0]


def test_one_item_of_several_that_is_refused(tmp_path: Path) -> None:
    """The others count again if they are asked for again."""
    first = request("t", 0, 3, 4, decided=REFUSED)
    assert amounts(tmp_path, first, request("t", 10, 3, 4)) == [3.0, 4.0, 0.0, 4.0]


def test_dry_runs_count_nothing_and_refunds_are_taken_off(tmp_path: Path) -> None:
    """A refused dry run is no first try either."""
    dry = request("t", 0, 5, validate_only=True)
    assert amounts(tmp_path, dry, request("t", 10, 5), refund(20, 10, 2)) == [0.0, 5.0, -2.0]


def test_a_client_id_is_nobodys_way_to_a_limit_of_its_own(tmp_path: Path) -> None:
    """Mutations and bytes are counted by user."""
    events = [request(f"r{n}", n, 1, client_id=f"c{n}") for n in range(5)]
    used = {f"quota/user=alice,client-id=c{n}": {"publishedBytes": 60_000} for n in range(5)}
    events.append(report(60_000, "b1", used, period_ms=60_000))
    entries = entries_of(tmp_path, events)
    assert list(entries) == ["quotas[user=<default>]"]
    assert entries["quotas[user=<default>]"]["producer_byte_rate"] == 5000


@pytest.mark.parametrize(("held_ms", "rate"), [(0, 10), (20_000, 15), (60_000, 20)])
def test_what_was_held_back_was_asked_for(tmp_path: Path, held_ms: int, rate: int) -> None:
    """At the pace of the rest of the period, and twice as much at most."""
    usage = {"publishedMsg": 600, "throttledMs": {"publishRateInMsgs": held_ms}}
    events = [report(60_000, "b1", {"rg1": usage}, period_ms=60_000)]
    assert entries_of(tmp_path, events) == {"resourcegroups.rg1": {"publishRateInMsgs": rate}}


def test_brokers_of_a_group_add_up_and_reports_of_one_do_not(tmp_path: Path) -> None:
    """Two reports in a minute say twice what is sent; reports of five minutes are no peak of one."""
    usage = {"publishedMsg": 300}
    minute = [report(at, broker, {"rg1": usage}, period_ms=30_000) for at in (1, 30_000) for broker in "ab"]
    assert entries_of(tmp_path, minute) == {"resourcegroups.rg1": {"publishRateInMsgs": 20}}
    long = [report(at, broker, {"rg1": usage}, period_ms=300_000) for at, broker in ((0, "a"), (90_000, "b"))]
    assert entries_of(tmp_path, long) == {"resourcegroups.rg1": {"publishRateInMsgs": 2}}


@pytest.mark.parametrize("group", ["quota/", "quota/x", "dispatch/persistent://a/b/c", "inflight/broker-1"])
def test_groups_that_are_nobodys_are_passed_over(tmp_path: Path, group: str) -> None:
    """What is shared out besides has its limits elsewhere."""
    events = [report(0, "b1", {group: {"publishedBytes": 9}}), *hourly("alice", 1)]
    assert list(entries_of(tmp_path, events)) == ["quotas[user=<default>]"]


def test_clients_that_are_limited_without_a_user(tmp_path: Path) -> None:
    """They have a default of their own."""
    events = [report(0, "b1", {"quota/client-id=c": {"dispatchedBytes": 9000}})]
    assert entries_of(tmp_path, events) == {"quotas[client-id=<default>]": {"consumer_byte_rate": 9000}}


def test_topics_are_counted_where_somebody_reads_without_a_subscription(tmp_path: Path) -> None:
    """All that is read there, since the limit of a topic counts all; no other topic has one."""
    other = {"topic": "persistent://acme/orders/t2"}
    events = [delivery(0, 5), delivery(1, 3, subscription=""), delivery(2, 7, **other)]
    by = asked(tmp_path, *events)
    assert by[Kind.TOPIC, MSGS].amount.tolist() == [5.0, 3.0]
    assert by[Kind.SUBSCRIPTION, MSGS].amount.tolist() == [5.0, 7.0]
    rates = proposed(tmp_path, events).proposal.entries["namespaces.acme/orders"]
    assert rates["dispatchRate"]["dispatchThrottlingRateInMsg"] == 8
    assert rates["subscriptionDispatchRate"]["dispatchThrottlingRateInMsg"] == 7


def test_times_of_any_year(tmp_path: Path) -> None:
    """A stray clock makes no endless table."""
    events = [*hourly("alice", 1, 2, 3), *hourly("alice", 4)]
    events[-1] |= {"ts": TS_MAX_MS}
    entries = entries_of(tmp_path, events)
    assert entries["quotas[user=<default>]"]["controller_mutation_burst"] == 4
