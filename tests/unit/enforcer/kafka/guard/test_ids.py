"""How the proxy learns which ids Weir's topics have."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Uuid

from enforcer.kafka.cluster import IdWatch, ids_of
from enforcer.kafka.guard.protected import OwnTopics
from streaming.contract.topics import Topics


def id_of(high: int, low: int) -> bytes:
    """As it stands in a request."""
    return high.to_bytes(8, "big") + low.to_bytes(8, "big")


class Cluster:
    """An admin client; a topic has an id, or an error."""

    def __init__(self, topics: dict[str, Any]) -> None:
        self.topics = topics

    def describe_topics(self, names: Any, request_timeout: float) -> Any:
        """What it says of each."""
        return {
            name: SimpleNamespace(result=lambda _s, it=it: self._of(it)) for name, it in self.topics.items()
        }

    def list_topics(self, timeout: float) -> Any:
        """All that are there."""
        return SimpleNamespace(topics=self.topics)

    def _of(self, it: Any) -> Any:
        if isinstance(it, int):
            raise KafkaException(KafkaError(it))
        return SimpleNamespace(topic_id=it)


def test_a_topic_that_may_not_be_seen_leaves_the_others_known() -> None:
    """A proxy with no right to one of Weir's topics left all of them open to requests by their ids."""
    unseen, gone = KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.UNKNOWN_TOPIC_OR_PART
    ids = ids_of(cast(Any, Cluster({"a": Uuid(1, 2), "b": unseen, "c": gone})), ("a", "b", "c"))
    assert ids == {"a": id_of(1, 2)}


def test_a_cluster_that_does_not_answer_takes_no_id_away() -> None:
    """What was learnt before stays, as nothing is delivered."""
    with pytest.raises(KafkaException):
        ids_of(cast(Any, Cluster({"a": Uuid(1, 2), "b": KafkaError._TIMED_OUT})), ("a", "b"))


def test_a_topic_that_is_not_known_for_a_moment_keeps_its_id() -> None:
    """A broker that has just begun left it open to requests by its id; one that is gone has none."""
    came: list[frozenset[bytes]] = []
    watch = IdWatch({}, OwnTopics(Topics(), active=True), came.append)
    unseen, gone = KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.UNKNOWN_TOPIC_OR_PART
    for it in (Uuid(1, 2), unseen, Uuid(1, 2), gone, gone, Uuid(3, 4)):
        watch._look(cast(Any, Cluster({"weir.policies": it})))
    assert came == [{id_of(1, 2)}] * 4 + [frozenset(), {id_of(3, 4)}]
