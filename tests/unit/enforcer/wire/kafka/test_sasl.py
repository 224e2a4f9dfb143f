"""The principal of a connection, learned from the SASL exchange in passing."""

import base64
import json
from contextlib import suppress
from typing import Any

import pytest
from each_kit import each
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol import sasl
from kafka_kit import build, decode, request, response

from enforcer.wire.kafka.frames import BadFrame, RequestHeader, parse_header
from enforcer.wire.kafka.sasl import ANONYMOUS, Mechanism, SaslObserver, Unreadable

ALICE = b"\0alice\0a-secret"
SCRAM_FIRST = b"n,,n=alice,r=nonce"
SCRAM_FINAL = b"c=biws,r=noncenonce,p=proof"
AUTH_FAILED = 58


class Client:
    """A connection between a SASL client and a broker, with the observer in between."""

    def __init__(self, version: int = 2) -> None:
        self.observer = SaslObserver()
        self.version = version

    def offer(self, mechanism: str) -> RequestHeader:
        """Sends SaslHandshake v1."""
        frame, header = request(build(sasl.SaslHandshakeRequest, 1, mechanism=mechanism))
        self.observer.on_request(frame, header)
        return header

    def offered(self, header: RequestHeader, error: int = 0) -> None:
        """The broker answers the handshake."""
        message = build(sasl.SaslHandshakeResponse, 1, error_code=error, mechanisms=["PLAIN"])
        self.observer.on_response(response(message), *header[:2])

    def send(self, token: bytes) -> RequestHeader:
        """Sends SaslAuthenticate."""
        frame, header = request(build(sasl.SaslAuthenticateRequest, self.version, auth_bytes=token))
        self.observer.on_request(frame, header)
        return header

    def answered(self, header: RequestHeader, error: int = 0, challenge: bytes = b"") -> None:
        """The broker answers a round."""
        values = {"error_code": error, "error_message": "no" if error else None, "auth_bytes": challenge}
        message = build(sasl.SaslAuthenticateResponse, self.version, **values)
        self.observer.on_response(response(message), *header[:2])

    def handshake(self, mechanism: str) -> None:
        """Offer and acceptance."""
        self.offered(self.offer(mechanism))

    def round(self, token: bytes, error: int = 0, challenge: bytes = b"") -> str:
        """One whole round; returns the principal after it."""
        self.answered(self.send(token), error, challenge)
        return self.observer.principal


@pytest.mark.parametrize("version", range(3))
def test_plain(version: int) -> None:
    """The user counts only after the broker has agreed."""
    client = Client(version)
    client.handshake("PLAIN")
    header = client.send(ALICE)
    assert client.observer.principal == ANONYMOUS
    client.answered(header)
    assert client.observer.principal == "alice"


@pytest.fixture
def client() -> Client:
    """One that has said nothing yet."""
    return Client()


def test_password_is_not_kept(client: Client) -> None:
    """Nothing of the observer holds the password, before or after the answer, which comes once."""
    client.handshake("PLAIN")
    header = client.send(ALICE)
    assert "a-secret" not in held_by(client.observer)
    client.answered(header)
    assert "a-secret" not in held_by(client.observer)
    # A broker that answers what nobody asked is not believed.
    with pytest.raises(BadFrame):
        client.answered(header)


def held_by(observer: SaslObserver) -> str:
    """Everything that the observer remembers, as text."""
    return repr([getattr(observer, name) for name in SaslObserver.__slots__])


