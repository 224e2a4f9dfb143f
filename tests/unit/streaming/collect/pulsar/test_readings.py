"""Counters as brokers tell them, on a page for all topics or topic by topic."""

from typing import Any

import pytest
from limits_kit import FakeApi, FakePulsar, rest_of, run

from streaming.collect.pulsar.counters import Differences, Place
from streaming.collect.pulsar.readings import counters_in, counters_of, read_counters
from streaming.collect.pulsar.rest import RestError
from streaming.collect.settings import Source
from streaming.contract.errors import BadEvent

T = "persistent://a/b/t"


def line(name: str, value: object, topic: str = T, subscription: str = "", namespace: str = "a/b") -> str:
    """One counter of a page."""
    own = f',subscription="{subscription}"' if subscription else ""
    return f'pulsar_{name}{{cluster="c",namespace="{namespace}",topic="{topic}"{own}}} {value}'


PAGE = "\n".join(
    [
        "# TYPE pulsar_in_messages_total counter",
        line("in_messages_total", 100),
        line("in_bytes_total", 13500),
        line("out_messages_total", 40, subscription="s1"),
        line("out_bytes_total", "5400.0", subscription="s1"),
        line("out_messages_total", 2, subscription="s2"),
        line("out_messages_total", 42),
        line("out_messages_total", 9, subscription="__compaction"),
        line("in_messages_total", 9, topic="persistent://a/b/__change_events"),
        line("in_messages_total", 9, topic="persistent://x/y/t", namespace="x/y"),
        line("in_messages_total", 9, topic="no topic"),
        line("subscription_back_log", 60, subscription="s1"),
    ]
).encode()


def test_a_page_is_read_by_topic_and_subscription() -> None:
    """Without what is the broker's own, or of namespaces that nobody asks for."""
    assert counters_in(PAGE, "b", lambda namespace: namespace == "a/b") == {
        Place("b", T): (100, 13500, 0, 0),
        Place("b", T, "s1"): (0, 0, 40, 5400),
        Place("b", T, "s2"): (0, 0, 2, 0),
    }


@pytest.mark.parametrize("page", ['pulsar_in_messages_total{topic="', line("in_messages_total", "1e999")])
def test_a_broker_without_a_page_costs_the_others_nothing(page: str) -> None:
    """It is told as a failure; a counter beyond all numbers ended the collector."""
    fake = FakePulsar()
    fake.pages = {"broker1:8080": PAGE.decode(), "broker2:8080": page}
    reading = run(read_counters(rest_of(fake), Source.METRICS, lambda _namespace: True))
    assert reading.brokers == {"pulsar-broker1:8080"}
    (failure,) = reading.failures
    assert "broker2:8080/metrics/: not in the form of Prometheus" in str(failure)
    assert Place("pulsar-broker1:8080", T) in reading.counters


def test_without_a_list_of_brokers_there_is_no_reading() -> None:
    """The round is over then."""
    fake = FakePulsar()
    fake.fail = lambda _method, _path: 403
    with pytest.raises(RestError, match="403"):
        run(read_counters(rest_of(fake), Source.METRICS, lambda _namespace: True))


STATS = {
    "msgInCounter": 100, "bytesInCounter": 13500, "ownerBroker": "broker1:8080",
    "subscriptions": {"s1": {"msgOutCounter": 40, "bytesOutCounter": 5400}, "__compaction": {}},
}  # fmt: skip
STATS_PATH = "/admin/v2/persistent/a/b/t/stats"
ANSWERS: dict[str, Any] = {
    "/admin/v2/brokers": ["broker1:8080"],
    "/admin/v2/tenants": ["a"],
    "/admin/v2/namespaces/a": ["a/b"],
    "/admin/v2/namespaces/a/b/topics": [T],
    STATS_PATH: STATS,
}
"""Of a cluster with this topic."""


def test_stats_are_read_topic_by_topic() -> None:
    """Where pages are not to be had. A topic that is gone meanwhile is passed over."""
    own = [T, "persistent://a/b/gone", "persistent://a/b/__change_events"]
    known = {"/admin/v2/namespaces/a": ["a/b", "a/other"], "/admin/v2/namespaces/a/b/topics": own}
    rest = rest_of(FakeApi({**ANSWERS, **known}))
    reading = run(read_counters(rest, Source.STATS, lambda namespace: namespace == "a/b"))
    here = "pulsar-broker1:8080"
    assert reading.counters == {Place(here, T): (100, 13500, 0, 0), Place(here, T, "s1"): (0, 0, 40, 5400)}
    assert reading.failures == []


@pytest.mark.parametrize("failing", [{1}, {0, 1}])
def test_a_stats_call_that_fails_is_no_traffic(failing: set[int]) -> None:
    """Neither of a topic that was read before nor of one that never was: its counter holds its past."""
    fake, differences, counted = FakeApi(ANSWERS), Differences(), list[int]()
    fake.fail = lambda _method, path: 500 if path.endswith("/stats") and number in failing else 0
    rest = rest_of(fake)
    for number in range(4):
        fake.answers[STATS_PATH] = {**STATS, "msgInCounter": 10**9 + number}
        reading = run(read_counters(rest, Source.STATS, lambda _namespace: True))
        passed = differences.take(1_000 * number, reading.brokers, reading.counters, reading.shows)
        counted += [count[0] for place, count in passed.counts.items() if not place.subscription]
        assert len(reading.failures) == (number in failing)
    assert counted == [1] * len(counted) and counted


def test_who_cannot_be_read_costs_no_other() -> None:
    """A tenant, a namespace, a topic of another form; what they hold is not taken for gone."""
    fake = FakeApi({
        **ANSWERS,
        "/admin/v2/tenants": ["a", "lost", "gone"],
        "/admin/v2/namespaces/a": ["a/b", "a/lost", "a/gone"],
        "/admin/v2/namespaces/a/b/topics": [T, "persistent://a/b/odd"],
        "/admin/v2/persistent/a/b/odd/stats": {"msgInCounter": 1},
    })  # fmt: skip
    fake.fail = lambda _method, path: 500 if "lost" in path else 0
    reading = run(read_counters(rest_of(fake), Source.STATS, lambda _namespace: True))
    assert {place.topic for place in reading.counters} == {T}
    assert reading.unread == {"lost", "a/lost", "persistent://a/b/odd"} and len(reading.failures) == 3
    unseen = [f"persistent://{place}/t" for place in ("lost/n", "a/lost")]
    assert reading.shows(T) and not any(map(reading.shows, [*unseen, "persistent://a/b/odd"]))


@pytest.mark.parametrize(
    "stats", [None, [], {}, {**STATS, "msgInCounter": "x"}, {**STATS, "subscriptions": 3}]
)
def test_stats_of_another_form_are_refused(stats: Any) -> None:
    """In words, not with a traceback."""
    with pytest.raises(BadEvent, match="counters were expected"):
        list(counters_of(T, stats))
