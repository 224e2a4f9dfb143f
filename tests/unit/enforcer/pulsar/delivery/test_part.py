"""Deliveries under limits, from the first FLOW to the last message, against a model of broker and client."""

import pytest
from pulsar_delivery_kit import NAMESPACE, TOPIC, Entry, ModelLink, World, message, per_subscription, reading

from enforcer.wire.pulsar import frames
from enforcer.wire.pulsar.commands import command
from enforcer.wire.pulsar.frames import BadFrame

QUICK = ((0.0, True), (300.0, False))
THOROUGH = ((0.0, False), (300.0, True), (990.0, True), (990.0, False))


def seconds(link: ModelLink, *numbers: int, first_ms: float | None = None) -> list[int]:
    """Messages in each second from the first one on, of some consumers together."""
    got = sorted(each for number in numbers for each in link.got[number])
    begin = got[0][0] if first_ms is None else first_ms
    found = [0] * (int((got[-1][0] - begin) // 1000) + 1)
    for at, _, msgs in got:
        if at >= begin:
            found[int((at - begin) // 1000)] += msgs
    return found


@pytest.mark.parametrize(
    ("start_ms", "batched"), [*QUICK, *(pytest.param(*one, marks=pytest.mark.soak) for one in THOROUGH)]
)
@pytest.mark.parametrize(("rate", "batch"), [(10, 1), (10, 6), (10, 30), (100, 6), (100, 30), (1_000, 7)])
def test_a_rate_holds_in_each_second_up_to_one_entry(
    rate: int, batch: int, batched: bool, start_ms: float
) -> None:
    """From the first message on, wherever in a period that is, and in both ways that brokers read."""
    world, link = reading(per_subscription(rate), start_ms=start_ms, batched=batched, queue=1_000)
    link.publish(1, 30 * rate // batch + 200, batch, ms=20_500)
    found = seconds(link, 1)[:20]
    # A hundredth of the rate may go at once.
    assert max(found) < rate * 1.01 + batch
    assert rate * 20 - batch <= sum(found) < rate * 20 + batch
    assert world.count("holds_total") == 0


def test_bytes_are_charged_as_brokers_count_them() -> None:
    """Everything behind the command, and one entry at most beyond the rate."""
    size = len(message(1, 0)) - len(command(frames.FLOW))
    world, link = reading(per_subscription(size=10_000))
    link.publish(1, 5_000, ms=10_000)
    total = sum(event["bytes"] for event in world.events)
    assert 10 * 10_000 - size <= total < 10 * 10_000 + 2 * size
    assert all(event["entries"] == event["msgs"] for event in world.events)


def test_a_limit_that_begins_while_it_reads_holds_what_is_on_its_way() -> None:
    """The broker has a thousand permits then: what they bring is held, and its balance is asked for."""
    world, link = reading(queue=1_000)
    link.publish(1, 30, 30, ms=50)
    assert len(link.got[1]) == 30
    world.put(per_subscription(100))
    # A policy is followed within 25 ms.
    world.run(30)
    link.publish(1, 400, 30)
    began = world.now_ms
    world.run(5_000)
    assert world.count("permit_questions_total", result="known") == 1
    assert link.part.held > 0
    assert seconds(link, 1, first_ms=began)[:5] == [120, 90, 90, 120, 90]
    world.put({NAMESPACE: None}, ms=2_000)
    assert link.part.held == 0
    assert [number for _, number, _ in link.got[1]] == list(range(430))


def test_permits_are_kept_until_the_broker_has_said_what_it_has() -> None:
    """A broker in debt of permits would starve for ever by a wrong guess; by its answer it does not."""
    world, link = reading(queue=100)
    # The last read goes far below zero.
    link.publish(1, 100, 50, ms=30)
    link.publish(1, 1_000, 50)
    world.put(per_subscription(500), ms=60_000)
    delivered = sum(msgs for _, _, msgs in link.got[1])
    assert delivered >= 25_000


def test_a_broker_that_does_not_say_is_left_its_permits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then they pass as they come, and the rate holds by holding messages alone."""
    monkeypatch.setattr("enforcer.pulsar.delivery.permit_questions.PERMIT_ANSWER_MS", 1_000)
    world, link = reading(answers_stats=False, queue=100)
    link.publish(1, 10, ms=20)
    world.put(per_subscription(10), ms=500)
    link.publish(1, 1_000)
    link.seconds_pass(10)
    assert world.count("permit_questions_total", result="unknown") == 1
    assert world.count("holds_total") > 0
    assert max(seconds(link, 1)[1:]) <= 10
    assert len(link.got[1]) >= 80


def test_limits_gone_all_permits_go_on() -> None:
    """What the client gave is forwarded whole, and frames pass unseen again."""
    world, link = reading(per_subscription(10), queue=1_000)
    link.publish(1, 50, ms=100)
    assert frames.FLOW in link.part.up
    world.put({NAMESPACE: None}, ms=100)
    link.part.check(world.now_ms)
    assert link.forwarded[1] == link.given[1]
    assert len(link.got[1]) == 50
    assert frames.FLOW not in link.part.up and frames.MESSAGE not in link.part.down
    assert world.desk.banked == 0


@pytest.mark.parametrize("batch", [1, 30])
def test_several_consumers_share_one_bucket_in_turns(batch: int) -> None:
    """On one connection or several: none gets everything, and together they get one rate."""
    world = World(per_subscription(100))
    links = [ModelLink(world, batched=False) for _ in range(3)]
    for link in links:
        link.subscribe(1, queue=1_000)
        link.publish(1, 3_000 // batch, batch)
    world.run(14_900)
    each = [sum(msgs for _, _, msgs in link.got[1]) for link in links]
    assert 1_500 - 30 <= sum(each) <= 1_530 + batch
    assert min(each) > 350


@pytest.mark.parametrize("batch", [1, 6])
def test_a_subscription_with_less_of_its_own_beside_a_hungry_one(batch: int) -> None:
    """Under a topic's 40 a second it gets its 10, and the hungry one the rest."""
    own = {"small": {"dispatchRate": {"dispatchThrottlingRateInMsg": 10}}}
    policy = {"dispatchRate": {"dispatchThrottlingRateInMsg": 40}, "subscriptions": own}
    world = World({f"topics.{TOPIC}": policy})
    links = {"hungry": ModelLink(world), "small": ModelLink(world)}
    for name, link in links.items():
        link.subscribe(1, subscription=name)
        link.publish(1, 2_000 // batch, batch)
    world.run(20_000)
    got = {name: sum(msgs for _, _, msgs in link.got[1]) for name, link in links.items()}
    assert got["small"] == pytest.approx(200, rel=0.1)
    assert sum(got.values()) == pytest.approx(800, rel=0.05)


def test_a_standby_gets_no_permits() -> None:
    """Until the broker says that it is served: permits of who is not served would be stranded."""
    world, link = reading(per_subscription(10), kind=2)
    link.subscribe(2, kind=2)
    world.run(10)
    link.down(command(frames.ACTIVE_CONSUMER_CHANGE, consumer_id=1, is_active=True))
    link.down(command(frames.ACTIVE_CONSUMER_CHANGE, consumer_id=2, is_active=False))
    world.run(10)
    was = link.forwarded[2]
    link.flow(2, 50)
    link.publish(1, 100, ms=2_000)
    assert link.forwarded[2] == was <= 1
    assert len(link.got[1]) >= 20
    link.down(command(frames.ACTIVE_CONSUMER_CHANGE, consumer_id=2, is_active=True))
    world.run(2_000)
    link.publish(2, 30, ms=3_000)
    # The first one has a backlog, too.
    assert len(link.got[2]) >= 10


def test_a_second_connection_has_no_bucket_of_its_own() -> None:
    """Nor has who comes back, or takes another number."""
    world = World(per_subscription(10, period=10))
    for number in range(5):
        link = ModelLink(world)
        link.subscribe(number)
        link.publish(number, 100, ms=500)
        assert sum(msgs for _, _, msgs in link.got[number]) == (10 if number == 0 else 0)
        link.part.close()
        assert world.desk.held == world.desk.banked == 0


def test_redelivery_is_charged_again_and_nothing_comes_twice() -> None:
    """What is held when a client asks for all again would come twice: it is dropped, its permits are not."""
    world, link = reading(queue=200)
    link.publish(1, 10, ms=20)
    world.put(per_subscription(10), ms=30)
    link.publish(1, 90, ms=300)
    assert link.part.held > 0
    link.redeliver(1)
    world.run(30_000)
    numbers = [number for _, number, _ in link.got[1]]
    assert numbers == list(range(100))
    assert max(seconds(link, 1)[1:]) <= 10


def test_other_frames_of_a_consumer_keep_their_place() -> None:
    """The end of a topic is told after its last message. A close is told at once, and ends what is held."""
    world = World()
    link = ModelLink(world)
    for number in (1, 2):
        link.subscribe(number, f"sub-{number}")
    world.run(20)
    world.put(per_subscription(10), ms=30)
    for number in (1, 2):
        link.publish(number, 40)
    world.run(20)
    link.down(command(frames.REACHED_END_OF_TOPIC, consumer_id=1))
    link.down(command(frames.CLOSE_CONSUMER, consumer_id=2, request_id=2**64 - 1))
    world.run(100)
    assert [kind for kind, _ in link.other if kind != frames.SUCCESS] == [frames.CLOSE_CONSUMER]
    came = len(link.got[2])
    world.run(10_000)
    assert link.other[-1][0] == frames.REACHED_END_OF_TOPIC
    assert len(link.got[1]) == 40 and len(link.got[2]) == came < 40
    assert world.desk.held == 0


def test_too_much_held_stops_reading_the_broker_until_half_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one connection, and of all together."""
    for total, each in ((1 << 28, 5_000), (5_000, 1 << 25)):
        monkeypatch.setattr("enforcer.pulsar.delivery.part.HELD_MESSAGE_BYTES", each)
        monkeypatch.setattr("enforcer.pulsar.delivery.part.HELD_TOTAL_BYTES", total)
        world, link = reading(queue=1_000)
        world.run(20)
        world.put(per_subscription(10), ms=30)
        link.publish(1, 100, ms=200)
        assert not link.broker_read and world.count("full_total") == 1
        assert link.part.held_bytes < 6_000
        world.run(20_000)
        assert len(link.got[1]) == 100 and link.broker_read


def test_a_broker_is_read_again_once_others_hold_half(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its one message waits for the day to end, and all its other consumers would with it."""
    monkeypatch.setattr("enforcer.pulsar.delivery.part.HELD_TOTAL_BYTES", 5_000)
    world, greedy = reading(queue=1_000)
    link = ModelLink(world)
    link.subscribe(1, "other")
    world.run(20)
    world.put(per_subscription(10, period=86_400), ms=30)
    greedy.publish(1, 100, ms=200)
    link.publish(1, 11, ms=200)
    link.part.check(world.now_ms)
    assert not link.broker_read and 0 < link.part.held < 1_000
    greedy.part.close()
    link.part.check(world.now_ms)
    assert link.broker_read and link.part.held


def test_what_is_not_stored_has_no_rate_but_counts_for_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits within a bound, as no broker keeps it; beyond that it is lost, and its permits are not."""
    group = {"resourcegroups.rg1": {"dispatchRateInMsgs": 10}}
    monkeypatch.setattr("enforcer.pulsar.delivery.consumer.HELD_UNSTORED_MAX", 20)
    world = World({**group, NAMESPACE: {"resourcegroup": "rg1", **per_subscription(1)[NAMESPACE]}})
    account = world.meter.of_group("rg1")
    assert account is not None
    account.set_part(1.0, 0.0)
    link = ModelLink(world)
    link.subscribe(1, topic=TOPIC.replace("persistent", "non-persistent"), queue=100)
    assert world.count("exempt_total", why="non_persistent") == 1
    link.publish(1, 60, ms=5)
    lost = world.count("lost_messages_total")
    assert lost == 60 - 20 - len(link.got[1]) > 0
    assert link.forwarded[1] - lost == link.given[1]
    world.run(5_000)
    assert len(link.got[1]) == 60 - lost
    assert max(seconds(link, 1)[1:]) <= 11


@pytest.mark.parametrize("name", ["persistent://pulsar/system/x", "persistent://acme/orders/__change_events"])
def test_pulsars_own_topics_are_left_alone(name: str) -> None:
    """A broker that waits for its own messages stands still."""
    policies = {**per_subscription(1), "namespaces.pulsar/system": per_subscription(1)[NAMESPACE]}
    world, link = reading(policies, topic=name)
    link.publish(1, 50, ms=20)
    assert len(link.got[1]) == 50
    assert world.count("exempt_total", why="system") == 1


def test_a_group_and_a_user_are_charged_and_waited_for() -> None:
    """The group by messages, the user by bytes; whoever owes more says when the next one comes."""
    world = World(
        {
            "resourcegroups.rg1": {"dispatchRateInMsgs": 100},
            NAMESPACE: {"resourcegroup": "rg1"},
            "quotas[user=alice]": {"consumer_byte_rate": 1_000_000},
        }
    )
    account = world.meter.of_group("rg1")
    assert account is not None
    account.set_part(1.0, 0.0)
    link = ModelLink(world)
    link.subscribe(1)
    link.publish(1, 5_000, 7, ms=10_400)
    delivered = sum(msgs for _, _, msgs in link.got[1])
    assert 1_000 <= delivered <= 1_110
    assert account.used[2] == delivered
    user = world.meter.of_user("alice", "", 2)
    assert user is not None and user.used[3] > 100 * delivered // 7
    assert world.events == []


def test_who_found_no_room_for_its_account_gets_one_later() -> None:
    """Not only when the policies change: till then it would read without a limit."""
    groups = {f"resourcegroups.rg{number}": {"dispatchRateInMsgs": 100} for number in (1, 2)}
    world = World({**groups, NAMESPACE: {"resourcegroup": "rg1"}})
    world.meter._max = 1
    other = world.meter.of_group("rg2")
    assert other is not None
    other.charge(2, 20, 0, world.now_ms)
    link = ModelLink(world)
    link.subscribe(1)
    link.publish(1, 400, ms=100)
    link.part.check(world.now_ms)
    assert list(world.meter.accounts) == ["rg2"]
    for _ in range(10):
        world.run(1_000)
        # As its use is reported.
        other.period(world.now_ms)
        link.part.check(world.now_ms)
    assert list(world.meter.accounts) == ["rg1"]
    came = len(link.got[1])
    link.publish(1, 1_000, ms=5_000)
    assert came > 300 and 0 < len(link.got[1]) - came <= 50


@pytest.mark.parametrize(("ahead_ms", "least", "most"), [(0, 200, 200), (86_400_000, 10, 45)])
def test_who_has_no_backlog_may_be_left_alone(ahead_ms: int, least: int, most: int) -> None:
    """With the broker's flag off young messages pass uncharged; once they are old, the rate holds.

    A producer whose clock is ahead lifts no limit: its messages are not young until their time has come.
    """
    flag = {"broker": {"dispatchThrottlingOnNonBacklogConsumerEnabled": False}}
    world, link = reading({**per_subscription(10), **flag}, queue=1_000)
    world.run(50)
    for number in range(200):
        link.unacked[1].append(Entry(number, 1, 100))
        link.down(message(1, number, published=world.brokers_ms() + ahead_ms))
        world.run(10)
    assert least <= len(link.got[1]) <= most
    assert ahead_ms or not any(event["backlog"] for event in world.events[:-1])


def test_a_client_may_not_subscribe_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor give a number twice to follow another topic."""
    monkeypatch.setattr("enforcer.pulsar.delivery.part.CONSUMERS_MAX", 3)
    world = World(per_subscription(10))
    link = ModelLink(world)
    for number in range(3):
        link.subscribe(number)
    link.from_client(command(frames.SUBSCRIBE, topic="x", subscription="s", consumer_id=0, request_id=9))
    assert not link.ended
    link.from_client(command(frames.SUBSCRIBE, topic=TOPIC, subscription="s", consumer_id=3, request_id=10))
    assert link.ended == ["too_many_consumers"]


def test_names_that_are_no_text_end_their_connection() -> None:
    """Nobody could say what a broker makes of them, so no limit could hold."""
    link = ModelLink(World(per_subscription(10)))
    subscribe = command(
        frames.SUBSCRIBE, topic=TOPIC, subscription="four", consumer_id=1, request_id=1_001
    ).replace(b"four", b"fo\xff\xfe")
    with pytest.raises(BadFrame):
        link.part.take_up(frames.SUBSCRIBE, subscribe)


def test_frames_of_nobody_pass() -> None:
    """Of consumers that are not there, or whose SUBSCRIBE was refused; FLOW 0 is the broker's to judge."""
    world, link = reading(per_subscription(10))
    part = link.part
    unknown = command(frames.FLOW, consumer_id=7, message_permits=5)
    assert part.take_up(frames.FLOW, unknown) is unknown
    zero = command(frames.FLOW, consumer_id=1, message_permits=0)
    assert part.take_up(frames.FLOW, zero) is zero
    strange = message(7, 1)
    assert part.take_down(frames.MESSAGE, strange) is strange
    part.take_up(
        frames.SUBSCRIBE,
        command(frames.SUBSCRIBE, topic=TOPIC, subscription="s", consumer_id=5, request_id=70),
    )
    part.take_down(frames.ERROR, command(frames.ERROR, request_id=70, error=5, message="busy"))
    flow = command(frames.FLOW, consumer_id=5, message_permits=5)
    assert part.take_up(frames.FLOW, flow) is flow
    broken = message(1, 1)[:32]
    assert part.take_down(frames.MESSAGE, broken) is None or world.count("unreadable_messages_total") == 1


def test_clients_that_come_and_go_leave_no_looks_behind() -> None:
    """However often the last one goes and another one comes, policies are followed by one timer."""
    world = World()
    for _ in range(50):
        ModelLink(world).part.close()
    link = ModelLink(world)
    world.run(1_000)
    assert world.waiting == 1
    link.part.close()
    world.run(1_000)
    assert world.waiting == 0
