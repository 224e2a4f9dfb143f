"""`weir doctor` on real parts: a guarded installation that is well, and what can be wrong with one."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from cluster_kit import LOOPBACK, Cluster, address, fresh
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from prometheus_client import Gauge
from proxy_kit import ProxyThread
from stack_kit import alter
from tls_kit import Authority

from enforcer.core.security.tls import TlsSettings
from enforcer.core.settings import ProxySettings
from enforcer.host.server import ProxyConfig
from streaming.contract.topics import Cluster as Home
from streaming.contract.topics import Topics
from streaming.job.process.other_job import said_of
from streaming.job.process.ticker import HostClock, Ticker
from weir import cli
from weir.doctor import command
from weir.stack.kafka import LocalKafka, Sasl
from weir.stack.topics import ensure_topics

LIMIT_S, NOWHERE = 10.0, "127.0.0.1:1"
ADMIN, STRANGER = "admin", "mallory"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
LOGIN = f'{PLAIN} username="admin" password="admin-secret" user_admin="admin-secret"'
RULES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:{ADMIN}",
    # Brokers and controllers log in too, so that nobody without a login may do anything.
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT,SASL:SASL_PLAINTEXT",
    "inter.broker.listener.name": "SASL",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.controller.plain.sasl.jaas.config": f"{LOGIN};",
    "listener.name.sasl.plain.sasl.jaas.config": f'{LOGIN} user_mallory="mallory-secret";',
}
Found = dict[str, list[dict[str, str]]]
Doctor = Callable[..., tuple[int, Found]]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """A broker on which nobody may do anything without a login, and one user everything."""
    users = Sasl(plain={ADMIN: "admin-secret", STRANGER: "mallory-secret"})
    with LocalKafka(tmp_path_factory.mktemp("kafka"), sasl=users, properties=RULES) as kafka:
        yield kafka


@pytest.fixture
def own(guarded: LocalKafka) -> Topics:
    """An installation of its own on it."""
    topics = Topics(f"{fresh('doctor')}.")
    ensure_topics(Home(guarded.sasl_bootstrap, topics, login(ADMIN)))
    return topics


@pytest.fixture
def doctor(
    guarded: LocalKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Doctor:
    """Ask it about a topic prefix: exit status, and what was found by check."""
    # Others may run something where Weir listens by default.
    nobody = {name: (option, NOWHERE, *more) for name, (option, _, *more) in command.DOORS.items()}
    monkeypatch.setattr(command, "DOORS", nobody)

    def ask(
        topics: Topics, *words: str, user: str = ADMIN, kafka: str = "", clients: Any = None, **more: Any
    ) -> tuple[int, Found]:
        client = {} if kafka else login(user)
        settings = tmp_path / "weir.yaml"
        section = {"client": client, "topic_prefix": topics.prefix, "clients": clients or {}}
        settings.write_text(json.dumps({"kafka": section, **more}))
        settings.chmod(0o600)
        where = ["--kafka", kafka or guarded.sasl_bootstrap, "--settings", str(settings)]
        capsys.readouterr()
        status = cli.main(["doctor", *where, "--json", *words])
        found: Found = {}
        for each in orjson.loads(capsys.readouterr().out):
            found.setdefault(each["check"], []).append(each)
        return status, found

    return ask


def login(user: str) -> dict[str, str]:
    """librdkafka properties of a user."""
    return {
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
        "sasl.username": user, "sasl.password": f"{user}-secret",
    }  # fmt: skip


def config(kafka: LocalKafka, topics: Topics, **settings: Any) -> ProxyConfig:
    """Of a proxy that logs in."""
    return ProxyConfig(
        kafka=(address(kafka.sasl_bootstrap),),
        listen=(LOOPBACK, 0),
        topics=topics,
        connection={**login(ADMIN), "bootstrap.servers": kafka.sasl_bootstrap},
        settings=ProxySettings(start_timeout_ms=2_000, **settings),
    )


@contextmanager
def ticking(kafka: LocalKafka, topics: Topics) -> Iterator[Ticker]:
    """The part of the job by which it is known."""
    clock = HostClock(Gauge("ahead", "of the brokers", registry=None))
    ticker = Ticker(Home(kafka.sasl_bootstrap, topics, login(ADMIN)), 1_000, clock, said_of("q"))
    try:
        yield ticker
    finally:
        ticker.close(leaving=True)


def write(kafka: LocalKafka, topic: str, *events: dict[str, Any]) -> None:
    """Records of others."""
    producer = Producer({**login(ADMIN), "bootstrap.servers": kafka.sasl_bootstrap})
    for event in events:
        producer.produce(topic, orjson.dumps(event))
    assert producer.flush(LIMIT_S) == 0


def alive(proxy: str, instance: str) -> dict[str, Any]:
    """A proxy's word."""
    ms = time.time_ns() // 1_000_000
    return {"type": "alive", "id": f"{proxy}-alive-{ms}-1", "proxy": proxy, "instance": instance}


