"""Requests that can be refused: what is decided, told, charged and given back; who waits, and how long."""

import asyncio

import pytest
from mutation_kit import Bureau, asked, decision

from enforcer.core import bounds


@pytest.fixture
def bureau() -> Bureau:
    """A lone proxy decides."""
    return Bureau()


async def test_no_quota_passes_and_is_reported(bureau: Bureau) -> None:
    """At its user's home; nobody waits; what the cluster did not do is corrected once the job decides."""
    bureau.desk.limit()
    answer = await bureau.answer({"a": 5})
    assert (answer.allowed, answer.outcome, answer.quota) == (True, "unlimited", None)
    ((key, event),) = bureau.desk.events
    assert (event["type"], key, event["subject"]) == ("request", "user=a", "") and "decided" not in event
    bureau.mutations.settle(answer, {})
    await bureau.mutations.acknowledged(answer)
    assert bureau.outcomes() == {"unlimited": 1}


async def test_a_shadow_quota_is_decided_and_not_acted_on(bureau: Bureau) -> None:
    """Whatever the balance is."""
    bureau.desk.limit(controller_mutation_rate=1, shadow=True)
    answers = [await bureau.answer({"a": 50}, wait_ms=1_000) for _ in range(3)]
    assert [answer.outcome for answer in answers] == ["shadow"] * 3
    assert len(bureau.desk.of_type("request")) == 3


async def test_it_is_decided_at_once_and_its_event_goes_beside_it(bureau: Bureau) -> None:
    """The answer to the client waits for the event's acknowledgement; the decision does not."""
    bureau.desk.acknowledges = False
    answer = await bureau.answer({"a": 5})
    assert (answer.allowed, answer.outcome, answer.tokens) == (True, "allow", 6.0)
    (event,) = bureau.desk.of_type("request")
    assert event["decided"]["outcome"] == "allow" and event["strict"] is True
    waiting = asyncio.create_task(bureau.mutations.acknowledged(answer))
    await bureau.pass_ms(50)
    assert not waiting.done()
    bureau.desk.acknowledge()
    await waiting
    assert bureau.desk.metrics.unacknowledged._value.get() == 0


async def test_the_wait_for_the_acknowledgement_has_a_bound(bureau: Bureau) -> None:
    """After EVENT_ACK_MS it is counted."""
    bureau.desk.acknowledges = False
    answer = await bureau.answer({"a": 5})
    waiting = asyncio.create_task(bureau.mutations.acknowledged(answer))
    await bureau.pass_ms(0)
    await bureau.pass_ms(100)
    assert waiting.done() and bureau.desk.metrics.unacknowledged._value.get() == 1


async def test_beyond_the_quota_it_is_refused_with_the_time_and_the_quota(bureau: Bureau) -> None:
    """By the law's own steps, and by the not-before time from then on; each is reported."""
    assert (await bureau.answer({"a": 30})).allowed
    refused = await bureau.answer({"b": 1})
    assert (refused.allowed, refused.outcome, refused.retry_ms, refused.tokens) == (
        False, "reject", 19_000, -19.0,
    )  # fmt: skip
    assert "user=a" in refused.message and "19000 ms" in refused.message
    assert bureau.desk.of_type("request")[1]["decided"]["rejected"] == ["b"]
    await bureau.pass_ms(19_000)
    assert (await bureau.answer({"b": 1})).allowed
    assert bureau.outcomes() == {"allow": 2, "reject": 1}


async def test_what_the_cluster_did_not_do_is_given_back(bureau: Bureau) -> None:
    """The refund is an event, and whoever was told to wait may come at once."""
    answer = await bureau.answer({"a": 30})
    assert not (await bureau.answer({"b": 1})).allowed
    bureau.mutations.settle(answer, {"a": 0})
    (refund,) = bureau.desk.of_type("refund")
    assert refund["items"] == [{"name": "a", "mutations": 30}]
    assert (await bureau.answer({"b": 1})).tokens == 10.0


async def test_what_the_cluster_did_beyond_is_charged(bureau: Bureau) -> None:
    """A topic that had grown meanwhile; and one of which nothing was known."""
    bureau.mutations.settle(await bureau.answer({"a": 1}), {"a": 6})
    bureau.mutations.charge(asked({}), {"b": 7})
    assert [event["strict"] for event in bureau.desk.of_type("request")] == [True, False, False]
    assert (await bureau.answer({"c": 1})).retry_ms == 2_000


async def test_of_several_items_all_are_carried_out_or_none(bureau: Bureau) -> None:
    """What was charged of a request that is refused is given back."""
    refused = await bureau.answer({"a": 12, "b": 1})
    assert not refused.allowed
    (refund,) = bureau.desk.of_type("refund")
    assert refund["items"] == [{"name": "a", "mutations": 12}]
    bureau.mutations.settle(refused, {"a": 12})
    assert len(bureau.desk.events) == 2


