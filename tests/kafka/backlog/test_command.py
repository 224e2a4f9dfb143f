"""`weir backlog` on a real broker, with decisions as the job writes them."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import orjson
import pytest
from cluster_kit import Cluster
from pack_kit import packed
from stack_kit import put

from streaming.columns.packed import CONTENT_TYPE, HEADER
from streaming.contract.topics import Cluster as Home
from streaming.contract.topics import Topics
from streaming.kafka_io.policy_topic import Update
from streaming.kafka_io.policy_turn import change_policies
from weir.cli import main

CLICKS = "persistent://public/default/clicks"
EVICT = "consumer_backlog_eviction"
LINE_S = 30.0


def decision(topic: str, size: float, **more: Any) -> dict[str, Any]:
    """A decision of now."""
    return {
        "type": "backlog", "id": f"{topic}@{size}", "ts": time.time_ns() // 1_000_000, "topic": topic,
        "backlogSize": size, "backlogQuotaLimitSize": 1000, "backlogQuotaLimitTime": -1,
        "oldestBacklogMessageAgeSeconds": 5, "oldestBacklogMessageSubscriptionName": "slow",
        "exceeded": [], "actions": [], "evict": [], "ttl_ms": 60_000,
    } | more  # fmt: skip


@pytest.fixture
def decisions(cluster: Cluster, topics: Topics) -> Callable[..., None]:
    """Writes to the topic of decisions of this installation."""
    quota = {"destination_storage": {"limitSize": 1000, "policy": EVICT, "actions": True}}
    update = Update(path=f"topics.{CLICKS}", value={"backlogQuotaMap": quota})
    change_policies(Home(cluster.kafka.bootstrap, topics), lambda log: [update], origin="apply")
    return partial(put, cluster.kafka.bootstrap, topics.decisions)


@pytest.fixture
def words(options: list[str]) -> Callable[..., list[str]]:
    """The words of a command for this installation."""
    return lambda *more: ["backlog", *more, *options]


def test_a_table_and_the_decisions_themselves(
    decisions: Callable[..., None], words: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Single and packed ones, repeats and stragglers, among others' records; quotas are those in force."""
    partition = decision(f"{CLICKS}-partition-1", 1500.0, evict=[
        {"subscription": "slow", "ledger": 0, "entry": 4, "entries": 5}
    ])  # fmt: skip
    large, near = decision("persistent://a/n/free", 10**9), decision(CLICKS, 900.0)
    old, share = decision("persistent://a/n/gone", 7.0), {"type": "share", "group": "g", "broker": "b"}
    decisions(old, timestamp=old["ts"] - 200_000)
    decisions(b"garbage", {"type": "admission", "id": "a"}, {"type": "backlog", "id": 7}, large)
    for rows in ([near | {"backlogSize": 1.0, "ts": near["ts"] - 1}, near, partition], [share]):
        decisions(*packed(rows), headers={HEADER: CONTENT_TYPE})
    decisions({"type": "backlog_action", "id": "x", "topic": CLICKS}, large | {"repeat": True})

    assert main(words("--json")) == 0
    out, err = capsys.readouterr()
    assert orjson.loads(out) == [partition, near, large | {"repeat": True}]
    assert "1 records could not be used, such as: id: 7" in err
    assert main(words("--limit", "2")) == 0
    _, first, second, more = capsys.readouterr().out.splitlines()
    assert first.startswith(f"!  {CLICKS}-partition-1") and "1.5 KiB / 1000 B  150 %" in first
    assert "5 entries of slow" in first and f"{EVICT} (carried out)" in first
    assert second.split()[:5] == [CLICKS, "900", "B", "/", "1000"] and "90 %" in second
    assert more.startswith("... and 1 more")

    assert main(words("--topic", "clicks", "--json")) == 0
    assert [one["topic"] for one in orjson.loads(capsys.readouterr().out)] == [partition["topic"], CLICKS]
    assert main(words("--topic", "persistent://a/n/gone")) == 1
    assert "nothing was decided on the backlog of persistent://a/n/gone" in capsys.readouterr().err


@pytest.mark.soak
def test_watch_shows_what_comes_until_it_is_stopped(
    decisions: Callable[..., None], words: Callable[..., list[str]]
) -> None:
    """Ctrl-C ends it with status 0."""
    decisions(decision(CLICKS, 900.0))
    command = [sys.executable, "-m", "weir", *words("--watch", "0.2", "--json")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert [one["backlogSize"] for one in orjson.loads(process.stdout.readline())] == [900.0]
            decisions(decision(CLICKS, 950.0))
            deadline = time.monotonic() + LINE_S
            while orjson.loads(process.stdout.readline())[0]["backlogSize"] != 950.0:
                assert time.monotonic() < deadline
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=LINE_S)
        finally:
            process.kill()
    assert (process.returncode, errors) == (0, b"")
