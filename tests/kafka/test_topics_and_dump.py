"""Topics, dump and collector on a real broker."""

import gzip
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest
from cluster_kit import Cluster as SharedCluster
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from equivalence_kit import plain
from proxy_kit import until
from stack_kit import new_topics

from streaming.contract.errors import WeirError
from streaming.contract.topics import Cluster, Topics
from streaming.contract.topics import Cluster as Home
from streaming.kafka_io.cluster_quotas import QuotaReader
from streaming.kafka_io.policy_topic import PolicyReader, Update, read_policies
from streaming.kafka_io.policy_turn import change_policies
from streaming.kafka_io.weir_topics import KEPT_MS
from weir.bill.adding import bill
from weir.cli import main
from weir.collect.kafka import collect_once
from weir.logs.dump import dump
from weir.stack.kafka import LocalKafka
from weir.stack.topics import ensure_topics

NOW = 1_795_166_668_375


@pytest.fixture
def kafka(cluster: SharedCluster) -> LocalKafka:
    """The broker."""
    return cluster.kafka


def cluster_for(kafka: LocalKafka, prefix: str) -> Cluster:
    """An installation with topics of its own, created."""
    cluster = Cluster(bootstrap=kafka.bootstrap, topics=Topics(prefix), client={})
    ensure_topics(cluster)
    return cluster


def write(cluster: Cluster, topic: str, *values: Any, key: str = "user=a") -> list[int]:
    """Send records, in order; the brokers' times of them."""
    times: list[int] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    for value in values:
        data = value if isinstance(value, bytes) or value is None else orjson.dumps(value)
        producer.produce(
            topic, key=key.encode(), value=data, on_delivery=lambda _, sent: times.append(sent.timestamp()[1])
        )
    assert producer.flush(20) == 0
    return times


def test_topics_have_the_settings_of_the_contract(kafka: LocalKafka) -> None:
    """LogAppendTime where proxies write, compaction of policies not sooner than requests go."""
    topics = cluster_for(kafka, "settings.").topics
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in topics.all()]
    found = {r.name: f.result() for r, f in admin.describe_configs(resources, request_timeout=20).items()}

    for name in (topics.requests, topics.usage, topics.policies):
        assert found[name]["message.timestamp.type"].value == "LogAppendTime"
    assert found[topics.policies]["cleanup.policy"].value == "compact"
    assert found[topics.policies]["min.compaction.lag.ms"].value == str(KEPT_MS)
    for name in (topics.requests, topics.decisions):
        assert found[name]["retention.ms"].value == str(KEPT_MS)


def test_topics_are_created_once(kafka: LocalKafka) -> None:
    """Calling again creates nothing and is no error."""
    topics = Topics("twice.")
    assert ensure_topics(Home(kafka.bootstrap, topics), partitions=2) == list(topics.all())
    assert ensure_topics(Home(kafka.bootstrap, topics), partitions=2) == []
    known = AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=20).topics
    assert len(known[topics.requests].partitions) == 2
    assert len(known[topics.policies].partitions) == 1


def test_topic_with_other_settings_is_refused(kafka: LocalKafka) -> None:
    """Somebody else's topic of that name is named and left alone."""
    new_topics(kafka.bootstrap, "foreign.requests")
    with pytest.raises(WeirError, match=r"foreign\.requests exists with message\.timestamp\.type=CreateTime"):
        ensure_topics(Home(kafka.bootstrap, Topics("foreign.")))


def test_absent_cluster_is_an_error_within_the_limit() -> None:
    """No hang, and the address is named."""
    begun = time.monotonic()
    with pytest.raises(WeirError, match=r"127\.0\.0\.1:1 does not answer"):
        ensure_topics(Cluster("127.0.0.1:1"), limit_s=2)
    assert time.monotonic() - begun < 10


