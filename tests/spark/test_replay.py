"""Both replay engines write the same bytes."""

from pathlib import Path
from typing import Any

import mode_kit
import orjson
import pytest
from law_kit import T0, policy, quota, refund, request
from pyspark.sql import SparkSession
from traces_kit import of_traces

from streaming.contract.errors import ConfigError, WeirError
from streaming.job.replay import replay_spark, replay_staged, stage
from streaming.replay import ReplayResult, replay_local
from weir.jars.folders import jars_dir

WIDEST = ("mutation/eight-levels", "shares/minute", "dispatch/all-levels", "backlog/precise-both")
"""What Spark does to a law's events it does to those of all its traces: one of each law with every change."""
POLICIES = """\
version: 1
quotas:
  - entity: {user: alice}
    controller_mutation_rate: 1
  - entity: {user: null}
    controller_mutation_rate: 0.5
    algorithm: sampled_rate
"""


def replay(
    spark: SparkSession, policies: str, files: list[str], folder: Path, shards: int, as_decided: bool = False
) -> ReplayResult:
    """Replay in the session of the tests."""
    (folder / "work").mkdir()
    staged = stage(policies, files, folder / "work")
    return replay_staged(spark, staged, shards=shards, tasks=2, as_decided=as_decided)


@of_traces(*WIDEST)
def test_a_trace_gives_the_same_bytes_in_both_engines(
    policies: Path, log: Path, spark: SparkSession, tmp_path: Path
) -> None:
    """Every reference trace of the laws that replay files: mutation, shares, dispatch, backlog."""
    replayed = replay(spark, str(policies), [str(log)], tmp_path, 5)
    assert replayed == replay_local(str(policies), [str(log)])
    assert replayed.decisions


@pytest.mark.parametrize("as_decided", [False, True])
def test_what_proxies_decided_gives_the_same_bytes(
    spark: SparkSession, tmp_path: Path, as_decided: bool
) -> None:
    """Kept or decided anew; with refunds, applied times and a proxy that says that it lives."""
    policies, events = tmp_path / "policies.yaml", tmp_path / "events.jsonl"
    policies.write_text(POLICIES)
    said = {"outcome": "allow", "rejected": [], "throttle_time_ms": 0, "tokens": 1.0}
    lines: list[dict[str, Any]] = [{"type": "alive", "id": "p1-0", "ts": T0, "proxy": "p1"}]
    for number in range(60):
        user = f"u{number % 7}"
        items = [{"name": "t", "mutations": number}]
        event = {"id": f"e{number}", "ts": T0 + number, "user": user, "items": items}
        if number % 5 == 4:
            lines.append(event | {"type": "refund", "applied_ts": T0 + number + 3})
        else:
            lines.append(event | {"type": "request", "decided": said})
    events.write_bytes(b"\n".join(map(orjson.dumps, lines)))
    local = replay_local(str(policies), [str(events)], as_decided=as_decided)
    assert replay(spark, str(policies), [str(events)], tmp_path, 5, as_decided) == local
    assert any(b'"outcome":"reject","thr' in one for one in local.decisions) is not as_decided
    assert any(b'"law":' in one for one in local.decisions) is as_decided
    assert any(b'"refunds":' in one for one in local.decisions) and not local.dead_letters


