"""A cluster with its doors shut: TLS, SCRAM, an authorizer, and each part of Weir under a user of its own.

Certificates, settings and clients' properties are those of docs/operate/secured.md, rights those of
docs/security.md.
"""

import asyncio
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from acl_kit import (
    ACLS,
    AUDIT,
    ROOT,
    Acl,
    Asked,
    acls_of,
    collect_of_pulsar,
    grant_the_pages,
    run_tools,
    told,
    unneeded,
)
from cluster_kit import fresh
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from four_clients import go
from kafka import KafkaAdminClient
from live_backlogs import EVICTS, WAIT_S, Backlogs
from stack_kit import START_LIMIT_S, Up, create, did, java_topics, new_topics, part, put, until
from tls_kit import Way

from streaming.contract.topics import Topics
from weir.stack.kafka import free_port

pytestmark = pytest.mark.soak

PAGE = (ROOT / "docs" / "operate" / "secured.md").read_text().partition("## Pulsar")[0]
BROKER, CLIENT = re.findall(r"```properties\n(.*?)```", PAGE, re.DOTALL)
(USER,) = re.findall(r"^    (kafka-configs .*)$", PAGE.replace("'", ""), re.MULTILINE)
(SETTINGS,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
PARTS = ("weir-job", "weir-proxy", "weir-policies", "weir-reader", "weir-collect", "weir-backlogs")
CLIENTS = ("python", "confluent", "java", "go", "alice")
TOPICS = Topics()
LIMIT_S = 30.0
QUOTA_EXCEEDED = 89
POLICIES = """\
version: 1
quotas:
  - {entity: {user: null}, controller_mutation_rate: 1}
  - {entity: {user: alice}, producer_byte_rate: 20000}
  - {entity: {user: go}, producer_byte_rate: 20000}
broker:
  backlogQuotaCheckIntervalInSeconds: 1
  preciseBacklogSize: true
"""


@dataclass(frozen=True, slots=True)
class Secured:
    """The cluster for an administrator and for all others, and a folder in the place of /etc/weir."""

    admin: str
    kafka: str
    folder: Path

    @property
    def log(self) -> Path:
        """What the authorizer has decided."""
        return self.folder / "kafka" / "kafka.log"

    def text(self, block: str) -> str:
        """A block of the page with what is meant."""
        return block.replace("/etc/weir", str(self.folder))

    def client(self, user: str, bootstrap: str) -> dict[str, str]:
        """librdkafka's properties of a user."""
        properties = yaml.safe_load(self.text(SETTINGS))["kafka"]["client"]
        login = {"sasl.username": user, "sasl.password": f"{user}-secret"}
        return {**properties, **login, "bootstrap.servers": bootstrap, "log_level": "0"}

    def settings(self, user: str, **sections: Any) -> str:
        """A settings file of one user's."""
        path = self.folder / f"{user}.yaml"
        own = self.client(user, self.kafka)
        path.write_bytes(orjson.dumps({"kafka": {"client": own}, **sections}))
        return str(path)

    def weir(self, user: str, *words: str, **sections: Any) -> str:
        """Run a command as a user; what it printed."""
        where = ("--kafka", self.kafka, "--settings", self.settings(user, **sections))
        return did(*words, *where)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A broker that lets in who has a password, and nobody do what he has no right to."""
    folder = tmp_path_factory.mktemp("secured")
    subprocess.run([ROOT / "scripts" / "certificates.sh", folder / "tls"], check=True, timeout=LIMIT_S)
    (folder / "secrets").mkdir()
    for user in PARTS:
        (folder / "secrets" / user).write_text(f"{user}-secret")
    admin, controller, port = (free_port() for _ in range(3))
    lines = BROKER.replace("9091", str(controller)).replace("9092", str(admin)).replace("9093", str(port))
    made = Secured(f"127.0.0.1:{admin}", f"127.0.0.1:{port}", folder)
    words = ["--port", str(admin), "--data", str(made.log.parent)]
    words += [f"--property={line}" for line in made.text(lines).splitlines()]
    with part(folder, "kafka", *words, JAVA_TOOL_OPTIONS=AUDIT) as ready:
        until(ready.exists, what="a broker", limit_s=START_LIMIT_S)
        users = (
            USER.replace("USER", user).replace("SECRET", f"{user}-secret") for user in (*PARTS, *CLIENTS)
        )
        own = (
            f"{ACLS} --add --allow-principal User:{user} --operation All --topic {user}."
            " --resource-pattern-type prefixed"
            for user in CLIENTS
        )
        grant_the_pages(made.admin, *users, *own)
        yield made


@pytest.fixture(scope="module")
def up(secured: Secured) -> Iterator[Up]:
    """`weir up` before them, with the page's settings and a few limits."""
    files = {"settings": secured.text(SETTINGS), "policies": POLICIES}
    with Up(secured.folder, "--kafka", secured.kafka, **files) as running:
        yield running


def test_clients_feel_limits_as_without_tls(secured: Secured, up: Up) -> None:
    """Python's is refused, Java's is told when to come again, C's waits, and for too many bytes too."""
    way = Way.login(str(secured.folder / "tls" / "ca.pem"), "python", "python-secret")
    python = KafkaAdminClient(bootstrap_servers=up.ready["proxy"], **way.python)
    names = [f"python.{number}" for number in range(4)]
    codes = {name: code for name, (code, _) in create(python, dict.fromkeys(names, 5)).items()}
    python.close()
    assert [codes[name] for name in names] == [0, 0, 0, QUOTA_EXCEEDED]
    java = secured.folder / "client.properties"
    java.write_text(secured.text(CLIENT).replace("alice", "java").replace("SECRET", "java-secret"))
    words = ["--command-config", str(java), "--create", "--partitions", "30", "--topic"]
    first, second = (java_topics(up.ready["proxy"], *words, f"java.{number}") for number in range(2))
    assert first.returncode == 0, first.stderr
    assert second.returncode == 1 and "retry after" in second.stdout + second.stderr
    confluent = AdminClient(secured.client("confluent", up.ready["proxy"]))
    for name, partitions in (("confluent.1", 15), ("confluent.2", 1)):
        made = confluent.create_topics([NewTopic(name, partitions, 1)], request_timeout=LIMIT_S)[name]
        assert made.result(LIMIT_S) is None
    bytes_are_limited(secured, up)


def test_go_feels_them_too(secured: Secured, up: Up, tmp_path: Path) -> None:
    """Refused as Python's is, and told to wait as C's is."""
    way = Way.login(str(secured.folder / "tls" / "ca.pem"), "go", "go-secret")
    client = go(way, up.ready["proxy"], "go", tmp_path)
    first, second = (client.create({f"go.{number}": 30}) for number in range(2))
    assert (first.codes, second.codes) == ([0], [QUOTA_EXCEEDED]) and second.throttle_ms > 0
    wrote = client.produce("go.0", 40, 1_000)
    assert set(wrote.codes) == {0} and wrote.throttle_ms > 0


def bytes_are_limited(secured: Secured, up: Up) -> None:
    """A producer of librdkafka's is told to wait."""
    topic = fresh("alice.rated")
    new_topics(secured.admin, topic)
    waits: list[float] = []
    producer = Producer({
        **secured.client("alice", up.ready["proxy"]),
        "linger.ms": "0", "throttle_cb": lambda event: waits.append(event.throttle_time),
    })  # fmt: skip

    def told_to_wait() -> bool:
        producer.produce(topic, b"x" * 20_000)
        producer.poll(0.2)
        return any(waits)

    until(told_to_wait, what="a wait")
    assert producer.flush(LIMIT_S) == 0


def all_parts_work(secured: Secured, up: Up) -> None:
    """Each does everything at the brokers that it ever does there."""
    bytes_are_limited(secured, up)
    client = AdminClient(secured.client("alice", up.ready["proxy"]))
    assert client.create_topics([NewTopic("alice.made", 1, 1)])["alice.made"].result(LIMIT_S) is None
    proxy = ("proxy", "--listen", "127.0.0.1:0", "--id", "another", "--kafka", secured.kafka)
    with part(secured.folder, *proxy, "--settings", str(up.settings)) as ready:
        until(ready.exists, what="a proxy that has read what was decided")
    put(secured.admin, TOPICS.requests, b"for the dead letters")
    secured.weir("weir-policies", "policy", "apply", str(up.policies))
    secured.weir("weir-reader", "dump", "--out", str(secured.folder / "events.jsonl"))
    secured.weir("weir-reader", "policy", "get")
    held = Backlogs(secured.admin, "acme.evicted.t")
    held.write()
    held.commit("slow", 5)
    held.limit(EVICTS)
    backlogs = secured.settings("weir-backlogs", collect={"quotas_from_kafka": False})
    with part(secured.folder, "collect", "kafka", "--kafka", secured.kafka, "--settings", backlogs):
        until(lambda: held.committed("slow") > [5], what="the eviction", limit_s=WAIT_S)
    asyncio.run(collect_of_pulsar(secured.client("weir-collect", secured.kafka)))


def test_each_part_has_the_rights_that_it_needs_and_no_other(secured: Secured, up: Up) -> None:
    """Of all that they did nothing was denied, and without any one of the page's ACLs something would be."""
    all_parts_work(secured, up)
    bootstrap = secured.admin

    def left_over() -> set[Acl]:
        return unneeded((acl for acl in acls_of(bootstrap) if acl.user in PARTS), told(secured.log)[0])

    def denied() -> set[Asked]:
        return {asked for asked in told(secured.log)[1] if asked.user in PARTS}

    deadline = time.monotonic() + LIMIT_S
    while left_over() and time.monotonic() < deadline:
        time.sleep(0.5)
    assert (left_over(), denied()) == (set(), set())
    # The same eyes see one too many, and one too few.
    of_reader, of_policies = (f"--allow-principal User:{user}" for user in ("weir-reader", "weir-policies"))
    run_tools(
        bootstrap,
        f"{ACLS} --add {of_reader} --operation Create --topic weir.policies",
        f"{ACLS} --remove --force {of_policies} --operation Write --topic weir.policies",
    )
    assert left_over() == {Acl("weir-reader", "CREATE", "TOPIC", TOPICS.policies, prefixed=False)}
    policies = secured.folder / "others.yaml"
    policies.write_text(POLICIES.replace("alice", "bob"))
    with pytest.raises(AssertionError, match="uthorization"):
        secured.weir("weir-policies", "policy", "apply", str(policies))
    assert {(one.user, one.operation, one.name) for one in denied()} == {
        ("weir-policies", "WRITE", TOPICS.policies)
    }
