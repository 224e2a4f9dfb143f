"""The principal of a connection, learned from the SASL exchange in passing."""

import base64
import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from kafka_kit import build, request, response

from enforcer.kafka.protocol.frames import BadFrame, RequestHeader, parse_header
from enforcer.kafka.protocol.sasl import ANONYMOUS, MAX_PENDING, SaslObserver

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
        frame, header = request(build(SaslHandshakeRequest, 1, mechanism=mechanism))
        self.observer.on_request(frame, header)
        return header

    def offered(self, header: RequestHeader, error: int = 0) -> None:
        """The broker answers the handshake."""
        message = build(SaslHandshakeResponse, 1, error_code=error, mechanisms=["PLAIN"])
        self.observer.on_response(response(message), *header[:2])

    def send(self, token: bytes) -> RequestHeader:
        """Sends SaslAuthenticate."""
        frame, header = request(build(SaslAuthenticateRequest, self.version, auth_bytes=token))
        self.observer.on_request(frame, header)
        return header

    def answered(self, header: RequestHeader, error: int = 0, challenge: bytes = b"") -> None:
        """The broker answers a round."""
        values = {"error_code": error, "error_message": "no" if error else None, "auth_bytes": challenge}
        message = build(SaslAuthenticateResponse, self.version, **values)
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


def test_password_is_not_kept() -> None:
    """Nothing of the observer holds the password, before or after the answer."""
    client = Client()
    client.handshake("PLAIN")
    header = client.send(ALICE)
    assert "a-secret" not in held_by(client.observer)
    client.answered(header)
    assert "a-secret" not in held_by(client.observer)


def held_by(observer: SaslObserver) -> str:
    """Everything that the observer remembers, as text."""
    return repr([getattr(observer, name) for name in SaslObserver.__slots__])


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("version", range(3))
def test_scram_needs_both_rounds(mechanism: str, version: int) -> None:
    """The answer to the first message is only a challenge; the second proves the password."""
    client = Client(version)
    client.handshake(mechanism)
    assert client.round(SCRAM_FIRST, challenge=b"r=noncenonce,s=salt,i=4096") == ANONYMOUS
    assert client.round(SCRAM_FINAL, challenge=b"v=proof") == "alice"


@pytest.mark.parametrize(
    ("first", "name"),
    [
        (b"n,,n=a=2Cb=3Dc,r=x", "a,b=c"),
        (b"n,,n==3D2C,r=x", "=2C"),
        (b"n,a=alice,n=alice,r=x", "alice"),
        ("n,,n=zoë,r=x".encode(), "zoë"),
        (b"n,,n=token-id,r=x,tokenauth=true", "token-id"),
        (b"n,,m=ext,n=mallory,r=x", ANONYMOUS),
        (b"n,,n=\xff,r=x", ANONYMOUS),
        (b"garbage", ANONYMOUS),
        (b"", ANONYMOUS),
    ],
)
def test_scram_names(first: bytes, name: str) -> None:
    """Escapes are undone; a message that names nobody leaves the connection anonymous."""
    client = Client()
    client.handshake("SCRAM-SHA-256")
    client.round(first)
    assert client.round(SCRAM_FINAL) == name


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
        (oauth("Basic " + jwt({"sub": "alice"})), ANONYMOUS),
        (oauth("Bearer " + jwt({"sub": 5})), ANONYMOUS),
        (oauth("Bearer " + jwt(["sub"])), ANONYMOUS),
        (oauth("Bearer e30.!!!.x"), ANONYMOUS),
        (oauth("Bearer e30.bm8.x"), ANONYMOUS),
        (oauth("Bearer opaque"), ANONYMOUS),
        (oauth(), ANONYMOUS),
    ],
)
def test_oauthbearer_names(token: bytes, name: str) -> None:
    """The sub claim of the token that the broker looks at (the last one), else anonymous."""
    client = Client()
    client.handshake("OAUTHBEARER")
    assert client.round(token) == name


def test_refused_bearer_token_is_a_challenge() -> None:
    """The broker refuses a token with error 0 and a reason, which must not count as success."""
    client = Client()
    client.handshake("OAUTHBEARER")
    token = oauth("Bearer " + jwt({"sub": "admin"}))
    assert client.round(token, challenge=b'{"status":"invalid_token"}') == ANONYMOUS
    assert client.round(b"\x01", error=AUTH_FAILED) == ANONYMOUS


