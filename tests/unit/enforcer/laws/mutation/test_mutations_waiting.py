"""Requests that can be refused: who waits, in which order, how long, and who leaves meanwhile."""

import asyncio

import pytest
from mutation_kit import Bureau, decision

from enforcer.core import bounds


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


@pytest.fixture
def bureau() -> Bureau:
    """A lone proxy decides."""
    return Bureau()


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


async def test_a_refund_ends_the_wait(bureau: Bureau) -> None:
    """Whoever waits goes on when its subject need not wait any more."""
    answer = await bureau.answer({"a": 14})
    task = await bureau.begin({"b": 1}, wait_ms=5_000)
    bureau.mutations.settle(answer, {})
    await bureau.pass_ms(0)
    assert task.result().allowed


async def test_a_quota_that_is_taken_away_ends_the_wait(bureau: Bureau) -> None:
    """What comes into force is asked for anew."""
    await bureau.answer({"a": 14})
    task = await bureau.begin({"b": 1}, wait_ms=5_000)
    bureau.desk.limit()
    await bureau.pass_ms(0)
    assert task.result().outcome == "unlimited"


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
