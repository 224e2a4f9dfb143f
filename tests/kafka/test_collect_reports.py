"""Reports of a collector on a real broker, and that there is one collector of a cluster."""

import os
import signal
import time
from pathlib import Path

import orjson
import pytest
from cluster_kit import Cluster, fresh
from stack_kit import read_all

from streaming.collect.reports import DOUBT_TIMES, Reports, last_begun_ms
from streaming.contract.errors import TakenOver, WeirError
from streaming.contract.topics import Cluster as Home
from streaming.contract.topics import Topics
from weir.stack.kafka import LocalKafka
from weir.stack.topics import ensure_topics

LIMIT_S = 20.0
EVENT = {"type": "group_usage", "broker": "b", "period_ms": 1, "usage": {}}


def reports(cluster: Cluster, topics: Topics, lease: str) -> Reports:
    """Of one more collector."""
    return Reports(Home(cluster.kafka.bootstrap, topics), lease, LIMIT_S)


def test_the_newest_collector_is_the_one(cluster: Cluster, topics: Topics) -> None:
    """The one before learns it with its next report, which nobody sees; those of other clusters go on."""
    lease = fresh("collect")
    first, elsewhere = reports(cluster, topics, lease), reports(cluster, topics, f"{lease}-2")
    first.write([("b", {**EVENT, "id": "1"})])
    second = reports(cluster, topics, lease)
    with pytest.raises(TakenOver, match=f"another collector has taken over as {lease}"):
        first.write([("b", {**EVENT, "id": "2"})])
    second.write([("b", {**EVENT, "id": "3"})])
    elsewhere.write([("b", {**EVENT, "id": "4"})])
    said = read_all(cluster.kafka.bootstrap, topics.usage)
    ids = [orjson.loads(value or b"{}").get("id") for value in said]
    assert [one for one in ids if one in ("1", "2", "3", "4")] == ["1", "3", "4"]


def test_kafka_tells_whether_a_collector_is_at_work(cluster: Cluster, topics: Topics) -> None:
    """Each report is a sign of life; who has none to write is silent, and who never was too."""
    bootstrap, lease = cluster.kafka.bootstrap, fresh("collect")
    assert last_begun_ms(Home(bootstrap), lease) == -1
    one = reports(cluster, topics, lease)
    seen = [last_begun_ms(Home(bootstrap), lease)]
    for number in range(2):
        time.sleep(0.01)
        one.write([("b", {**EVENT, "id": str(number)})])
        seen += [last_begun_ms(Home(bootstrap), lease) for _ in range(2)]
    assert seen[0] == -1 and seen[1] == seen[2] < seen[3] == seen[4]


def send(kafka: LocalKafka, number: signal.Signals) -> None:
    """A signal to its brokers."""
    for pid in kafka.pids:
        os.kill(pid, number)


@pytest.mark.soak
def test_an_outage_is_not_taken_for_another_collector(tmp_path: Path) -> None:
    """Kafka ends a transaction that was open when it froze, and its producer; the collector goes on then."""
    with LocalKafka(tmp_path) as kafka:
        topics = Topics()
        ensure_topics(Home(kafka.bootstrap, topics))
        first = Reports(Home(kafka.bootstrap, topics), "lease", 2.0)
        first.write([("b", EVENT)])
        for frozen_s in (3.0, 8.0):
            send(kafka, signal.SIGSTOP)
            began = time.monotonic()
            while time.monotonic() < began + frozen_s:
                with pytest.raises(WeirError, match=r"was not written|cannot write") as caught:
                    first.write([("b", EVENT)])
                assert not isinstance(caught.value, TakenOver)
            send(kafka, signal.SIGCONT)
            failed = 0
            while failed < 5:
                try:
                    first.write([("b", EVENT)])
                except WeirError as failure:
                    assert not isinstance(failure, TakenOver)
                    failed += 1
                else:
                    break
            assert failed < 5
        time.sleep(2.0 * DOUBT_TIMES)
        Reports(Home(kafka.bootstrap, topics), "lease", LIMIT_S).write([("b", EVENT)])
        with pytest.raises(TakenOver):
            first.write([("b", EVENT)])
