"""Rounds of a collector over a Pulsar in memory, with Kafka as two functions."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import pytest
from limits_kit import FakePulsar, pusher_of, run

from streaming.collect.pulsar import collector as module
from streaming.collect.pulsar.collector import Collector, Outcome, Round, concerns
from streaming.collect.pulsar.limits import Kind, Rates, Slot
from streaming.collect.pulsar.metrics import CollectMetrics
from streaming.collect.settings import PulsarCollectSettings
from streaming.contract.errors import TakenOver, WeirError
from streaming.contract.events import parse
from streaming.contract.usage_events import GroupUsage, group_usage
from streaming.policy.policy_set import PolicySet

T = "persistent://a/b/t"
SLOT = Slot("a/b", T, "", Kind.PUBLISH)
BROKER = "pulsar-broker1:8080"
ENTRIES: Mapping[str, Any] = {
    "resourcegroups.g": {"publishRateInMsgs": 100},
    "namespaces.a/b": {"resourcegroup": "g"},
    "broker": {"resourceUsagePublishIntervalInSecs": 2},
}


class Rig:
    """A collector whose time is told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, push: bool = True) -> None:
        self.now_ms = 0
        monkeypatch.setattr(module, "now_ms", lambda: self.now_ms)
        self.pulsar = FakePulsar()
        self.entries = ENTRIES
        self.reported: list[tuple[str, dict[str, Any]]] = []
        self.refusal: Exception | None = None
        self.pusher = pusher_of(self.pulsar)
        self.metrics = CollectMetrics()
        self.collector = Collector(
            self.pusher._rest, self.pusher, PulsarCollectSettings(), policies=lambda: PolicySet(self.entries),
            report=self._report, name="c", push=push, metrics=self.metrics,
        )  # fmt: skip

    def round(self, published: int, *, after_ms: int = 10_000) -> Round:
        """One round later; so many messages in all."""
        self.now_ms += after_ms
        labels = f'namespace="a/b",topic="{T}"'
        self.pulsar.pages["broker1:8080"] = f"pulsar_in_messages_total{{{labels}}} {published}"
        return run(self.collector.round())

    def _report(self, events: Sequence[tuple[str, dict[str, Any]]]) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.reported += events


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    """A collector that pushes."""
    return Rig(monkeypatch)


def test_rounds_report_what_passed_and_push_what_follows(rig: Rig) -> None:
    """The first one knows no traffic, and pushes nothing: all topics would be newcomers."""
    assert rig.round(5_000).outcome is Outcome.FIRST
    assert rig.pulsar.set == {}
    assert rig.round(15_000).outcome is Outcome.DONE
    assert rig.pusher.pushed[SLOT] == Rates(100, -1)
    rig.round(16_000)
    assert [event["usage"] for _, event in rig.reported] == [
        {},
        {"g": {"publishedMsg": 10_000, "publishedBytes": 0, "dispatchedMsg": 0, "dispatchedBytes": 0}},
        {"g": {"publishedMsg": 1_000, "publishedBytes": 0, "dispatchedMsg": 0, "dispatchedBytes": 0,
               "throttledMs": {"publishRateInMsgs": 10_000}}},
    ]  # fmt: skip
    assert {broker for broker, _ in rig.reported} == {BROKER}
    assert len({event["id"] for _, event in rig.reported}) == 3


def test_what_is_reported_is_what_the_contract_says(rig: Rig) -> None:
    """It reads back as a `group_usage`."""
    for count in (0, 50, 50, 50):
        rig.round(count)
    readers = {"group_usage": group_usage}
    records = [orjson.dumps(event) for _, event in rig.reported]
    events = [parse(record, default_id="x", default_ts=1, readers=readers) for record in records]
    assert all(isinstance(event, GroupUsage) for event in events)
    # What is used no more is told once with nothing.
    assert [bool(event["usage"]) for _, event in rig.reported] == [False, True, True, False]


