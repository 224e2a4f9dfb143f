"""Both replay engines write the same bytes."""

from pathlib import Path
from typing import Any

import mode_kit
import orjson
import pytest
from event_kit import delivery, report
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


def replayed(
    spark: SparkSession, folder: Path, policies: str, *logs: bytes, shards: int = 5, as_decided: bool = False
) -> ReplayResult:
    """What both engines make of logs, that of Spark in the session of the tests."""
    file = folder / "policies.yaml"
    file.write_text(policies)
    files = [folder / f"events {number}.jsonl" for number, _ in enumerate(logs)]
    for path, log in zip(files, logs, strict=True):
        path.write_bytes(log)
    return of_both(spark, folder, file, *files, shards=shards, as_decided=as_decided)


def of_both(
    spark: SparkSession, folder: Path, policies: Path, *logs: Path, shards: int = 5, as_decided: bool = False
) -> ReplayResult:
    """The same of files."""
    files = [*map(str, logs)]
    (folder / "work").mkdir()
    staged = stage(str(policies), files, folder / "work")
    found = replay_staged(spark, staged, shards=shards, tasks=2, as_decided=as_decided)
    assert found == replay_local(str(policies), files, as_decided=as_decided)
    return found


@of_traces(*WIDEST)
def test_a_trace_gives_the_same_bytes_in_both_engines(
    policies: Path, log: Path, spark: SparkSession, tmp_path: Path
) -> None:
    """Every reference trace of the laws that replay files: mutation, shares, dispatch, backlog."""
    assert of_both(spark, tmp_path, policies, log).decisions


@pytest.mark.parametrize("as_decided", [False, True])
def test_what_proxies_decided_gives_the_same_bytes(
    spark: SparkSession, tmp_path: Path, as_decided: bool
) -> None:
    """Kept or decided anew; with refunds, applied times and a proxy that says that it lives."""
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
    log = b"\n".join(map(orjson.dumps, lines))
    found = replayed(spark, tmp_path, POLICIES, log, as_decided=as_decided)
    assert any(b'"outcome":"reject","thr' in one for one in found.decisions) is not as_decided
    assert any(b'"law":' in one for one in found.decisions) is as_decided
    assert any(b'"refunds":' in one for one in found.decisions) and not found.dead_letters


def test_what_proxies_deliver_gives_the_same_bytes(spark: SparkSession, tmp_path: Path) -> None:
    """Of two proxies before several brokers, some of it late; what is shared out stands beside it."""
    policies = """\
version: 1
topics:
  clicks: {dispatchRate: {dispatchThrottlingRateInByte: 900, across_brokers: true}}
namespaces:
  public/default: {subscriptionDispatchRate: {dispatchThrottlingRateInMsg: 10, ratePeriodInSecond: 3}}
broker: {dispatchThrottlingRateInMsg: 50, resourceUsagePublishIntervalInSecs: 5}
backpressure: {partitions: {"*": {algorithm: vegas}}}
"""
    clicks = "persistent://public/default/clicks"
    lines: list[dict[str, Any]] = []
    for number in range(80):
        late = {"applied_ts": T0 + number * 90 + 200} if number % 6 == 5 else {}
        proxy = {"proxy": f"p{number % 2}"} if number % 4 else {}
        name = "a/b" if number % 5 else ""
        place = {"id": f"d{number}", "broker": f"broker-{number % 3}", "topic": clicks, "subscription": name}
        lines.append(delivery(number * 90, number % 13, number * 3, 1, **place, **proxy, **late))
    groups = [f"dispatch/{clicks}", f"dispatch/{clicks}/a/b", "inflight/broker-1"]
    usage = {group: {"publishedMsg": 5, "dispatchedBytes": 70} for group in groups}
    lines += [report(0, proxy, usage, 5000) for proxy in ("p0", "p1")]
    found = replayed(spark, tmp_path, policies, b"\n".join(map(orjson.dumps, lines)))
    assert not found.dead_letters
    decided = [orjson.loads(one) for one in found.decisions]
    assert {one["group"] for one in decided if one["type"] == "share"} == {groups[0], groups[2]}
    assert any("acquired" in one and "applied_ts" in one for one in decided)


def test_raises_and_modes_give_the_same_bytes(spark: SparkSession, tmp_path: Path) -> None:
    """What ends by itself ends in each shard at its time, and the mode is every law's."""
    found = replayed(spark, tmp_path, mode_kit.POLICIES, mode_kit.lines())
    assert {orjson.loads(one).get("shadow", False) for one in found.decisions} == {False, True}


def test_damaged_and_changing_logs_give_the_same_bytes(spark: SparkSession, tmp_path: Path) -> None:
    """Two files with policy changes, refunds, equal keys, no ids, and lines that cannot be used."""
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
    first = b"\n".join(map(orjson.dumps, two)) + b'\n{"type":"policy","ts":1}\n'
    second = b"\n".join(map(orjson.dumps, one)) + b"\n\xff\x00\n\n{}\nnull"
    found = replayed(spark, tmp_path, POLICIES, first, second, shards=3)
    assert (len(found.decisions), len(found.dead_letters)) == (201, 6)


def test_nothing_to_replay_is_no_error(spark: SparkSession, tmp_path: Path) -> None:
    """An empty file gives empty output."""
    assert replayed(spark, tmp_path, POLICIES, b"", shards=2) == ReplayResult()


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