def test_what_proxies_deliver_gives_the_same_bytes(spark: SparkSession, tmp_path: Path) -> None:
    """Of two proxies before several brokers, some of it late; what is shared out stands beside it."""
    policies, events = tmp_path / "policies.yaml", tmp_path / "events.jsonl"
    policies.write_text(
        """\
version: 1
topics:
  clicks: {dispatchRate: {dispatchThrottlingRateInByte: 900, across_brokers: true}}
namespaces:
  public/default: {subscriptionDispatchRate: {dispatchThrottlingRateInMsg: 10, ratePeriodInSecond: 3}}
broker: {dispatchThrottlingRateInMsg: 50, resourceUsagePublishIntervalInSecs: 5}
backpressure: {partitions: {"*": {algorithm: vegas}}}
"""
    )
    clicks = "persistent://public/default/clicks"
    lines: list[dict[str, Any]] = []
    for number in range(80):
        late = {"applied_ts": T0 + number * 90 + 200} if number % 6 == 5 else {}
        proxy = {"proxy": f"p{number % 2}"} if number % 4 else {}
        lines.append(
            {
                "type": "dispatch_usage", "id": f"d{number}", "ts": T0 + number * 90, **late, **proxy,
                "broker": f"broker-{number % 3}", "topic": clicks,
                "subscription": "a/b" if number % 5 else "",
                "msgs": number % 13, "bytes": number * 3, "entries": 1, "backlog": True,
            }
        )  # fmt: skip
    groups = [f"dispatch/{clicks}", f"dispatch/{clicks}/a/b", "inflight/broker-1"]
    usage = {group: {"publishedMsg": 5, "dispatchedBytes": 70} for group in groups}
    lines += [
        {"type": "group_usage", "id": p, "ts": T0, "broker": p, "period_ms": 5000, "usage": usage}
        for p in ("p0", "p1")
    ]
    events.write_bytes(b"\n".join(map(orjson.dumps, lines)))
    local = replay_local(str(policies), [str(events)])
    assert replay(spark, str(policies), [str(events)], tmp_path, 5) == local
    assert not local.dead_letters
    decided = [orjson.loads(one) for one in local.decisions]
    assert {one["group"] for one in decided if one["type"] == "share"} == {groups[0], groups[2]}
    assert any("acquired" in one and "applied_ts" in one for one in decided)


def test_raises_and_modes_give_the_same_bytes(spark: SparkSession, tmp_path: Path) -> None:
    """What ends by itself ends in each shard at its time, and the mode is every law's."""
    policies, log = tmp_path / "policies.yaml", tmp_path / "events.jsonl"
    policies.write_text(mode_kit.POLICIES)
    log.write_bytes(mode_kit.lines())
    local = replay_local(str(policies), [str(log)])
    assert replay(spark, str(policies), [str(log)], tmp_path, 5) == local
    assert {orjson.loads(one).get("shadow", False) for one in local.decisions} == {False, True}


def test_damaged_and_changing_logs_give_the_same_bytes(spark: SparkSession, tmp_path: Path) -> None:
    """Two files with policy changes, refunds, equal keys, no ids, and lines that cannot be used."""
    policies = tmp_path / "policies.yaml"
    policies.write_text(POLICIES)
    one = [request(f"a{n % 7}", n * 90, n % 5, user=("alice", "bob", "carol")[n % 3]) for n in range(200)]
    two = [
        policy(4000, "quotas[user=alice]", quota(3)),
        policy(9000, "quotas[user=carol]", quota(2, 5)),
        policy(9000, "quotas[user=carol]", {"controller_mutation_rate": 0}),
        policy(12000, "quotas[user=alice]", None),
        refund(8000, 2000, 2),
        {"type": "request", "ts": 1, "items": []},
        {"type": "request", "items": []},
    ]
    first, second = tmp_path / "first file.jsonl", tmp_path / "second.jsonl"
    first.write_bytes(b"\n".join(orjson.dumps(event) for event in one) + b"\n\xff\x00\n\n{}\nnull")
    second.write_bytes(b"\n".join(orjson.dumps(event) for event in two) + b'\n{"type":"policy","ts":1}\n')
    files = [str(second), str(first)]
    replayed = replay(spark, str(policies), files, tmp_path, 3)
    expected = replay_local(str(policies), files)
    assert (len(expected.decisions), len(expected.dead_letters)) == (201, 6)
    assert replayed.decisions == expected.decisions
    assert replayed.dead_letters == expected.dead_letters


def test_nothing_to_replay_is_no_error(spark: SparkSession, tmp_path: Path) -> None:
    """An empty file gives empty output."""
    policies, events = tmp_path / "policies.yaml", tmp_path / "empty.jsonl"
    policies.write_text(POLICIES)
    events.touch()
    replayed = replay(spark, str(policies), [str(events)], tmp_path, 2)
    assert (replayed.decisions, replayed.dead_letters) == ([], [])


def test_wrong_input_is_named_before_a_session_is_started(tmp_path: Path) -> None:
    """A wrong policy file is a configuration error, a missing event file an error of its own."""
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("version: 1\nquotas: 5\n")
    with pytest.raises(ConfigError):
        replay_spark(str(wrong), [], jars=jars_dir("spark"))
    right = tmp_path / "policies.yaml"
    right.write_text(POLICIES)
    with pytest.raises(WeirError, match="cannot be read"):
        replay_spark(str(right), [str(tmp_path / "missing.jsonl")], jars=jars_dir("spark"))
