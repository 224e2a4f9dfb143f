"""Clients that try to get more than their limits of dispatch let them."""

from typing import Any

import pytest
from each_kit import each
from pulsar_delivery_kit import NAMESPACE, TOPIC, Entry, ModelLink, World, message, per_subscription, reading

from enforcer.pulsar.delivery.entry import arrived
from enforcer.wire.pulsar import frames
from enforcer.wire.pulsar.commands import ServerError, build, command, parse
from enforcer.wire.pulsar.schema import new_body


class Watched(ModelLink):
    """Notes what goes to the broker."""

    def __init__(self, world: World) -> None:
        self.sent: list[tuple[int, Any]] = []
        super().__init__(world)

    def to_broker(self, frame: bytes) -> None:
        """See the base."""
        self.sent.append((frame[9], parse(frame)))
        if frame[9] == frames.FLOW and parse(frame).consumer_id not in self.permits:
            return
        super().to_broker(frame)


def subscribe(number: int, request: int, topic: str = TOPIC, subscription: str = "s") -> bytes:
    """A SUBSCRIBE."""
    return command(
        frames.SUBSCRIBE, topic=topic, subscription=subscription, consumer_id=number, request_id=request
    )


def refused(link: ModelLink) -> list[tuple[int, int]]:
    """Requests that the proxy itself refused, and with what."""
    return [(body.request_id, body.error) for kind, body in link.other if kind == frames.ERROR]


def test_a_forged_refusal_leaves_no_consumer_behind() -> None:
    """Another request of the same id fails: then the broker closes what the SUBSCRIBE may have made."""
    link = Watched(World(per_subscription(10)))
    link.from_client(subscribe(1, 70))
    link.down(command(frames.ERROR, request_id=70, error=0, message="of another request"))
    link.world.run(5)
    kind, close = link.sent[-1]
    assert kind == frames.CLOSE_CONSUMER and close.consumer_id == 1 and close.request_id >= 2**63
    seen = len(link.other)
    link.down(command(frames.SUCCESS, request_id=close.request_id))
    link.world.run(5)
    # The client did not ask for it.
    assert len(link.other) == seen
    link.from_client(subscribe(1, 71))
    assert link.sent[-1][1].request_id == 71


def test_a_forged_end_of_a_subscription_ends_the_consumer() -> None:
    """The same with UNSUBSCRIBE, which fails while another request of its id succeeds."""
    link = Watched(World(per_subscription(10)))
    link.subscribe(1)
    link.from_client(command(frames.UNSUBSCRIBE, consumer_id=1, request_id=5))
    link.down(command(frames.SUCCESS, request_id=5))
    link.world.run(5)
    assert link.sent[-1][0] == frames.CLOSE_CONSUMER
    # What was on its way comes uncounted: nobody gets it, and the broker sends it again.
    assert link.part.take_down(frames.MESSAGE, message(1, 1)) is None
    # The request is over: its id means nothing any more.
    link.subscribe(1)
    link.down(command(frames.SUCCESS, request_id=5))
    link.world.run(5)
    assert link.sent[-1][0] == frames.FLOW


def test_a_late_refusal_does_not_touch_the_next_consumer() -> None:
    """It was for the one before, which its client has closed meanwhile."""
    link = Watched(World(per_subscription(10)))
    link.from_client(subscribe(1, 1))
    link.from_client(command(frames.CLOSE_CONSUMER, consumer_id=1, request_id=2))
    link.subscribe(1)
    link.down(command(frames.ERROR, request_id=1, error=0, message="closed before"))
    link.publish(1, 100, ms=2_900)
    assert 20 <= len(link.got[1]) <= 30


def test_a_number_that_is_taken_is_not_given_twice() -> None:
    """While the broker closes the first it could take the second, for a topic of another limit."""
    link = Watched(World(per_subscription(10)))
    link.subscribe(1)
    count = len(link.sent)
    link.from_client(subscribe(1, 9, "persistent://free/free/t"))
    assert len(link.sent) == count
    assert refused(link) == [(9, ServerError.SERVICE_NOT_READY)]
    link.down(command(frames.CLOSE_CONSUMER, consumer_id=1, request_id=2**64 - 1))
    link.world.run(5)
    link.from_client(subscribe(1, 10))
    assert link.sent[-1][1].request_id == 10


