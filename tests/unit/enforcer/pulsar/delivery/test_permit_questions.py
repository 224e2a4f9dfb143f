"""Brokers that count a consumer's permits otherwise than the proxy, and what asking them costs."""

import pytest
from each_kit import each
from hypothesis import given
from hypothesis import strategies as st
from property_kit import tries
from pulsar_delivery_kit import NAMESPACE, ModelLink, World, per_subscription, reading

from enforcer.wire.pulsar.commands import command
from enforcer.wire.pulsar.frames import CONSUMER_STATS_RESPONSE

RATE, QUEUE = 100, 1_000
GROUP = {"resourcegroups.rg1": {"dispatchRateInMsgs": 10}, NAMESPACE: {"resourcegroup": "rg1"}}
SHADOW = {"resourcegroups.rg1": {"dispatchRateInMsgs": 10, "shadow": True}}


@each("lost", [1, 2, 30, 400])
@each("batch", [1, 7])
def test_a_permit_that_a_broker_loses_holds_nobody_up(lost: int, batch: int) -> None:
    """Some take permits for entries that they then do not send; nothing else would ever show it."""
    world, link = reading(per_subscription(RATE), queue=QUEUE)
    link.publish(1, 2_000, batch)
    link.seconds_pass(2)
    link.permits[1] -= lost
    link.seconds_pass(5)
    came = sum(msgs for _, _, msgs in link.got[1])
    link.seconds_pass(5)
    assert sum(msgs for _, _, msgs in link.got[1]) - came >= 5 * RATE - batch
    assert world.count("permit_questions_total", result="corrected") == 1
    assert link.forwarded[1] + world.desk.banked == link.given[1]


@tries(120)
@given(st.lists(st.tuples(st.integers(1, 3_000), st.integers(-40, 40)), max_size=12), st.sampled_from([1, 7]))
def test_whatever_a_broker_counts_who_has_permits_left_is_served(
    steps: list[tuple[int, int]], batch: int
) -> None:
    """However often it is off, by what, and when: within seconds all goes on, and the rate holds."""
    world, link = reading(per_subscription(RATE), queue=QUEUE)
    link.publish(1, 6_000, batch)
    for wait_ms, more in steps:
        world.run(wait_ms)
        link.part.check(world.now_ms)
        link.permits[1] += more
        link.publish(1, 0)
    link.seconds_pass(10)
    came = sum(msgs for _, _, msgs in link.got[1])
    link.seconds_pass(5)
    came = sum(msgs for _, _, msgs in link.got[1]) - came
    assert 0.97 * 5 * RATE - batch <= came <= 1.01 * 5 * RATE + batch
    assert link.forwarded[1] + world.desk.banked == link.given[1]


def test_who_has_read_all_is_asked_for_ever_more_rarely() -> None:
    """And gets what comes then at once."""
    world, link = reading(per_subscription(RATE), queue=QUEUE)
    link.seconds_pass(60)
    first = link.stats_asked
    link.seconds_pass(3_600)
    assert 3 <= first <= 6 and link.stats_asked - first <= 120
    assert world.count("permit_questions_total", result="same") == link.stats_asked
    link.permits[1] -= 1
    link.publish(1, 50)
    link.seconds_pass(31)
    assert len(link.got[1]) == 50


def test_nobody_is_asked_for_without_a_limit_or_without_permits() -> None:
    """A shadow limits nothing, and a client that gives no permits waits for nothing."""
    world, link = reading({**GROUP, **SHADOW}, queue=QUEUE)
    link.seconds_pass(60)
    world.put(per_subscription(RATE))
    link.subscribe(2, "other", queue=1)
    link.seconds_pass(60)
    assert link.stats_asked == 0


