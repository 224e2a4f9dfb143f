"""Requests that can be refused: what is decided, told, charged and given back."""

import asyncio

import pytest
from mutation_kit import Bureau, asked, decision


@pytest.fixture
def bureau() -> Bureau:
    """A lone proxy decides."""
    return Bureau()


async def test_no_quota_passes_and_is_reported(bureau: Bureau) -> None:
    """Nobody waits; what the cluster did not do is corrected when the job has decided it."""
    bureau.desk.limit()
    answer = await bureau.answer({"a": 5})
    assert (answer.allowed, answer.outcome, answer.quota) == (True, "unlimited", None)
    (event,) = bureau.desk.of_type("request")
    assert event["subject"] == "" and "decided" not in event
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