def test_dump_writes_events_in_applied_order(kafka: LocalKafka, tmp_path: Path) -> None:
    """Record time and name where missing, late and applied times from the decisions, policies at theirs."""
    cluster = cluster_for(kafka, "dump.")
    topics, out = cluster.topics, tmp_path / "events.jsonl.gz"
    base = {"type": "request", "user": "a", "subject": "user=a", "items": []}
    decided = {"type": "admission", "subject": "user=a"}
    write(cluster, topics.requests, base | {"id": "new", "ts": NOW}, base | {"id": "old", "ts": NOW - 500})
    came, *_ = write(cluster, topics.requests, base, b"{'no': json}", None)
    write(cluster, topics.policies, {"type": "policy", "ts": NOW, "path": "broker", "value": None})
    write(
        cluster, topics.decisions, decided | {"id": "new", "ts": NOW},
        decided | {"id": "old", "ts": NOW - 500, "applied_ts": NOW},
    )  # fmt: skip
    write(cluster, topics.decisions, decided | {"id": "dump.requests-0-2", "ts": came, "late": True})

    counts = dump(cluster, 0, int(time.time() * 1000) + 60_000, out, progress=lambda text: None)

    lines = gzip.decompress(out.read_bytes()).splitlines()
    assert lines[-1] == b"{'no': json}"
    policy, new, old, unnamed = [orjson.loads(line) for line in lines[:-1]]
    assert (policy["type"], policy["ts"], policy["id"]) == ("policy", NOW, "dump.policies-0-0")
    assert (new["id"], "applied_ts" in new) == ("new", False)
    assert (old["id"], old["ts"], old["applied_ts"]) == ("old", NOW - 500, NOW)
    assert (unnamed["id"], unnamed["late"]) == ("dump.requests-0-2", True)
    assert abs(unnamed["ts"] - time.time() * 1000) < 60_000
    assert (counts.events, counts.policies, counts.late, counts.not_json, counts.left_out) == (4, 1, 1, 1, 1)


def test_a_dump_has_what_the_job_decided_by(kafka: LocalKafka, tmp_path: Path) -> None:
    """Reports of a collector whose transaction was ended, which the job does not wait for; no such policy."""
    cluster = cluster_for(kafka, "ended.")
    topics, out = cluster.topics, tmp_path / "events.jsonl"
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "ended"})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topics.usage, orjson.dumps({"type": "backlog", "id": "ended", "topic": "t", "ts": NOW}))
    producer.produce(topics.policies, orjson.dumps({"type": "policy", "path": "broker", "value": None}))
    assert producer.flush(20) == 0
    producer.abort_transaction(20)
    write(cluster, topics.usage, {"type": "backlog", "id": "whole", "topic": "t", "ts": NOW})

    dump(cluster, 0, 2 * NOW, out, progress=lambda _line: None)
    assert [orjson.loads(line)["id"] for line in out.read_bytes().splitlines()] == ["ended", "whole"]


def test_dump_of_a_stretch_has_its_events_and_all_policies(kafka: LocalKafka, tmp_path: Path) -> None:
    """[from, to) by record time; policies from the beginning, since they may be older."""
    cluster = cluster_for(kafka, "stretch.")
    event = {"type": "request", "items": []}
    write(cluster, cluster.topics.policies, {"type": "policy", "ts": 1, "path": "broker", "value": None})
    write(cluster, cluster.topics.requests, event | {"id": "before"})
    time.sleep(0.05)
    from_ms = int(time.time() * 1000)
    write(cluster, cluster.topics.requests, event | {"id": "within"})
    time.sleep(0.05)
    to_ms = int(time.time() * 1000)
    write(cluster, cluster.topics.requests, event | {"id": "after"})

    dump(cluster, from_ms, to_ms, tmp_path / "out.jsonl", progress=lambda text: None)

    found = [orjson.loads(line) for line in (tmp_path / "out.jsonl").read_bytes().splitlines()]
    assert [line.get("path", line["id"]) for line in found] == ["broker", "within"]


@pytest.mark.soak
def test_topics_replay_as_their_dump_does(kafka: LocalKafka, tmp_path: Path) -> None:
    """--from-kafka reads what `weir dump` would have written, dead letters too; so does `weir propose`."""
    cluster = cluster_for(kafka, "replayed.")
    request = {"type": "request", "user": "alice", "items": [{"name": "t", "mutations": 20}]}
    write(cluster, cluster.topics.requests, *(request | {"ts": NOW + n, "id": str(n)} for n in range(3)))
    write(cluster, cluster.topics.requests, {"type": "nonsense"})
    policies, settings = tmp_path / "p.yaml", tmp_path / "settings.yaml"
    policies.write_text("version: 1\nquotas: [{entity: {user: alice}, controller_mutation_rate: 1}]\n")
    settings.write_text("kafka: {topic_prefix: replayed.}\n")
    dumped = tmp_path / "events.jsonl"
    there = ("--from", "beginning", "--to", "now", "--settings", str(settings))
    assert main(["dump", "--kafka", kafka.bootstrap, *there, "--out", str(dumped)]) == 0

    def replayed(*words: str) -> tuple[bytes, bytes]:
        out, dead = tmp_path / "out.jsonl", tmp_path / "dead.jsonl"
        files = ("--out", str(out), "--dead-letters", str(dead))
        assert main(["replay", "--policies", str(policies), *words, *files]) == 0
        return out.read_bytes(), dead.read_bytes()

    decisions, dead = replayed("--from-kafka", kafka.bootstrap, *there)
    assert (decisions, dead) == replayed("--events", str(dumped))
    told = [orjson.loads(line)["outcome"] for line in decisions.splitlines()]
    assert told == ["allow", "reject", "reject"]
    assert b"nonsense" in dead

    def proposed(*words: str) -> tuple[bytes, bytes]:
        out, dead = tmp_path / "proposed.yaml", tmp_path / "dead.jsonl"
        assert main(["propose", *words, "--out", str(out), "--dead-letters", str(dead)]) == 0
        return out.read_bytes(), dead.read_bytes()

    limits, buried = proposed("--from-kafka", kafka.bootstrap, *there)
    assert (limits, buried) == (proposed("--events", str(dumped))[0], dead)
    assert b"entity: {user: null}" in limits


