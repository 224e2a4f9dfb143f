"""A recorded run of backlogs replays to the same decisions: job, dump, both engines."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka import Producer
from job_kit import Job
from pack_kit import packed
from pyspark.sql import SparkSession

from streaming.columns.packed import CONTENT_TYPE, HEADER
from streaming.contract.backlog.actions import BacklogAction
from streaming.contract.topics import Cluster, Topics
from streaming.job.replay import replay_staged, stage
from streaming.replay import replay_local
from weir.logs.dump import dump
from weir.logs.reading import TopicReader
from weir.stack.kafka import LocalKafka
from weir.stack.topics import ensure_topics

WAIT_S = 60.0
TOPICS = Topics()
EVICT, HOLD = "consumer_backlog_eviction", "producer_request_hold"
NAMES = [f"persistent://acme/orders/t-partition-{number}" for number in range(20)]
Event = dict[str, Any]
Decided = dict[tuple[str, str], Event]


class Bench:
    """A broker with a job that packs all that it can."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self.cluster = Cluster(bootstrap=bootstrap, topics=TOPICS, client={})
        self._producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2"})
        file = folder / "weir.yaml"
        file.write_text("job: {tick_interval_ms: 1000, pack_min: 2}\n")
        self.job = Job(folder, bootstrap, "--settings", str(file))

    def tell(self, path: str, value: Event | None) -> None:
        """Change a policy, in force from now on."""
        change = {"type": "policy", "ts": now_ms(), "path": path, "value": value}
        self._put(TOPICS.policies, path, orjson.dumps(change))

    def report(self, *events: Event) -> None:
        """One packed record a partition, by the topics' names, as a collector writes them."""
        partitions = len(
            self._producer.list_topics(TOPICS.usage, timeout=WAIT_S).topics[TOPICS.usage].partitions
        )
        for partition in range(partitions):
            for value in packed(
                [event for event in events if NAMES.index(event["topic"]) % partitions == partition]
            ):
                self._put(
                    TOPICS.usage, "", value, partition=partition, headers=[(HEADER, CONTENT_TYPE.encode())]
                )

    def act(self, action: BacklogAction) -> None:
        """Log what was done, among the decisions."""
        self._put(TOPICS.decisions, action.topic, orjson.dumps(action.fields()))

    def decided(self, enough: int) -> Decided:
        """The decisions on backlogs once there are so many, repeats aside."""
        deadline = time.monotonic() + WAIT_S
        while True:
            reader = TopicReader(self.cluster.bootstrap, {})
            try:
                spans = reader.spans(TOPICS.decisions, 0, None)
                found = keyed(one.value for span in spans for one in reader.read(span, types=("backlog",)))
            finally:
                reader.close()
            if len(found) >= enough:
                return found
            assert time.monotonic() < deadline, f"{len(found)} of {enough} decisions"
            time.sleep(0.2)

    def _put(self, topic: str, key: str, value: bytes, **more: Any) -> None:
        self._producer.produce(topic, value, key, **more)
        assert self._producer.flush(WAIT_S) == 0


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A job on a broker of its own, with two partitions of everything."""
    with LocalKafka(tmp_path / "kafka") as kafka:
        ensure_topics(kafka.bootstrap, TOPICS, partitions=2)
        bench = Bench(tmp_path, kafka.bootstrap)
        bench.tell("namespaces.acme/orders", quotas(3_000, 30))
        try:
            bench.job.start()
            yield bench
        finally:
            bench.job.close()


def now_ms() -> int:
    """The time, ms since the epoch."""
    return time.time_ns() // 1_000_000


def keyed(values: Any) -> Decided:
    """Decisions by type and id, repeats and what is no decision aside."""
    found = map(orjson.loads, values)
    return {
        (one["type"], one["id"]): one for one in found if one["type"] == "backlog" and "repeat" not in one
    }


def quotas(size: int, seconds: int, **more: Any) -> Event:
    """Both types, evicting."""
    return {
        "backlogQuotaMap": {
            "destination_storage": {"limitSize": size, "policy": EVICT, **more},
            "message_age": {"limitTime": seconds, "policy": EVICT, **more},
        }
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
    bench: Bench, spark: SparkSession, tmp_path: Path
) -> None:
    """Packed reports before and after changes of policies, a late one, actions among the decisions."""
    bench.report(*reports(1, now_ms()))
    first = bench.decided(20)
    bench.tell("broker", {"preciseBacklogSize": True, "preciseTimeBasedBacklogQuotaCheck": True})
    bench.tell(f"topics.{NAMES[0].rpartition('-partition-')[0]}", quotas(900, -1, actions=True))
    bench.act(
        BacklogAction(
            id="c1/19/size/slow",
            ts=now_ms(),
            topic=NAMES[19],
            quota_type="size",
            policy=EVICT,
            limit=3_000,
            actor="c1",
            step="done",
            subscription="slow",
            how="offsets",
            messages=5,
            bytes=150,
        )
    )
    before = now_ms() - 1_000_000
    bench.report(*reports(2, now_ms()))
    bench.decided(40)
    # Of a collector whose clock is behind: judged by the policies of what was seen before.
    late = [event | {"ts": before} for event in reports(3, before)[:4]]
    bench.report(*late)
    bench.decided(44)
    bench.tell("broker", None)
    bench.report(*reports(4, now_ms()))
    live = bench.decided(64)

    file, none = tmp_path / "dump.jsonl.gz", tmp_path / "none.yaml"
    none.write_text("version: 1\n")
    dump(bench.cluster, 0, now_ms() + 60_000, file, progress=lambda text: None)
    (tmp_path / "work").mkdir()
    local = replay_local(str(none), [str(file)], as_decided=True)
    staged = stage(str(none), [str(file)], tmp_path / "work")
    by_spark = replay_staged(spark, staged, shards=3, tasks=2, as_decided=True)

    assert local.dead_letters == by_spark.dead_letters == []
    assert keyed(local.decisions) == live
    assert by_spark.decisions == local.decisions
    assert {(one["type"], one["id"]) for one in first.values()} < live.keys()
    assert {one["backlogQuotaLimitSize"] for one in live.values()} == {3_000, 900}
    assert all(live["backlog", f"c3/{number}"]["applied_ts"] > before for number in range(4))
    kinds = [
        {tuple(one["exceeded"]) for name, one in live.items() if name[1].startswith(f"c{n}/")} for n in (1, 2)
    ]
    assert kinds[0] != kinds[1] and any(len(each) == 2 for each in kinds[0])