@pytest.mark.parametrize(
    ("topic", "subscription"),
    [("persistent:///acme/orders/t1", "s"), ("a/b", "s"), (TOPIC + "x" * 5_000, "s"), (TOPIC, "s" * 5_000)],
)
def test_names_that_only_the_broker_understands_do_not_reach_it(topic: str, subscription: str) -> None:
    """Nothing would limit such a consumer."""
    link = Watched(World(per_subscription(10)))
    link.from_client(subscribe(1, 9, topic, subscription))
    assert not link.sent and refused(link) == [(9, ServerError.INVALID_TOPIC_NAME)]


@each(
    "local",
    [
        "x" * 2_000, "a\x01b", "__transaction_log_x", "__transaction_buffer_snapshot_of_mine",
        "transaction_coordinator_assign", "x__transaction_pending_ack",
    ],
)
def test_names_of_their_own_kind_are_limited_as_all_others(local: str) -> None:
    """Names that no policy can have, and names that only look like those of Pulsar's own topics."""
    _, link = reading(per_subscription(10), topic=f"persistent://acme/orders/{local}")
    link.publish(1, 100, ms=2_900)
    assert 20 <= len(link.got[1]) <= 30


@pytest.mark.parametrize("name", [TOPIC, TOPIC.replace("p", "P", 1), "acme/orders/t1"])
def test_a_rate_holds_however_the_topic_is_written(name: str) -> None:
    """Brokers take all of these for one topic."""
    _, link = reading(per_subscription(10), topic=name)
    link.publish(1, 100, ms=5_000)
    assert 50 <= len(link.got[1]) <= 51


def test_a_name_of_the_old_form_counts_for_its_tenant() -> None:
    """No rate can be for it, which is counted."""
    world = World(
        {
            "resourcegroups.rg1": {"dispatchRateInMsgs": 10},
            "tenants.acme": {"resourcegroup": "rg1"},
            **per_subscription(1),
        }
    )
    account = world.meter.of_group("rg1")
    assert account is not None
    account.set_part(1.0, 0.0)
    link = ModelLink(world)
    link.subscribe(1, topic="persistent://acme/use/orders/t1")
    assert world.count("exempt_total", why="name") == 1
    link.publish(1, 100, ms=5_000)
    assert 50 <= account.used[2] == len(link.got[1]) <= 61
    assert world.events == []


def test_nothing_comes_uncounted_behind_a_close() -> None:
    """Whoever closes and reads on gets no message for nothing; the broker sends it again."""
    world, link = reading(per_subscription(10))
    link.close_consumer(1)
    assert link.part.take_down(frames.MESSAGE, message(1, 1)) is None
    link.part.check(world.now_ms)
    assert frames.MESSAGE in link.part.down
    # Nor later, where what came was not read all that time.
    link.stalled = True
    link.seconds_pass(7)
    link.stalled = False
    assert link.part.take_down(frames.MESSAGE, message(1, 1)) is None
    world.run(6_000)
    link.part.check(world.now_ms)
    assert frames.MESSAGE not in link.part.down
    link.subscribe(1)
    link.publish(1, 1, ms=200)
    assert len(link.got[1]) == 1


