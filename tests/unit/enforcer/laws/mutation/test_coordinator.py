"""The coordinator: events out, decisions and policies in (docs/contract.md 3.1)."""

import gc
import weakref

import pytest
from mutation_kit import EPOCH_MS, Desk, asked, decision

from enforcer.core import bounds
from enforcer.core.membership import AWAY_MS
from enforcer.core.metrics import Metrics
from enforcer.core.settings import OnLate
from enforcer.laws.mutation.request import Action, Decision


def judged(desk: Desk, strict: bool = True) -> Action:
    """What would happen to a request of user a now."""
    return desk.coordinator.judge(desk.coordinator.quota("a", "c"), strict=strict, probing=False).action


@pytest.fixture
def desk() -> Desk:
    """User a has a quota of one a second."""
    desk = Desk()
    desk.limit(controller_mutation_rate=1)
    return desk


class GatedRequest:
    """Who asks."""

    def told(self, _decision: Decision | None) -> None:
        """The decision is there, or there will be none."""


def test_one_probe_for_all_connections_of_a_subject(desk: Desk) -> None:
    """In debt one request may pass in each long mute, however many connections are muted."""
    desk.decide(desk.ask({"x": 80}), throttle_time_ms=100_000)

    def probes(count: int) -> list[Action]:
        quota = desk.coordinator.quota("a", "c")
        return [desk.coordinator.judge(quota, strict=False, probing=True).action for _ in range(count)]

    assert probes(3) == [Action.ASK, Action.HOLD, Action.HOLD]
    desk.pass_ms(bounds.MUTE_SPLIT_MS - 1)
    assert probes(1) == [Action.HOLD]
    desk.pass_ms(1)
    assert probes(2) == [Action.ASK, Action.HOLD]


@pytest.mark.parametrize("decide", ["local", "strict"])
def test_a_strict_request_takes_no_probe(decide: str) -> None:
    """It is refused in a mute as anywhere: an old client behind it has its turn after the next split."""
    desk = Desk()
    desk.limit(controller_mutation_rate=5, decide=decide)
    desk.coordinator.begin()
    desk.decide(desk.ask({"x": 80}), throttle_time_ms=100_000)
    quota = desk.coordinator.quota("a", "c")
    # The mute began with the turn, and what it let through was judged a little later.
    desk.pass_ms(1)
    refused = desk.coordinator.judge(quota, strict=True, probing=True)
    assert refused.action is (Action.DECIDE if decide == "local" else Action.REFUSE)
    desk.pass_ms(bounds.MUTE_SPLIT_MS - 1)
    passed = desk.coordinator.judge(quota, strict=False, probing=True)
    assert passed.action is (Action.DECIDE if decide == "local" else Action.ASK)


def test_a_question_under_way_counts_when_its_quota_becomes_local() -> None:
    """It is in the balance here, unless it will never stand on the topic."""
    desk = Desk()
    desk.stand_alone()
    limit = {"controller_mutation_rate": 1, "controller_mutation_burst": 11}
    desk.limit(**limit, decide="strict")
    told = asked({"told": 12}, strict=False)
    desk.coordinator.report(told, desk.quota)
    asks = desk.ask({"x": 12}), desk.ask({"dry": 50}, dry=True), told
    desk.limit(**limit, decide="local")

    def rejected(name: str) -> frozenset[str]:
        ask = asked({name: 1})
        desk.coordinator.decide(ask, desk.quota, lambda _: None, lambda _: None)
        assert ask.decision is not None
        return ask.decision.rejected

    assert rejected("y") == {"y"}
    for ask in asks:
        desk.coordinator.refused(ask.id)
    assert rejected("z") == frozenset()


