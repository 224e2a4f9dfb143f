"""Orders carried out: to a position, seen to be done, and never further than planned."""

import re
import time
from typing import Any

import pytest
from limits_kit import rest_of, run
from pulsar_backlog_kit import NOW_MS, FakeBacklogs, FakeTopic, cluster_of, wants

from streaming.collect.backlog.cluster import CannotEvict, Eviction, NotKnown
from streaming.collect.pulsar.rest import RestError
from streaming.collect.pulsar_backlog import eviction
from streaming.collect.pulsar_backlog.cluster import PulsarBacklogs
from streaming.collect.pulsar_backlog.eviction import HOW
from streaming.collect.pulsar_backlog.readings import Cursor, Stretch, TopicLog
from streaming.contract.backlog.decisions import EvictionPlan
from streaming.contract.errors import BadEvent

T1 = "persistent://acme/orders/t1"
SLOW = {"slow": (1, 2), "fast": (2, 1)}


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little time to move."""
    monkeypatch.setattr(eviction, "EVICTION_WAIT_S", 0.3)


def topic(**given: Any) -> FakeTopic:
    """Ledgers 1 and 2 of ten entries, 3 is open and has five; published a second apart, up to now."""
    made = FakeTopic({1: 10, 2: 10, 3: 5}, dict(SLOW), **given)
    first = NOW_MS - 25_000
    made.published = {one: first + 1_000 * number for number, one in enumerate(made.entries())}
    return made


class Rig:
    """A cluster of one topic, and orders by its first report."""

    def __init__(self, made: FakeTopic, name: str = T1) -> None:
        self.name, self.topic, self.fake = name, made, FakeBacklogs({name: made})
        self.cluster = cluster_of(self.fake)
        [self.report] = run(self.cluster.look(wants())).reports
        self.fake.calls.clear()

    def prepare(self, **planned: Any) -> Eviction | None:
        """See PulsarBacklogs."""
        plan = EvictionPlan(**{"subscription": "slow", **planned})
        return run(self.cluster.prepare(self.report, plan, may_delete=False))

    def evict(self, **planned: Any) -> Eviction:
        """Both steps."""
        prepared = self.prepare(**planned)
        assert prepared is not None
        run(self.cluster.carry_out(prepared))
        return prepared

    def changes(self) -> int:
        """Calls that changed something."""
        return sum(method not in ("GET", "HEAD") for method, _ in self.fake.calls)


@pytest.fixture
def rig() -> Rig:
    """A cluster with one topic."""
    return Rig(topic())


def test_a_position_is_evicted_with_what_it_skips(rig: Rig) -> None:
    """Entry by entry, across ledgers; others stay, and a second time there is nothing to do."""
    done = rig.evict(ledger=2, entry=3, entries=11)
    assert done == Eviction(
        topic=T1, subscription="slow", how=HOW, since=(1, 2), upto=(2, 3), messages=11, bytes=1_100
    )
    assert rig.topic.positions == {**SLOW, "slow": (2, 3)}
    assert rig.fake.bodies == [{"ledgerId": 2, "entryId": 3, "partitionIndex": -1}]
    assert rig.prepare(ledger=2, entry=3, entries=11) is None
    assert rig.prepare(ledger=1, entry=9, entries=11) is None
    run(rig.cluster.carry_out(done))
    assert rig.topic.positions == {**SLOW, "slow": (2, 3)}


def test_one_that_was_moved_back_since_the_report_is_left_alone(rig: Rig) -> None:
    """Its owner wants to read again; another way to write the same place is none."""
    rig.topic.positions["slow"] = (1, 1)
    with pytest.raises(CannotEvict, match="slow was moved back since the report"):
        rig.prepare(ledger=2, entry=3, entries=11)
    made = topic()
    made.positions["slow"] = (2, -1)
    rig = Rig(made)
    rig.topic.positions["slow"] = (1, 9)
    assert rig.prepare(ledger=2, entry=3, entries=4) is not None


def test_what_was_acknowledged_alone_is_not_counted() -> None:
    """Nor is what lies beyond the position."""
    rig = Rig(topic(acknowledged={"slow": "[(1:4..1:6],(1:8..2:1],(2:2..2:9]]"}))
    prepared = rig.prepare(ledger=2, entry=3, entries=11)
    # 1:3, 1:4, 1:7, 1:8 and 2:2 are left.
    assert prepared is not None and (prepared.messages, prepared.bytes) == (5, 500)


@pytest.mark.parametrize(("sample", "asked"), [(100, 11), (3, 3)])
def test_entries_of_several_messages(sample: int, asked: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries are asked what they hold, as many as the setting says."""
    monkeypatch.setattr("streaming.collect.pulsar_backlog.eviction.EVICTION_SAMPLE", sample)
    rig = Rig(topic(batch=7))
    prepared = rig.prepare(ledger=2, entry=3, entries=11)
    assert prepared is not None and prepared.messages == 77
    places = [
        re.findall(r"ledger/(\d+)/entry/(\d+)", path) for method, path in rig.fake.calls if method == "HEAD"
    ]
    assert len({one[0] for one in places}) == asked


