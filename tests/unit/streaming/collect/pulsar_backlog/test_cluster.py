"""Rounds over all topics: what is asked, what is reported, and what a failure costs; lists, close times."""

import httpx2
import pytest
from limits_kit import rest_of, run
from pulsar_backlog_kit import NOW_MS, FakeBacklogs, FakeTopic, cluster_of, wants

from streaming.collect.backlog.cluster import RoundResult
from streaming.collect.pulsar.rest import RestError
from streaming.collect.pulsar_backlog import cluster
from streaming.collect.pulsar_backlog.cluster import Closings, Listing, PulsarBacklogs
from streaming.collect.pulsar_backlog.readings import Stretch, TopicLog
from streaming.contract.backlog.decisions import EvictionPlan
from streaming.contract.broker_events import Ledger, Subscription

T1, T2 = "persistent://acme/orders/t1", "persistent://acme/orders/t2-partition-0"


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Our time; its only item may be set."""
    now = [NOW_MS]
    monkeypatch.setattr(cluster, "now_ms", lambda: now[0])
    return now


def times(topic: FakeTopic) -> FakeTopic:
    """With publish times, a second apart."""
    first = NOW_MS - 60_000
    topic.published = {one: first + 1_000 * number for number, one in enumerate(topic.entries())}
    return topic


def watched(topic: FakeTopic) -> tuple[FakeBacklogs, PulsarBacklogs]:
    """A cluster of this topic, and its reader."""
    fake = FakeBacklogs({T1: topic})
    return fake, cluster_of(fake)


def test_a_topic_is_reported_as_it_stands() -> None:
    """Ledgers with their close times, subscriptions with positions; readers are not durable."""
    topic = FakeTopic({1: 10, 2: 3}, {"slow": (1, 4), "reader": (2, 2)}, readers={"reader"})
    looked = run(cluster_of(FakeBacklogs({T1: topic})).look(wants()))
    [report] = looked.reports
    assert (looked.unread, looked.failures) == (0, [])
    assert (report.id, report.topic, report.ts) == ("", T1, NOW_MS)
    assert report.ledgers == (
        Ledger(id=1, entries=10, size=1000, close_time=NOW_MS - 5_000),
        Ledger(id=2, entries=3, size=300, close_time=None),
    )
    assert report.subscriptions == (
        Subscription(name="reader", ledger=2, entry=2, durable=False, oldest_publish_time=None),
        Subscription(name="slow", ledger=1, entry=4, durable=True, oldest_publish_time=None),
    )


def test_pulsars_own_topics_are_left_out() -> None:
    """Of the system namespace, and those whose names begin with two underscores."""
    own = "persistent://acme/orders/__change_events"
    system = "persistent://pulsar/system/transaction_coordinator_assign-partition-0"
    fake = FakeBacklogs({name: FakeTopic({1: 1}) for name in (T1, own, system)})
    assert [one.topic for one in run(cluster_of(fake).look(wants())).reports] == [T1]
    assert not any("system/" in path for _, path in fake.calls)


def test_a_steady_round_asks_once_a_topic() -> None:
    """`stats` only when a subscription is new, or was made anew under the same name."""
    topic = FakeTopic({1: 10}, {"a": (1, -1)})
    fake, rounds = watched(topic)
    counts = []
    for change in (None, None, {"b": (1, -1)}, None):
        topic.positions |= change or {}
        run(rounds.look(wants()))
        counts.append((fake.count("/internalStats"), fake.count("/stats")))
    assert counts == [(1, 1), (2, 1), (3, 2), (4, 2)]
    topic.born, topic.readers = "2026-11-20T10:00:00Z", {"a"}
    [report] = run(rounds.look(wants())).reports
    assert [one.durable for one in report.subscriptions] == [False, True]


def test_publish_times_are_asked_again_only_where_a_position_moved() -> None:
    """Each costs Pulsar a read; without a backlog there is none."""
    topic = times(FakeTopic({1: 10, 2: 3}, {"done": (2, 2), "fast": (1, 8), "slow": (1, 2)}))
    fake, rounds = watched(topic)
    first = NOW_MS - 60_000
    asked, seen = [], []
    for move in (None, None, {"slow": (1, 3)}, {"done": (2, 2)}):
        topic.positions |= move or {}
        [report] = run(rounds.look(wants(expires=True))).reports
        seen.append([one.oldest_publish_time for one in report.subscriptions])
        asked.append(fake.count("=true"))
    assert asked == [1, 1, 2, 2]
    assert seen[0] == seen[1] == [None, first + 9_000, first + 3_000]
    assert seen[2] == seen[3] == [None, first + 9_000, first + 4_000]


def test_of_precise_ages_only_the_oldest_is_asked() -> None:
    """Another one's position may move as it likes."""
    topic = times(FakeTopic({1: 10}, {"fast": (1, 5), "slow": (1, 2), "reader": (1, 0)}, readers={"reader"}))
    fake, rounds = watched(topic)
    for entry in (5, 6, 7):
        topic.positions["fast"] = (1, entry)
        [report] = run(rounds.look(wants(precise_age=True))).reports
        assert [one.oldest_publish_time for one in report.subscriptions] == [None, None, NOW_MS - 57_000]
    assert fake.count("=true") == 1


