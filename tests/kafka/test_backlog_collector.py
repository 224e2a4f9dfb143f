"""`weir collect kafka` on a real broker: its log of actions, its end, and who takes over."""

import signal
import subprocess
import sys
from pathlib import Path

import orjson
import pytest
from cluster_kit import Cluster
from collector_kit import TOPIC
from process_kit import Command
from proxy_kit import until
from stack_kit import read_all, series_at

from streaming.collect.backlog.action_log import ActionLog
from streaming.contract.backlog.actions import BEGUN, BacklogAction, backlog_action
from streaming.contract.errors import WeirError
from streaming.contract.topics import Cluster as Home
from streaming.contract.topics import Topics

ACTION = BacklogAction(
    id="d/size/slow", ts=5, topic=TOPIC, quota_type="size", policy="consumer_backlog_eviction", limit=9,
    actor="collect-kafka-c-1", step=BEGUN, subscription="slow", how="offsets", since=(0, -1), upto=(0, 4),
    messages=5, bytes=50,
)  # fmt: skip
LIMIT_S = 30.0


async def test_an_action_is_written_and_read_back(cluster: Cluster, topics: Topics) -> None:
    log = ActionLog(Home(cluster.kafka.bootstrap, topics), LIMIT_S)
    await log.write(ACTION)
    log.close()
    (value,) = read_all(cluster.kafka.bootstrap, topics.decisions)
    assert backlog_action(orjson.loads(value)) == ACTION


async def test_what_nobody_takes_is_told_within_the_limit() -> None:
    """Nobody listens there."""
    log = ActionLog(Home("127.0.0.1:1"), 0.5)
    with pytest.raises(WeirError, match="not written to weir"):
        await log.write(ACTION)
    log.close()


def collector(folder: Path, cluster: Cluster, topics: Topics, name: str, *options: str) -> Command:
    """A `weir collect kafka` of an installation of its own; the name is that of its files."""
    words = ("collect", "kafka", "--kafka", cluster.kafka.bootstrap, "--metrics", "127.0.0.1:0", *options)
    own = {"quotas_from_kafka": False}
    return Command(folder / name, *words, kafka={"topic_prefix": topics.prefix}, collect=own)


@pytest.mark.soak
def test_the_newest_collector_of_a_cluster_is_the_one(
    cluster: Cluster, topics: Topics, tmp_path: Path
) -> None:
    """The one before ends with its next check, or stands by; the newest one goes on until it is told to."""
    cluster.policies.__class__(cluster.kafka.bootstrap, topics).put(
        "broker", {"backlogQuotaCheckIntervalInSeconds": 1}
    )
    waiting = collector(tmp_path, cluster, topics, "waiting", "--stand-by")
    waiting.ready(LIMIT_S)
    first = collector(tmp_path, cluster, topics, "first")
    first.ready(LIMIT_S)
    until(lambda: "until that one has been silent for 180 s" in waiting.log.read_text(), what="standing by")
    second = collector(tmp_path, cluster, topics, "second")
    metrics = second.ready(LIMIT_S)["metrics"]
    assert first.process.wait(LIMIT_S) == 3
    assert "another collector has taken over" in first.log.read_text()

    def checks() -> bool:
        return series_at(metrics).get('weir_backlog_rounds_total{result="done"}', 0.0) > 3

    until(checks, what="checks of the second", limit_s=LIMIT_S)
    for one in (second, waiting):
        one.process.send_signal(signal.SIGTERM)
        assert one.process.wait(5) == 0, one.log.read_text()


@pytest.mark.soak
@pytest.mark.parametrize("after_s", [0.8, 1.2, 1.6, 2.0, 3.0])
def test_it_can_be_ended_at_any_moment(tmp_path: Path, after_s: float) -> None:
    """Even if nobody answers at the start."""
    words = ["--kafka", "127.0.0.1:1"]
    process = subprocess.Popen([sys.executable, "-m", "weir", "collect", "kafka", *words])
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(after_s)
    process.send_signal(signal.SIGTERM)
    # Before it has begun to listen to signals they end it in the plain way.
    assert process.wait(5) in (0, -signal.SIGTERM)
