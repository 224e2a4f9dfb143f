"""No secret of clients, of Weir's own logins or of the admin API is told by what Weir writes or shows.

All parts as processes of their own before a guarded cluster, their logs at their most talkative; good and bad
logins, requests and settings. Then all that can be read is searched for all secrets, in each usual form.
"""

import base64
import json
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from cluster_kit import address
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from connection_kit import framed
from kafka.protocol.admin import AlterUserScramCredentialsRequest
from kafka_kit import build
from login_kit import BEARER_MODULE, Login
from secret_world import LIMIT_S, World, command, secret
from tls_kit import LOOPBACK, Authority
from wire_client import Closed, WireClient

from streaming.contract.topics import Cluster
from weir.stack.kafka import LocalKafka, free_port
from weir.stack.topics import ensure_topics


@contextmanager
def connected(world: World, proxy: str) -> Iterator[Login]:
    """A client by hand; whatever becomes of it."""
    with suppress(Closed, OSError, TimeoutError), WireClient(proxy, "by-hand") as wire:
        wire.socket = world.authority.context().wrap_socket(wire.socket, server_hostname=LOOPBACK)
        yield Login(wire)


def plain(world: World, user: str, name: str, authzid: str = "") -> bytes:
    """A token of PLAIN."""
    return f"{authzid}\0{user}\0{world.secrets[name]}".encode()


def bearer(world: World, claims: dict[str, object]) -> bytes:
    """A token of OAUTHBEARER with a secret in it."""
    said = [json.dumps(part).encode() for part in ({"alg": "none"}, {**claims, "jti": world.secrets["jti"]})]
    token = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in said)
    return b"n,,\x01auth=Bearer " + token + b".\x01\x01"


def log_in(world: World, proxy: str) -> None:
    """By each mechanism, well and badly."""
    good = {"sub": "dora", "iat": 0, "exp": 4_000_000_000}
    tries: list[tuple[str, bytes]] = [
        ("PLAIN", plain(world, "alice", "plain")), ("PLAIN", plain(world, "alice", "wrong")),
        ("PLAIN", plain(world, "nobody", "wrong")), ("PLAIN", plain(world, "alice", "plain", "carol")),
        ("PLAIN", b"\xff" + plain(world, "alice", "plain")), ("PLAIN", plain(world, "alice", "plain")[6:]),
        ("PLAIN", plain(world, "alice", "plain") + b"\0more"), ("GSSAPI", plain(world, "alice", "plain")),
        ("OAUTHBEARER", bearer(world, good)), ("OAUTHBEARER", bearer(world, {"sub": 5})),
        ("OAUTHBEARER", bearer(world, {})), ("OAUTHBEARER", plain(world, "alice", "plain")),
        ("SCRAM-SHA-256", plain(world, "carol", "scram")),
        ("SCRAM-SHA-256", b"n,,n=carol,r=" + world.secrets["scram"].encode()),
    ]  # fmt: skip
    for mechanism, token in tries:
        with connected(world, proxy) as login:
            login.handshake(mechanism)
            login.tell(token)
    for name in ("scram", "wrong"):
        with connected(world, proxy) as login:
            login.scram("n,,n=carol,r=abc", world.secrets[name])
    with connected(world, proxy) as login:
        # What is no request, what claims to be longer, and a token that nobody has asked for.
        login.ask(plain(world, "alice", "plain"))
        login.answer()
    for head in (b"\0\x24\0\1", b"\x7f\xff"):
        with connected(world, proxy) as login:
            login.wire.socket.sendall(framed(head + plain(world, "alice", "plain")))
            login.wire.receive_frame(2)
    with socket.create_connection(address(proxy), LIMIT_S) as client:
        client.sendall(framed(plain(world, "alice", "plain")))
        with suppress(ConnectionError):
            client.recv(1)


