"""What is pushed, what is left alone, and what becomes of pushes that fail."""

from collections.abc import Mapping

import pytest
from limits_kit import NOTES, FakePulsar, pusher_of, run

from streaming.collect.pulsar import push
from streaming.collect.pulsar.limits import Kind, LimiterRate, Rates, Slot, body_of
from streaming.collect.pulsar.push import LOOK_AGAIN_MS, PUSH_APART_MS, Pusher, Result
from streaming.collect.pulsar.rest import RestError

NAMESPACE = Slot("a/b", "", "", Kind.PUBLISH)
TOPIC = Slot("a/b", "persistent://a/b/t", "", Kind.PUBLISH)
DISPATCH = TOPIC._replace(kind=Kind.DISPATCH)
OTHER = Slot("c/d", "", "", Kind.PUBLISH)


def step(
    pusher: Pusher, wanted: Mapping[Slot, float], now_ms: int, *, exact: bool = False
) -> dict[Slot, Result]:
    """One round: messages per second of each limiter."""

    async def work() -> dict[Slot, Result]:
        pusher._rest.ask_again()
        await pusher.recognize()
        limits = {slot: LimiterRate(rate, None, exact) for slot, rate in wanted.items()}
        return await pusher.push(pusher.changes(limits, (), now_ms), now_ms)

    return run(work())


@pytest.fixture
def fake() -> FakePulsar:
    """A Pulsar without limits."""
    return FakePulsar()


@pytest.fixture
def pusher(fake: FakePulsar) -> Pusher:
    """A collector that has just started."""
    return pusher_of(fake)


def held(fake: FakePulsar, slot: Slot) -> object:
    """What the fake holds."""
    return fake.set.get(slot.path)


def break_off(fake: FakePulsar, method: str, left: Rates | None, status: int = 500) -> None:
    """Changes of TOPIC by this method are answered by an error from now on; it holds `left` after them."""

    def fail(asked: str, path: str) -> int:
        if (asked, path) != (method, TOPIC.path):
            return 0
        fake.set.pop(path, None)
        if left is not None:
            fake.hold(TOPIC, left)
        return status

    fake.fail = fail


def test_only_real_changes_are_pushed_and_not_too_often(fake: FakePulsar, pusher: Pusher) -> None:
    """5 % more or less is no change, and the next pushes come 10 s later at the earliest, all together."""
    assert step(pusher, {TOPIC: 100}, 0) == {TOPIC: Result.SET}
    assert step(pusher, {TOPIC: 105}, 20_000) == {}
    assert step(pusher, {TOPIC: 110}, 20_000) == {TOPIC: Result.SET}
    assert step(pusher, {TOPIC: 50}, 20_000 + PUSH_APART_MS - 1) == {}
    # Others wait too: its push would refill this one's bucket, and parts of a share change together.
    assert step(pusher, {TOPIC: 110, DISPATCH: 7}, 20_000 + PUSH_APART_MS - 1) == {}
    assert step(pusher, {TOPIC: 50}, 20_000 + PUSH_APART_MS) == {TOPIC: Result.SET}
    assert held(fake, TOPIC) == body_of(Kind.PUBLISH, Rates(50, -1))


def test_policies_are_pushed_as_they_are(pusher: Pusher) -> None:
    """A change of 1 % in a policy is a change."""
    step(pusher, {NAMESPACE: 100}, 0, exact=True)
    assert step(pusher, {NAMESPACE: 101}, PUSH_APART_MS, exact=True) == {NAMESPACE: Result.SET}


def test_topics_come_before_their_namespace_and_leave_after_it(fake: FakePulsar, pusher: Pusher) -> None:
    """In between a topic must not fall back on what is there for newcomers."""
    step(pusher, {NAMESPACE: 5, TOPIC: 100, DISPATCH: 9}, 0)
    assert [path for _, path in fake.changes()][-1] == NAMESPACE.path
    fake.calls.clear()
    assert set(step(pusher, {}, PUSH_APART_MS).values()) == {Result.REMOVED}
    assert fake.changes()[0] == ("DELETE", NAMESPACE.path)
    assert (fake.set, pusher.pushed) == ({}, {})