def test_what_entries_hold_is_no_condition() -> None:
    """Unread they count as one message each."""
    rig = Rig(topic(batch=7))
    rig.fake.fail = lambda method, _path: 500 if method == "HEAD" else 0
    prepared = rig.prepare(ledger=2, entry=3, entries=11)
    assert prepared is not None and prepared.messages == 11


@pytest.mark.parametrize(
    ("before_ms", "upto"),
    [
        (NOW_MS - 25_000 + 12_000, (2, 1)), (NOW_MS - 25_000 + 11_999, (2, 1)),
        (NOW_MS - 25_000 + 10_000, (1, 9)), (NOW_MS + 99_000, (3, 4)), (NOW_MS - 25_000 + 3_000, None),
        (NOW_MS - 99_000, None), (-5, None),
    ],
)  # fmt: skip
def test_time_is_evicted_to_the_last_message_before_it(before_ms: int, upto: tuple[int, int] | None) -> None:
    """By publish times; one of exactly that time stays."""
    rig = Rig(topic())
    prepared = rig.prepare(before_publish_time=before_ms)
    assert (prepared and prepared.upto) == upto


def test_time_does_not_reach_beyond_the_report(rig: Rig) -> None:
    """What came later was not planned, whatever its publish time says."""
    rig.topic.ledgers[3] = 9
    rig.topic.published |= {(3, entry): NOW_MS - 99_000 for entry in range(5, 9)}
    prepared = rig.prepare(before_publish_time=NOW_MS + 1)
    assert prepared is not None and prepared.upto == (3, 4)


def test_time_in_disorder_takes_no_younger_one(rig: Rig) -> None:
    """Producers' clocks differ: an eviction ends before the first message that is too young."""
    before_ms = NOW_MS - 25_000 + 20_000
    rig.topic.published[1, 7] = rig.topic.published[2, 2] = before_ms
    # Pulsar searches in halves, and may find the last of those that are old enough.
    rig.fake.found = (3, 0)
    prepared = rig.prepare(before_publish_time=before_ms)
    assert prepared is not None and (prepared.upto, prepared.messages) == ((1, 6), 4)
    rig.topic.published[1, 3] = before_ms
    assert rig.prepare(before_publish_time=before_ms) is None


@pytest.mark.parametrize("status", [403, 500])
def test_time_takes_nothing_that_does_not_tell_its_own(rig: Rig, status: int) -> None:
    """It may be too young. The next check tries again; by size it is no condition."""
    rig.fake.fail = lambda method, path: status if method == "HEAD" and path.endswith("1/entry/7") else 0
    with pytest.raises(CannotEvict, match="entry 1:7 does not tell when it was published"):
        rig.prepare(before_publish_time=NOW_MS - 5_000)
    assert rig.prepare(ledger=2, entry=3, entries=11) is not None
    assert rig.changes() == 0