def ask_of_kafka(world: World, proxy: str) -> None:
    """As a user who is logged in: more than the quota, and what only an administrator may."""
    login = {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": world.secrets["plain"]}
    admin = AdminClient({
        "bootstrap.servers": proxy, "security.protocol": "SASL_SSL", "ssl.ca.location": world.authority.ca,
        "log_level": "0", **login,
    })  # fmt: skip
    admin.create_topics([NewTopic("a", 30)])["a"].result(LIMIT_S)
    password = ConfigEntry(
        "listener.name.sasl.ssl.keystore.password", world.secrets["config"],
        incremental_operation=AlterConfigOpType.SET,
    )  # fmt: skip
    broker = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[password])
    with pytest.raises(KafkaException):
        admin.incremental_alter_configs([broker])[broker].result(LIMIT_S)
    upsert = {
        "name": "carol", "mechanism": 1, "iterations": 4096, "salt": b"salt",
        "salted_password": world.secrets["salted"].encode(),
    }  # fmt: skip
    with connected(world, proxy) as by_hand:
        by_hand.handshake("PLAIN")
        assert by_hand.tell(plain(world, "alice", "plain")).error_code == 0
        by_hand.wire.send(build(AlterUserScramCredentialsRequest, 0, deletions=[], upsertions=[upsert]))
        assert by_hand.wire.receive_frame()


def ask_the_api(world: World, url: str) -> None:
    """With each token, with none that is known, in each place where one may stand, and in broken requests."""
    groups, tokens = "/admin/v2/resourcegroups", world.secrets
    statuses = [
        world.ask(url, f"{groups}/rg", "PUT", '{"publishRateInMsgs": 5}', Authorization=f"Bearer {token}")
        for token in (tokens["operator"], tokens["viewer"], tokens["unknown"])
    ]
    assert statuses == [204, 403, 401]
    for token in (tokens["viewer"], tokens["unknown"]):
        encoded = base64.b64encode(f"me:{token}".encode()).decode()
        world.ask(url, groups, Authorization=f"Basic {encoded}")
        world.ask(url, groups, Authorization=f"Basic {token}")
        world.ask(url, groups, Authorization=token)
        world.ask(url, groups, Cookie=f"token={token}")
    world.ask(url, f"{groups}?token={tokens['query']}", Authorization=f"Bearer {tokens['operator']}")
    world.ask(url, f"{groups}/rg", "PUT", "[", Authorization=f"Bearer {tokens['operator']}")
    at = url.removeprefix("https://")
    for head in ("GET / HTTP/9\r\n", "\0\r\n", "GET /\x7f HTTP/1.1\r\nHost : x\r\n"):
        plain_socket = socket.create_connection(address(at), LIMIT_S)
        with world.authority.context().wrap_socket(plain_socket, server_hostname=LOOPBACK) as client:
            client.sendall(f"{head}Authorization: Bearer {tokens['operator']}\r\n\r\n".encode())
            with suppress(OSError):
                world.told[f"answer to {head!r}"] = client.recv(4096)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """All of it has happened, and stands in `told`."""
    folder = tmp_path_factory.mktemp("secrets")
    made = World(folder, Authority(folder / "ca"))
    listener = "listener.name.sasl"
    properties = {
        **made.authority.listener(),
        f"{listener}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        f"{listener}.oauthbearer.sasl.jaas.config":
            f'{BEARER_MODULE} required unsecuredLoginStringClaim_sub="k";',
    }  # fmt: skip
    with LocalKafka(folder / "kafka", sasl=made.users, properties=properties, advertise="localhost") as kafka:
        ensure_topics(Cluster(kafka.bootstrap))
        made.write_settings(f"localhost:{address(kafka.sasl_bootstrap)[1]}")
        happen(made, kafka)
        yield made


def happen(world: World, kafka: LocalKafka) -> None:
    """Everything, in order."""
    metrics = ("--metrics", f"{LOOPBACK}:0")
    proxy_at, own = f"{LOOPBACK}:{free_port()}", ("--kafka", world.bootstrap)
    policies = world.folder / "policies.yaml"
    policies.write_text("version: 1\nquotas:\n- entity: {user: alice}\n  controller_mutation_rate: 1\n")
    job = ("job", "--checkpoint", str(world.parts / "checkpoint"), "--log-dir", str(world.parts / "spark"))
    with (
        world.running("job", *job, *metrics) as job_ready,
        world.running("proxy", "proxy", "--listen", proxy_at, *metrics) as proxy_ready,
        world.running("admin", "admin", "--listen", f"{LOOPBACK}:0", *metrics) as admin_ready,
        world.running("collect", "collect", *metrics) as collect_ready,
    ):
        assert world.weir("policy", "apply", str(policies), *own) == 0
        log_in(world, proxy_at)
        ask_of_kafka(world, proxy_at)
        ask_the_api(world, admin_ready["admin"])
        for name, ready in (
            ("job", job_ready), ("proxy", proxy_ready), ("admin", admin_ready), ("collect", collect_ready),
        ):  # fmt: skip
            world.keep_page(f"metrics of {name}", ready["metrics"])
        world.keep_processes()
        for words in (
            ("policy", "get"), ("policy", "log"), ("dump", "--out", str(world.parts / "dump.jsonl")),
            ("backlog",), ("collect", "--once"), ("doctor", "--listen", proxy_at),
        ):  # fmt: skip
            world.weir(*words, *own)
    world.keep_topics(kafka)
    world.keep_files()


