"""What is wrong with a topic of Weir by its settings; on a real broker: tests/kafka/test_weir_topics.py."""

import re
import time
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigSource

from enforcer.laws.mutation.law import BACK_MAX_MS
from streaming.collect.backlog import open_orders
from streaming.contract.errors import WeirError
from streaming.contract.topics import KEPT_MS, Cluster
from streaming.kafka_io import weir_topics
from streaming.kafka_io.weir_topics import READ_BACK_MS, STOPPING, Fault, asked_until, look, topic_settings

HOUR_MS = 3_600_000
PAGE = Path(__file__).parents[4] / "docs" / "security.md"


def done(value: Any) -> Future[Any]:
    """An answer that is there."""
    future: Future[Any] = Future()
    future.set_result(value)
    return future


class Broker:
    """Topics as they are made, but for some settings."""

    def __init__(self, cluster: Cluster, **others: dict[str, str]) -> None:
        self._settings = topic_settings(cluster.topics, KEPT_MS)
        for name, settings in others.items():
            self._settings[f"weir.{name}"] = self._settings[f"weir.{name}"] | settings

    def describe_topics(self, topics: Any, **_: Any) -> dict[str, Future[Any]]:
        """One partition each."""
        return {name: done(SimpleNamespace(partitions=[0], topic_id=name)) for name in topics.topic_names}

    def describe_configs(self, resources: Any, **_: Any) -> dict[Any, Future[Any]]:
        """What was set on each."""
        source = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {
            one: done({
                key: SimpleNamespace(value=value, source=source)
                for key, value in {"retention.bytes": "-1", **self._settings[one.name]}.items()
            })
            for one in resources
        }  # fmt: skip


@pytest.mark.parametrize(
    ("topic", "key", "value", "fault", "wanted"),
    [
        ("requests", "retention.ms", 2 * HOUR_MS, Fault.KEEPS_LESS, KEPT_MS),
        ("requests", "retention.ms", READ_BACK_MS, Fault.KEEPS_LESS, KEPT_MS),
        ("decisions", "retention.ms", READ_BACK_MS - 1, Fault.FORGETS, READ_BACK_MS),
        # What is in force stays.
        ("policies", "min.compaction.lag.ms", 0, Fault.KEEPS_LESS, KEPT_MS),
        ("policies", "min.compaction.lag.ms", KEPT_MS - 1, Fault.KEEPS_LESS, KEPT_MS),
        ("usage", "retention.bytes", 2**30, Fault.KEEPS_LESS, -1),
        # Nobody reads them back.
        ("deadletter", "retention.ms", 1, Fault.KEEPS_LESS, KEPT_MS),
    ],
)
def test_a_topic_that_forgets_too_soon_is_named(
    topic: str, key: str, value: int, fault: Fault, wanted: int
) -> None:
    """With key, value and what was expected; what is shorter than parts read back stops a start."""
    cluster = Cluster("b:1")
    broker: Any = Broker(cluster, **{topic: {key: str(value)}})
    (found,) = look(broker, cluster, 1.0).faults
    assert (found.topic, found.fault) == (f"weir.{topic}", fault)
    assert f"weir.{topic} exists with {key}={value}; Weir needs {wanted}" in found.what
    assert f"{key}={-1 if wanted < 0 else KEPT_MS}" in found.mend
    assert (fault in STOPPING) == (fault is Fault.FORGETS)


@pytest.mark.parametrize("kept_ms", [HOUR_MS, KEPT_MS])
def test_topics_that_hold_as_long_as_is_set_or_longer_have_no_fault(kept_ms: int) -> None:
    """For ever, too."""
    cluster = Cluster("b:1", topics_kept_ms=kept_ms)
    broker: Any = Broker(cluster, decisions={"retention.ms": "-1"})
    assert look(broker, cluster, 1.0).faults == ()


def test_an_administrator_makes_them_as_weir_does() -> None:
    """By the commands of docs/security.md."""
    made = {
        name: dict(setting.split("=") for setting in re.findall("--config ([^ \n]+)", line))
        for line in PAGE.read_text().splitlines()
        for name in re.findall("--create --topic ([^ ]+)", line)
    }
    assert made == topic_settings(Cluster("").topics)


def test_what_is_read_back_is_what_parts_read_back() -> None:
    """A proxy's decisions, a collector's evictions."""
    assert max(BACK_MAX_MS, open_orders.READ_BACK_MS) == READ_BACK_MS


class FallenBroker(Broker):
    """Falls before it has answered."""

    def describe_topics(self, topics: Any, **_: Any) -> dict[str, Future[Any]]:
        """See Broker."""
        future: Future[Any] = Future()
        future.set_exception(KafkaException(KafkaError(KafkaError._TRANSPORT)))
        return dict.fromkeys(topics.topic_names, future)


def test_a_broker_that_falls_meanwhile_is_not_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another client asks another one, until the time is over; each leaves time for the next."""
    monkeypatch.setattr(weir_topics, "_AGAIN_S", 0.01)
    cluster = Cluster("b:1")
    clients: Any = iter([FallenBroker(cluster), FallenBroker(cluster), Broker(cluster)])
    limits = []

    def ask(client: Any, left_s: float) -> weir_topics.TopicsSeen:
        limits.append(left_s)
        return look(client, cluster, left_s)

    seen = asked_until(time.monotonic() + 60, partial(next, clients), ask)
    assert set(seen.ids) == set(cluster.topics.all())
    assert len(limits) == 3 and all(20 < left_s <= 30 for left_s in limits)
    fallen: Any = FallenBroker(cluster)
    with pytest.raises(WeirError, match="does not answer"):
        asked_until(time.monotonic(), lambda: fallen, ask)


def test_a_client_that_cannot_be_made_is_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where this machine has no thread left for one."""

    def made(*_: Any, **_settings: Any) -> Any:
        raise KafkaException(KafkaError(KafkaError._FAIL))

    monkeypatch.setattr(weir_topics, "AdminClient", made)
    with pytest.raises(WeirError, match="cannot ask b:1"):
        weir_topics.admin_of(Cluster("b:1").properties)