async def test_no_items_cost_nothing(bureau: Bureau) -> None:
    """What is wrong with it is its cluster's to say."""
    assert (await bureau.answer({})).outcome == "free"
    assert bureau.desk.events == []


@pytest.mark.parametrize("rejected", [False, True])
async def test_strict_waits_for_its_decision(rejected: bool) -> None:
    """The job decides; the time starts when the question was sent."""
    bureau = Bureau(local=False)
    task = await bureau.begin({"a": 5})
    (event,) = bureau.desk.of_type("request")
    assert event["deadline_ms"] == 2_000 and not task.done()
    names, wait_ms = (frozenset({"a"}), 7_000) if rejected else (frozenset(), 0)
    made = decision(id=event["id"], rejected=names, throttle_time_ms=wait_ms, tokens=-7.0)
    bureau.desk.coordinator.take([made])
    answer = await task
    assert (answer.allowed, answer.retry_ms, answer.tokens) == (not rejected, wait_ms, -7.0)
    assert not bureau.desk.coordinator.questions.busy("user=a")


@pytest.mark.parametrize("on_late", ["allow", "reject"])
async def test_a_late_decision_goes_by_the_setting(on_late: str) -> None:
    """With allow it is charged when decided, with reject it never is."""
    bureau = Bureau(local=False, on_late_decision=on_late)
    task = await bureau.begin({"a": 5})
    await bureau.pass_ms(2_000)
    answer = task.result()
    assert answer.outcome == f"late_{on_late}" and answer.allowed is (on_late == "allow")
    bureau.mutations.settle(answer, {"a": 0})
    ask = bureau.desk.of_type("request")[0]["id"]
    bureau.desk.coordinator.take([decision(id=ask, late=True)])
    refunds = bureau.desk.of_type("refund")
    assert len(refunds) == (on_late == "allow")


@pytest.mark.parametrize("moment", ["question", "acknowledgement", "line"])
async def test_who_leaves_is_not_charged(moment: str) -> None:
    """A client that is gone while its request waits for anything."""
    bureau = Bureau(local=moment != "question")
    if moment == "question":
        task = await bureau.begin({"a": 5})
    else:
        await bureau.answer({"a": 30})
        bureau.desk.acknowledges = False
        task = await bureau.begin({"b": 3}, wait_ms=60_000 if moment == "line" else 0)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert bureau.mutations.waiting == 0 and not bureau.desk.coordinator.questions.busy("user=a")
    if moment == "question":
        bureau.desk.coordinator.take([decision(id=bureau.desk.of_type("request")[0]["id"])])
        (refund,) = bureau.desk.of_type("refund")
        assert refund["items"] == [{"name": "a", "mutations": 5}]
    else:
        assert bureau.desk.of_type("refund") == []


async def test_a_short_wait_is_waited(bureau: Bureau) -> None:
    """Until the subject need not wait any more; then it is decided once."""
    await bureau.answer({"a": 14})
    task = await bureau.begin({"b": 1}, wait_ms=5_000)
    await bureau.pass_ms(2_999)
    assert not task.done()
    await bureau.pass_ms(1)
    assert task.result().allowed
    assert bureau.outcomes() == {"allow": 2}


async def test_a_long_wait_is_refused_at_once(bureau: Bureau) -> None:
    """Waiting first would help nobody."""
    await bureau.answer({"a": 30})
    answer = await bureau.answer({"b": 1}, wait_ms=5_000)
    assert (answer.outcome, answer.retry_ms) == ("reject", 19_000)


async def test_those_who_wait_go_one_after_the_other(bureau: Bureau) -> None:
    """First come, first served; who cannot have its turn in time is refused then."""
    await bureau.answer({"a": 14})
    first = await bureau.begin({"b": 4}, wait_ms=10_000)
    second = await bureau.begin({"c": 8}, wait_ms=10_000)
    third = await bureau.begin({"d": 1}, wait_ms=10_000)
    assert bureau.mutations.waiting == 3
    await bureau.pass_ms(3_000)
    assert first.result().allowed and not second.done()
    await bureau.pass_ms(4_000)
    # The third would have to wait 8 s more: it is told at once.
    assert second.result().allowed
    assert (third.result().outcome, third.result().retry_ms) == ("reject", 8_000)
    assert bureau.mutations.waiting == 0