def test_an_unknown_publish_time_is_asked_again() -> None:
    """0 is none, and is not kept."""
    topic = FakeTopic({1: 10}, {"slow": (1, 2)})
    fake, rounds = watched(topic)
    for _ in range(2):
        [report] = run(rounds.look(wants(precise_age=True))).reports
        assert report.subscriptions[0].oldest_publish_time is None
    assert fake.count("=true") == 2


def test_after_a_start_old_ledgers_are_dated_by_what_follows_them() -> None:
    """Once for a ledger, and only for that of the oldest subscription."""
    topic = times(FakeTopic({1: 10, 2: 10, 3: 10, 4: 0}, {"slow": (1, 2), "fast": (3, 2)}))
    fake, rounds = watched(topic)
    for _ in range(2):
        [report] = run(rounds.look(wants())).reports
        closed = [one.close_time for one in report.ledgers]
        assert closed == [NOW_MS - 50_000, NOW_MS - 5_000, NOW_MS - 5_000, None]
    assert [path for method, path in fake.calls if method == "HEAD"] == [
        "/admin/v2/persistent/acme/orders/t1/ledger/2/entry/0"
    ]


def test_a_failed_dating_costs_nothing_but_age() -> None:
    """The later time stands, and the next round asks again."""
    topic = times(FakeTopic({1: 10, 2: 10, 3: 0}, {"slow": (1, 2)}))
    fake, rounds = watched(topic)
    fake.fail = lambda method, _path: 403 if method == "HEAD" else 0
    looked = run(rounds.look(wants()))
    assert (looked.unread, looked.reports[0].ledgers[0].close_time) == (0, NOW_MS - 5_000)
    fake.fail = lambda _method, _path: 0
    assert run(rounds.look(wants())).reports[0].ledgers[0].close_time == NOW_MS - 50_000


@pytest.mark.parametrize(
    "ending", ["/t1/internalStats", "/t1/stats", "/t1/stats?getEarliestTimeInBacklog=true"]
)
def test_a_topic_that_cannot_be_read_is_not_half_reported(ending: str) -> None:
    """The others are; it counts, and is told."""
    fake = FakeBacklogs({name: times(FakeTopic({1: 10}, {"a": (1, -1)})) for name in (T1, T2)})
    fake.fail = lambda _method, path: 500 if path.endswith(ending) else 0
    looked = run(cluster_of(fake).look(wants(expires=True)))
    assert ([one.topic for one in looked.reports], looked.unread) == ([T2], 1)
    assert "because 500" in looked.failures[0]


def test_a_defect_that_one_topic_meets_costs_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def take(self: Closings, log: TopicLog, _at_ms: int) -> None:
        if len(log.ledgers) == 2:
            raise ZeroDivisionError("odd")

    monkeypatch.setattr(Closings, "take", take)
    backlogs = FakeBacklogs({T1: FakeTopic({1: 10}, {"slow": (1, 4)}), T2: FakeTopic({1: 10, 2: 3}, {})})
    looked = run(cluster_of(backlogs).look(wants()))
    assert [one.topic for one in looked.reports] == [T1] and looked.unread == 1
    assert looked.failures == [f"{T2}: ZeroDivisionError('odd')"]


def test_an_answer_in_another_form_is_one_unread_topic() -> None:
    """It is told with the topic's name."""
    fake = FakeBacklogs({name: FakeTopic({1: 10}, {"a": (1, -1)}) for name in (T1, T2)})
    fake.topics[T1].internal_stats = lambda: {"ledgers": 7}  # type: ignore[method-assign]
    fake.topics[T2].stats = lambda _earliest: {"subscriptions": []}  # type: ignore[method-assign, assignment, return-value]
    looked = run(cluster_of(fake).look(wants()))
    assert (looked.reports, looked.unread) == ([], 2)
    assert all(name in " ".join(looked.failures) for name in (T1, T2))