def test_an_answer_behind_what_is_held_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit begins with so much on its way that the broker is not read: what it said is read later.

    Given up, the consumer's permits would pass as they come, and its connection be held up ever again.
    """
    monkeypatch.setattr("enforcer.pulsar.delivery.part.HELD_MESSAGE_BYTES", 20_000)
    world, link = reading(queue=QUEUE)
    world.run(20)
    link.publish(1, 5_000)
    world.put(per_subscription(10))
    link.part.look()
    link.seconds_pass(20)
    assert link.stalled and not world.count("permit_questions_total", result="unknown")
    link.seconds_pass(130)
    assert world.count("permit_questions_total", result="known") == 1
    full = world.count("full_total")
    link.seconds_pass(60)
    assert not link.part.held and world.count("full_total") == full


def test_a_broker_that_does_not_answer_is_believed_to_count_as_we_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its consumers are limited as before, and no question is kept."""
    monkeypatch.setattr("enforcer.pulsar.delivery.permit_questions.PERMIT_ANSWER_MS", 1_000)
    world, link = reading(per_subscription(RATE), answers_stats=False, queue=QUEUE)
    link.seconds_pass(100)
    assert world.count("permit_questions_total", result="unknown") >= 4
    assert not link.part._asking._open and not link.part._consumers[1].loose
    link.publish(1, 1_000)
    link.seconds_pass(5)
    assert RATE * 5 <= len(link.got[1]) <= RATE * 5 * 1.01 + 1


def test_an_answer_that_comes_after_the_limit_has_ended_is_nobodys() -> None:
    """No client has asked, and none knows what to do with it; afterwards nothing is looked at any more."""
    world, link = reading(queue=QUEUE)
    world.run(20)
    link.answers_stats = False
    world.put(GROUP, ms=50)
    world.put({"resourcegroups.rg1": None, NAMESPACE: None}, ms=50)
    assert link.stats_asked == 1
    number = link.part._asking._next - 1
    link.from_broker(command(CONSUMER_STATS_RESPONSE, request_id=number, availablePermits=QUEUE))
    assert [kind for kind, _ in link.other if kind == CONSUMER_STATS_RESPONSE] == []
    link.seconds_pass(1)
    assert CONSUMER_STATS_RESPONSE not in link.part.down


def test_a_consumer_that_its_broker_blocks_is_given_nothing_more() -> None:
    """With too much unacknowledged its new permits are kept aside, and not in the number that it says."""
    world, link = reading(per_subscription(RATE), blocks=True, queue=QUEUE)
    world.run(10)
    link.permits[1] -= 1
    link.seconds_pass(300)
    assert link.forwarded[1] == 1 and world.count("permit_questions_total", result="same") > 5


def test_thousands_are_not_asked_for_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one look of a second no more than are so far apart; in the end all are."""
    monkeypatch.setattr("enforcer.pulsar.delivery.permit_questions._APART_MS", 10.0)
    world = World(per_subscription(RATE))
    link = ModelLink(world)
    for number in range(500):
        link.subscribe(number, f"s{number}", queue=2)
    most = 0
    for _ in range(12):
        before = link.stats_asked
        link.seconds_pass(1)
        most = max(most, link.stats_asked - before)
    assert most <= 101 and link.stats_asked >= 500
    # Nothing is kept of whom nothing limits, or who is gone.
    link.close_consumer(1)
    assert len(link.part._asking._quiet) == 499
    world.put({NAMESPACE: None}, ms=30)
    assert not link.part._asking._quiet


@pytest.mark.parametrize("shadow", [True, False])
def test_permits_that_pass_while_it_is_asked_are_not_forgotten(shadow: bool) -> None:
    """A limit that is shadow for a moment lets FLOW pass: an answer older than that would be too low."""
    world, link = reading(queue=QUEUE)
    world.run(20)
    world.put(GROUP, ms=50)
    (consumer,) = link.part._consumers.values()
    assert link.stats_asked == 1 and not consumer.known
    if shadow:
        world.put(SHADOW)
    for _ in range(100):
        world.run(1)
        if link.stats_asked == 2:
            break
    # The second answer, the same as the first one, is on its way now.
    if shadow:
        link.flow(1, 300)
    else:
        # As who has no backlog is given all.
        consumer.permits.passed(300)
        link.permits[1] += 300
    world.run(200)
    world.put({"resourcegroups.rg1": GROUP["resourcegroups.rg1"]}, ms=500)
    assert consumer.known and consumer.permits.balance == link.permits[1] == QUEUE + 300