@pytest.mark.soak
def test_a_bill_is_of_a_stretch_of_time(kafka: LocalKafka) -> None:
    """By the brokers' clock, whatever time an event names; two in a row add up to one."""
    cluster = cluster_for(kafka, "bill.")
    moments = []
    for name in ("a", "b", "c"):
        moments.append(time.time_ns() // 1_000_000)
        items = [{"name": "t", "mutations": 3}]
        request = {"type": "request", "id": name, "ts": NOW, "user": "alice", "items": items}
        write(cluster, cluster.topics.requests, request)
        usage = {"quota/user=alice": {"publishedBytes": 100}}
        report = {"type": "group_usage", "ts": NOW, "broker": "b1", "period_ms": 1, "usage": usage}
        write(cluster, cluster.topics.usage, report)
        admission = {"type": "admission", "id": name, "ts": NOW, "mutations": 3, "throttle_time_ms": 0}
        write(cluster, cluster.topics.decisions, admission)
        time.sleep(0.05)

    def charged(start: int, end: int) -> tuple[int, int]:
        (row,) = bill(cluster, start, end).rows()
        return row.partitions, row.bytes_in

    whole = 2**50
    assert charged(0, whole) == (9, 300)
    assert charged(0, moments[1]) == (3, 100)
    assert charged(moments[1], whole) == (6, 200)


def test_quotas_of_the_cluster_become_policies(kafka: LocalKafka) -> None:
    """Added, changed and removed ones follow; a file's entry wins and its removal lets them back."""
    cluster = cluster_for(kafka, "collect.")
    reader, policies = QuotaReader(Home(kafka.bootstrap), 10_000), PolicyReader(cluster)
    alice, bob = ("alice", None), ("bob", None)
    limit = plain(kafka).limit

    def round_() -> dict[str, Any]:
        collect_once(reader, policies, cluster, 20.0)
        log = read_policies(Home(kafka.bootstrap, cluster.topics))
        # Other tests leave quotas on this broker.
        own = [path for path in log.entries if path.startswith(("quotas[user=alice]", "quotas[user=bob]"))]
        return {path: (log.entries[path], log.origins[path]) for path in own}

    def apply(value: Any) -> None:
        update = Update(path="quotas[user=bob]", value=value)
        change_policies(Home(kafka.bootstrap, cluster.topics), lambda log: [update], origin="apply")

    with closing(reader):
        assert round_() == {}
        apply({"controller_mutation_rate": 9})
        rate = "controller_mutation_rate"
        limit({alice: {rate: 2.5, "producer_byte_rate": 1000}, bob: {rate: 1}})
        both = {
            "quotas[user=alice]": ({"controller_mutation_rate": 2.5, "producer_byte_rate": 1000}, "kafka"),
            "quotas[user=bob]": ({"controller_mutation_rate": 9}, "apply"),
        }
        # Brokers learn of quotas a little later.
        until(lambda: round_() == both, what="both")
        assert collect_once(reader, policies, cluster, 20.0) == 0
        apply(None)
        limit({alice: {rate: None, "producer_byte_rate": None}})
        one = {"quotas[user=bob]": ({"controller_mutation_rate": 1}, "kafka")}
        until(lambda: round_() == one, what="what the file had hidden")
        limit({bob: {rate: None}})


def test_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    """A bad property ends the start at once, with the end of its log, and leaves no process."""
    broker = LocalKafka(tmp_path, properties={"listeners": "NONSENSE://127.0.0.1:0"})
    with pytest.raises(WeirError, match="NONSENSE"):
        broker.start()
    assert not any(child.alive() for child in broker.children)
