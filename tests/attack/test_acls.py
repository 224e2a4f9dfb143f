"""A cluster whose authorizer is on: what docs/security.md grants is enough for Weir, and keeps others off.

The commands come from that page and are carried out by Kafka's own tools, so the page cannot be wrong.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import orjson
import pytest
from acl_kit import BEGUN, collect_of_pulsar, grant_the_pages
from admin_process_kit import Admin
from cluster_kit import LOOPBACK, address, fresh
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, ResourceType
from kafka.protocol.admin import DeleteRecordsRequest, DeleteRecordsResponse
from kafka.protocol.consumer import FetchResponse
from kafka_kit import build
from login_kit import Login
from proxy_kit import Decider, ProxyThread, until
from stack_kit import alter, new_topics, put, read_all, weir
from traffic_kit import fetch_request
from wire_client import WireClient

from enforcer.core.settings import ProxySettings
from enforcer.host.server import ProxyConfig
from streaming.collect.backlog.action_log import ActionLog
from streaming.collect.backlog.cluster import RoundQuestion
from streaming.collect.kafka.cluster import KafkaCluster
from streaming.contract.backlog.decisions import EvictionPlan
from streaming.contract.namespaces import Namespaces
from streaming.contract.topics import Cluster, Topics
from streaming.kafka_io.weir_topics import look
from weir.cli import main
from weir.stack.kafka import LocalKafka, Sasl
from weir.stack.topics import ensure_topics

USERS = (
    "weir-job", "weir-proxy", "weir-policies", "weir-reader", "weir-collect", "weir-backlogs", "mallory",
)  # fmt: skip
TOPICS = Topics()
LIMIT_S = 20.0
PATTERN = "tenant.namespace.topic"
CLIENT = (
    "kafka-acls --bootstrap-server HOST:PORT --add --allow-principal User:mallory --operation All"
    " --topic app. --group app. --resource-pattern-type prefixed"
)
"""What a client has of its own."""
DENIED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}  # fmt: skip
RULES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "false",
    # The listener without logins is the brokers' own here, and the administrator's.
    "super.users": "User:ANONYMOUS",
    # Nobody of Weir brings a topic back, though the broker would.
    "auto.create.topics.enable": "true",
}


@dataclass(frozen=True, slots=True)
class Secured:
    """A broker with the page's ACLs.

    Attributes:
        kafka: the broker.
        folder: for settings files.
    """

    kafka: LocalKafka
    folder: Path

    def login(self, user: str) -> dict[str, str]:
        """librdkafka properties of a user straight at the broker."""
        return {
            "bootstrap.servers": self.kafka.sasl_bootstrap, "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN", "sasl.username": user, "sasl.password": f"{user}-secret",
            "log_level": "0",
        }  # fmt: skip

    def weir(self, user: str, *words: str, **sections: dict[str, Any]) -> str:
        """Run a command as a user, with more sections of its settings; what it printed."""
        settings = self.folder / f"{user}.yaml"
        settings.write_text(json.dumps({"kafka": {"client": self.login(user)}, **sections}))
        command = [*words, "--kafka", self.kafka.sasl_bootstrap, "--settings", str(settings)]
        # Starting Python takes longer than what most of them do; a collector sets up its log and its signals.
        if words[0] != "collect":
            with redirect_stdout(StringIO()) as out:
                assert main(command) == 0
            return out.getvalue()
        done = weir(*command)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A broker on which nobody may do anything but what the page grants."""
    folder = tmp_path_factory.mktemp("acls")
    users = Sasl(plain={name: f"{name}-secret" for name in USERS})
    with LocalKafka(folder / "kafka", sasl=users, properties=RULES) as kafka:
        grant_the_pages(kafka.bootstrap, CLIENT)
        yield Secured(kafka, folder)


@pytest.fixture(scope="module")
def proxy(secured: Secured) -> Iterator[ProxyThread]:
    """Proxy and job under their users; clients log in through the proxy."""
    config = ProxyConfig(
        kafka=(address(secured.kafka.sasl_bootstrap),),
        listen=(LOOPBACK, 0),
        connection=secured.login("weir-proxy"),
        settings=ProxySettings(id="secured", sasl_plain_without_tls=True),
    )
    job = Decider(secured.kafka.sasl_bootstrap, TOPICS, client=secured.login("weir-job"))
    with job, ProxyThread(config) as running:
        yield running


@pytest.mark.soak
def test_the_topics_of_the_page_are_as_they_must_be(secured: Secured) -> None:
    """Nothing is wrong with them, and whoever starts the job creates none and needs no right to."""
    login = secured.login("weir-job")
    assert look(AdminClient(login), Cluster("", TOPICS), LIMIT_S).faults == ()
    assert ensure_topics(Cluster(login["bootstrap.servers"], TOPICS, login)) == []