def test_requests_without_answers_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are kept until the broker answers, which a client can keep from being read."""
    monkeypatch.setattr("enforcer.pulsar.delivery.part.CONSUMERS_MAX", 3)
    world, link = reading(per_subscription(10))
    for request in range(4):
        assert not link.ended
        link.from_client(command(frames.UNSUBSCRIBE, consumer_id=1, request_id=request))
    assert link.ended == ["too_many_consumers"]
    link = ModelLink(world)
    for request in range(3):
        link.from_client(subscribe(1, request))
        link.from_client(command(frames.CLOSE_CONSUMER, consumer_id=1, request_id=9))
        assert not link.ended
    link.from_client(subscribe(1, 4))
    assert link.ended == ["too_many_consumers"]


@pytest.mark.parametrize("answer", [frames.SUCCESS, frames.ERROR])
def test_consumers_that_are_over_have_a_bound(monkeypatch: pytest.MonkeyPatch, answer: int) -> None:
    """Closed a moment ago; or refused, by the proxy too, while our own closes of them are not answered."""
    monkeypatch.setattr("enforcer.pulsar.delivery.part.CONSUMERS_MAX", 3)
    link = ModelLink(World(per_subscription(10) if answer == frames.SUCCESS else None))
    for number in range(3):
        link.from_client(subscribe(number, number))
        link.from_broker(command(answer, request_id=number))
        link.from_client(command(frames.CLOSE_CONSUMER, consumer_id=number, request_id=9))
        assert not link.ended
    link.from_client(subscribe(4, 4))
    assert link.ended == ["too_many_consumers"]


def test_requests_that_are_never_answered_do_not_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as SUBSCRIBEs for topics that wait for a quota, which their client then closes."""
    monkeypatch.setattr("enforcer.pulsar.delivery.part.CONSUMERS_MAX", 3)
    world = World(per_subscription(10))
    link = ModelLink(world)
    for request in range(0, 100, 2):
        link.from_client(subscribe(1, request))
        link.from_client(command(frames.UNSUBSCRIBE, consumer_id=1, request_id=request + 1))
        link.from_client(command(frames.CLOSE_CONSUMER, consumer_id=1, request_id=1_000))
        link.part.check(world.now_ms)
    assert not link.ended and not link.part._beginning and not link.part._ending


def test_names_count_as_what_the_connection_holds() -> None:
    """A hundred thousand of them are not little."""
    link = ModelLink(World())
    link.from_client(subscribe(1, 1, TOPIC + "x" * 3_000, "s" * 3_000))
    assert link.part.held_bytes > 6_000
    link.from_client(command(frames.CLOSE_CONSUMER, consumer_id=1, request_id=9))
    assert link.part.held_bytes == 0


def test_a_batch_that_lies_puts_nobody_into_debt_for_ever() -> None:
    """It takes the permits that it claims, as at the broker, and counts for what its bytes can hold."""
    frame = message(1, 1, size=0, num_messages_in_batch=2**31 - 1)
    came = arrived(frame, parse(frame))
    assert came.permits == 2**31 - 1 and came.msgs == 1
    world = World({NAMESPACE: {"dispatchRate": per_subscription(10)[NAMESPACE]["subscriptionDispatchRate"]}})
    link, other = ModelLink(world), ModelLink(world)
    for one in (link, other):
        one.subscribe(1)
    assert link.part.take_down(frames.MESSAGE, frame) is frame
    other.publish(1, 50, ms=1_990)
    assert len(other.got[1]) >= 18


def test_a_young_message_lets_nothing_go_that_is_held_before_it() -> None:
    """With the broker's flag off, too: what was on its way as the limit began is a backlog."""
    flag = {"broker": {"dispatchThrottlingOnNonBacklogConsumerEnabled": False}}
    world, link = reading(queue=1_000)
    world.run(50)
    world.put({**per_subscription(10), **flag}, ms=50)
    link.publish(1, 300, ms=1_000)
    link.unacked[1].append(Entry(300, 1, 100))
    link.down(message(1, 300, published=world.brokers_ms()))
    world.run(5_000)
    assert 50 <= len(link.got[1]) <= 75


def test_a_request_for_very_many_messages_again_is_not_read() -> None:
    """It keeps what is held, as each that names messages does; reading it would hold up all others."""
    link = ModelLink(World(per_subscription(10)))
    link.subscribe(1)
    body = new_body(frames.REDELIVER, consumer_id=1)
    for _ in range(3_000):
        body.message_ids.add()
    large = build(frames.REDELIVER, body)
    assert link.part.take_up(frames.REDELIVER, large) is large
