"""Requests that are decided here: what is forwarded, told, reported and waited for."""

import pytest
from admission_kit import Scene
from coordinator_kit import EPOCH_MS

from enforcer.core.ledger import Answered
from enforcer.kafka.mutations.admission import Admission
from enforcer.kafka.mutations.at_once import AtOnce, PermissiveAtOnce


class Local(Scene):
    """A request under a quota that is decided here, of rate 1 and burst 11; Kafka takes events when told to.

    Args:
        proxies: that are alive; the others are as in Scene.
    """

    def __init__(
        self, way: type[Admission], names: dict[str, int], *, proxies: int = 1, version: int = 7
    ) -> None:
        self._proxies = proxies
        super().__init__(way, names, version=version)

    def prepare(self) -> None:
        """All is read back."""
        self.desk.acknowledges = False
        local = self.desk.coordinator.local
        local.begin()
        local.book.set_proxies(self._proxies)
        local.book.set_blind(False)


def test_it_is_forwarded_at_once_and_answered_when_kafka_has_its_event() -> None:
    """The event holds decision and time; the answer waits for its acknowledgement."""
    scene = Local(AtOnce, {"a": 5})
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
    """After event_ack_ms, or when Kafka will never have the event."""
    scene = Local(AtOnce, {"a": 5})
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
    scene = Local(AtOnce, {"a": 5, "b": 5, "c": 5, "d": 1})
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
    scene = Local(AtOnce, {"a": 5, "b": 5, "c": 5})
    again = scene.again(AtOnce)
    assert len(scene.link.forwarded) == 1 and scene.link.answers == []
    scene.desk.acknowledge()
    assert len(scene.link.forwarded) == 1 and len(scene.link.answers) == 1
    assert again.ask is not None and again.ask.answered is Answered.DECIDED


def test_permissive_requests_are_charged_and_throttled() -> None:
    """Forwarded first, decided by the balance, answered when both are there."""
    scene = Local(PermissiveAtOnce, {"a": 5, "b": 5, "c": 5}, version=5)
    (event,) = scene.desk.of_type("request")
    assert event["decided"]["outcome"] == "throttle" and event["strict"] is False
    scene.broker_says(a=0, b=0, c=0)
    assert scene.link.answers == []
    scene.desk.acknowledge()
    assert scene.link.answers[0][1] == 4_000


def test_what_lies_between_is_asked_and_refused_if_nobody_answers() -> None:
    """Beyond its part of several the job has to say; nothing is charged that comes too late."""
    scene = Local(AtOnce, {"a": 6, "b": 5}, proxies=2)
    (event,) = scene.desk.of_type("request")
    assert event["on_late"] == "reject" and "decided" not in event and "ts" not in event
    assert scene.link.forwarded == []
    scene.link.ring()
    assert len(scene.link.answers) == 1 and scene.link.forwarded == []
    # Until the next question what lies between is refused, and reported as decided.
    scene.again(AtOnce)
    assert scene.desk.of_type("request")[1]["decided"]["rejected"] == ["b"]


def test_a_question_that_is_answered_is_carried_out() -> None:
    """As a strict request is."""
    scene = Local(AtOnce, {"a": 6, "b": 5}, proxies=2)
    scene.decide(tokens=0.0)
    assert scene.asked_for() == ["a", "b"]