@pytest.mark.parametrize("refunded", [True, False])
async def test_a_refund_ends_the_wait_and_so_does_the_end_of_a_quota(bureau: Bureau, refunded: bool) -> None:
    """Whoever waits goes on when its subject need not wait any more; what comes into force is asked anew."""
    answer = await bureau.answer({"a": 14})
    task = await bureau.begin({"b": 1}, wait_ms=5_000)
    if refunded:
        bureau.mutations.settle(answer, {})
    else:
        bureau.desk.limit()
    await bureau.pass_ms(0)
    assert task.result().outcome == ("allow" if refunded else "unlimited")


async def test_a_line_too_long_to_be_served_in_time_is_not_joined(bureau: Bureau) -> None:
    """Each before it takes one mutation at least; who cannot have its turn is refused at once."""
    assert (await bureau.answer({"a": 14})).allowed
    waiting = [await bureau.begin({f"b{number}": 1}, wait_ms=5_000) for number in range(6)]
    assert not any(task.done() for task in waiting)
    assert (await bureau.answer({"c": 1}, wait_ms=5_000)).outcome == "reject"
    assert bureau.mutations.waiting == 6
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_the_line_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond it a request is refused as if it did not want to wait."""
    monkeypatch.setattr(bounds, "OPEN_QUESTIONS_MAX", 2)
    bureau = Bureau()
    await bureau.answer({"a": 14})
    waiting = [await bureau.begin({f"b{number}": 1}, wait_ms=60_000) for number in range(2)]
    assert (await bureau.answer({"c": 1}, wait_ms=60_000)).outcome == "reject"
    await bureau.pass_ms(3_000)
    await bureau.pass_ms(1_000)
    assert all(task.done() for task in waiting)


async def test_questions_of_one_subject_line_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many may be open at a time; the next is asked when one is answered, and late after the limit."""
    monkeypatch.setattr(bounds, "OPEN_QUESTIONS_MAX", 1)
    bureau = Bureau(local=False)
    first, second = await bureau.begin({"a": 1}), await bureau.begin({"b": 1})
    third = await bureau.begin({"c": 1})
    assert len(bureau.desk.events) == 1
    await bureau.pass_ms(1_000)
    bureau.desk.coordinator.take([decision(id=bureau.desk.of_type("request")[0]["id"])])
    await bureau.pass_ms(0)
    assert first.result().allowed and len(bureau.desk.events) == 2 and not second.done()
    await bureau.pass_ms(1_000)
    assert third.result().outcome == "late_allow"
    # What goes on is told all the same, and charged whatever the job says of it.
    event = bureau.desk.events[2][1]
    assert event["items"] == [{"name": "c", "mutations": 1}] and "deadline_ms" not in event
    bureau.mutations.settle(third.result(), {"c": 1})
    bureau.desk.coordinator.take([decision(id=event["id"], rejected=frozenset({"c"}))])
    assert bureau.desk.of_type("request")[3]["id"] == f"{event['id']}-late"
    await bureau.pass_ms(1_000)
    assert second.result().outcome == "late_allow"


async def test_who_lines_up_for_a_question_keeps_his_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """First come, first served, though more are woken for one than may ask."""
    monkeypatch.setattr(bounds, "OPEN_QUESTIONS_MAX", 1)
    bureau = Bureau(local=False)
    tasks = [await bureau.begin({f"t{number}": 1}) for number in range(12)]
    for number in range(12):
        event = bureau.desk.events[-1][1]
        assert event["items"][0]["name"] == f"t{number}"
        bureau.desk.coordinator.take([decision(id=event["id"])])
        await bureau.pass_ms(0)
    assert all(task.result().allowed for task in tasks)


@pytest.mark.parametrize("shadow", [False, True])
async def test_dry_runs_have_a_rate_of_their_own(shadow: bool) -> None:
    """They are charged nothing, and beyond their rate refused, or not reported."""
    bureau = Bureau(dry_run_factor=1)
    bureau.desk.limit(controller_mutation_rate=1, shadow=shadow)
    answers = [await bureau.answer({"a": 12}, wait_ms=1_000, dry=True) for _ in range(2)]
    assert [answer.outcome for answer in answers] == (
        ["shadow", "shadow"] if shadow else ["allow", "dry_run"]
    )
    assert len(bureau.desk.events) == 1
    bureau.mutations.settle(answers[0], {})
    assert bureau.desk.of_type("refund") == []
    if not shadow:
        assert answers[1].retry_ms == 1_000 and "Dry runs" in answers[1].message


async def test_a_dry_run_under_no_quota_is_not_reported(bureau: Bureau) -> None:
    """Nobody need know."""
    bureau.desk.limit()
    answer = await bureau.answer({"a": 12}, dry=True)
    assert answer.allowed and bureau.desk.events == []