def test_endless_disorder_evicts_nothing(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is cut again and again is given up, with the reason."""
    monkeypatch.setattr("streaming.collect.pulsar_backlog.eviction.EVICTION_SAMPLE", 2)
    # The second of two that are asked lies in the middle of what is left, and is too young each time.
    rig.topic.ledgers[1] = 2**12
    rig.topic.published = {(1, 3): NOW_MS - 60_000}
    rig.report = run(rig.cluster.look(wants())).reports[0]
    rig.fake.found = (2, 0)
    with pytest.raises(CannotEvict, match="in disorder"):
        rig.prepare(before_publish_time=NOW_MS)


@pytest.mark.parametrize("ledgers", [{1: 0}, {1: 0, 2: 0}])
def test_nothing_goes_of_an_empty_log(ledgers: dict[int, int]) -> None:
    """There is nothing left to do."""
    rig = Rig(FakeTopic(ledgers, {"slow": (1, -1)}))
    assert rig.prepare(before_publish_time=NOW_MS) is None


def test_names_and_partitions_as_pulsar_wants_them() -> None:
    """It decodes subscriptions twice, and is told which partition it is."""
    name = "persistent://acme/orders/t+%1-partition-12"
    rig = Rig(FakeTopic({1: 10}, {"b/%41+ y": (1, -1)}), name)
    rig.evict(subscription="b/%41+ y", ledger=1, entry=4, entries=5)
    assert rig.topic.positions == {"b/%41+ y": (1, 4)}
    assert rig.fake.bodies[0]["partitionIndex"] == 12


def test_who_has_gone_loses_nothing(rig: Rig) -> None:
    """A subscription or a topic that was deleted took its backlog with it."""
    del rig.topic.positions["slow"]
    assert rig.prepare(ledger=2, entry=3, entries=11) is None
    rig.fake.topics.clear()
    assert rig.prepare(ledger=2, entry=3, entries=11) is None
    assert rig.prepare(before_publish_time=NOW_MS) is None


def test_a_topic_made_anew_is_not_touched(rig: Rig) -> None:
    """The ledgers of the plan are not its own: newer ones have greater ids."""
    rig.fake.topics[T1] = FakeTopic({11: 10, 12: 3}, {"slow": (11, -1)})
    assert rig.prepare(ledger=2, entry=3, entries=11) is None
    rig.fake.topics[T1] = FakeTopic({11: 10, 12: 3}, {"slow": (0, -1)})
    with pytest.raises(CannotEvict, match="ledger 2 of the plan is not there any more"):
        rig.prepare(ledger=2, entry=3, entries=11)
    prepared = Eviction(
        topic=T1, subscription="slow", how=HOW, since=(1, 2), upto=(2, 3), messages=11, bytes=1_100
    )
    with pytest.raises(NotKnown, match="not at 2:3 within"):
        run(rig.cluster.carry_out(prepared))
    assert rig.fake.topics[T1].positions == {"slow": (0, -1)}


def test_time_on_a_topic_made_anew(rig: Rig) -> None:
    """Its messages come after the end of the report, whatever their times."""
    made = FakeTopic({11: 10, 12: 3}, {"slow": (11, -1)})
    made.published = dict.fromkeys(made.entries(), NOW_MS - 99_000)
    rig.fake.topics[T1] = made
    assert rig.prepare(before_publish_time=NOW_MS) is None


@pytest.mark.parametrize("status", [400, 401, 403, 404, 412, 500])
def test_a_refusal_is_told_and_ends_it(rig: Rig, status: int) -> None:
    """Once, with what Pulsar says."""
    rig.fake.fail = lambda method, _path: status if method == "POST" else 0
    with pytest.raises(NotKnown if status >= 500 else CannotEvict, match=f"because {status}"):
        rig.evict(ledger=2, entry=3, entries=11)
    assert rig.changes() == 1 and rig.topic.positions == SLOW


def test_an_eviction_under_way_is_waited_for(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """409 is Pulsar's for that; it is asked again until the limit."""
    monkeypatch.setattr(eviction, "_POLL_MAX_S", 0.0)
    monkeypatch.setattr(eviction, "EVICTION_WAIT_S", 5.0)
    refused = iter([409, 409])
    rig.fake.fail = lambda method, _path: next(refused, 0) if method == "POST" else 0
    rig.evict(ledger=2, entry=3, entries=11)
    assert rig.changes() == 3 and rig.topic.positions["slow"] == (2, 3)


def test_a_refusal_after_a_yes_is_not_known(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one may still be carried out."""
    monkeypatch.setattr(eviction, "_POLL_MAX_S", 0.0)
    rig.fake.lazy = True
    answers = iter([0])
    rig.fake.fail = lambda method, _path: next(answers, 403) if method == "POST" else 0
    with pytest.raises(NotKnown, match="because 403"):
        rig.evict(ledger=2, entry=3, entries=11)


def test_a_refusal_after_an_answer_that_was_lost_is_not_known(rig: Rig) -> None:
    """The attempt before it may have been carried out."""
    rig.cluster = PulsarBacklogs(rest_of(rig.fake, attempts_max=2))
    answers = iter([503])
    rig.fake.fail = lambda method, _path: next(answers, 403) if method == "POST" else 0
    with pytest.raises(NotKnown, match="because 403"):
        rig.evict(ledger=2, entry=3, entries=11)
    assert rig.changes() == 2


def test_an_answer_that_is_lost_does_not_matter(rig: Rig) -> None:
    """What counts is where the subscription stands."""
    prepared = rig.prepare(ledger=2, entry=3, entries=11)
    assert prepared is not None

    def fail(method: str, _path: str) -> int | None:
        if method != "POST":
            return 0
        rig.topic.positions["slow"] = (2, 3)
        return None

    rig.fake.fail = fail
    run(rig.cluster.carry_out(prepared))
    assert rig.changes() == 1


def test_what_is_not_seen_is_not_done(rig: Rig) -> None:
    """Pulsar says yes at once, and nothing moves: the wait has a limit."""
    rig.fake.lazy = True
    with pytest.raises(NotKnown, match=r"not at 2:3 within 0\.3 s: it did not move"):
        rig.evict(ledger=2, entry=3, entries=11)


@pytest.mark.parametrize("gone", ["topic", "subscription"])
def test_who_goes_meanwhile_ends_it(rig: Rig, gone: str) -> None:
    """At once, and as not known."""
    rig.fake.lazy = True
    prepared = rig.prepare(ledger=2, entry=3, entries=11)
    assert prepared is not None

    def fail(method: str, path: str) -> int:
        if method == "POST" and gone == "subscription":
            del rig.topic.positions["slow"]
        return 404 if path.endswith("internalStats") and gone == "topic" else 0

    rig.fake.fail = fail
    with pytest.raises((RestError, NotKnown), match=r"because 404|the subscription has gone"):
        run(rig.cluster.carry_out(prepared))


def test_each_of_many_holes_is_looked_at_once() -> None:
    """A consumer that acknowledges every other message leaves as many: all were gone through each time."""
    holes = tuple(((1, 2 * number), (1, 2 * number + 1)) for number in range(200_000))
    log = TopicLog(ledgers=(Stretch(1, 400_001, 1),), closed=0, created=None, cursors={})
    begun = time.process_time()
    found = [eviction._acknowledged(log, Cursor((1, -1), "", holes), (1, at - 1), (1, at))
             for at in range(1, 400_000, 4_000)]  # fmt: skip
    assert found == [1] * 100 and time.process_time() - begun < 0.5


def test_what_cannot_be_read_is_not_evicted(rig: Rig) -> None:
    """Neither before nor after: another form, no answer, no position."""
    rig.fake.fail = lambda _method, _path: 503
    with pytest.raises(RestError, match="because 503"):
        rig.prepare(ledger=2, entry=3, entries=11)
    rig.fake.fail = lambda _method, _path: 0
    with pytest.raises(CannotEvict, match="no position is planned"):
        rig.prepare()
    rig.topic.internal_stats = lambda: {"ledgers": 5}  # type: ignore[method-assign]
    with pytest.raises(BadEvent, match="a log was expected"):
        rig.prepare(ledger=2, entry=3, entries=11)
    assert rig.changes() == 0
