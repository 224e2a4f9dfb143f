"""Decisions on backlogs and policies of them, in the place of a collector and the job."""

import itertools
import time
from typing import Any

import orjson
from cluster_kit import Cluster
from confluent_kafka import Producer
from counted_kit import full_name as full
from proxy_kit import WAIT_S, PolicyWriter, ProxyThread, until
from stack_kit import read_all

from enforcer.laws.backlog.blocks import Blocks
from streaming.contract.backlog.decisions import BacklogDecision
from streaming.contract.topics import Topics

HOLD, EXCEPTION = "producer_request_hold", "producer_exception"
_numbers = itertools.count(1)


def now_ms() -> int:
    """The time, ms since the epoch."""
    return time.time_ns() // 1_000_000


def quota(policy: str = HOLD, limit: int = 5_000, **more: Any) -> dict[str, Any]:
    """An entry of a topic with a quota of size that is carried out."""
    size = {"limitSize": limit, "policy": policy, "actions": True, **more}
    return {"backlogQuotaMap": {"destination_storage": size}}


def decision(topic: str, size: float, *, age: int = -1, ts: int = 0, **more: Any) -> BacklogDecision:
    """A decision on a topic's backlog, as it is read."""
    fields: dict[str, Any] = {
        "id": f"b{next(_numbers)}", "ts": ts, "topic": topic, "size": float(size), "limit_size": -1,
        "limit_time": -1, "age": age, "oldest": None, "exceeded": (), "evict": (), "ttl_ms": 60_000,
        "repeated": False,
    }  # fmt: skip
    return BacklogDecision(**fields | more)


class BacklogWriter:
    """Writes what the job would.

    Args:
        cluster: where.
        topics: of the installation.
    """

    def __init__(self, cluster: Cluster, topics: Topics) -> None:
        self.bootstrap, self.topics = cluster.kafka.bootstrap, topics
        self.policies = PolicyWriter(self.bootstrap, topics)
        self._producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": "0", "log_level": "0"})

    def limit(self, topic: str, policy: str = HOLD, limit: int = 5_000) -> None:
        """Give a topic a quota of size."""
        self.policies.put(f"topics.{full(topic)}", quota(policy, limit))

    def say(self, topic: str, size: float, *, age: int = -1, ts: int = 0, **more: Any) -> str:
        """Say how large a backlog is; returns the id of that."""
        name = f"b{next(_numbers)}"
        said = {
            "type": "backlog", "id": name, "ts": ts or now_ms(), "topic": topic, "backlogSize": float(size),
            "backlogQuotaLimitSize": -1, "backlogQuotaLimitTime": -1, "oldestBacklogMessageAgeSeconds": age,
            "oldestBacklogMessageSubscriptionName": None, "exceeded": [], "actions": [], "evict": [],
            "ttl_ms": 60_000, **more,
        }  # fmt: skip
        self._producer.produce(self.topics.decisions, key=topic, value=orjson.dumps(said))
        assert self._producer.flush(WAIT_S) == 0
        return name

    def actions(self, topic: str) -> list[dict[str, Any]]:
        """The actions logged about a topic, in order."""
        found = map(orjson.loads, read_all(self.bootstrap, self.topics.decisions))
        return [said for said in found if said["type"] == "backlog_action" and said["topic"] == topic]


def until_blocked(proxy: ProxyThread, topic: str, *, blocked: bool = True) -> None:
    """Wait until a proxy has a block of a topic, or has none."""
    blocks = proxy.proxy.enforcement.of(Blocks)
    until(lambda: (blocks.block(topic) is not None) == blocked, what=f"{topic}: blocked is {blocked}")


def counted(proxy: ProxyThread, outcome: str, policy: str = HOLD) -> float:
    """How many requests came to this."""
    labels = {"quota_type": "size", "policy": policy, "outcome": outcome}
    return proxy.sample("weir_producer_block_requests_total", **labels)
