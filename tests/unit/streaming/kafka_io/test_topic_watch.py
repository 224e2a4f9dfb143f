"""What a watch over Weir's topics says and counts; looks at a broker: tests/kafka/test_weir_topics.py."""

import logging
from collections.abc import Sequence
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException
from prometheus_client import CollectorRegistry

from streaming.contract.errors import WeirError
from streaming.contract.topics import Cluster
from streaming.kafka_io import topic_watch, weir_topics
from streaming.kafka_io.topic_watch import TopicMetrics, TopicWatch
from streaming.kafka_io.weir_topics import Fault, TopicFault, TopicsSeen

GONE = TopicFault(topic="weir.usage", fault=Fault.MISSING, what="weir.usage is not there", mend="make it")
OTHER = TopicFault(topic="weir.policies", fault=Fault.PARTITIONS, what="3 partitions", mend="delete it")


class Watched:
    """A watch that sees what it is given, look by look."""

    def __init__(self, patch: pytest.MonkeyPatch, looks: Sequence[TopicsSeen | WeirError]) -> None:
        self.registry, self.told = CollectorRegistry(), list[str]()
        coming = iter(looks)

        def look(*_: object) -> TopicsSeen:
            found = next(coming)
            if isinstance(found, WeirError):
                raise found
            return found

        patch.setattr(topic_watch, "look", look)
        self.watch = TopicWatch(
            Cluster("127.0.0.1:1"),
            metrics=TopicMetrics(self.registry, "job"), logger=logging.getLogger("tests.topics"),
            ids={"weir.requests": "old"}, on_replaced=self.told.append,
        )  # fmt: skip

    def value(self, name: str, **labels: str) -> float | None:
        """A metric."""
        return self.registry.get_sample_value(name, labels)


def seen(*faults: TopicFault, **ids: str) -> TopicsSeen:
    """What one look finds."""
    named = {f"weir.{name}": number for name, number in ids.items()}
    return TopicsSeen(faults=faults, ids=named, partitions={})


def test_what_is_wrong_is_said_at_each_look(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Errors as long as it is wrong, one line when it is right again, and a metric meanwhile."""
    watched = Watched(monkeypatch, [seen(GONE), seen(GONE, OTHER), WeirError("away"), seen(OTHER), seen()])
    levels = []
    for _ in range(5):
        caplog.clear()
        watched.watch.look()
        levels.append([record.levelname for record in caplog.records if record.levelno > logging.DEBUG])
        if len(levels) == 3:
            # An absent cluster says nothing about topics: what was wrong is wrong still.
            assert watched.value("weir_job_topic_faults", topic="weir.usage", fault="missing") == 1
            assert watched.watch.wrong("weir.policies") == OTHER.text
    assert levels == [["ERROR"], ["ERROR", "ERROR"], [], ["ERROR", "WARNING"], ["WARNING"]]
    assert watched.value("weir_job_topic_faults", topic="weir.usage", fault="missing") is None
    assert watched.watch.wrong("weir.policies") == ""


def test_what_stays_wrong_is_shown_at_all_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scrape in the middle of a look saw nothing wrong, and the time of an alert began anew."""
    watched, shown = Watched(monkeypatch, [seen(GONE), seen(OTHER, GONE)]), list[float | None]()

    def scrape(*_: object) -> None:
        shown.append(watched.value("weir_job_topic_faults", topic="weir.usage", fault="missing"))

    monkeypatch.setattr(watched.watch, "_logger", SimpleNamespace(error=scrape))
    for _ in range(2):
        watched.watch.look()
    assert shown == [1, 1, 1]


def test_a_topic_made_again_is_counted_and_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another id than before, or than was seen first; being away in between changes nothing."""
    watched = Watched(
        monkeypatch,
        [seen(requests="new", usage="a"), seen(GONE, requests="new"), seen(requests="new", usage="b")],
    )
    for _ in range(3):
        watched.watch.look()
    assert watched.told == ["weir.requests", "weir.usage"]
    assert watched.watch.replaced == {"weir.requests", "weir.usage"}
    assert watched.value("weir_job_topics_replaced_total", topic="weir.usage") == 1


def test_a_client_that_is_not_answered_asks_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of librdkafka's may wait for ever for a controller that answers all others."""
    watched = Watched(monkeypatch, [seen(), WeirError("away"), WeirError("away"), seen(), seen()])
    clients = list[int]()
    monkeypatch.setattr(weir_topics, "AdminClient", lambda *_, **_settings: clients.append(1) or "client")
    made = []
    for _ in range(5):
        watched.watch.look()
        made.append(len(clients))
    assert made == [1, 1, 2, 3, 3]


def test_a_client_that_cannot_be_made_is_made_at_the_next_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the limit of threads the watch ended, and nobody saw that a topic was made again."""
    watched = Watched(monkeypatch, [seen(requests="new")])
    none_left = [KafkaException(KafkaError(KafkaError._CRIT_SYS_RESOURCE))]

    def made(*_: object, **_settings: object) -> str:
        if none_left:
            raise none_left.pop()
        return "client"

    monkeypatch.setattr(weir_topics, "AdminClient", made)
    for told in ([], ["weir.requests"]):
        watched.watch.look()
        assert watched.told == told


@pytest.mark.parametrize("fault", list(Fault))
def test_only_what_makes_decisions_wrong_keeps_a_part_from_starting(fault: Fault) -> None:
    """A topic that is missing may come, one with the broker's settings does for now."""
    found = seen(TopicFault(topic="weir.usage", fault=fault, what="wrong", mend="what mends it"))
    if fault in (Fault.TIMESTAMPS, Fault.CLEANUP, Fault.PARTITIONS, Fault.FORGETS):
        with pytest.raises(WeirError, match="what mends it"):
            found.check()
    else:
        found.check()