def test_a_share_is_pushed_and_goes_on_while_the_job_is_silent(rig: Rig) -> None:
    """What was pushed last stays in force."""
    run(rig.collector.meet())
    # What Kafka says of it tells which shares stand, before any is read.
    assert [broker for broker, _ in rig.reported] == [BROKER]
    rig.collector.take_share("g", BROKER, {"publishRateInMsgs": 60.0}, 30_000)
    rig.round(0)
    rig.round(1_000)
    assert rig.pusher.pushed[SLOT] == Rates(60, -1)
    rig.round(2_000, after_ms=60_000)
    assert rig.pusher.pushed[SLOT] == Rates(60, -1)


@pytest.mark.parametrize("status", [503, 401, None])
def test_an_admin_api_that_is_down_costs_rounds(rig: Rig, status: int | None) -> None:
    """Nothing is reported or pushed, and no broker has answered; once it is back all of the time counts."""
    rig.round(0)
    rig.pulsar.fail = lambda _method, _path: status
    assert (rig.round(500).outcome, rig.metrics.brokers._value.get()) == (Outcome.UNREAD, 0)
    rig.pulsar.fail = lambda _method, _path: 0
    assert (rig.round(1_000).outcome, rig.metrics.brokers._value.get()) == (Outcome.DONE, 1)
    assert rig.reported[-1][1]["period_ms"] == 20_000


def test_what_a_broker_that_fails_would_have_told_is_missing(rig: Rig) -> None:
    """What was not read may be there."""
    for page, whole in (("", True), ("pulsar_in_messages_total{nothing", False)):
        rig.pulsar.pages["broker2:8080"] = page
        done = rig.round(0)
        assert done.passed is not None and done.passed.whole is whole


def test_nothing_is_pushed_that_was_not_reported(rig: Rig) -> None:
    """Kafka is away, or another collector is at work: which, is not known."""
    rig.round(0)
    rig.refusal = WeirError("Kafka is away")
    assert rig.round(1_000).outcome is Outcome.UNREPORTED
    assert rig.pulsar.set == {}
    rig.refusal = TakenOver("another")
    with pytest.raises(TakenOver):
        rig.round(2_000)


def test_a_mistake_costs_its_round_and_no_more(rig: Rig) -> None:
    """As of backlogs: a counter that no integer of a report holds ended the collector."""
    rig.round(0)
    rig.refusal = TypeError("Integer exceeds 64-bit range")
    assert rig.round(1_000).outcome is Outcome.UNREAD
    rig.refusal = None
    assert rig.round(2_000).outcome is Outcome.DONE


@pytest.mark.parametrize("used_in_vain", [False, True])
def test_that_a_group_is_idle_is_told_though_a_report_is_not_written(rig: Rig, used_in_vain: bool) -> None:
    """Else its share would stand until it expires; nor is it known whether the report was written."""
    rig.round(0)
    rig.refusal = WeirError("Kafka is away") if used_in_vain else None
    rig.round(1_000)
    rig.refusal = WeirError("Kafka is away")
    rig.round(1_000)
    rig.refusal = None
    rig.round(1_000)
    rig.round(1_000)
    assert [list(event["usage"]) for _, event in rig.reported[-2:]] == [["g"], []]
    assert rig.reported[-2][1]["usage"]["g"]["publishedMsg"] == 0


def test_while_no_broker_answers_no_group_is_told_to_be_idle(rig: Rig) -> None:
    """Its share would go to others; what passed meanwhile is told later, and then what has ended."""
    rig.round(0)
    rig.round(1_000)
    rig.pulsar.fail = lambda _method, path: 503 if path == "/metrics/" else 0
    assert rig.round(2_000).outcome is Outcome.FIRST
    rig.pulsar.fail = lambda _method, _path: 0
    rig.round(3_000)
    rig.round(3_000)
    told = [(event["period_ms"], event["usage"].get("g")) for _, event in rig.reported[2:]]
    assert [(period_ms, used and used["publishedMsg"]) for period_ms, used in told] == [
        (1, None), (20_000, 2_000), (10_000, 0)
    ]  # fmt: skip


