"""`weir collect pulsar --no-usage` with a real Kafka, job and Pulsar: an eviction from report to counter."""

import json
import signal
from pathlib import Path

import pulsar as client
import pytest
from company_kit import Company
from live_backlogs import EVICTS, LIMIT, series
from process_kit import Command
from pulsar_kit import Admin, fresh
from stack_kit import read_all, until

from weir.stack.pulsar import LocalPulsar

pytestmark = pytest.mark.soak
WAIT_S = 120.0


def test_a_slow_subscription_loses_what_is_beyond(pulsar: LocalPulsar, tmp_path: Path) -> None:
    """The least that holds, once; the fast one loses nothing, and the rest is delivered."""
    topic = f"persistent://public/default/{fresh('evicted')}"
    connection = client.Client(f"pulsar://{pulsar.service}")
    producer = connection.create_producer(topic, batching_enabled=False)
    slow, fast = (connection.subscribe(topic, name) for name in ("slow", "fast"))
    for _ in range(100):
        producer.send(b"x" * 100)
    for _ in range(95):
        fast.acknowledge(fast.receive(20_000))
    slow.close()
    with Company(tmp_path) as company:
        company.put("broker", {"backlogQuotaCheckIntervalInSeconds": 1, "preciseBacklogSize": True})
        company.put(f"topics.{topic}", {"backlogQuotaMap": {"destination_storage": EVICTS}})
        kafka = company.kafka.bootstrap
        words = ["collect", "pulsar", "--no-usage", "--kafka", kafka, "--admin", pulsar.admin]
        with Command(tmp_path / "collector", *words, "--metrics", "127.0.0.1:0") as collector:
            metrics = collector.ready(WAIT_S)["metrics"]
            name = f'topic="{topic}"'
            evicted = "pulsar_storage_backlog_quota_exceeded_evictions_total"
            until(
                lambda: series(metrics, evicted, name, 'quota_type="size"') == 1.0,
                what="the eviction",
                limit_s=WAIT_S,
            )
            size = "pulsar_storage_backlog_size"
            until(
                lambda: (series(metrics, size, name) or LIMIT + 1) <= LIMIT,
                what="a size within",
                limit_s=WAIT_S,
            )
            assert series(metrics, evicted, name, 'quota_type="size"') == 1.0
            collector.process.send_signal(signal.SIGTERM)
            assert collector.process.wait(10) == 0
        actions = [json.loads(one) for one in read_all(kafka, company.topics.decisions)]
    begun, done = (one for one in actions if one["type"] == "backlog_action")
    assert (begun["step"], done["step"], done["subscription"]) == ("begun", "done", "slow")
    again = connection.subscribe(topic, "slow")
    left = 0
    while done["messages"] + left < 100:
        again.acknowledge(again.receive(20_000))
        left += 1
    cursors = Admin(pulsar.admin).do("GET", f"{topic.replace('://', '/')}/internalStats")["cursors"]
    assert cursors["fast"]["markDeletePosition"].endswith(":94")
    connection.close()