def test_the_request_event() -> None:
    """A question is an event with the subject as key, a new id each, and our deadline."""
    desk = Desk(on_late_decision=OnLate.REJECT, decision_timeout_ms=700)
    desk.limit(controller_mutation_rate=5)
    first, second = desk.ask({"x": 80}), desk.ask({"y": 1}, strict=False)
    (key, event), (_, permissive) = desk.events
    assert key == "user=a"
    assert event == {
        "type": "request", "id": f"p1-{EPOCH_MS}-1", "proxy": "p1", "user": "a", "client_id": "c",
        "api": "CreateTopics", "api_version": 7, "strict": True, "validate_only": False,
        "items": [{"name": "x", "mutations": 80}], "subject": "user=a",
        "asked_ts": EPOCH_MS, "deadline_ms": 700, "on_late": "reject",
    }  # fmt: skip
    assert second.id == f"p1-{EPOCH_MS}-2" and "deadline_ms" not in permissive
    made = desk.decide(first, tokens=420.0)
    assert desk.decided == [made]
    assert desk.metrics.registry.get_sample_value("weir_proxy_subject_tokens", {"subject": "user=a"}) == 420


def test_what_goes_on_before_the_policies_are_read_is_told_afterwards(desk: Desk) -> None:
    """Under its quota, as what cannot be refused; what the broker did not do is given back."""
    known = False
    desk.coordinator.policies.known = lambda: known
    request = asked({"x": 3, "y": 2})
    assert judged(desk) is Action.FORWARD
    desk.coordinator.report(request, None)
    desk.coordinator.tick()
    assert desk.events == []
    request.executed, known = {"x": 3}, True
    desk.coordinator.tick()
    key, event = desk.events[-1]
    assert (key, event["subject"], event["strict"]) == ("user=a", "user=a", False)
    desk.coordinator.take([decision(id=request.id)])
    refund = desk.events[-1][1]
    assert (refund["type"], refund["items"]) == ("refund", [{"name": "y", "mutations": 2}])
    desk.coordinator.tick()
    assert len(desk.events) == 2


def test_what_is_told_later_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond it is counted, and told a part at a time."""
    monkeypatch.setattr(bounds, "PENDING_REQUESTS_MAX", 600)
    desk, known = Desk(), False
    desk.coordinator.policies.known = lambda: known
    for number in range(601):
        desk.coordinator.report(asked({f"x{number}": 1}), None)
    dropped = desk.metrics.registry.get_sample_value("weir_proxy_events_total", {"result": "dropped"})
    known = True
    desk.coordinator.tick()
    assert (dropped, len(desk.events)) == (1, 500)
    desk.coordinator.tick()
    assert len(desk.events) == 600


def test_a_quota_that_came_while_it_was_under_way_charges_it(desk: Desk) -> None:
    """A replay finds that quota at the time of its event, so the event names it."""
    desk.coordinator.report(asked({"x": 3}), None)
    event = desk.events[-1][1]
    assert (event["subject"], event["strict"]) == ("user=a", False)


def test_a_rejection_holds_for_its_subject_until_its_time_has_passed(desk: Desk) -> None:
    """After a reject the subject is refused at once for the throttle time since the event was sent."""
    ask = desk.ask({"x": 1})
    desk.pass_ms(300)
    desk.coordinator.take([decision(id=ask.id, throttle_time_ms=4_000, rejected=frozenset({"x"}))])
    assert judged(desk) is Action.REFUSE and judged(desk, strict=False) is Action.HOLD
    desk.pass_ms(3_699)
    assert judged(desk) is Action.REFUSE
    desk.pass_ms(1)
    assert judged(desk) is Action.ASK


def test_an_event_stamped_later_than_sent_waits_for_its_stamp(desk: Desk) -> None:
    """The broker's stamp, where its clock can be believed, keeps a retry from coming a few ms early."""
    ask = desk.ask({"x": 1})
    desk.pass_ms(300)
    stamped = decision(id=ask.id, ts=EPOCH_MS + 100, throttle_time_ms=4_000)
    assert desk.coordinator.remaining_ms(stamped, ask.sent_ms) == 3_800
    # A broker clock far off changes neither way more than what is certain.
    assert desk.coordinator.remaining_ms(decision(ts=EPOCH_MS - 90_000, throttle_time_ms=4_000), 0.0) == 3_700
    assert desk.coordinator.remaining_ms(decision(ts=EPOCH_MS + 90_000, throttle_time_ms=4_000), 0.0) == 4_000