def test_all_was_looked_at(world: World) -> None:
    """Each log has what happened, each topic and page is there: nothing was searched in vain."""
    assert all(world.told[topic] for topic in ("weir.requests", "weir.decisions", "weir.policies"))
    assert b"user=alice" in world.told["weir.requests"] and b"alice" in world.told["dump.jsonl"]
    assert b"weir_proxy_failed_logins_total" in world.told["metrics of proxy"]
    assert b"weir_admin_" in world.told["metrics of admin"]
    # librdkafka tells its settings, and lines for debugging are there.
    assert b"sasl.username = [redacted]" in world.told["proxy.log"]
    assert b"a client's handshake failed" in world.told["proxy.log"]
    assert b"alice" in world.told["proxy.log"] and b"resourcegroups" in world.told["admin.log"]
    assert any(b"--settings" in line for where, line in world.told.items() if where.startswith("/proc"))


def test_what_is_searched_for_would_be_found(world: World) -> None:
    """Each secret in each place where it is meant to be: the settings, a request on the network."""
    here = World.__new__(World)
    here.__dict__ |= {**world.__dict__, "told": {
        "settings": world.settings.read_bytes(), "key": Path(world.pair.key).read_bytes(),
        "plain": base64.b64encode(plain(world, "alice", "plain")), "bearer": bearer(world, {}),
    }}  # fmt: skip
    assert here.found() == {
        "settings": ["weir"], "key": ["private key"], "plain": ["plain"], "bearer": ["jti"],
    }  # fmt: skip


def test_no_secret_is_told(world: World) -> None:
    """Not in logs, records, metrics, command lines, answers, recordings, nor what else parts wrote."""
    assert world.found() == {}


BAD: dict[str, Callable[[str], str]] = {
    "a number": lambda _: "kafka: {client: {sasl.password: 71830264519}}",
    "no number": lambda value: f"kafka: {{client: {{sasl.password: !!int {value}x}}}}",
    "no alias": lambda value: f"kafka:\n  client:\n    sasl.password: *{value}\n",
    "an anchor twice": lambda value: f"kafka:\n  client: {{a: &{value} 1, b: &{value} 2}}\n",
    "a tag": lambda value: f"kafka:\n  client:\n    sasl.password: !{value} x\n",
    "a tag's handle": lambda value: f"kafka:\n  client:\n    sasl.password: !{value}!x\n",
    "a colon": lambda value: f"kafka:\n  client:\n    sasl.password: {value}: {value}\n",
    "a quote": lambda value: f"kafka:\n  client:\n    sasl.password: '{value}\n",
    "an escape": lambda value: f'kafka:\n  client:\n    sasl.password: "{value}\\q"\n',
    "a list": lambda value: f"kafka: {{client: {{sasl.password: [{value}]}}}}",
    "a typing error": lambda value: f"kafka: {{client: {{sasl.pasword: {value}}}}}",
    "no mechanism": lambda value: f"kafka: {{client: {{sasl.mechanism: X, sasl.password: {value}}}}}",
    "options": lambda _: "job: {kafka_options: {kafka.sasl.jaas.config: 71830264519}}",
}


@pytest.mark.parametrize("case", list(BAD))
def test_settings_that_are_wrong_are_told_without_their_secrets(case: str, tmp_path: Path) -> None:
    """File, line, key and what was expected are; whatever stands where a password does is not."""
    value = secret().split("+")[0]
    settings = tmp_path / "weir.yaml"
    settings.write_text(BAD[case](value))
    words = ("job",) if case == "options" else ("policy", "get")
    done = subprocess.run(
        command(*words, "--kafka", f"{LOOPBACK}:1", "--settings", str(settings)),
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert done.returncode in (1, 2) and said
    assert value not in said and "71830264519" not in said