def statuses(found: Found) -> dict[str, set[str]]:
    """By check."""
    return {check: {each["status"] for each in ones} for check, ones in found.items()}


@pytest.mark.soak
def test_a_guarded_installation_is_well(
    guarded: LocalKafka, own: Topics, doctor: Doctor, tmp_path: Path
) -> None:
    """No error, and one warning: this broker has a listener that tells strangers of its brokers."""
    authority = Authority(tmp_path / "ca")
    pair = authority.server()
    tls = {"certificate": pair.certificate, "key": pair.key}
    running = config(guarded, own, id="p1", tls=TlsSettings(**tls), broker_port_base=0)
    with ProxyThread(running) as proxy, ticking(guarded, own) as ticker:
        ticker.poll(0.0)
        status, found = doctor(own, "--listen", proxy.bootstrap, proxy={"tls": tls})
    expected = {check: {"ok"} for check in found}
    assert statuses(found) == {**expected, "brokers": {"ok", "warning"}}
    assert status == 0
    (told,) = (each["what"] for each in found["brokers"] if each["status"] == "warning")
    assert told.startswith(f"{guarded.bootstrap} answers clients without a login past the proxy")
    assert found["proxies"][0]["what"].endswith(": p1")
    assert found["clocks"][0]["what"].endswith(": proxy p1, the job's host, this host")
    assert "serves TLS; its certificate is good until" in found["doors"][0]["what"]
    assert all(each["mend"] == "" for ones in found.values() for each in ones if each["status"] == "ok")


@pytest.mark.soak
def test_a_topic_with_a_wrong_setting_and_one_that_is_gone(
    guarded: LocalKafka, own: Topics, doctor: Doctor
) -> None:
    """Each is named with the command that mends it."""
    admin = AdminClient({**login(ADMIN), "bootstrap.servers": guarded.sasl_bootstrap})
    alter(admin, own.requests, {"message.timestamp.type": "CreateTime"}).result(LIMIT_S)
    admin.delete_topics([own.deadletter])[own.deadletter].result(LIMIT_S)
    status, found = doctor(own)
    assert status == 1
    wrong = {each["what"]: each["mend"] for each in found["topics"]}
    assert statuses(found)["topics"] == {"error"}
    assert len(wrong) == 2 and any(f"topic {own.deadletter} is not there" in what for what in wrong)
    what = f"topic {own.requests} exists with message.timestamp.type=CreateTime; Weir needs LogAppendTime"
    assert f"--entity-name {own.requests} --add-config cleanup.policy=delete" in wrong[what]


@pytest.mark.soak
def test_two_proxies_of_one_name_and_no_job(guarded: LocalKafka, own: Topics, doctor: Doctor) -> None:
    """A real proxy, and words of others that have its name; one that has left is none."""
    with ProxyThread(config(guarded, own, id="p1")):
        for instance in ("another", "third", "another"):
            write(guarded, own.usage, alive("p1", instance), alive("gone", "a"))
            # Each at a time of its own: who speaks after the other came is there beside it.
            time.sleep(0.01)
        write(guarded, own.usage, {**alive("gone", "a"), "leaving": True})
        status, found = doctor(own)
    assert status == 1
    assert [each["what"] for each in found["proxies"]] == [
        "two processes are the proxy 'p1': each uses its shares and its part of each quota"
    ]
    (job,) = found["job"]
    assert (job["status"], "weir job" in job["mend"]) == ("error", True)
    assert job["what"].startswith("the job is away: no tick of it was found")


@pytest.mark.soak
def test_a_certificate_that_ends_is_seen_in_the_file_and_at_the_door(
    guarded: LocalKafka, own: Topics, doctor: Doctor, tmp_path: Path
) -> None:
    """In ten days: a warning; what is served counts by itself."""
    authority = Authority(tmp_path / "ca")
    ends = datetime.now(UTC) + timedelta(days=10, hours=1)
    pair = authority.issue(LOOPBACK, not_after=ends)
    tls = {"certificate": pair.certificate, "key": pair.key}
    with ProxyThread(config(guarded, own, id="p1", tls=TlsSettings(**tls), broker_port_base=0)) as proxy:
        _, found = doctor(own, "--listen", proxy.bootstrap, proxy={"tls": tls})
        lasting = authority.server()
        other = {"certificate": lasting.certificate, "key": lasting.key}
        _, later = doctor(own, "--listen", proxy.bootstrap, proxy={"tls": other})
    date = f"ends in 10 days, on {ends:%Y-%m-%d}"
    (file,) = found["certificates"]
    assert (file["status"], file["what"]) == (
        "warning", f"proxy.tls.certificate: {pair.certificate} {date}"
    )  # fmt: skip
    served = [each for each in found["doors"] if each["status"] == "warning"]
    assert [each["what"] for each in served] == [
        f"proxy at {proxy.bootstrap} serves TLS; its certificate {date}"
    ]
    assert statuses(later)["certificates"] == {"ok"} and later["doors"][0] == served[0]


