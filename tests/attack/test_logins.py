"""Logins that would count as somebody else: nothing passes whose user is not known for certain."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_kit import USERS, Cluster, fresh
from login_kit import BEARER_MODULE, Login, jwt
from proxy_kit import ProxyThread
from wire_client import Closed, WireClient, create_request

from weir.stack.kafka import LocalKafka

NONCE = "attackers-nonce"
QUOTA = {"controller_mutation_rate": 0.001, "controller_mutation_burst": 3}


@pytest.fixture(scope="module")
def sasl_proxy(cluster: Cluster) -> Iterator[ProxyThread]:
    """A proxy in front of the broker's SASL listener; carol may create three partitions."""
    with ProxyThread(cluster.config(sasl=True, id="logins")) as running:
        cluster.policies.put("quotas[user=carol]", QUOTA)
        cluster.await_quota(running, "carol", "", QUOTA["controller_mutation_rate"])
        yield running
        cluster.policies.put("quotas[user=carol]", None)


@pytest.fixture
def login(sasl_proxy: ProxyThread) -> Iterator[Login]:
    """A connection to that proxy."""
    with WireClient(sasl_proxy.bootstrap, fresh("login")) as wire:
        yield Login(wire)


@pytest.mark.parametrize(
    "first",
    [
        f"n,,m=ext,n=carol,r={NONCE}",
        f"n,a=carol,m=n=mallory,n=carol,r={NONCE}",
        # One extension each: a broker signs several in an order that its Java draws anew at every start.
        f"n,,n=carol,r={NONCE},a=mallory",
        f"n,,n=carol,r={NONCE},n=mallory",
        f"n,,n=carol,r={NONCE},tokenauth=false",
    ],
)
def test_user_is_the_one_that_the_broker_knows(cluster: Cluster, login: Login, first: str) -> None:
    """Reserved attributes, authorisation ids and extensions do not hide whose request it is."""
    assert login.scram(first).error_code == 0
    login.wire.create({fresh("scram"): 1})
    event = cluster.event_of(login.wire.client_id)
    assert (event["user"], event["subject"]) == ("carol", "user=carol")


def test_requests_sent_ahead_of_the_answer_are_the_users(cluster: Cluster, login: Login) -> None:
    """A request in the same packet as the last token is carried out, and charged, under the name."""
    first = f"n,,n=carol,r={NONCE}"
    login.handshake("SCRAM-SHA-256")
    challenge = login.tell(first.encode())
    login.ask(login.final(first, challenge.auth_bytes))
    login.wire.send(create_request({fresh("ahead"): 1}))
    assert login.answer().error_code == 0
    assert cluster.event_of(login.wire.client_id)["user"] == "carol"


@pytest.mark.parametrize(
    ("mechanism", "token", "reason"),
    [
        ("SCRAM-SHA-256", b"n,,n=carol,r=x,tokenauth=true", "delegation_token"),
        ("SCRAM-SHA-256", b"n,,n=\xffcarol,r=x", "name"),
        ("SCRAM-SHA-256", b"", "name"),
        ("PLAIN", b"\0\xff\0alice-secret", "name"),
        ("PLAIN", b"\0alice\0alice-secret\0", "name"),
    ],
)
def test_logins_without_a_user_do_not_pass(
    sasl_proxy: ProxyThread, login: Login, mechanism: str, token: bytes, reason: str
) -> None:
    """They are answered with error 58 and counted; the same connection may log in properly then."""
    before = sasl_proxy.metric("refused_logins_total", reason=reason)
    login.handshake(mechanism)
    assert login.tell(token).error_code == 58
    assert sasl_proxy.metric("refused_logins_total", reason=reason) == before + 1
    if mechanism == "PLAIN":
        assert login.tell(b"\0alice\0alice-secret").error_code == 0


def test_mechanisms_that_cannot_be_read_are_refused(login: Login) -> None:
    """GSSAPI gets error 33 and the list of the others; an exchange that was agreed on before goes on."""
    login.handshake("PLAIN")
    answer = login.handshake("GSSAPI")
    assert answer.error_code == 33 and "PLAIN" in answer.mechanisms
    assert login.tell(b"\0alice\0alice-secret").error_code == 0


def test_nobody_becomes_somebody_else(cluster: Cluster, login: Login) -> None:
    """A second login on a connection of carol's does not change whose requests they are."""
    assert login.scram(f"n,,n=carol,r={NONCE}").error_code == 0
    try:
        login.handshake("PLAIN")
        login.tell(b"\0alice\0alice-secret")
        login.wire.create({fresh("else"): 1})
    except Closed:
        return
    assert cluster.event_of(login.wire.client_id)["user"] == "carol"


@pytest.mark.soak
def test_bearer_token_behind_a_refused_one(tmp_path: Path, cluster: Cluster) -> None:
    """The broker takes a good token after a bad one: its user counts, not nobody."""
    properties = {
        "listener.name.sasl.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.sasl.oauthbearer.sasl.jaas.config": (
            f'{BEARER_MODULE} required unsecuredLoginStringClaim_sub="k";'
        ),
    }
    with (
        LocalKafka(tmp_path, sasl=USERS, properties=properties) as kafka,
        ProxyThread(cluster.config(kafka=kafka.sasl_bootstrap, id="bearer")) as proxy,
        WireClient(proxy.bootstrap, fresh("bearer")) as wire,
    ):
        login = Login(wire)
        assert login.handshake("OAUTHBEARER").error_code == 0
        refused = login.tell(b"n,,\x01auth=Bearer " + jwt("mallory", expires=1) + b"\x01\x01")
        assert (refused.error_code, bool(refused.auth_bytes)) == (0, True)
        good = login.tell(b"n,,\x01auth=Bearer x\x01auth=Bearer " + jwt("dora") + b"\x01\x01")
        assert good.error_code == 0
        login.wire.create({fresh("bearer"): 1})
        assert cluster.event_of(wire.client_id)["user"] == "dora"