def test_without_push_it_says_what_it_would_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """And does nothing of it."""
    rig = Rig(monkeypatch, push=False)
    rig.round(0)
    done = rig.round(1_000)
    assert [str(change) for change in done.changes] == [
        f"publishRate {T}: 100 msg per 1 s",
        "publishRate a/b: 5 msg per 1 s",
    ]
    assert rig.pulsar.changes() == []


def test_limits_go_with_their_policy_or_with_the_collector(rig: Rig) -> None:
    """A policy that was removed takes them away in the next round, `withdraw` at once."""
    rig.round(0)
    rig.round(1_000)
    assert len(rig.pulsar.set) == 2
    rig.entries = {}
    rig.round(2_000)
    assert rig.pulsar.set == {}
    rig.entries = ENTRIES
    rig.round(3_000)
    rig.round(4_000)
    run(rig.collector.withdraw())
    assert rig.pulsar.set == {}


@pytest.mark.parametrize("failing", ["DELETE", "GET"])
@pytest.mark.parametrize(("kind", "left"), [("persistent", 1), ("namespaces", 3)])
def test_at_the_stop_a_limit_that_stays_keeps_no_others(rig: Rig, kind: str, left: int, failing: str) -> None:
    """But where it is the one for newcomers: topics without their own would fall back on it."""
    rig.entries = {**ENTRIES, f"topics.{T}2": {"dispatchRate": {"dispatchThrottlingRateInMsg": 5}}}
    rig.round(0)
    rig.round(1_000)
    failed: list[str] = []

    def fail(method: str, path: str) -> int:
        if method != failing or f"/{kind}/a/b/" not in path or path not in (failed or [path]):
            return 0
        failed.append(path)
        return 500

    rig.pulsar.fail = fail
    run(rig.collector.withdraw())
    assert len(rig.pulsar.set) == left and failed[0] in rig.pulsar.set


def test_at_the_stop_not_all_are_tried_while_all_fail(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may take long, and there may be thousands: nothing else ended the collector."""
    monkeypatch.setattr(module, "PASSES_MAX", 2)
    rig.entries = {**ENTRIES, f"topics.{T}2": {"dispatchRate": {"dispatchThrottlingRateInMsg": 5}}}
    rig.round(0)
    rig.round(1_000)

    def fail(method: str, path: str) -> int:
        return 500 if method == "DELETE" and "/persistent/" in path else 0

    rig.pulsar.fail = fail
    run(rig.collector.withdraw())
    assert len(rig.pulsar.set) == 2 and sum(fail(*call) > 0 for call in rig.pulsar.calls) == 1


def test_the_interval_is_never_longer_than_a_round(rig: Rig) -> None:
    """A member that reports more rarely than that would expire."""
    assert rig.collector.interval_s() == 2.0
    rig.entries = {}
    assert rig.collector.interval_s() == 5.0


def test_namespaces_without_shared_limits_are_not_metered() -> None:
    """A fixed rate needs no usage."""
    rate = {"dispatchThrottlingRateInMsg": 5}
    across = {**rate, "across_brokers": True}
    concern = concerns(
        PolicySet(
            {
                "tenants.t": {"resourcegroup": "g"},
                "namespaces.a/fixed": {"dispatchRate": rate},
                "namespaces.a/shared": {"subscriptionDispatchRate": across},
                "topics.persistent://a/topic/x": {"subscriptions": {"s": {"dispatchRate": across}}},
            }
        )
    )
    names = ("t/any", "a/fixed", "a/shared", "a/topic", "a/none")
    assert [concern(name) for name in names] == [True, False, True, True, False]


def test_a_namespace_that_joins_a_group_brings_no_past(rig: Rig) -> None:
    """Nobody read it before, so what its counters hold has passed long ago."""
    rig.entries = {**ENTRIES, "namespaces.a/b": {}}
    rig.round(10**9)
    rig.round(10**9)
    rig.entries = ENTRIES
    first = rig.round(10**9 + 5)
    assert first.passed is not None and first.passed.counts == {}
    then = rig.round(10**9 + 7)
    assert then.passed is not None and [count[0] for count in then.passed.counts.values()] == [2]
