"""Logins by hand, message by message."""

import base64
import hashlib
import hmac
import json
import re
from typing import Any

from cluster_kit import USERS
from kafka.protocol import sasl
from kafka_kit import build
from wire_client import WireClient

CAROL = USERS.scram["carol"]
BEARER_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
NEVER = 4_000_000_000
"""When a token expires that does not, in seconds."""


def jwt(user: str, expires: int = NEVER) -> bytes:
    """An unsecured token, as the broker's default validator takes it."""
    claims = json.dumps({"sub": user, "iat": 0, "exp": expires}).encode()
    head = base64.urlsafe_b64encode(b'{"alg":"none"}').rstrip(b"=")
    return head + b"." + base64.urlsafe_b64encode(claims).rstrip(b"=") + b"."


class Login:
    """A client that does its SASL exchange by hand."""

    def __init__(self, wire: WireClient) -> None:
        self.wire = wire
        self._hash = "sha256"

    def handshake(self, mechanism: str) -> Any:
        """The answer to SaslHandshake."""
        self._hash = mechanism[-7:].lower().replace("-", "")
        return self.wire.answer_to(build(sasl.SaslHandshakeRequest, 1, mechanism=mechanism))

    def ask(self, token: bytes) -> None:
        """Send a token."""
        self.wire.send(build(sasl.SaslAuthenticateRequest, 2, auth_bytes=token))

    def answer(self) -> Any:
        """What is said to a token."""
        return self.wire.receive(sasl.SaslAuthenticateResponse, 2)

    def tell(self, token: bytes) -> Any:
        """The answer to a token."""
        self.ask(token)
        return self.answer()

    def final(self, first: str, challenge: bytes, password: str = CAROL) -> bytes:
        """SCRAM's last message (RFC 5802), for the first one and the broker's answer to it."""
        kind = self._hash
        parts = dict(pair.split("=", 1) for pair in challenge.decode().split(","))
        header, bare = first[: first.index(",", 2) + 1], first[first.index(",", 2) + 1 :]
        # The broker signs what it has read, and it passes over the reserved attribute.
        bare = re.sub("^m=[^,]*,", "", bare)
        binding = base64.b64encode(header.encode()).decode()
        without_proof = f"c={binding},r={parts['r']}"
        salted = hashlib.pbkdf2_hmac(kind, password.encode(), base64.b64decode(parts["s"]), int(parts["i"]))
        key = hmac.digest(salted, b"Client Key", kind)
        message = f"{bare},{challenge.decode()},{without_proof}".encode()
        signature = hmac.digest(hashlib.new(kind, key).digest(), message, kind)
        proof = bytes(left ^ right for left, right in zip(key, signature, strict=True))
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def scram(self, first: str, password: str = CAROL, mechanism: str = "SCRAM-SHA-256") -> Any:
        """The whole exchange; the last answer."""
        assert self.handshake(mechanism).error_code == 0
        challenge = self.tell(first.encode())
        if challenge.error_code:
            return challenge
        return self.tell(self.final(first, challenge.auth_bytes, password))

    def bearer(self, user: str, expires: int = NEVER) -> Any:
        """The answer to a token of OAUTHBEARER."""
        assert self.handshake("OAUTHBEARER").error_code == 0
        return self.tell(b"n,,\x01auth=Bearer " + jwt(user, expires) + b"\x01\x01")