async def test_the_collector_of_pulsar_works_under_its_user(secured: Secured) -> None:
    """It looks at topics, reads policies and shares, and writes reports as the one collector of a cluster."""
    await collect_of_pulsar(secured.login("weir-collect"))


@pytest.mark.soak
async def test_the_collector_of_backlogs_works_under_its_user(secured: Secured) -> None:
    """It reports a group of a client's own topic, moves its offset, and writes that down."""
    bootstrap, topic = secured.kafka.bootstrap, "app.backlog"
    new_topics(bootstrap, topic)
    put(bootstrap, topic, *[b"x"] * 10)
    group = Consumer({"bootstrap.servers": bootstrap, "group.id": "app.slow"})
    group.commit(offsets=[TopicPartition(topic, 0, 2)], asynchronous=False)
    secured.weir("weir-backlogs", "collect", "--once", collect={"quotas_from_kafka": False})
    reports = [orjson.loads(value) for value in shown(secured, TOPICS.usage) if b"app.backlog" in value]
    (report,) = (one for one in reports if one["topic"].endswith("/app.backlog"))
    assert [one["name"] for one in report["subscriptions"]] == ["app.slow"]
    login = secured.login("weir-backlogs")
    home = Cluster(login["bootstrap.servers"], TOPICS, login)
    cluster = KafkaCluster(home, Namespaces(PATTERN))
    looked = await cluster.look(RoundQuestion(precise_age=True, expires=lambda _topic: True))
    (found,) = (one for one in looked.reports if one.topic == report["topic"])
    assert found.subscriptions[0].oldest_publish_time is not None
    planned = EvictionPlan(subscription="app.slow", ledger=found.ledgers[-1].id, entry=-1, entries=8)
    eviction = await cluster.prepare(found, planned, may_delete=False)
    assert eviction is not None
    log = ActionLog(home, LIMIT_S)
    await log.write(BEGUN)
    await cluster.carry_out(eviction)
    log.close()
    cluster.close()
    assert group.committed([TopicPartition(topic, 0)], timeout=LIMIT_S)[0].offset == 10
    group.close()


def test_weir_works_under_its_users(secured: Secured, proxy: ProxyThread, tmp_path: Path) -> None:
    """Limits by command, API and from the cluster, requests decided, shares' topics read, logs shown."""
    until(proxy.proxy.enforcement.ready.is_set, what="a decided probe")
    assert proxy.proxy.recent_topics.default_partitions == 1
    policies = tmp_path / "policies.yaml"
    policies.write_text(
        "version: 1\nquotas:\n- entity: {user: mallory}\n  controller_mutation_rate: 1\n"
        "  controller_mutation_burst: 2\n"
    )
    assert "add    quotas[user=mallory]" in secured.weir("weir-policies", "policy", "apply", str(policies))
    own = {"client": secured.login("weir-policies")}
    with Admin(secured.kafka.sasl_bootstrap, tmp_path / "admin", "weir.", kafka=own) as admin:
        assert admin.ask("PUT", "/admin/v2/resourcegroups/rg1", {"publishRateInMsgs": 5})[0] == 204
        assert admin.ask("GET", "/admin/v2/resourcegroups")[1] == ["rg1"]
        assert "cannot be looked at" not in admin.log
    secured.weir("weir-policies", "collect", "--once", backlog={"enabled": False})
    assert "mallory" in secured.weir("weir-reader", "policy", "get")
    until(lambda: proxy.proxy.coordinator.quota("mallory", "") is not None)
    client = AdminClient({**secured.login("mallory"), "bootstrap.servers": proxy.bootstrap})
    asked = client.create_topics([NewTopic("app.1", 5), NewTopic("app.2", 5)], request_timeout=LIMIT_S)
    # librdkafka knows no rejection: it is created, and mallory waits.
    assert [future.result(LIMIT_S) for future in asked.values()] == [None, None]
    out = tmp_path / "events.jsonl"
    secured.weir("weir-reader", "dump", "--out", str(out))
    events = [orjson.loads(line) for line in out.read_text().splitlines()]
    (event,) = (event for event in events if event.get("user") == "mallory")
    assert event["subject"] == "user=mallory"
    decisions = map(orjson.loads, shown(secured, TOPICS.decisions))
    (decision,) = (each for each in decisions if each["id"] == event["id"])
    assert (decision["outcome"], decision["throttle_time_ms"]) == ("throttle", 8000)
    assert proxy.metric("events_total", result="failed") == 0
    for topic in TOPICS.all():
        assert proxy.metric("topic_faults", topic=topic, fault="unreadable") == 0