@each("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@each("version", range(3))
def test_scram_needs_both_rounds(mechanism: str, version: int) -> None:
    """The answer to the first message is only a challenge; the second proves the password."""
    client = Client(version)
    client.handshake(mechanism)
    assert client.round(SCRAM_FIRST, challenge=b"r=noncenonce,s=salt,i=4096") == ANONYMOUS
    assert client.round(SCRAM_FINAL, challenge=b"v=proof") == "alice"


@pytest.mark.parametrize(
    ("first", "name"),
    [
        (b"n,,n=a=2Cb=3Dc,r=x", "a,b=c"), (b"n,,n==3D2C,r=x", "=2C"), (b"n,a=alice,n=alice,r=x", "alice"),
        (b"n,,m=ext,n=carol,r=x", "carol"), (b"n,a=carol,m=n=mallory,n=carol,r=x,a=b,n=mallory", "carol"),
        (b"n,,n=alice,r=n=mallory", "alice"),
        # Only what the broker takes for a delegation token is refused.
        (b"n,,n=alice,r=x,tokenauth=true,tokenauth=false", "alice"),
    ],
)
def test_scram_names(client: Client, first: bytes, name: str) -> None:
    """Escapes are undone; the reserved attribute and extensions are passed over, as the broker does."""
    client.handshake("SCRAM-SHA-256")
    client.round(first)
    assert client.round(SCRAM_FINAL) == name


@each(
    "first",
    [
        "n,,n=zo\u00eb,r=x".encode(), b"n,,n=\xff,r=x", b"n,,n=a=b,r=x", b"n,,n=,r=x", b"n,,r=x,n=alice",
        b"n,,m=,n=alice,r=x", b"n,,n=alice,n=bob,r=x", b"n,,n=alice,r=x\n", b"y,,n=alice,r=x", b"",
    ],
)  # fmt: skip
def test_scram_messages_without_a_name_do_not_pass(first: bytes) -> None:
    """The broker's own pattern refuses them; were it to change, they would still not pass as nobody's."""
    refused(Client(), "SCRAM-SHA-256", first, "name")


def refused(client: Client, mechanism: str, token: bytes, reason: str) -> None:
    """A token is answered with error 58 and does not reach the broker; another one may follow."""
    client.handshake(mechanism)
    with pytest.raises(Unreadable) as login:
        client.send(token)
    assert login.value.reason == reason
    answer = decode(sasl.SaslAuthenticateResponse, client.version, login.value.response)
    assert (answer.error_code, answer.auth_bytes) == (AUTH_FAILED, b"") and answer.error_message
    assert not client.observer.waiting
    assert client.observer.principal == ANONYMOUS


@each("version", range(3))
@each("extensions", [b",tokenauth=true", b",x=y,tokenauth=TRUE", b",tokenauth=no,tokenauth=True"])
def test_delegation_tokens(version: int, extensions: bytes) -> None:
    """A token's owner is not visible: refused, unless its id may stand for a user (KIP-48)."""
    first = b"n,,n=token-id,r=x" + extensions
    refused(Client(version), "SCRAM-SHA-256", first, "delegation_token")
    client = Client(version)
    client.observer = SaslObserver(token_ids=True)
    client.handshake("SCRAM-SHA-256")
    client.round(first)
    assert client.round(SCRAM_FINAL) == "token-id"


def oauth(*auth: str) -> bytes:
    """An OAUTHBEARER client message with these auth pairs."""
    return b"n,,\x01" + b"".join(f"auth={one}\x01".encode() for one in auth) + b"\x01"


def jwt(claims: Any) -> str:
    """A token with these claims; its signature is the broker's business."""
    part = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    return f"e30.{part}.c2ln"


@pytest.mark.parametrize(
    ("token", "name"),
    [
        (oauth("Bearer " + jwt({"sub": "alice", "scope": "x"})), "alice"),
        (oauth("bearer " + jwt({"sub": "zoë"})), "zoë"),
        (oauth("Bearer " + jwt({"sub": "admin"}), "Bearer " + jwt({"sub": "alice"})), "alice"),
        (b"n,a=bob,\x01x=y\x01auth=Bearer  " + jwt({"sub": "bob"}).encode() + b"\x01\x01", "bob"),
    ],
)
def test_oauthbearer_names(client: Client, token: bytes, name: str) -> None:
    """The sub claim of the token that the broker looks at, the last one."""
    client.handshake("OAUTHBEARER")
    assert client.round(token) == name


@each(
    ("mechanism", "token"),
    [
        *(("PLAIN", one) for one in (b"", b"alice", b"\0alice", b"\0\0secret", b"a\0b\0c\0d", b"\0\xff\0x")),
        *(("OAUTHBEARER", one) for one in (
            oauth("Basic " + jwt({"sub": "alice"})), oauth("Bearer " + jwt({"sub": 5})),
            oauth("Bearer " + jwt(["sub"])),
            oauth("Bearer " + jwt({"sub": "a\ud800"})), oauth("Bearer " + jwt({"sub": "\udc00"})),
            oauth("Bearer " + jwt({"sub": ""})), oauth("Bearer e30.!!!.x"), oauth("Bearer e30.bm8.x"),
            oauth("Bearer e30.e+/0.x"), oauth("Bearer opaque"), oauth(), b"\x01\x01", b"",
        )),
    ],
)  # fmt: skip
def test_tokens_without_a_name_do_not_pass(mechanism: str, token: bytes) -> None:
    """Whatever the broker would say of them."""
    refused(Client(), mechanism, token, "name")


@pytest.mark.parametrize(
    ("token", "error", "name"),
    [(b"\x01", AUTH_FAILED, ANONYMOUS), (oauth("Bearer " + jwt({"sub": "alice"})), 0, "alice")],
)
def test_refused_bearer_token_is_a_challenge(client: Client, token: bytes, error: int, name: str) -> None:
    """The broker refuses a token with error 0 and a reason, which must not count as success.

    It takes another token after the challenge: its user counts, and nobody else.
    """
    client.handshake("OAUTHBEARER")
    refused = oauth("Bearer " + jwt({"sub": "admin"}))
    assert client.round(refused, challenge=b'{"status":"invalid_token"}') == ANONYMOUS
    assert client.round(token, error=error) == name


def test_oauth_claim_is_a_setting(client: Client) -> None:
    """Brokers may name principals by another claim."""
    client.observer = SaslObserver(oauth_claim="azp")
    client.handshake("OAUTHBEARER")
    assert client.round(oauth("Bearer " + jwt({"sub": "x", "azp": "job"}))) == "job"


@pytest.mark.parametrize("handshake", [0, 33])
def test_a_refused_password_or_handshake_names_nobody(client: Client, handshake: int) -> None:
    """Error 58 leaves the connection anonymous, and what follows does not count without a new handshake.

    Without an accepted mechanism no token counts; a broker that took one all the same is not believed.
    """
    client.offered(client.offer("PLAIN"), error=handshake)
    if not handshake:
        assert client.round(ALICE, error=AUTH_FAILED) == ANONYMOUS
    with pytest.raises(BadFrame):
        client.round(ALICE)
    assert client.observer.principal == ANONYMOUS


def test_mechanism_that_cannot_be_read_is_refused(client: Client) -> None:
    """GSSAPI's names cannot be seen: error 33 with what can be; an earlier agreement stands."""
    client.handshake("PLAIN")
    with pytest.raises(Unreadable) as login:
        client.offer("GSSAPI")
    assert login.value.reason == "mechanism"
    answer = decode(sasl.SaslHandshakeResponse, 1, login.value.response)
    assert (answer.error_code, answer.mechanisms) == (33, [*Mechanism])
    assert client.round(ALICE) == "alice"


def test_one_request_at_a_time(client: Client) -> None:
    """Nothing may follow an unanswered request: it would pass under another name."""
    client.handshake("PLAIN")
    first = client.send(b"\0mallory\0own")
    assert client.observer.waiting
    with pytest.raises(BadFrame):
        client.send(b"\0admin\0guess")
    client.answered(first)
    assert client.observer.principal == "mallory"


def test_name_is_not_lent_by_another_mechanism(client: Client) -> None:
    """A token is read by the rules of the mechanism that was agreed on last."""
    client.handshake("PLAIN")
    client.offered(client.offer("SCRAM-SHA-256"), error=34)
    with pytest.raises(Unreadable):
        client.send(b"n,,n=admin,r=x")
    assert client.round(ALICE) == "alice"


def test_reauthentication_keeps_the_name_until_it_succeeds(client: Client) -> None:
    """A session that is renewed keeps its name; a failed renewal does not take it (the broker closes)."""
    client.handshake("PLAIN")
    client.round(ALICE)
    client.handshake("SCRAM-SHA-256")
    assert client.observer.principal == "alice"
    assert client.round(SCRAM_FIRST) == "alice"
    assert client.round(SCRAM_FINAL) == "alice"
    client.handshake("PLAIN")
    assert client.round(ALICE, error=AUTH_FAILED) == "alice"


@given(st.lists(st.tuples(st.sampled_from([17, 36]), st.integers(0, 2), st.binary(max_size=40)), max_size=6))
def test_observer_survives_garbage(frames: list[tuple[int, int, bytes]]) -> None:
    """Garbage parses or raises BadFrame, and never names anybody without a handshake."""
    observer = SaslObserver()
    for key, version, body in frames:
        head = key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + b"\xff\xff"
        with suppress(BadFrame, Unreadable):
            header = parse_header(head + body)
            observer.on_request(head + body, header)
        with suppress(BadFrame):
            observer.on_response(body, key, version)
    assert isinstance(observer.principal, str)