@pytest.mark.soak
def test_without_an_authorizer_anybody_sets_limits(cluster: Cluster, doctor: Doctor) -> None:
    """Said of the cluster, and seen at its door without a login."""
    status, found = doctor(cluster.topics, kafka=cluster.kafka.bootstrap)
    assert status == 1
    assert statuses(found)["authorizer"] == {"error"}
    assert "authorizer.class.name" in found["authorizer"][0]["mend"]
    straight = [each for each in found["brokers"] if each["status"] == "error"]
    (plain,) = (each for each in straight if each["what"].startswith(cluster.kafka.bootstrap))
    assert cluster.topics.policies in plain["what"] and "firewall" in plain["mend"]


@pytest.mark.soak
def test_acls_that_let_strangers_in_and_that_are_missing(
    guarded: LocalKafka, own: Topics, doctor: Doctor
) -> None:
    """Each with the command that mends it, which is one of docs/security.md."""
    given = [
        ("User:*", own.policies, AclOperation.WRITE),
        ("User:weir-proxy", own.requests, AclOperation.WRITE),
        ("User:weir-proxy", own.usage, AclOperation.WRITE),
        ("User:weir-proxy", own.policies, AclOperation.READ),
    ]
    bindings = [
        AclBinding(
            ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, user, "*", operation,
            AclPermissionType.ALLOW,
        )
        for user, topic, operation in given
    ]  # fmt: skip
    admin = AdminClient({**login(ADMIN), "bootstrap.servers": guarded.sasl_bootstrap})
    for future in admin.create_acls(bindings).values():
        future.result(LIMIT_S)
    status, found = doctor(own)
    assert status == 1
    (stranger,) = found["authorizer"]
    assert (stranger["status"], stranger["what"]) == (
        "error", f"User:* may WRITE {own.policies}: anybody sets limits"
    )  # fmt: skip
    assert "--remove --allow-principal 'User:*' --operation Write" in stranger["mend"]
    # Whoever reaches the listener without logins may do it, too.
    assert "error" in statuses(found)["brokers"]
    assert {each["what"] for each in found["acls"]} == {
        f"User:weir-proxy lacks Describe on topic {own.prefix}",
        f"User:weir-proxy lacks DescribeConfigs on topic {own.prefix}",
        "User:weir-proxy lacks Describe on group weir-",
        *(f"User:weir-proxy lacks Read on topic {name}" for name in (own.requests, own.usage, own.decisions)),
        "User:weir-proxy lacks DescribeConfigs on cluster",
    }
    assert all("--add --allow-principal User:weir-proxy" in each["mend"] for each in found["acls"])


@pytest.mark.soak
def test_who_may_see_nothing_is_told_so(own: Topics, doctor: Doctor) -> None:
    """A login without rights: what cannot be looked at is a warning each, and why."""
    status, found = doctor(own, user=STRANGER)
    assert status == 0
    worst = statuses(found)
    for check in ("topics", "replicas", "authorizer", "acls", "proxies", "job", "clocks"):
        assert worst[check] == {"warning"}, check
    assert "Cluster authorization failed" in found["acls"][0]["what"]


@pytest.mark.soak
def test_the_parts_own_logins(own: Topics, doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is refused is named, with what the brokers say."""
    monkeypatch.setattr("weir.doctor.checks.topics.LIMIT_S", 2.0)
    clients = {"proxy": login(STRANGER), "collect_kafka": {"sasl.password": "wrong"}}
    status, found = doctor(own, clients=clients)
    assert status == 1
    good, bad = found["logins"]
    assert (good["status"], good["what"]) == ("ok", "kafka.clients.proxy gets in")
    assert bad["status"] == "error" and "kafka.clients.collect_kafka" in bad["mend"]
    assert "uthentication failed" in bad["what"]


@pytest.mark.soak
def test_a_login_that_is_refused(own: Topics, doctor: Doctor) -> None:
    """One error that says whom it asked; nothing that needs the cluster waits for it again."""
    status, found = doctor(own, user="nobody")
    assert status == 1
    (cluster,) = found["cluster"]
    assert (cluster["status"], "kafka.client" in cluster["mend"]) == ("error", True)
    assert {each["what"] for check in ("topics", "acls", "job") for each in found[check]} == {
        "not looked at: the cluster does not answer"
    }