def shown(secured: Secured, topic: str) -> list[bytes]:
    """What is on a topic, read as `weir tail` and `weir dump` do."""
    return read_all(secured.kafka.sasl_bootstrap, topic, secured.login("weir-reader"))


def code_of(call: Callable[..., Any], *given: Any) -> int:
    """The error code of what a call raises, 0 for none."""
    try:
        call(*given)
    except KafkaException as refused:
        code: int = refused.args[0].code()
        return code
    return 0


def produced(login: dict[str, str], topic: str) -> int:
    """The error code of one record."""
    codes: list[int] = []
    producer = Producer({**login, "message.timeout.ms": "5000"})
    producer.produce(topic, b"{}", on_delivery=lambda error, _: codes.append(error.code() if error else 0))
    producer.flush(LIMIT_S)
    return codes[0]


@contextmanager
def logged_in(secured: Secured, user: str) -> Iterator[WireClient]:
    """A raw connection: librdkafka keeps to itself that it may not read."""
    with WireClient(secured.kafka.sasl_bootstrap, user) as client:
        login = Login(client)
        login.handshake("PLAIN")
        assert login.tell(f"\0{user}\0{user}-secret".encode()).error_code == 0
        yield client


def fetched(client: WireClient, topic: str) -> int:
    """The error code of reading from the start."""
    client.send_frame(fetch_request(11, {topic: 1})[0])
    ((part,),) = (each.partitions for each in client.receive(FetchResponse, 11).responses)
    return int(part.error_code)


def emptied(client: WireClient, topic: str) -> int:
    """The error code of deleting all records."""
    topics = [{"name": topic, "partitions": [{"partition_index": 0, "offset": -1}]}]
    client.send(build(DeleteRecordsRequest, 1, topics=topics, timeout_ms=5000))
    ((part,),) = (each.partitions for each in client.receive(DeleteRecordsResponse, 1).topics)
    return int(part.error_code)


@pytest.mark.parametrize("topic", TOPICS.all())
def test_nobody_else_gets_at_a_topic(secured: Secured, topic: str) -> None:
    """Straight at the broker: not seen, read, written, altered, grown, emptied or deleted."""
    login = secured.login("mallory")
    admin = AdminClient(login)
    resource = ConfigResource(ResourceType.TOPIC, topic)
    tries: dict[str, Callable[[], int]] = {
        "write": lambda: produced(login, topic),
        "delete": lambda: code_of(admin.delete_topics([topic])[topic].result, LIMIT_S),
        "alter": lambda: code_of(alter(admin, topic, {"retention.ms": 1}).result, LIMIT_S),
        "look": lambda: code_of(admin.describe_configs([resource])[resource].result, LIMIT_S),
        "grow": lambda: code_of(admin.create_partitions([NewPartitions(topic, 9)])[topic].result, LIMIT_S),
    }
    codes = {name: tried() for name, tried in tries.items()}
    with logged_in(secured, "mallory") as client:
        codes |= {"read": fetched(client, topic), "empty": emptied(client, topic)}
    assert codes == dict.fromkeys(codes, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    assert topic not in admin.list_topics(timeout=LIMIT_S).topics
    assert look(AdminClient(secured.login("weir-job")), Cluster("", TOPICS), LIMIT_S).faults == ()


def test_nobody_else_takes_a_turn_or_makes_a_topic_of_that_name(secured: Secured) -> None:
    """The transactional id of those who set limits, and further names under the prefix."""
    login = secured.login("mallory")
    thief = Producer({**login, "transactional.id": TOPICS.policies})
    assert code_of(thief.init_transactions, LIMIT_S) in DENIED
    name = f"weir.{fresh('more')}"
    admin = AdminClient(login)
    made = admin.create_topics([NewTopic(name, 1)])[name]
    assert code_of(made.result, LIMIT_S) in DENIED


@pytest.mark.parametrize(
    ("user", "topic"),
    [
        ("weir-proxy", TOPICS.policies), ("weir-proxy", TOPICS.decisions), ("weir-job", TOPICS.policies),
        ("weir-job", TOPICS.requests), ("weir-policies", TOPICS.decisions),
        ("weir-policies", TOPICS.requests), ("weir-reader", TOPICS.policies),
    ],
)  # fmt: skip
def test_no_part_may_write_what_another_one_says(secured: Secured, user: str, topic: str) -> None:
    """A proxy that is broken into sets no limits and decides nothing."""
    assert produced(secured.login(user), topic) in DENIED