def test_rounds_have_a_bound(pusher: Pusher, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is beyond it comes with the next ones, and is counted."""
    monkeypatch.setattr(push, "PUSHES_MAX", 2)
    wanted = {Slot("a/b", f"persistent://a/b/t{n}", "", Kind.PUBLISH): 9.0 for n in range(5)}
    assert [len(step(pusher, wanted, ms)) for ms in (0, 1, 2, 3)] == [2, 2, 1, 0]
    assert pusher._metrics.waiting_pushes._value.get() == 0


def test_what_is_gone_with_its_topic_is_set_again(
    fake: FakePulsar, pusher: Pusher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that was deleted and made again was not limited until the collector was started anew."""
    monkeypatch.setattr(push, "LOOKS_MAX", 1)
    wanted = {TOPIC: 100.0, OTHER: 5.0}
    step(pusher, wanted, 0, exact=True)
    fake.set.pop(TOPIC.path)
    fake.absent = (TOPIC.path,)
    found = [step(pusher, wanted, PUSH_APART_MS * n, exact=True) for n in (1, 2, 3)]
    assert {TOPIC: Result.GONE} in found and TOPIC not in pusher.pushed
    fake.absent = ()
    found = [step(pusher, wanted, LOOK_AGAIN_MS + PUSH_APART_MS * n, exact=True) for n in (4, 5, 6)]
    assert found == [{TOPIC: Result.SET}, {}, {}]
    assert held(fake, TOPIC) == body_of(Kind.PUBLISH, Rates(100, -1))


def test_what_somebody_else_set_is_left_alone(fake: FakePulsar, pusher: Pusher) -> None:
    """Until it is gone; it is looked at again after a minute."""
    fake.hold(TOPIC, Rates(7, -1))
    assert step(pusher, {TOPIC: 100}, 0) == {TOPIC: Result.FOREIGN}
    assert step(pusher, {TOPIC: 100}, LOOK_AGAIN_MS - 1) == {}
    assert fake.changes() == []
    fake.set.clear()
    assert step(pusher, {TOPIC: 100}, LOOK_AGAIN_MS) == {TOPIC: Result.SET}
    assert pusher._foreign == {}


def test_what_was_pushed_once_is_not_remembered_for_ever(fake: FakePulsar, pusher: Pusher) -> None:
    """Topics come and go; of a limit of somebody else's that we do not want any more nothing is told."""
    fake.hold(TOPIC, Rates(7, -1))
    assert step(pusher, {TOPIC: 100, OTHER: 5}, 0) == {TOPIC: Result.FOREIGN, OTHER: Result.SET}
    assert step(pusher, {}, PUSH_APART_MS) == {OTHER: Result.REMOVED}
    assert pusher._foreign == {} and pusher._metrics.foreign_limits._value.get() == 0
    step(pusher, {}, 2 * LOOK_AGAIN_MS)
    assert not pusher._last_ms and not pusher._later_ms


def test_what_somebody_else_changed_is_left_alone_from_then_on(fake: FakePulsar, pusher: Pusher) -> None:
    """Our own limit, altered by an operator, is the operator's."""
    step(pusher, {TOPIC: 100}, 0)
    fake.hold(TOPIC, Rates(333, -1))
    assert step(pusher, {TOPIC: 50}, PUSH_APART_MS) == {TOPIC: Result.FOREIGN}
    assert step(pusher, {}, 2 * LOOK_AGAIN_MS) == {}
    assert held(fake, TOPIC) == body_of(Kind.PUBLISH, Rates(333, -1))


def test_override_takes_over(fake: FakePulsar) -> None:
    """Said so, it is ours."""
    fake.hold(TOPIC, Rates(7, -1))
    pusher = pusher_of(fake, override=True)
    assert step(pusher, {TOPIC: 100}, 0) == {TOPIC: Result.SET}
    assert step(pusher, {}, PUSH_APART_MS) == {TOPIC: Result.REMOVED}


def test_a_restarted_collector_knows_its_own(fake: FakePulsar) -> None:
    """By the notes; what was changed meanwhile, or was never ours, is not."""
    first = pusher_of(fake)
    step(first, {TOPIC: 100, NAMESPACE: 5, DISPATCH: 9}, 0)
    fake.hold(DISPATCH, Rates(44, -1))
    fake.hold(OTHER, Rates(55, -1))
    second = pusher_of(fake)
    assert step(second, {TOPIC: 100, NAMESPACE: 5}, 0) == {}
    assert set(second.pushed) == {TOPIC, NAMESPACE}
    assert set(step(second, {}, 1).values()) == {Result.REMOVED}
    assert len(fake.set) == 2


@pytest.mark.parametrize("carried_out", [False, True])
def test_a_push_that_half_succeeded_is_ours_either_way(fake: FakePulsar, carried_out: bool) -> None:
    """The note says both what was and what was to be, for this collector and the next one."""
    step(pusher_of(fake), {TOPIC: 100}, 0)
    pusher = pusher_of(fake)
    break_off(fake, "POST", Rates(50 if carried_out else 100, -1))
    assert step(pusher, {TOPIC: 50}, 0) == {TOPIC: Result.FAILED}
    fake.fail = lambda _method, _path: 0
    for again in (pusher, pusher_of(fake)):
        step(again, {TOPIC: 50}, PUSH_APART_MS)
        assert held(fake, TOPIC) == body_of(Kind.PUBLISH, Rates(50, -1))
        assert again._foreign == {}


@pytest.mark.parametrize(("status", "result"), [(500, Result.FAILED), (403, Result.REFUSED)])
def test_what_became_of_a_push_is_not_forgotten_meanwhile(
    fake: FakePulsar, pusher: Pusher, status: int, result: Result
) -> None:
    """Neither by the notes of others, nor when its policy goes before anybody looked."""
    break_off(fake, "POST", Rates(50, -1), status)
    assert step(pusher, {TOPIC: 50}, 0) == {TOPIC: result}
    pusher._later_ms[TOPIC] = 3 * PUSH_APART_MS
    assert step(pusher, {TOPIC: 50, NAMESPACE: 9}, PUSH_APART_MS) == {NAMESPACE: Result.SET}
    fake.fail = lambda _method, _path: 0
    assert set(pusher_of_known(fake).pushed) == {TOPIC, NAMESPACE}
    assert step(pusher, {NAMESPACE: 9}, 3 * PUSH_APART_MS) == {TOPIC: Result.REMOVED}
    assert held(fake, TOPIC) is None


@pytest.mark.parametrize(
    ("meanwhile", "method", "left"), [({}, "DELETE", None), ({TOPIC: 50.0}, "POST", Rates(50, -1))]
)
def test_what_is_wanted_again_after_a_failure_is_set_again(
    fake: FakePulsar, pusher: Pusher, meanwhile: Mapping[Slot, float], method: str, left: Rates | None
) -> None:
    """What failed may have been carried out: Pulsar holds another limit then, or none."""
    step(pusher, {TOPIC: 100}, 0)
    break_off(fake, method, left)
    assert step(pusher, meanwhile, PUSH_APART_MS) == {TOPIC: Result.FAILED}
    fake.fail = lambda _method, _path: 0
    assert step(pusher, {TOPIC: 100}, 2 * PUSH_APART_MS) == {TOPIC: Result.SET}
    assert held(fake, TOPIC) == body_of(Kind.PUBLISH, Rates(100, -1))


def test_what_is_gone_already_is_ours_no_more(fake: FakePulsar, pusher: Pusher) -> None:
    """By a removal that was answered by an error, or by hand: what somebody sets there later is theirs."""
    step(pusher, {TOPIC: 50}, 0)
    break_off(fake, "DELETE", None)
    assert step(pusher, {}, PUSH_APART_MS) == {TOPIC: Result.FAILED}
    step(pusher, {}, 2 * PUSH_APART_MS)
    assert fake.properties == {}
    fake.hold(TOPIC, Rates(50, -1))
    assert pusher_of_known(fake).pushed == {}
    assert step(pusher, {TOPIC: 9}, 4 * PUSH_APART_MS) == {TOPIC: Result.FOREIGN}


def pusher_of_known(fake: FakePulsar) -> Pusher:
    """One more collector that has read the notes."""
    pusher = pusher_of(fake)
    run(pusher.recognize())
    return pusher


def test_a_limit_that_cannot_be_read_at_the_start_is_looked_at_later(fake: FakePulsar) -> None:
    """One namespace that is closed to us must not keep all others waiting."""
    step(pusher_of(fake), {TOPIC: 100, OTHER: 9}, 0)
    fake.fail = lambda _method, path: 403 if path == TOPIC.path else 0
    pusher = pusher_of_known(fake)
    assert set(pusher.pushed) == {OTHER}
    assert step(pusher, {OTHER: 9}, 0) == {TOPIC: Result.REFUSED}
    fake.fail = lambda _method, _path: 0
    assert step(pusher, {OTHER: 9}, PUSH_APART_MS) == {TOPIC: Result.REMOVED}


def test_without_a_note_nothing_is_pushed(fake: FakePulsar) -> None:
    """Else nobody would know the limit for ours."""
    fake.fail = lambda method, path: 500 if method == "PUT" and path.startswith(NOTES) else 0
    assert step(pusher_of(fake), {TOPIC: 100}, 0) == {TOPIC: Result.FAILED}
    assert fake.set == {}


@pytest.mark.parametrize(
    ("status", "result"),
    [(401, Result.REFUSED), (403, Result.REFUSED), (503, Result.FAILED), (None, Result.FAILED)],
)
def test_failures_are_told_apart(fake: FakePulsar, status: int | None, result: Result) -> None:
    """And tried again when the next push may be."""
    fake.fail = lambda method, _path: status if method == "POST" else 0
    pusher = pusher_of(fake)
    assert step(pusher, {TOPIC: 100}, 0) == {TOPIC: result}
    assert pusher.pushed == {}
    fake.fail = lambda _method, _path: 0
    assert step(pusher, {TOPIC: 100}, PUSH_APART_MS) == {TOPIC: Result.SET}


def test_after_a_failure_the_rest_of_a_namespace_waits(fake: FakePulsar, pusher: Pusher) -> None:
    """Each of hundreds could take as long; all come later."""
    fake.fail = lambda method, _path: 500 if method == "POST" else 0
    wanted = {Slot("a/b", f"persistent://a/b/t{n}", "", Kind.PUBLISH): 9.0 for n in range(5)}
    assert list(step(pusher, wanted, 0).values()) == [Result.FAILED]
    fake.fail = lambda _method, _path: 0
    assert list(step(pusher, wanted, PUSH_APART_MS).values()) == [Result.SET] * 5


def test_a_namespace_that_is_gone_takes_its_limits_with_it(fake: FakePulsar, pusher: Pusher) -> None:
    """It is looked for again after a minute; others are not touched by it."""
    step(pusher, {TOPIC: 100, OTHER: 9}, 0)
    fake.absent = ("/admin/v2/persistent/a/b/", "/admin/v2/namespaces/a/b/")
    assert step(pusher, {TOPIC: 50, OTHER: 5}, PUSH_APART_MS) == {TOPIC: Result.GONE, OTHER: Result.SET}
    assert set(pusher.pushed) == {OTHER}
    # Else there would be one more of each namespace that ever was, and some time no room for another.
    assert len(fake.properties) == 1 and "c/d" in str(fake.properties)
    assert step(pusher, {TOPIC: 50, OTHER: 5}, PUSH_APART_MS + LOOK_AGAIN_MS - 1) == {}
    fake.absent = ()
    fake.set.pop(TOPIC.path)
    assert step(pusher, {TOPIC: 50, OTHER: 5}, PUSH_APART_MS + LOOK_AGAIN_MS) == {TOPIC: Result.SET}


def test_nothing_is_known_of_ours_until_pulsar_tells(fake: FakePulsar) -> None:
    """A start while the admin API is down: the next round asks again."""
    step(pusher_of(fake), {TOPIC: 100}, 0)
    pusher = pusher_of(fake)
    fake.fail = lambda _method, _path: 503
    with pytest.raises(RestError):
        step(pusher, {TOPIC: 100}, 0)
    fake.fail = lambda _method, _path: 0
    assert step(pusher, {TOPIC: 100}, 0) == {}
    assert pusher.pushed == {TOPIC: Rates(100, -1)}


def test_all_of_ours_can_be_taken_away(fake: FakePulsar, pusher: Pusher) -> None:
    """When the collector stops, if said so; the notes go too, so that what is set later is not ours."""
    fake.hold(OTHER, Rates(7, -1))
    step(pusher, {TOPIC: 100, NAMESPACE: 5, OTHER: 9}, 0)
    assert set(run(pusher.push(pusher.all_removals(), 1)).values()) == {Result.REMOVED}
    assert list(fake.set) == [OTHER.path]
    assert fake.properties == {}
