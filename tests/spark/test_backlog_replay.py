"""A recorded run of backlogs replays to the same decisions: job, dump, both engines."""

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
import with_constant
from backlog_kit import now_ms
from bench_kit import PACKED, Bench, bench
from event_kit import EVICT, quotas
from job_broker_kit import TOPICS, Event
from pack_kit import packed
from pyspark.sql import SparkSession

from streaming.contract.backlog.actions import BacklogAction
from streaming.contract.topics import Cluster
from streaming.job.replay import replay_staged, stage
from streaming.replay import replay_local
from weir.logs.dump import dump

NAMES = [f"persistent://acme/orders/t-partition-{number}" for number in range(20)]
Decided = dict[tuple[str, str], Event]


@pytest.fixture
def packing(tmp_path: Path) -> Iterator[Bench]:
    """A job that packs all that it can, and has read quotas."""
    all_of_it = with_constant.at("streaming.job.query", "PACK_MIN", 2)
    with bench(tmp_path, "job: {tick_interval_ms: 1000}\n", module=all_of_it) as made:
        made.tell({"namespaces.acme/orders": quotas(3_000, 30)}, now_ms())
        made.job.start()
        yield made


def report(packing: Bench, *events: Event) -> None:
    """One packed record a partition, by the topics' names, as a collector writes them."""
    for partition in range(2):
        own = [event for event in events if NAMES.index(event["topic"]) % 2 == partition]
        for value in packed(own):
            packing.write(TOPICS.usage, value, partition=partition, headers=PACKED)


def decided(packing: Bench, enough: int) -> Decided:
    """The decisions on backlogs once there are so many, repeats aside."""
    return keyed(packing.until(lambda found: len(keyed(found)) >= enough))


def keyed(found: list[Event]) -> Decided:
    """Decisions by type and id, repeats and what is no decision aside."""
    return {
        (one["type"], one["id"]): one for one in found if one["type"] == "backlog" and "repeat" not in one
    }


def reports(check: int, ts: int) -> list[Event]:
    """What a collector sees of all topics: some within their quotas, some beyond, some without a backlog."""
    return [
        {
            "type": "backlog", "id": f"c{check}/{number}", "ts": ts, "broker": "c1", "topic": name,
            "ledgers": [
                {"id": 0, "entries": 10 * number, "size": 300 * number, "closeTime": ts - 4_000 * number},
                {"id": 10 * number + 1, "entries": check, "size": 100 * check, "closeTime": None},
            ],
            "subscriptions": [
                {"name": "slow", "ledger": 0, "entry": max(-1, number - 2), "durable": True,
                 "oldestPublishTime": ts - 5_000 * number},
                {"name": "fast", "ledger": 10 * number + 1, "entry": check - 1, "durable": True,
                 "oldestPublishTime": None},
            ],
        }
        for number, name in enumerate(NAMES)
    ]  # fmt: skip


@pytest.mark.soak
def test_a_recorded_run_replays_to_the_same_decisions(
    packing: Bench, spark: SparkSession, tmp_path: Path
) -> None:
    """Packed reports before and after changes of policies, a late one, actions among the decisions."""
    report(packing, *reports(1, now_ms()))
    first = decided(packing, 20)
    precise = {"preciseBacklogSize": True, "preciseTimeBasedBacklogQuotaCheck": True}
    packing.tell({"broker": precise}, now_ms())
    whole = NAMES[0].rpartition("-partition-")[0]
    packing.tell({f"topics.{whole}": quotas(900, -1, actions=True)}, now_ms())
    action = BacklogAction(
        id="c1/19/size/slow", ts=now_ms(), topic=NAMES[19], quota_type="size", policy=EVICT, limit=3_000,
        actor="c1", step="done", subscription="slow", how="offsets", messages=5, bytes=150,
    )  # fmt: skip
    packing.write(TOPICS.decisions, action.fields(), action.topic)
    before = now_ms() - 1_000_000
    report(packing, *reports(2, now_ms()))
    decided(packing, 40)
    # Of a collector whose clock is behind: judged by the policies of what was seen before.
    late = [event | {"ts": before} for event in reports(3, before)[:4]]
    report(packing, *late)
    decided(packing, 44)
    packing.tell({"broker": None}, now_ms())
    report(packing, *reports(4, now_ms()))
    live = decided(packing, 64)

    file, none = tmp_path / "dump.jsonl.gz", tmp_path / "none.yaml"
    none.write_text("version: 1\n")
    cluster = Cluster(bootstrap=packing.bootstrap, topics=TOPICS, client={})
    dump(cluster, 0, now_ms() + 60_000, file, progress=lambda text: None)
    (tmp_path / "work").mkdir()
    local = replay_local(str(none), [str(file)], as_decided=True)
    staged = stage(str(none), [str(file)], tmp_path / "work")
    by_spark = replay_staged(spark, staged, shards=3, tasks=2, as_decided=True)

    assert local.dead_letters == by_spark.dead_letters == []
    assert keyed([orjson.loads(line) for line in local.decisions]) == live
    assert by_spark.decisions == local.decisions
    assert {(one["type"], one["id"]) for one in first.values()} < live.keys()
    assert {one["backlogQuotaLimitSize"] for one in live.values()} == {3_000, 900}
    assert all(live["backlog", f"c3/{number}"]["applied_ts"] > before for number in range(4))
    kinds = [
        {tuple(one["exceeded"]) for name, one in live.items() if name[1].startswith(f"c{n}/")} for n in (1, 2)
    ]
    assert kinds[0] != kinds[1] and any(len(each) == 2 for each in kinds[0])