def test_a_decision_read_before_the_acknowledgement_leaves_nothing_awaited(desk: Desk) -> None:
    """Else the job would look away for ever, and proxies that have left would count on."""
    desk.acknowledges = False
    ask = desk.ask({"x": 1})
    desk.decide(ask)
    desk.acknowledge()
    desk.context.membership.count = 2
    assert desk.context.membership.hears_of_no_decision


def test_an_event_that_is_never_decided_is_not_waited_for_for_ever(desk: Desk) -> None:
    """Another one is asked about once the job looks away: its decision shows that it is there."""
    members = desk.context.membership
    members.count = 2
    desk.ask({"x": 30})
    assert not members.hears_of_no_decision
    desk.pass_ms(AWAY_MS)
    assert members.hears_of_no_decision


def test_other_proxies_decisions_count_too(desk: Desk) -> None:
    """The wait of a subject is cluster-wide, unless the decision is a shadow one."""
    desk.coordinator.take([decision(id="p2-1", proxy="p2", throttle_time_ms=900, shadow=True)])
    assert judged(desk) is Action.ASK
    desk.coordinator.take([decision(id="p2-2", proxy="p2", throttle_time_ms=900)])
    assert judged(desk) is Action.REFUSE
    desk.coordinator.take([decision(id="p2-3", proxy="p2")])
    assert judged(desk) is Action.ASK


def test_a_policy_change_drops_the_wait_and_wakes(desk: Desk) -> None:
    """Under another quota the old wait says nothing; under the same one it stays."""
    desk.coordinator.take([decision(proxy="p2", throttle_time_ms=60_000)])
    woken: list[int] = []
    wake = lambda: woken.append(1)  # noqa: E731  # the same object for both calls
    desk.coordinator.questions.wait_for("user=a", wake)
    desk.pass_ms(10)
    desk.limit("quotas[user=b]", controller_mutation_rate=1)
    assert judged(desk) is Action.REFUSE
    desk.limit(controller_mutation_rate=2)
    assert judged(desk) is Action.ASK and woken
    desk.coordinator.questions.stop_waiting("user=a", wake)
    count = len(woken)
    desk.limit(controller_mutation_rate=3)
    assert len(woken) == count


def test_a_decision_under_the_old_policy_does_not_bind_the_new_one(desk: Desk) -> None:
    """A decision made before a change, arriving after it, sets no wait."""
    ask = desk.ask({"x": 1})
    desk.pass_ms(50)
    desk.limit(controller_mutation_rate=100)
    desk.coordinator.take([decision(id=ask.id, ts=EPOCH_MS + 20, throttle_time_ms=60_000)])
    assert judged(desk) is Action.ASK


def test_a_refund_names_the_request_and_drops_the_wait(desk: Desk) -> None:
    """What the broker refused is given back, and the subject may ask again."""
    ask = desk.ask({"x": 5, "y": 3})
    made = desk.decide(ask, throttle_time_ms=900, rejected=frozenset({"y"}))
    assert judged(desk) is Action.REFUSE
    ask.executed = {}
    desk.coordinator.settle(ask)
    (refund,) = desk.of_type("refund")
    assert refund["items"] == [{"name": "x", "mutations": 5}]
    assert (refund["of"], refund["of_ts"], refund["subject"]) == (ask.id, made.ts, "user=a")
    assert judged(desk) is Action.ASK


@pytest.mark.parametrize("decide", ["local", "strict"])
def test_who_cannot_be_refused_does_not_go_on_by_what_fails(decide: str) -> None:
    """Some of each request fails, and is given back: the rest is owed all the same."""
    desk = Desk()
    desk.stand_alone()
    desk.limit(controller_mutation_rate=1, decide=decide)
    ask = asked({"x": 30, "fails": 1}, strict=False)
    if decide == "local":
        desk.coordinator.decide(ask, desk.quota, lambda _: None, lambda _: None)
    else:
        desk.coordinator.ask(ask, desk.quota, lambda _: None)
        desk.decide(ask, throttle_time_ms=20_000)
    assert judged(desk, strict=False) is Action.HOLD
    ask.executed = {"x": 30}
    desk.coordinator.settle(ask)
    desk.pass_ms(18_990)
    assert judged(desk, strict=False) is Action.HOLD
    desk.pass_ms(20)
    assert judged(desk, strict=False) is not Action.HOLD


