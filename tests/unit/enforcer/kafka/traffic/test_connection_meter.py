"""What a connection is told of its frames, by name and by id, and how much its fetches bring."""

from collections.abc import Callable, Mapping

import pytest
from kafka.protocol.consumer import FetchRequest
from kafka_kit import decode
from meter_kit import ALICE, GROUPS, POLICIES, TOPIC, Desk, used
from traffic_kit import batch, fetch_request, fetch_response, key_of, produce

from enforcer.kafka.protocol.frames import FETCH, RequestHeader
from enforcer.kafka.protocol.traffic import fetching
from enforcer.kafka.traffic.connection_meter import LEARN_MAX_BYTES, SESSION_TOPICS_MAX, ConnectionMeter
from enforcer.metering.account import Account
from streaming.policy.policy_set import PolicySet


class Line:
    """A connection: what it was told to do, and look-ups that a test answers."""

    def __init__(self, desk: Desk) -> None:
        self.waits: list[float] = []
        self.factors: list[float] = []
        self.asked: list[tuple[list[bytes], Callable[[Mapping[bytes, str]], None]]] = []
        self.later: list[int] = []
        self.connection_meter = ConnectionMeter(
            desk.frames, desk.metrics, self, lambda ids, done: self.asked.append((ids, done))
        )

    def brake(self, wait_ms: float) -> bool:
        """Noted (connection_meter.Brake)."""
        self.waits.append(wait_ms)
        return True

    def hasten(self, factor: float) -> None:
        """Noted (connection_meter.Brake)."""
        self.factors.append(factor)

    def produce(self, count: int, topic: str = TOPIC, version: int = 9, user: str = "bob") -> int:
        """Produce some records; returns the throttle time."""
        frame, header = produce(version, {topic: [batch(count)]})
        return self.connection_meter.produce(frame, header, user, self.later.append)


def test_a_group_in_debt_brakes_its_connection() -> None:
    """The whole wait is braked; while the share is on its way only a round of it is told."""
    desk = Desk({**GROUPS, "broker": {"resourceUsagePublishIntervalInSecs": 1}})
    line = Line(desk)
    assert line.produce(2) == 0
    assert line.produce(10) == 1_000  # 5 a second, 2.5 in stock
    assert line.waits == [pytest.approx(1_900)]
    desk.share(publishRateInMsgs=10.0)
    assert line.factors == [0.5]
    assert line.produce(90) == pytest.approx(9_950, abs=1)
    assert desk.metrics.throttled.labels("group", "publishRateInMsgs")._value.get() == 2


def test_the_stricter_of_user_and_group_wins() -> None:
    """And is named in the metric."""
    desk = Desk({**GROUPS, **ALICE})
    line = Line(desk)
    desk.meter.interval_ms = 10**9
    line.produce(100, user="alice")
    by_user = desk.metrics.throttled.labels("user", "publishRateInBytes")._value.get()
    by_group = desk.metrics.throttled.labels("group", "publishRateInMsgs")._value.get()
    account = desk.meter.accounts["quota/user=alice"]
    assert (by_user, by_group) == (1, 0)
    frame, _ = produce(9, {TOPIC: [batch(100)]})
    assert account.used == [0, len(frame), 0, 0]
    assert line.waits[0] == pytest.approx((len(frame) - 25) / 50 * 1_000)


def test_bytes_of_users_are_those_of_whole_frames() -> None:
    """Requests and responses alike."""
    desk = Desk(ALICE)
    line = Line(desk)
    response = fetch_response(12, {TOPIC: [batch(5)]})
    line.connection_meter.fetched(response, RequestHeader(FETCH, 12, 1, "tests", 0), "alice")
    line.produce(1, user="alice")
    frame, _ = produce(9, {TOPIC: [batch(1)]})
    assert used(desk.meter) == {"quota/user=alice": [0, len(frame), 0, len(response)]}


def test_topic_ids_that_are_known() -> None:
    """Learnt from Metadata, they cost nothing."""
    desk = Desk(GROUPS)
    line = Line(desk)
    desk.frames.learn({key_of(TOPIC, True): TOPIC})
    line.produce(3, version=13)
    assert not line.asked and desk.meter.accounts["rg1"].used[0] == 3


def test_topic_ids_that_are_looked_up() -> None:
    """The request passes at once; it is charged when the name is there, before its own response."""
    desk = Desk({**GROUPS, "broker": {"resourceUsagePublishIntervalInSecs": 1}})
    line = Line(desk)
    assert line.produce(30, version=13) == 0 and not line.waits
    ((ids, done),) = line.asked
    assert ids == [key_of(TOPIC, True)]
    done({ids[0]: TOPIC})
    assert desk.meter.accounts["rg1"].used[0] == 30
    assert line.later == [1_000] and line.waits == [pytest.approx(5_500)]
    line.produce(1, version=13)
    assert len(line.asked) == 1


