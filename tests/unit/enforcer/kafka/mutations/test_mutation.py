"""One request on its way: what is forwarded, what is answered, what is corrected."""

from collections.abc import Callable
from time import process_time

import pytest
from admission_kit import Scene
from connection_kit import Rig, framed
from kafka.protocol.admin import topics
from kafka.protocol.metadata import MetadataResponse
from kafka_kit import build, decode, request, response
from wire_client import create_request

from enforcer.core import bounds
from enforcer.core.settings import OnLate
from enforcer.laws.mutation import events
from enforcer.laws.mutation.request import Action
from enforcer.wire.kafka.frames import BadFrame
from enforcer.wire.kafka.mutations import decode_request


def test_strict_forwards_only_what_was_admitted() -> None:
    """Asked before anything is forwarded; rejected items come back with 89 and the time that is left."""
    scene = Scene(Action.ASK, {"x": 5, "y": 5, "z": 5}, existing={"z": 3})
    assert scene.link.forwarded == []
    assert scene.desk.of_type("request")[0]["items"] == [
        {"name": "x", "mutations": 5},
        {"name": "y", "mutations": 5},
    ]
    scene.desk.pass_ms(100)
    scene.decide(throttle_time_ms=4_000, rejected=frozenset({"y"}), ts=scene.desk.wall_ms - 100)
    assert scene.asked_for() == ["x", "z"] and scene.link.timers[0].undone
    scene.desk.pass_ms(50)
    scene.broker_says(x=0, z=36)
    assert scene.client_hears() == ({"x": 0, "z": 36, "y": 89}, 3_850, 3_850)
    assert scene.desk.of_type("refund") == []


def test_strict_asks_nobody_about_what_must_fail() -> None:
    """Items that cost nothing go to the broker without a question."""
    scene = Scene(Action.ASK, {"x": 5}, existing={"x": 3})
    assert scene.desk.events == [] and scene.asked_for() == ["x"]
    scene.broker_says(x=36)
    assert scene.client_hears() == ({"x": 36}, 0, 0)


