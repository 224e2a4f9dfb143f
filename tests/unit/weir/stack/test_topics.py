"""Weir's topics once brokers know their leaders; on a real broker: tests/kafka/test_weir_topics.py."""

import time
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from streaming.contract.errors import WeirError
from streaming.contract.topics import Cluster
from streaming.kafka_io import weir_topics
from streaming.kafka_io.weir_topics import Fault, TopicFault, TopicsSeen
from weir.stack import topics

CLUSTER = Cluster("b:1")


class Falling:
    """Brokers of which the first that is asked falls; the others know these leaders, in turn, and fall."""

    def __init__(self, *leaders: int) -> None:
        self._answers = [None, *leaders]

    def list_topics(self, timeout: float) -> Any:
        """See AdminClient."""
        leader = self._answers.pop(0) if self._answers else None
        if leader is None:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return SimpleNamespace(topics={"t": SimpleNamespace(partitions={0: SimpleNamespace(leader=leader)})})


def test_a_broker_that_falls_meanwhile_is_not_the_cluster() -> None:
    """Others are asked for the leaders, until the time is over."""
    brokers: Any = Falling(-1, 2)
    falls_once: Any = Falling(1)
    topics._wait_for_leaders(brokers, ["t"], time.monotonic() + 60)
    assert not brokers._answers
    with pytest.raises(WeirError, match="b:1 does not answer"):
        topics._listed(CLUSTER, falls_once, 60)
    assert topics._listed(CLUSTER, falls_once, 60).topics
    with pytest.raises(WeirError, match="the cluster does not answer"):
        topics._wait_for_leaders(brokers, ["t"], time.monotonic() - 1)


@pytest.mark.parametrize("fails", [0, 1])
def test_one_client_is_enough_until_it_fails(monkeypatch: pytest.MonkeyPatch, fails: int) -> None:
    """Each dials and logs in anew, at each start."""
    leaders = SimpleNamespace(partitions={0: SimpleNamespace(leader=1)})
    listed = SimpleNamespace(topics=dict.fromkeys(CLUSTER.topics.all(), leaders))
    made, asked = list[Any](), list[Any]()

    def connect(_: Any) -> Any:
        made.append(SimpleNamespace(list_topics=lambda timeout: listed))
        return made[-1]

    def look(admin: Any, *_: Any) -> TopicsSeen:
        asked.append(admin)
        if len(asked) <= fails:
            raise WeirError("it does not answer")
        return TopicsSeen(faults=(), ids={}, partitions={})

    monkeypatch.setattr(topics, "admin_of", connect)
    monkeypatch.setattr(topics, "look", look)
    monkeypatch.setattr(weir_topics, "_AGAIN_S", 0.01)
    assert topics.ensure_topics(CLUSTER) == []
    assert made == asked and len(made) == 1 + fails


def test_a_topic_that_another_one_made_meanwhile_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that had not heard of it says that it is there, as it shall be made: it may be otherwise."""
    name = CLUSTER.topics.requests
    faults = [
        TopicFault(topic=name, fault=fault, what="is so", mend="this")
        for fault in (Fault.MISSING, Fault.TIMESTAMPS)
    ]
    seen = [TopicsSeen(faults=(fault,), ids={}, partitions={}) for fault in faults]
    there = Future[None]()
    there.set_exception(KafkaException(KafkaError(KafkaError.TOPIC_ALREADY_EXISTS)))
    leaders = SimpleNamespace(partitions={0: SimpleNamespace(leader=1)})
    admin = SimpleNamespace(
        list_topics=lambda timeout: SimpleNamespace(topics=dict.fromkeys(CLUSTER.topics.all(), leaders)),
        create_topics=lambda wanted, **_: {each.topic: there for each in wanted},
    )
    monkeypatch.setattr(topics, "admin_of", lambda _: admin)
    monkeypatch.setattr(topics, "look", lambda *_: seen.pop(0))
    with pytest.raises(WeirError, match="is so: this"):
        topics.ensure_topics(CLUSTER)
    assert not seen
