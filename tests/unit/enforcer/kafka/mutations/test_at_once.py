"""Requests that are decided here: what is forwarded, told, reported and waited for."""

from collections.abc import Callable
from typing import Any

import pytest
from admission_kit import FakeLink, Scene
from mutation_kit import EPOCH_MS, Desk, decision, own

from enforcer.core import membership
from enforcer.laws.mutation.request import Action
from enforcer.wire.kafka.messages import TopicCounts


class Local(Scene):
    """A request under a quota that is decided here, of rate 1 and burst 11; Kafka takes events when told to.

    Args:
        proxies: that are alive.
        owed: mutations that were charged before.
        more: as in Scene.
    """

    def __init__(
        self, action: Action, names: dict[str, int], *, proxies: int = 1, owed: int = 0, **more: Any
    ) -> None:
        self._proxies, self._owed = proxies, owed
        super().__init__(action, names, **more)

    def prepare(self) -> None:
        """All is read back."""
        self.desk.acknowledges = False
        self.desk.stand_alone(self._proxies)
        if self._owed:
            quota = self.desk.coordinator.quota("a", "c")
            asked = own("before", self.desk.wall_ms, {"x": self._owed})
            self.desk.coordinator.local_decisions.decide(quota, *asked)


def test_it_is_forwarded_at_once_and_answered_when_kafka_has_its_event() -> None:
    """The event holds decision and time; the answer waits for its acknowledgement."""
    scene = Local(Action.DECIDE, {"a": 5})
    assert scene.asked_for() == ["a"]
    (event,) = scene.desk.of_type("request")
    assert event["decided"] == {"outcome": "allow", "rejected": [], "throttle_time_ms": 0, "tokens": 6.0}
    assert event["ts"] == EPOCH_MS and "deadline_ms" not in event
    scene.broker_says(a=0)
    assert scene.link.answers == []
    scene.desk.acknowledge()
    assert len(scene.link.answers) == 1
    assert scene.desk.metrics.unacknowledged._value.get() == 0


@pytest.mark.parametrize("stands", [None, False])
def test_it_is_answered_without_and_counted(stands: bool | None) -> None:
    """After EVENT_ACK_MS, or when Kafka will never have the event."""
    scene = Local(Action.DECIDE, {"a": 5})
    scene.broker_says(a=0)
    if stands is None:
        scene.link.ring()
    else:
        scene.desk.acknowledge(stands=False)
    assert len(scene.link.answers) == 1
    assert scene.desk.metrics.unacknowledged._value.get() == 1
    scene.desk.acknowledge()
    assert len(scene.link.answers) == 1


def test_some_items_are_rejected_and_what_the_broker_refuses_is_given_back() -> None:
    """The rejected never reach it; the refund carries its time, and the balance is as the law says."""
    scene = Local(Action.DECIDE, {"a": 5, "b": 5, "c": 5, "d": 1})
    assert scene.asked_for() == ["a", "b", "c"]
    (event,) = scene.desk.of_type("request")
    assert (event["decided"]["rejected"], event["decided"]["throttle_time_ms"]) == (["d"], 4_000)
    scene.broker_says(a=36, b=0, c=0)
    (refund,) = scene.desk.of_type("refund")
    assert (refund["ts"], refund["items"]) == (EPOCH_MS, [{"name": "a", "mutations": 5}])
    scene.desk.acknowledge()
    (_, throttle_ms, mute_ms) = scene.client_hears()
    assert (throttle_ms, mute_ms) == (4_000, 4_000)


def test_all_rejected_is_answered_without_the_broker() -> None:
    """It waits for its event too: a refusal is a decision of the law."""
    scene = Local(Action.DECIDE, {"a": 5, "b": 5, "c": 5})
    again = scene.again(Action.DECIDE)
    assert len(scene.link.forwarded) == 1 and scene.link.answers == []
    scene.desk.acknowledge()
    assert len(scene.link.forwarded) == 1 and len(scene.link.answers) == 1
    assert again.outcome == "reject"