@pytest.mark.parametrize(
    ("on_late", "heard"), [(OnLate.ALLOW, ({"x": 0}, 0, 0)), (OnLate.REJECT, ({"x": 89}, 2_000, 2_000))]
)
def test_strict_without_a_decision(
    on_late: OnLate, heard: tuple[dict[str, int], int, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the time limit the setting says what happens; so it does when nobody can be asked."""
    for pending_max in (10, 1):
        monkeypatch.setattr(bounds, "PENDING_REQUESTS_MAX", pending_max)
        scene = Scene(Action.ASK, {}, on_late_decision=on_late)
        scene.desk.ask({"other": 1})
        scene.request = decode_request(*request(create_request({"x": 5})))
        scene.link.forwarded.clear()
        scene.admission = scene.again(Action.ASK)
        if pending_max > 1:
            scene.link.timers[-1].fire()
        if on_late is OnLate.ALLOW:
            scene.broker_says(x=0)
        assert scene.client_hears() == heard


def test_strict_gives_back_what_a_lost_client_cannot_use() -> None:
    """A connection lost between decision and forwarding: what was charged is refunded."""
    scene = Scene(Action.ASK, {"x": 5})
    scene.link.broken = True
    scene.decide()
    scene.admission.gone()
    (refund,) = scene.desk.of_type("refund")
    assert refund["items"] == [{"name": "x", "mutations": 5}]


def test_permissive_waits_for_both() -> None:
    """Forwarded at once; answered when the broker and the decision are there, in either order."""
    for broker_first in (True, False):
        scene = Scene(Action.ASK, {"x": 5}, version=5)
        assert scene.asked_for() == ["x"]
        steps: list[Callable[[], None]] = [
            lambda made=scene: made.broker_says(x=0),  # type: ignore[misc]  # a default binds the loop's value
            lambda made=scene: made.decide(throttle_time_ms=900),  # type: ignore[misc]  # as above
        ]
        for step in steps if broker_first else reversed(steps):
            assert scene.link.answers == []
            step()
        assert scene.client_hears() == ({"x": 0}, 900, 900)
        message = decode(topics.CreateTopicsResponse, 5, scene.link.answers[0][0]).topics[0].error_message
        assert "user=a" in message and "900 ms" in message


def test_a_permissive_answer_that_cannot_be_read_fails_once() -> None:
    """Its connection ends; the decision that comes meanwhile has nothing to answer."""
    scene = Scene(Action.ASK, {"x": 5}, version=5)
    with pytest.raises(BadFrame):
        scene.link.forwarded[-1][1](b"\0\0\0\7\0")
    scene.decide(throttle_time_ms=900)
    assert scene.link.answers == []


def test_permissive_gives_back_what_the_broker_refused() -> None:
    """All was charged; what failed is refunded, and the client is throttled all the same."""
    scene = Scene(Action.ASK, {"x": 5, "y": 2}, version=5)
    scene.decide(throttle_time_ms=900)
    scene.broker_says(x=0, y=37)
    assert scene.desk.of_type("refund")[0]["items"] == [{"name": "y", "mutations": 2}]
    assert scene.client_hears() == ({"x": 0, "y": 37}, 900, 900)


def test_what_was_done_against_our_expectation_is_charged() -> None:
    """Our view of a topic was stale: it did not fail as expected, so it is charged afterwards."""
    scene = Scene(Action.ASK, {"x": 5}, existing={"x": 3})
    scene.broker_says(x=0)
    (charge,) = scene.desk.of_type("request")
    assert charge["strict"] is False and charge["items"] == [{"name": "x", "mutations": 5}]


def test_passing_waits_for_nothing() -> None:
    """No limit: forwarded and answered without a decision, and reported."""
    scene = Scene(Action.FORWARD, {"x": 5})
    assert scene.asked_for() == ["x"]
    scene.broker_says(x=0)
    assert scene.client_hears() == ({"x": 0}, 0, 0)
    assert len(scene.desk.of_type("request")) == 1


def test_refused_is_answered_without_asking() -> None:
    """The subject must wait: 89 with the time left, no mute; what must fail goes to the broker.

    Its event says so, and it is not remembered.
    """
    scene = Scene(Action.REFUSE, {"x": 5}, wait_ms=700)
    assert scene.client_hears() == ({"x": 89}, 700, 0)
    assert scene.desk.of_type("request")[0]["answered"] == "not_before"
    undecided = scene.desk.coordinator.undecided
    assert (undecided.pending, undecided.late) == ([], 0)
    mixed = Scene(Action.REFUSE, {"x": 5, "y": 5}, wait_ms=700, existing={"y": 1})
    assert mixed.asked_for() == ["y"]
    mixed.desk.pass_ms(100)
    mixed.broker_says(y=36)
    assert mixed.client_hears() == ({"x": 89, "y": 36}, 600, 0)


@pytest.fixture
def small_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events have room for some 300 items of the shortest names, as others have for 30,000."""
    monkeypatch.setattr(events, "EVENT_BYTES_MAX", 10_000)


@pytest.mark.usefixtures("small_events")
def test_what_fits_no_event_is_refused_whole() -> None:
    """Too many items to be charged one by one: nothing is forwarded or asked, all get error 89."""
    names = {f"t{number}": 1 for number in range(400)}
    scene = Scene(Action.ASK, names)
    assert scene.link.forwarded == [] and scene.desk.events == []
    assert scene.client_hears() == (dict.fromkeys(names, 89), 2_000, 2_000)
    counted = scene.desk.metrics.requests.labels("CreateTopics", "too_large")
    assert counted._value.get() == 1


@pytest.mark.usefixtures("small_events")
def test_the_same_of_an_old_version_is_charged_as_one_sum() -> None:
    """It is carried out whatever is said, so what is sent is what it costs in all."""
    scene = Scene(Action.ASK, {f"t{number}": 2 for number in range(400)}, version=5)
    (event,) = scene.desk.of_type("request")
    assert event["items"] == [{"name": "400 items", "mutations": 800}]


def test_an_event_that_kafka_refuses_is_no_late_one() -> None:
    """Its topic takes only smaller records: the strict request is refused, not let through after a while."""
    scene = Scene(Action.ASK, {"x": 5})
    scene.desk.coordinator.refused(scene.admission.request.id)
    scene.desk.coordinator.refused("unknown")
    assert scene.link.forwarded == [] and scene.link.timers[0].undone
    assert scene.client_hears() == ({"x": 89}, 2_000, 2_000)
    scene.admission.gone()


@pytest.mark.usefixtures("small_events")
def test_cut_names_are_decided_by_their_own() -> None:
    """A decision names the items as they were sent; those of the request are rejected, and corrected by."""
    names = {"x" * 240 + f"{number:05}": 5 for number in range(50)}
    scene = Scene(Action.ASK, names)
    sent = [item["name"] for item in scene.desk.of_type("request")[0]["items"]]
    scene.decide(throttle_time_ms=4_000, rejected=frozenset(sent[2:]))
    assert scene.asked_for() == list(names)[:2]
    first, second = list(names)[:2]
    scene.broker_says(**{first: 0, second: 40})
    assert scene.desk.of_type("refund")[0]["items"] == [{"name": second, "mutations": 5}]
    assert list(scene.client_hears()[0].values()).count(89) == 48


def test_a_broker_quicker_than_the_decision_is_believed_too() -> None:
    """An old version's topic fails before the decision is there: what was charged is given back, once."""
    scene = Scene(Action.ASK, {"x": 5}, version=5)
    scene.broker_says(x=40)
    assert scene.desk.of_type("refund") == []
    scene.decide(throttle_time_ms=0)
    (refund,) = scene.desk.of_type("refund")
    assert refund["items"] == [{"name": "x", "mutations": 5}]


@pytest.mark.parametrize("ends", ["decided", "late", "gone", "nothing to ask"])
@pytest.mark.parametrize("version", [7, 5])
def test_a_question_is_open_until_it_is_over(
    version: int, ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However it ends, others of the subject may ask then, once."""
    existing = {"x": 5} if ends == "nothing to ask" else {}
    monkeypatch.setattr(bounds, "OPEN_QUESTIONS_MAX", 1)
    scene = Scene(Action.ASK, {"x": 5}, version=version, existing=existing)
    turns = scene.desk.coordinator.questions
    assert turns.full("user=a") == (ends != "nothing to ask")
    if ends == "decided":
        scene.decide()
    elif ends == "late":
        scene.link.timers[0].fire()
    scene.admission.gone()
    assert not turns.full("user=a")


@pytest.mark.parametrize("dry", [False, True])
def test_refusals_beyond_their_rate_are_not_reported_and_mute(dry: bool) -> None:
    """A burst of 11 topics is reported; then the connection waits too, and nobody is told."""
    scene = Scene(Action.REFUSE, {f"t{number}": 1 for number in range(12)}, wait_ms=60_000, dry=dry)
    (_, throttle_ms, mute_ms) = scene.client_hears()
    assert (throttle_ms, mute_ms) == (60_000, 0)
    scene.again(Action.REFUSE, wait_ms=60_000)
    assert scene.link.answers[1][1] == 100
    assert len(scene.desk.of_type("request")) == 1
    assert scene.desk.metrics.unreported_requests._value.get() == 1


def test_dry_runs_beyond_their_rate_are_refused_without_an_event() -> None:
    """They are told of their rate, and wait for it; no event says so."""
    scene = Scene(Action.ASK, {"x": 5}, dry=True)
    assert scene.admission.quota is not None
    scene.desk.coordinator.dry_runs.charge(scene.admission.quota, 107)
    scene.again(Action.REFUSE, wait_ms=101_000, dry=True)
    assert scene.link.answers[0][1] == 101_000
    assert b"Dry runs of user=a are beyond 1 times" in scene.link.answers[0][0]
    assert len(scene.desk.of_type("request")) == 1
    assert scene.desk.metrics.unreported_requests._value.get() == 1


def test_a_long_line_of_what_is_bound_to_fail() -> None:
    """Nobody asks the broker of names that no topic can have; each has its turn, none within another's."""
    first = Rig()
    first.desk.limit("quotas[user=ANONYMOUS]", controller_mutation_rate=1)
    first.desk.stand_alone()
    line = [Rig(beside=first) for _ in range(200)]
    first.connection.data_received(framed(request(create_request({"x": 5}, 4), None)[0]))
    for rig in line:
        rig.connection.data_received(framed(request(create_request({"no name": 5}, 4), None)[0]))
    first.answer([response(build(MetadataResponse, 4, topics=[{"name": "x", "error_code": 3}]))])
    first.desk.run(100)
    assert [len(rig.upstream.sent) for rig in line] == [1] * len(line)
    assert not any(rig.client.closed for rig in line)


def test_many_topics_are_sent_on_at_once() -> None:
    """Each of those that go on was looked for in a list of them: 20,000 held up all others for seconds."""
    names = {f"t{number}": 3 for number in range(10_000)}
    shell = Scene(Action.ASK, names, existing=names).admission._shell
    begun = process_time()
    shell.carry_out(())
    assert process_time() - begun < 0.1