@pytest.mark.parametrize("ending", ["/t1/internalStats", "/t1/stats"])
def test_a_topic_that_has_gone_meanwhile_is_no_failure(ending: str) -> None:
    """It was listed, and is not there any more."""
    fake = FakeBacklogs({name: FakeTopic({1: 10}, {"a": (1, -1)}) for name in (T1, T2)})
    fake.fail = lambda _method, path: 404 if path.endswith(ending) else 0
    looked = run(cluster_of(fake).look(wants()))
    assert ([one.topic for one in looked.reports], looked.unread, looked.failures) == ([T2], 0, [])


def test_each_failure_is_told() -> None:
    """Whoever writes them into the log says a few."""
    fake = FakeBacklogs({f"persistent://acme/orders/t{number}": FakeTopic({1: 1}) for number in range(20)})
    fake.fail = lambda _method, path: 403 if path.endswith("internalStats") else 0
    looked = run(cluster_of(fake).look(wants()))
    assert (looked.unread, len(set(looked.failures))) == (20, 20)


def test_topics_beyond_the_most_are_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept of topics has a bound, and who lies beyond it is said."""
    monkeypatch.setattr("streaming.collect.pulsar_backlog.cluster.TOPICS_MAX", 3)
    fake = FakeBacklogs({f"persistent://acme/orders/t{number}": FakeTopic({1: 1}) for number in range(5)})
    looked = run(cluster_of(fake).look(wants()))
    assert (len(looked.reports), looked.unread) == (3, 2)
    assert looked.failures == ["5 topics; 3 are read"]


def test_a_cluster_that_does_not_answer_raises() -> None:
    """Nothing could be read."""
    fake = FakeBacklogs({T1: FakeTopic({1: 1})})
    fake.fail = lambda _method, _path: None
    with pytest.raises(RestError, match="does not answer"):
        run(cluster_of(fake).look(wants()))


def test_whether_positions_are_passed() -> None:
    """By the cursors; of who is not there nothing is known."""
    fake = FakeBacklogs({T1: FakeTopic({1: 10, 2: 5}, {"a": (1, 4), "b": (2, -1)})})
    asked = [("a", (1, 4)), ("a", (1, 5)), ("b", (1, 9)), ("c", (1, 0))]
    rounds = cluster_of(fake)
    assert run(rounds.passed(T1, asked)) == [True, False, True, None]
    assert run(rounds.passed(T2, asked[:2])) == [None, None]
    fake.fail = lambda _method, _path: 503
    with pytest.raises(RestError):
        run(rounds.passed(T1, asked))


def test_brokers_are_known_from_the_first_round_on() -> None:
    """Who asks whether something was done, after a crash, is sent on to the topic's owner."""
    fake = FakeBacklogs({T1: FakeTopic({1: 10, 2: 5}, {"a": (1, 4)})})

    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.url.host == "admin" and request.url.path.startswith("/admin/v2/persistent"):
            return httpx2.Response(307, headers={"location": f"http://broker1:8080{request.url.path}"})
        return fake(request)

    report = run(cluster_of(fake).look(wants())).reports[0]
    planned = EvictionPlan(subscription="a", ledger=1, entry=6, entries=2)
    rounds = cluster_of(answer)
    run(rounds.look(wants()))
    assert run(rounds.passed(T1, [("a", (1, 4))])) == [True]
    assert run(rounds.prepare(report, planned, may_delete=False)) is not None


def log(*ledgers: int, created: int | None, is_open: bool = True) -> TopicLog:
    """A log of ledgers with ten entries each."""
    stretches = tuple(Stretch(one, 10, 1000) for one in ledgers)
    return TopicLog(stretches, len(ledgers) - is_open, created, {})


@pytest.fixture
def closings() -> Closings:
    """Nothing has been seen yet."""
    return Closings()


def test_a_new_ledger_closes_the_one_before(closings: Closings) -> None:
    """By the time at which it was created; what is known stays."""
    closings.take(log(1, created=500), 1_000)
    assert closings.time(1) is None
    closings.take(log(1, 2, created=1_400), 2_000)
    assert (closings.time(1), closings.time(2), closings.loose(1)) == (1_400, None, False)
    closings.take(log(1, 2, 3, created=2_500), 3_000)
    assert (closings.time(1), closings.time(2), closings.time(3)) == (1_400, 2_500, None)


def test_several_between_two_looks(closings: Closings) -> None:
    """Those that came and went in between were closed by when the open one was created."""
    closings.take(log(1, created=500), 1_000)
    closings.take(log(1, 2, 3, created=2_500), 3_000)
    assert [closings.time(one) for one in (1, 2, 3)] == [2_500, 2_500, None]