def test_a_topic_that_nobody_knows_is_not_looked_up_each_time() -> None:
    """After a while it is, since a new topic reaches the brokers late."""
    desk = Desk(GROUPS)
    line = Line(desk)
    line.produce(1, version=13)
    line.asked[0][1]({})
    line.produce(1, version=13)
    assert len(line.asked) == 1
    desk.now_ms += 5_001
    line.produce(1, version=13)
    assert len(line.asked) == 2


def test_a_fetched_topic_without_a_name_is_counted_as_not_metered() -> None:
    """The look-up at the begin of the session did not help."""
    desk = Desk(GROUPS)
    line = Line(desk)
    header = RequestHeader(FETCH, 16, 1, "c", 0)
    response = fetch_response(16, {TOPIC: [batch(1)]})
    assert line.connection_meter.fetched(response, header, "bob") == 0 and desk.meter.unmetered == 1
    desk.frames.learn({}, [key_of(TOPIC, True)])
    line.connection_meter.fetched(response, header, "bob")
    assert desk.meter.unmetered == 2


def test_the_table_of_a_session_is_bounded() -> None:
    """Further topics do not make its responses smaller."""
    desk = Desk(GROUPS)
    line = Line(desk)
    names = {f"plain-{number}": 1 for number in range(SESSION_TOPICS_MAX)}
    assert sessions(line, 11, {**names, TOPIC: 1}, epoch=0) == 50_000_000
    assert len(line.connection_meter._session) == SESSION_TOPICS_MAX


def test_a_large_metadata_response_is_not_read() -> None:
    """Its ids are looked up when they are needed."""
    desk = Desk(GROUPS)
    line = Line(desk)
    line.connection_meter.described(bytes(LEARN_MAX_BYTES + 1), 12)
    line.connection_meter.described(b"anything", 9)
    assert not desk.frames.names


def sessions(line: Line, version: int, topics: Mapping[str, int], epoch: int) -> int:
    """max_bytes of a Fetch request as it is forwarded."""
    frame, header = fetch_request(version, topics, max_bytes=50_000_000, epoch=epoch)
    sent = line.connection_meter.fetch(frame, header, "bob")
    assert len(sent) == len(frame)
    decode(FetchRequest, version, sent)
    return fetching(sent, header).limit_bytes


@pytest.mark.parametrize("version", [4, 11, 12, 16])
def test_a_fetch_of_a_limited_group_brings_less(version: int) -> None:
    """A quarter of a second of the share; in a session its topics are remembered, until it begins anew."""
    desk = Desk(GROUPS)
    line = Line(desk)
    desk.frames.learn({key_of(TOPIC, True): TOPIC, key_of("plain", True): "plain"})
    assert sessions(line, version, {TOPIC: 2}, epoch=0) == 5_000  # 5 % of 400,000
    desk.share(dispatchRateInBytes=100_000.0)
    if version >= 7:
        assert sessions(line, version, {}, epoch=1) == 25_000
        assert sessions(line, version, {"plain": 1}, epoch=2) == 25_000
    assert sessions(line, version, {"plain": 1}, epoch=0) == 50_000_000


def test_a_fetch_limit_follows_the_policies() -> None:
    """Also in the middle of a session."""
    desk = Desk(GROUPS)
    line = Line(desk)
    assert sessions(line, 11, {TOPIC: 2}, epoch=0) == 5_000
    desk.meter.set_policies(PolicySet({**GROUPS, "namespaces.acme/orders": {"resourcegroup": "rg2"}}))
    assert sessions(line, 11, {}, epoch=1) == 50_000_000


def test_a_limit_in_messages_is_turned_into_bytes() -> None:
    """By the mean size of the records that were seen."""
    desk = Desk({**POLICIES, "resourcegroups.rg1": {"dispatchRateInMsgs": 10_000}})
    line = Line(desk)
    assert sessions(line, 11, {TOPIC: 1}, epoch=0) == 16_000  # 500 x 0.25 x 128
    data = batch(10, size=1_000)
    response = fetch_response(11, {TOPIC: [data]})
    line.connection_meter.fetched(response, RequestHeader(FETCH, 11, 1, "c", 0), "bob")
    assert sessions(line, 11, {}, epoch=1) == int(125 * len(data) / 10)


def test_fetched_records_are_charged_by_id() -> None:
    """A Fetch by id looks its topics up when its session begins."""
    desk = Desk(GROUPS)
    line = Line(desk)
    sessions(line, 16, {TOPIC: 1}, epoch=0)
    ((ids, done),) = line.asked
    done({ids[0]: TOPIC})
    header = RequestHeader(FETCH, 16, 1, "c", 0)
    data = batch(300, size=100)
    assert line.connection_meter.fetched(fetch_response(16, {TOPIC: [data]}), header, "bob") > 0
    assert desk.meter.accounts["rg1"].used == [0, 0, 300, len(data)]
    assert sessions(line, 16, {}, epoch=1) == 5_000


def test_a_closed_connection_waits_for_nothing() -> None:
    """Nothing is kept for it."""
    desk = Desk(GROUPS)
    line = Line(desk)
    line.produce(100)
    account: Account = desk.meter.accounts["rg1"]
    assert account.waiting == {line.connection_meter}
    line.connection_meter.close()
    assert not account.waiting
