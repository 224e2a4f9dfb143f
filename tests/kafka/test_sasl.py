"""Logins over TLS on real parts: every mechanism, real clients, failures, new logins, delegation tokens."""

import struct
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from broker_fixtures import apart
from cluster_kit import USERS, Cluster, address, fresh
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.admin import KafkaAdminClient
from kafka.admin import NewTopic as PythonTopic
from kafka.errors import KafkaError as PythonError
from kafka.errors import ThrottlingQuotaExceededError
from kafka.net.sasl.oauth import AbstractTokenProvider
from login_kit import BEARER_MODULE, CAROL, NEVER, Login, jwt
from proxy_kit import ProxyThread, until
from stack_kit import new_topics
from tls_kit import LOOPBACK, Authority
from wire_client import Closed, WireClient

from enforcer.core.security.tls import TlsSettings, UpstreamTlsSettings
from weir.jars.java import java_command
from weir.stack.kafka import LocalKafka
from weir.stack.process import Child

LIFETIME_S = 2
"""Of a session by OAUTHBEARER or SCRAM-SHA-512, after which a client must have logged in again."""
AUTHENTICATION_FAILED = 58
DELAY_S = 0.2
LIMIT_S = 10.0
MECHANISMS = {"PLAIN": "alice", "SCRAM-SHA-256": "carol", "SCRAM-SHA-512": "carol", "OAUTHBEARER": "dora"}
PASSWORDS = {**USERS.plain, **USERS.scram}
Secured = Callable[..., ProxyThread]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Everybody's CA."""
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def brokers(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """A broker whose second listener speaks SASL over TLS."""
    listener, bearer = "listener.name.sasl", f'{BEARER_MODULE} required unsecuredLoginStringClaim_sub="k";'
    properties = {
        **authority.listener(),
        f"{listener}.sasl.enabled.mechanisms": ",".join(MECHANISMS),
        f"{listener}.oauthbearer.sasl.jaas.config": bearer,
        f"{listener}.oauthbearer.connections.max.reauth.ms": str(LIFETIME_S * 1000),
        f"{listener}.scram-sha-512.connections.max.reauth.ms": str(LIFETIME_S * 1000),
        "delegation.token.secret.key": "of the tests",
    }  # fmt: skip
    folder = tmp_path_factory.mktemp("sasl-kafka")
    with LocalKafka(folder, sasl=USERS, properties=properties, advertise="localhost") as kafka:
        yield kafka


@pytest.fixture(scope="module")
def before(cluster: Cluster, brokers: LocalKafka, authority: Authority) -> Iterator[Secured]:
    """Starts proxies before that listener, TLS on both sides."""
    pair, (_, port) = authority.server(), address(brokers.sasl_bootstrap)
    with ExitStack() as stack:

        def start(within: Cluster = cluster, **settings: Any) -> ProxyThread:
            config = within.config(
                kafka=f"localhost:{port}", broker_port_base=0,
                tls=TlsSettings(certificate=pair.certificate, key=pair.key),
                upstream_tls=UpstreamTlsSettings(ca=authority.ca), **settings,
            )  # fmt: skip
            return stack.enter_context(ProxyThread(config))

        yield start


@pytest.fixture(scope="module")
def proxy(before: Secured) -> ProxyThread:
    """One with the settings as they are."""
    return before(id="sasl-tls")


@contextmanager
def connected(proxy: ProxyThread, authority: Authority) -> Iterator[Login]:
    """A client that logs in by hand."""
    with WireClient(proxy.bootstrap, "wire") as wire:
        wire.socket = authority.context().wrap_socket(wire.socket, server_hostname=LOOPBACK)
        yield Login(wire)


class Token(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
    """Dora's."""

    def token(self) -> str:
        """One that does not expire."""
        return jwt("dora").decode()


def rdkafka(proxy: ProxyThread, authority: Authority, mechanism: str, **more: Any) -> dict[str, Any]:
    """librdkafka's properties."""
    user = MECHANISMS[mechanism]
    login = {"sasl.username": user, "sasl.password": PASSWORDS.get(user)}
    if mechanism == "OAUTHBEARER":
        login = {"oauth_cb": lambda _: (jwt(user).decode(), NEVER)}
    return {
        "bootstrap.servers": proxy.bootstrap, "security.protocol": "SASL_SSL", "log_level": "0",
        "ssl.ca.location": authority.ca, "sasl.mechanism": mechanism, **login, **more,
    }  # fmt: skip


def create_by_librdkafka(proxy: ProxyThread, authority: Authority, mechanism: str, name: str) -> None:
    """Twenty partitions, and one more, for which it waits."""
    admin = AdminClient(rdkafka(proxy, authority, mechanism, **{"client.id": name}))
    admin.poll(0)
    admin.create_topics([NewTopic(f"{name}-a", 20, 1)])[f"{name}-a"].result(LIMIT_S)
    begun = time.monotonic()
    admin.create_topics([NewTopic(f"{name}-b", 1, 1)])[f"{name}-b"].result(LIMIT_S)
    assert time.monotonic() - begun > 0.3


def create_by_kafka_python(proxy: ProxyThread, authority: Authority, mechanism: str, name: str) -> None:
    """The same; it does not wait, but says so."""
    user = MECHANISMS[mechanism]
    login = {"sasl_plain_username": user, "sasl_plain_password": PASSWORDS.get(user)}
    admin = KafkaAdminClient(
        bootstrap_servers=proxy.bootstrap, security_protocol="SASL_SSL", ssl_cafile=authority.ca,
        sasl_mechanism=mechanism, client_id=name,
        **({"sasl_oauth_token_provider": Token()} if mechanism == "OAUTHBEARER" else login),
    )  # fmt: skip
    with closing(admin):
        admin.create_topics([PythonTopic(f"{name}-a", 20, 1)])
        with pytest.raises(ThrottlingQuotaExceededError):
            admin.create_topics([PythonTopic(f"{name}-b", 1, 1)])


@pytest.mark.parametrize(
    ("mechanism", "create"),
    [
        ("PLAIN", create_by_librdkafka), ("SCRAM-SHA-256", create_by_kafka_python),
        ("SCRAM-SHA-512", create_by_librdkafka), ("OAUTHBEARER", create_by_kafka_python),
        pytest.param("PLAIN", create_by_kafka_python, marks=pytest.mark.soak),
        pytest.param("SCRAM-SHA-256", create_by_librdkafka, marks=pytest.mark.soak),
        pytest.param("SCRAM-SHA-512", create_by_kafka_python, marks=pytest.mark.soak),
        pytest.param("OAUTHBEARER", create_by_librdkafka, marks=pytest.mark.soak),
    ],
)  # fmt: skip
def test_the_user_who_logs_in_feels_the_limit(
    cluster: Cluster, proxy: ProxyThread, authority: Authority, mechanism: str, create: Callable[..., None]
) -> None:
    """By every mechanism, with real clients; the passwords cross no network in the clear."""
    name, user = fresh("sasl"), MECHANISMS[mechanism]
    # Less than a session lives.
    quota = {"controller_mutation_rate": 10, "controller_mutation_burst": 10}
    cluster.policies.put(f"quotas[user={user},client-id={name}]", quota)
    cluster.await_quota(proxy, user, name, 10)
    create(proxy, authority, mechanism, name)
    assert cluster.event_of(name)["user"] == user


@pytest.mark.parametrize("client", ["librdkafka", pytest.param("kafka-python", marks=pytest.mark.soak)])
def test_plain_without_tls_is_refused_in_words(cluster: Cluster, client: str, proxy_with: Secured) -> None:
    """What people see names the setting; the password is not sent."""
    proxy = proxy_with(sasl=True, sasl_plain_without_tls=False)
    said: list[str] = []
    if client == "librdkafka":
        admin = AdminClient({
            "bootstrap.servers": proxy.bootstrap, "security.protocol": "SASL_PLAINTEXT", "log_level": "0",
            "sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": PASSWORDS["alice"],
            "error_cb": lambda error: said.append(error.str()),
        })  # fmt: skip
        until(lambda: admin.poll(0.1) >= 0 and any("sasl_plain_without_tls" in text for text in said))
    else:
        with pytest.raises(PythonError) as refused:
            KafkaAdminClient(
                bootstrap_servers=proxy.bootstrap, security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN",
                sasl_plain_username="alice", sasl_plain_password=PASSWORDS["alice"],
                bootstrap_timeout_ms=2_000,
            )  # fmt: skip
        said.append(str(refused.value))
    assert proxy.metric("refused_logins_total", reason="plain_without_tls") >= 1


@pytest.mark.parametrize(
    ("mechanism", "user"), [("PLAIN", "alice"), ("PLAIN", "nobody"), ("SCRAM-SHA-256", "carol")]
)
def test_a_failed_login_takes_its_time_and_is_counted(
    proxy: ProxyThread, authority: Authority, mechanism: str, user: str
) -> None:
    """Whether the user or the password is wrong; then the connection ends, as the broker's does."""
    before = proxy.metric("failed_logins_total", reason="credentials")
    with connected(proxy, authority) as login:
        if mechanism == "PLAIN":
            assert login.handshake(mechanism).error_code == 0
            begun = time.monotonic()
            answer = login.tell(f"\0{user}\0wrong".encode())
        else:
            begun = time.monotonic()
            answer = login.scram(f"n,,n={user},r=nonce", "wrong")
        assert DELAY_S <= time.monotonic() - begun < 1
        assert answer.error_code == AUTHENTICATION_FAILED and answer.error_message
        assert login.wire.closed_within(LIMIT_S)
    assert proxy.metric("failed_logins_total", reason="credentials") == before + 1


@pytest.mark.soak
def test_who_guesses_waits(before: Secured, authority: Authority) -> None:
    """After a minute's worth of wrong passwords the right one has to wait."""
    proxy = before(failed_logins_per_minute=20, id="guessed")
    with ExitStack() as stack:
        guessers = [stack.enter_context(connected(proxy, authority)) for _ in range(21)]
        for guesser in guessers:
            guesser.handshake("PLAIN")
            guesser.ask(b"\0alice\0wrong")
        assert {guesser.answer().error_code for guesser in guessers} == {AUTHENTICATION_FAILED}
        begun = time.monotonic()
        with connected(proxy, authority) as late:
            late.handshake("PLAIN")
            assert late.tell(b"\0alice\0alice-secret").error_code == 0
        assert 1 < time.monotonic() - begun < 7
    assert proxy.metric("held_logins_total") == 1


def served(login: Login) -> bool:
    """Whether the broker still answers."""
    try:
        return bool(login.wire.metadata([]).brokers)
    except (Closed, OSError):
        return False


def test_a_session_is_renewed_by_its_own_user_only(proxy: ProxyThread, authority: Authority) -> None:
    """The broker says how long it lasts, takes a new login; another principal is not even asked about."""
    with connected(proxy, authority) as login:
        answer = login.bearer("dora")
        assert (answer.error_code, answer.session_lifetime_ms) == (0, LIFETIME_S * 1000)
        # Brokers take a new one once a second.
        time.sleep(1.1)
        assert login.bearer("dora").error_code == 0
        time.sleep(1.1)
        assert served(login)
        answer = login.bearer("eve")
        assert answer.error_code == AUTHENTICATION_FAILED and "principal" in answer.error_message
        assert login.wire.closed_within(LIMIT_S)
    assert proxy.metric("refused_logins_total", reason="reauthentication") == 1


def test_a_session_that_was_not_renewed_is_over(proxy: ProxyThread, authority: Authority) -> None:
    """The broker closes, and so do we."""
    with connected(proxy, authority) as login:
        answer = login.scram("n,,n=carol,r=nonce", mechanism="SCRAM-SHA-512")
        assert answer.session_lifetime_ms == LIFETIME_S * 1000 and served(login)
        time.sleep(LIFETIME_S + 0.2)
        assert not served(login)


@pytest.mark.soak
def test_a_wait_longer_than_a_session_is_paid_once(
    cluster: Cluster, before: Secured, authority: Authority
) -> None:
    """librdkafka would log in anew behind its record that waits, and tries again when it is closed."""
    name, path = fresh("renewed"), "quotas[user=carol]"
    with apart(cluster, name) as own:
        proxy = before(own, id=name)
        own.policies.put(path, {"producer_byte_rate": 3_000})
        until(lambda: path in proxy.entries)
        proxy.await_part(1)
        new_topics(rdkafka(proxy, authority, "SCRAM-SHA-512"), name)
        producer, failed = Producer(rdkafka(proxy, authority, "SCRAM-SHA-512")), list[Any]()
        for _ in range(2):
            producer.produce(name, bytes(9_000), on_delivery=lambda error, _: error and failed.append(error))
            assert producer.flush(LIMIT_S) == 0
        (account,) = proxy.proxy.meter.accounts.values()
        assert not failed and account.used[1] < 20_000
        assert proxy.metric("closed_connections_total", reason="session") >= 1


@pytest.mark.soak
@pytest.mark.parametrize("mechanism", ["OAUTHBEARER", "SCRAM-SHA-512"])
def test_librdkafka_renews_its_session(proxy: ProxyThread, authority: Authority, mechanism: str) -> None:
    """It goes on producing on the connections that it has, for several lives of a session."""
    name, user = fresh("renewed"), MECHANISMS[mechanism]
    admin = AdminClient(rdkafka(proxy, authority, mechanism))
    admin.poll(0)
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(LIMIT_S)
    del admin
    failed: list[Any] = []
    producer = Producer(rdkafka(proxy, authority, mechanism, **{
        "client.id": name, "error_cb": failed.append, "retries": 0,
    }))  # fmt: skip

    def produce(seconds: float) -> set[int]:
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            producer.produce(name, b"x", on_delivery=lambda error, _: error and failed.append(error))
            assert producer.flush(LIMIT_S) == 0
            time.sleep(0.05)
        return {id(connection) for connection in proxy.proxy.connections if connection.user == user}

    early = produce(0.5)
    late = produce(2.5 * LIFETIME_S)
    assert early & late and not failed


@pytest.mark.soak
def test_the_java_client_renews_its_session(proxy: ProxyThread, authority: Authority, tmp_path: Path) -> None:
    """A producer that runs for several lives of a session makes no connection more."""
    name, settings = fresh("java"), tmp_path / "client.properties"
    settings.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nretries=0\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={authority.ca}\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required"
        f' username="carol" password="{CAROL}";\n'
    )
    new_topics(rdkafka(proxy, authority, "SCRAM-SHA-512"), name)
    command = java_command(
        "org.apache.kafka.tools.ProducerPerformance", "--topic", name, "--num-records", "1000",
        "--record-size", "100", "--throughput", "100", "--command-config", str(settings),
        "--command-property", f"bootstrap.servers={proxy.bootstrap}",
    )  # fmt: skip
    child = Child("java", command, log=tmp_path / "java.log")
    child.start()
    seen: set[int] = set()
    while child.alive():
        seen |= {id(connection) for connection in proxy.proxy.connections}
        time.sleep(0.05)
    said = (tmp_path / "java.log").read_text()
    assert "1000 records sent" in said and "Exception" not in said, said
    # One to find the brokers, one to produce.
    assert len(seen) <= 2


def delegation_token(brokers: LocalKafka, authority: Authority) -> tuple[str, str]:
    """A new token of carol's, from the broker itself: its id, and the password that goes with it."""
    with WireClient(brokers.sasl_bootstrap) as wire:
        wire.socket = authority.context().wrap_socket(wire.socket, server_hostname="localhost")
        assert Login(wire).scram("n,,n=carol,r=nonce").error_code == 0
        # CreateDelegationToken 1: nobody else renews it, and it lives as long as it may.
        wire.send_frame(struct.pack(">hhihiq", 38, 1, 7, -1, 0, -1))
        answer = wire.receive_frame()
    assert answer[4:6] == b"\0\0"
    parts, pos = [], 6
    for skipped in (0, 0, 24):
        pos += skipped
        (size,) = struct.unpack_from(">h", answer, pos)
        parts.append(answer[pos + 2 : pos + 2 + size])
        pos += 2 + size
    (size,) = struct.unpack_from(">i", answer, pos)
    secret = answer[pos + 4 : pos + 4 + size]
    assert parts[:2] == [b"User", b"carol"]
    return parts[2].decode(), b64encode(secret).decode()


def test_delegation_tokens(
    brokers: LocalKafka, proxy: ProxyThread, before: Secured, authority: Authority
) -> None:
    """Nobody tells a proxy whose one is: refused by name of the setting, or a user of its own."""
    name, secret = delegation_token(brokers, authority)
    first = f"n,,n={name},r=nonce,tokenauth=true"
    with connected(proxy, authority) as login:
        refused = login.scram(first, secret)
        assert refused.error_code == AUTHENTICATION_FAILED
        assert "proxy.delegation_tokens" in refused.error_message
    by_id = before(delegation_tokens="by_id", id="tokens")
    with connected(by_id, authority) as login:
        assert login.scram(first, secret).error_code == 0 and served(login)
        assert {connection.user for connection in by_id.proxy.connections} == {name}


def test_nothing_passes_before_the_login(proxy: ProxyThread, authority: Authority) -> None:
    """Other requests are the broker's to refuse, by closing; a token that is too long we do not read."""
    with connected(proxy, authority) as early:
        assert not served(early)
    before = proxy.metric("bad_frames_total", reason="too_large")
    with connected(proxy, authority) as long:
        long.handshake("SCRAM-SHA-256")
        long.wire.send_frame(struct.pack(">hhih", 36, 2, 7, -1) + bytes(5_000))
        assert long.wire.closed_within(LIMIT_S)
    assert proxy.metric("bad_frames_total", reason="too_large") == before + 1