def test_permissive_requests_are_charged_and_throttled() -> None:
    """Forwarded first, decided by the balance, answered when both are there."""
    scene = Local(Action.DECIDE, {"a": 5, "b": 5, "c": 5}, version=5)
    (event,) = scene.desk.of_type("request")
    assert event["decided"]["outcome"] == "throttle" and event["strict"] is False
    scene.broker_says(a=0, b=0, c=0)
    assert scene.link.answers == []
    scene.desk.acknowledge()
    assert scene.link.answers[0][1] == 4_000


def test_what_lies_between_is_asked_and_refused_if_nobody_answers() -> None:
    """Beyond its part of several the job has to say; nothing is charged that comes too late."""
    scene = Local(Action.DECIDE, {"a": 6, "b": 5}, proxies=2)
    (event,) = scene.desk.of_type("request")
    assert event["on_late"] == "reject" and "decided" not in event and "ts" not in event
    assert scene.link.forwarded == []
    scene.link.ring()
    assert len(scene.link.answers) == 1 and scene.link.forwarded == []
    # Until the next question what lies between is refused, and reported as decided.
    scene.again(Action.DECIDE)
    assert scene.desk.of_type("request")[1]["decided"]["rejected"] == ["b"]


def test_a_question_that_is_answered_is_carried_out() -> None:
    """As a strict request is."""
    scene = Local(Action.DECIDE, {"a": 6, "b": 5}, proxies=2)
    scene.decide(tokens=0.0)
    assert scene.asked_for() == ["a", "b"]


@pytest.mark.parametrize("answered", [False, True])
def test_the_deadline_of_who_has_left_tells_whether_the_job_answers(answered: bool) -> None:
    """Else clients that leave before it would keep their subject asking for as long as the job is away."""
    scene = Local(Action.DECIDE, {"a": 6, "b": 5}, proxies=2)
    scene.admission.gone()
    if answered:
        scene.decide(tokens=11.0)
    scene.admission.gone()
    scene.link.ring()
    scene.again(Action.DECIDE)
    assert ("decided" in scene.desk.of_type("request")[-1]) is not answered


@pytest.mark.parametrize("owed", [0, 11])
def test_a_dry_run_that_is_admitted_needs_no_look_up(owed: int) -> None:
    """It is forwarded at once and reported as it stands; what the broker says of it changes nothing."""
    scene = Local(Action.DECIDE, {"a": 5, "b": 50}, dry=True, owed=owed, existing={"a": 1})
    assert scene.asked_for() == ["a", "b"] and scene.link.looked_up == []
    (event,) = scene.desk.of_type("request")
    assert event["items"] == [{"name": "a", "mutations": 5}, {"name": "b", "mutations": 50}]
    assert event["decided"]["outcome"] == "allow"
    scene.broker_says(a=36, b=0)
    scene.desk.acknowledge()
    assert scene.client_hears() == ({"a": 36, "b": 0}, 0, 0)
    assert len(scene.desk.events) == 1


def test_a_dry_run_of_a_subject_in_debt_is_looked_up() -> None:
    """Only what is not there already is refused for it; the broker says the rest."""
    scene = Local(Action.DECIDE, {"a": 5, "b": 50}, dry=True, owed=12, existing={"a": 1})
    assert scene.link.looked_up == [["a", "b"]] and scene.asked_for() == ["a"]
    (event,) = scene.desk.of_type("request")
    assert event["decided"]["rejected"] == ["b"]


def test_real_creations_are_looked_up() -> None:
    """What is there already is never charged."""
    scene = Local(Action.DECIDE, {"a": 5, "b": 50}, existing={"a": 1})
    assert scene.link.looked_up == [["a", "b"]] and scene.asked_for() == ["a", "b"]
    (event,) = scene.desk.of_type("request")
    assert event["items"] == [{"name": "b", "mutations": 50}]


class Slow(Local):
    """Nothing that may come later is done before the test says so."""

    def prepare(self) -> None:
        """See Local."""
        super().prepare()
        self.desk.prompt = False
        self.later = self.desk.later