def test_oauth_claim_is_a_setting() -> None:
    """Brokers may name principals by another claim."""
    client = Client()
    client.observer = SaslObserver(oauth_claim="azp")
    client.handshake("OAUTHBEARER")
    assert client.round(oauth("Bearer " + jwt({"sub": "x", "azp": "job"}))) == "job"


def test_refused_password_names_nobody() -> None:
    """Error 58 leaves the connection anonymous, and what follows does not count without a new handshake."""
    client = Client()
    client.handshake("PLAIN")
    assert client.round(ALICE, error=AUTH_FAILED) == ANONYMOUS
    assert client.round(ALICE) == ANONYMOUS


def test_refused_handshake_begins_nothing() -> None:
    """Without an accepted mechanism no token counts."""
    client = Client()
    client.offered(client.offer("PLAIN"), error=33)
    assert client.round(ALICE) == ANONYMOUS


def test_invisible_mechanism_stays_anonymous() -> None:
    """GSSAPI passes, but its name cannot be seen."""
    client = Client()
    client.handshake("GSSAPI")
    assert client.round(b"\x60\x82") == ANONYMOUS


def test_name_is_not_lent_by_a_pipelined_token() -> None:
    """A second token sent before the first is answered must not give its name to the first one's success."""
    client = Client()
    client.handshake("PLAIN")
    first, second = client.send(b"\0mallory\0own"), client.send(b"\0admin\0guess")
    client.answered(first)
    assert client.observer.principal == "mallory"
    client.answered(second, error=AUTH_FAILED)
    assert client.observer.principal == "mallory"


def test_name_is_not_lent_by_another_mechanism() -> None:
    """A token read by the rules of a mechanism that was not agreed on names nobody."""
    client = Client()
    client.handshake("PLAIN")
    refused = client.offer("SCRAM-SHA-256")
    token = client.send(b"n,,n=admin,r=x")
    client.offered(refused, error=34)
    client.answered(token)
    assert client.observer.principal == ANONYMOUS


def test_reauthentication_keeps_the_name_until_it_succeeds() -> None:
    """A session that is renewed keeps its name; a failed renewal does not take it (the broker closes)."""
    client = Client()
    client.handshake("PLAIN")
    client.round(ALICE)
    client.handshake("SCRAM-SHA-256")
    assert client.observer.principal == "alice"
    assert client.round(SCRAM_FIRST) == "alice"
    assert client.round(SCRAM_FINAL) == "alice"
    client.handshake("PLAIN")
    assert client.round(ALICE, error=AUTH_FAILED) == "alice"


def test_unanswered_requests_are_bounded() -> None:
    """A client that only asks is cut off; so is a broker that answers what nobody asked."""
    client = Client()
    headers = [client.send(ALICE) for _ in range(MAX_PENDING)]
    with pytest.raises(BadFrame):
        client.send(ALICE)
    for header in headers:
        client.answered(header)
    with pytest.raises(BadFrame):
        client.answered(headers[0])


@pytest.mark.parametrize("token", [b"", b"alice", b"\0alice", b"\0\0secret", b"a\0b\0c\0d", b"\0\xff\0x"])
def test_bad_plain_tokens_name_nobody(token: bytes) -> None:
    """The broker would refuse these; even if it did not, there is no name in them."""
    client = Client()
    client.handshake("PLAIN")
    assert client.round(token) == ANONYMOUS


def test_other_requests_are_ignored() -> None:
    """Observing is harmless for everything that is not SASL."""
    observer = SaslObserver()
    header = RequestHeader(3, 12, 1, None, 10)
    observer.on_request(b"", header)
    observer.on_response(b"", *header[:2])
    assert observer.principal == ANONYMOUS


@given(st.lists(st.tuples(st.sampled_from([17, 36]), st.integers(0, 2), st.binary(max_size=40)), max_size=6))
def test_observer_survives_garbage(frames: list[tuple[int, int, bytes]]) -> None:
    """Garbage parses or raises BadFrame, and never names anybody without a handshake."""
    observer = SaslObserver()
    for key, version, body in frames:
        head = key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + b"\xff\xff"
        with suppress(BadFrame):
            header = parse_header(head + body)
            observer.on_request(head + body, header)
        with suppress(BadFrame):
            observer.on_response(body, key, version)
    assert isinstance(observer.principal, str)