def test_a_clock_ahead_closes_nothing_in_the_future(closings: Closings) -> None:
    """The broker's time counts up to ours."""
    closings.take(log(1, 2, created=9_000), 1_000)
    assert closings.time(1) == 1_000


def test_the_time_of_the_ledger_before_is_not_taken(closings: Closings) -> None:
    """Pulsar reads it before it lists the new ledger; an older time would make the age too great."""
    closings.take(log(1, created=500), 1_000)
    closings.take(log(1, 2, created=500), 2_000)
    assert closings.time(1) == 2_000


def test_a_closed_last_ledger_is_closed_when_it_is_seen(closings: Closings) -> None:
    """And stays so: its age does not begin anew with each look."""
    closings.take(log(1, created=500), 1_000)
    closings.take(log(1, created=None, is_open=False), 2_000)
    closings.take(log(1, created=None, is_open=False), 3_000)
    assert closings.time(1) == 2_000


def test_what_was_there_before_may_be_much_older(closings: Closings) -> None:
    """All but the one before the open ledger, until a publish time says more; never later than known."""
    closings.take(log(1, 2, 3, created=900), 1_000)
    assert [closings.loose(one) for one in (1, 2, 3)] == [True, False, False]
    closings.refine(1, 400)
    assert (closings.time(1), closings.time(2), closings.loose(1)) == (400, 900, False)
    closings.refine(2, 5_000)
    closings.refine(7, 5)
    assert (closings.time(2), closings.time(7)) == (900, None)


def test_what_is_trimmed_is_forgotten(closings: Closings) -> None:
    """The table holds no more than the topic's ledgers."""
    closings.take(log(*range(1, 100), created=900), 1_000)
    closings.take(log(99, 100, created=1_900), 2_000)
    assert (closings.time(5), closings.loose(5), closings.time(99)) == (None, False, 1_900)


A1, A2, B1 = "persistent://a/x/1", "persistent://a/x/2", "persistent://b/y/1"


def listing_of(fake: FakeBacklogs) -> Listing:
    """Of a cluster in memory."""
    return Listing(rest_of(fake))


def listed(listing: Listing) -> tuple[list[str], int, int]:
    """Topics, how many are unread besides, and how many failures are told."""
    looked = RoundResult()
    topics = run(listing.list(looked))
    return sorted(topics), looked.unread, len(looked.failures)


def test_all_namespaces_are_listed() -> None:
    """Each topic once; namespaces in forms that Pulsar had before 2.0 are not asked."""
    fake = FakeBacklogs({name: FakeTopic({1: 1}) for name in (A1, A2, B1)})
    fake.namespaces |= {"b/standalone/old"}
    assert listed(listing_of(fake)) == ([A1, A2, B1], 0, 0)
    assert not any("old" in path for _, path in fake.calls)


@pytest.mark.parametrize("path", ["/admin/v2/persistent/a/x", "/admin/v2/namespaces/a"])
def test_what_cannot_be_listed_is_unread_and_stays_known(path: str) -> None:
    """As many as there were; at least one if nobody knows; round after round."""
    fake = FakeBacklogs({name: FakeTopic({1: 1}) for name in (A1, A2, B1)})
    listing = listing_of(fake)
    fake.fail = lambda _method, asked: 403 if asked == path else 0
    assert listed(listing) == ([B1], 1, 1)
    fake.fail = lambda _method, _asked: 0
    listed(listing)
    fake.fail = lambda _method, asked: 403 if asked == path else 0
    for _ in range(2):
        assert listed(listing) == ([B1], 2, 1)
        assert set(listing.known) == {A1, A2, B1}


def test_a_namespace_that_has_gone_is_no_failure() -> None:
    """Its topics are gone with it."""
    fake = FakeBacklogs({name: FakeTopic({1: 1}) for name in (A1, B1)})
    fake.fail = lambda _method, asked: 404 if asked == "/admin/v2/persistent/a/x" else 0
    listing = listing_of(fake)
    assert listed(listing) == ([B1], 0, 0)
    assert listing.known == [B1]


@pytest.mark.parametrize("start", ["/admin/v2/persistent", "/admin/v2/namespaces", "/admin/v2/tenants"])
def test_nothing_to_list_raises(start: str) -> None:
    """A token without rights is no empty cluster."""
    fake = FakeBacklogs({name: FakeTopic({1: 1}) for name in (A1, B1)})
    fake.fail = lambda _method, asked: 403 if asked.startswith(start) else 0
    with pytest.raises(RestError, match="because 403"):
        listed(listing_of(fake))


def test_an_empty_cluster_is_none_of_these() -> None:
    """It is listed, and has nothing."""
    assert listed(listing_of(FakeBacklogs())) == ([], 0, 0)