def test_answered_without_decision_is_reconciled_when_it_comes(desk: Desk) -> None:
    """Let through but rejected by the decision: charged. Refused but admitted by it: given back."""
    allowed, refused = desk.ask({"x": 5}), desk.ask({"y": 3})
    allowed.executed = {"x": 5}
    desk.coordinator.give_up(allowed)
    refused.executed = {}
    desk.coordinator.give_up(refused)
    desk.decide(allowed, throttle_time_ms=900, rejected=frozenset({"x"}))
    charge = desk.of_type("request")[-1]
    assert charge["id"] == f"{allowed.id}-late" and charge["strict"] is False
    assert charge["items"] == [{"name": "x", "mutations": 5}]
    assert judged(desk) is Action.REFUSE
    desk.decide(refused)
    (refund,) = desk.of_type("refund")
    assert (refund["of"], refund["items"]) == (refused.id, [{"name": "y", "mutations": 3}])
    assert desk.decided == []
    assert desk.metrics.registry.get_sample_value("weir_proxy_late_decisions_total") == 2


def test_a_question_that_is_given_up_holds_nobody(desk: Desk) -> None:
    """It is kept until its decision comes; who asked, with request and connection, is not."""
    link = GatedRequest()
    ask = asked({"x": 1})
    desk.coordinator.ask(ask, desk.quota, link.told)
    desk.coordinator.give_up(ask)
    gone = weakref.ref(link)
    del link
    gc.collect()
    assert desk.coordinator.undecided.late == 1 and gone() is None


def test_what_cannot_be_asked_is_treated_as_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full event buffer and too many open questions give no question."""
    monkeypatch.setattr(bounds, "PENDING_REQUESTS_MAX", 1)
    desk = Desk()
    desk.limit(controller_mutation_rate=1)
    desk.full = True
    assert desk.ask({"x": 1}) is None
    assert desk.coordinator.undecided.pending == []
    desk.full = False
    assert desk.ask({"x": 1}) is not None
    assert desk.ask({"x": 1}) is None


def test_a_repeated_decision_does_no_harm(desk: Desk) -> None:
    """The job's sink is at-least-once: the second copy changes nothing."""
    ask = desk.ask({"x": 5})
    made = desk.decide(ask)
    ask.executed = {}
    desk.coordinator.settle(ask)
    desk.coordinator.take([made])
    assert len(desk.decided) == 1 and len(desk.of_type("refund")) == 1


def test_a_mistake_with_one_decision_loses_no_other(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    """They come in batches, of all clients."""

    def broken(_decision: Decision | None) -> None:
        raise ValueError("a mistake")

    first = asked({"x": 1})
    desk.coordinator.ask(first, desk.quota, broken)
    second = desk.ask({"y": 1})
    desk.coordinator.take([decision(id=first.id), decision(id=second.id, throttle_time_ms=900)])
    assert [one and one.id for one in desk.decided] == [second.id]
    assert desk.coordinator.undecided.pending == []
    assert first.id in caplog.text and judged(desk) is Action.REFUSE


def test_a_mistake_of_what_was_put_off_is_not_that_of_who_asks_next(desk: Desk) -> None:
    """The question is sent and answered, and nothing of it is left."""
    desk.prompt = False

    def broken() -> None:
        raise ZeroDivisionError

    desk.coordinator.outgoing.later(broken)
    asking = desk.ask({"x": 1})
    desk.coordinator.take([decision(id=asking.id)])
    assert [one and one.id for one in desk.decided] == [asking.id]
    assert desk.coordinator._unacknowledged == {} and desk.coordinator.undecided.pending == []
    with pytest.raises(ZeroDivisionError):
        desk.later.pop()()


def test_subject_metrics_are_bounded() -> None:
    """The subject decided upon least recently loses its series."""
    metrics = Metrics(2)
    for subject in ("a", "b", "a", "c"):
        metrics.decided(subject, 1.0, None, 0)
    found = {
        sample.labels["subject"]
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "weir_proxy_subject_tokens"
    }
    assert found == {"a", "c"}