def test_the_request_leaves_before_its_event_is_written() -> None:
    """Answered it is all the same only when Kafka has the event."""
    scene = Slow(Action.DECIDE, {"a": 5})
    assert scene.asked_for() == ["a"] and scene.desk.events == []
    scene.broker_says(a=0)
    assert scene.link.answers == []
    (go,) = scene.later
    go()
    assert len(scene.desk.of_type("request")) == 1 and scene.link.answers == []
    scene.desk.acknowledge()
    assert len(scene.link.answers) == 1


def test_a_refund_never_overtakes_its_request() -> None:
    """Events of a subject are applied in the order sent."""
    scene = Slow(Action.DECIDE, {"a": 5})
    scene.broker_says(a=36)
    assert [event["type"] for _, event in scene.desk.events] == ["request", "refund"]


def test_an_event_that_is_dropped_is_counted_as_unacknowledged() -> None:
    """The client is answered all the same."""
    scene = Slow(Action.DECIDE, {"a": 5})
    scene.desk.full = True
    scene.broker_says(a=0)
    scene.later[0]()
    assert len(scene.link.answers) == 1 and scene.desk.metrics.unacknowledged._value.get() == 1


def test_what_cannot_be_sent_is_not_admitted() -> None:
    """With the buffer full nobody could charge it: refused, and the balance is as before."""
    scene = Local(Action.DECIDE, {"a": 5})
    scene.desk.full = True
    scene.again(Action.DECIDE)
    assert len(scene.link.forwarded) == 1 and len(scene.link.answers) == 1
    scene.desk.full = False
    scene.again(Action.DECIDE)
    assert scene.desk.of_type("request")[-1]["decided"]["tokens"] == 1.0


def test_an_event_that_is_too_large_is_charged_as_a_sum() -> None:
    """What is carried out is charged by an event that names nothing; the balance here stays the same."""
    scene = Local(Action.DECIDE, {"a": 5, "b": 7, "c": 1})
    (event,) = scene.desk.of_type("request")
    assert event["decided"]["rejected"] == ["c"]
    scene.desk.coordinator.refused(event["id"])
    scene.desk.acknowledge(stands=False)
    charge = scene.desk.of_type("request")[1]
    assert charge["id"] == f"{event['id']}-sum" and charge["strict"] is False
    assert charge["items"] == [{"name": "2 items", "mutations": 12}]
    assert charge["decided"]["tokens"] == event["decided"]["tokens"] == -1.0
    assert scene.desk.metrics.unacknowledged._value.get() == 1


def test_what_kafka_never_takes_is_counted_on_here() -> None:
    """Without the right to write nobody else charges it; the proxy that decided does."""
    scene = Local(Action.DECIDE, {"a": 12})
    scene.desk.acknowledge(stands=False)
    scene.again(Action.DECIDE)
    assert scene.desk.of_type("request")[-1]["decided"]["rejected"] == ["a"]
    assert scene.desk.metrics.unacknowledged._value.get() == 1


def test_a_permissive_one_has_its_subjects_turn_until_it_is_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that wait at a time would pass else, before anybody knows that the first left a debt."""
    looked: list[Callable[[], None]] = []

    def later(self: FakeLink, topics: object, done: Callable[[TopicCounts], None]) -> None:
        looked.append(lambda: done(TopicCounts(by_name={"a": None}, by_id={}, names={}, broker_count=1)))

    monkeypatch.setattr(FakeLink, "look_up", later)
    scene = Local(Action.DECIDE, {"a": 12}, version=5)
    questions = scene.desk.coordinator.questions
    assert questions.busy("user=a")
    looked.pop()()
    assert not questions.busy("user=a")


def test_events_that_stand_undecided_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more the newest are not looked at; decided ones make room."""
    monkeypatch.setattr(membership, "_STANDING_MAX", 3)
    desk = Desk()
    known = desk.context.membership
    for number in range(5):
        known.stands(f"e{number}", EPOCH_MS + number)
    assert list(known._standing) == ["e0", "e1", "e2"]
    desk.coordinator.take([decision(id="e0")])
    known.stands("e5", EPOCH_MS + 5)
    assert list(known._standing) == ["e1", "e2", "e5"]
