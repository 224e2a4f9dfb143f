"""Who a connection belongs to, learned by watching its SASL exchange pass (docs/protocol_notes.md 3.4).

Nothing is changed on the wire. Passwords and tokens pass through here and are never kept: what stays is the
name, and it counts only after the broker's last answer of the exchange has error 0. A login whose name cannot
be read exactly as the broker reads it never reaches the broker: it would be somebody else's to us. A password
that would cross the network in the clear is not even sent: its mechanism is refused first.
"""

import base64
import binascii
import json
import re
from enum import StrEnum
from math import inf
from typing import Final

from enforcer.wire.kafka.codec import answer, asked, told
from enforcer.wire.kafka.frames import SASL_AUTHENTICATE, SASL_HANDSHAKE, BadFrame, Reason, RequestHeader

ANONYMOUS: Final = "ANONYMOUS"
UNSUPPORTED_SASL_MECHANISM: Final = 33  # Kafka's error codes
SASL_AUTHENTICATION_FAILED: Final = 58
_OFFERED: Final = asked(SASL_HANDSHAKE, "Mechanism:text")
_TOKEN: Final = asked(SASL_AUTHENTICATE, "AuthBytes?")
_TOLD: Final = {
    SASL_HANDSHAKE: told(SASL_HANDSHAKE, "ErrorCode"),
    SASL_AUTHENTICATE: told(SASL_AUTHENTICATE, "ErrorCode AuthBytes? SessionLifetimeMs"),
}


class Mechanism(StrEnum):
    """The SASL mechanisms whose user name can be seen in passing."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"


# They take two rounds of SaslAuthenticate until the broker has decided: the first answer is only a challenge.
_SCRAM: Final = (Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512)
TOKEN_BYTES: Final = 4_096
"""The longest token, passwords and proofs being short."""
_BEARER_BYTES: Final = 131_072
_PLAIN_ALLOWED: Final = "PLAIN over TLS only (proxy.sasl_plain_without_tls)"
"""Stands among the mechanisms, which clients show: a refused handshake has no other place for words."""


class Failure(StrEnum):
    """Why a login that reached the broker has failed."""

    CREDENTIALS = "credentials"
    TOKEN = "token"
    MECHANISM = "mechanism"
    STATE = "state"
    REAUTHENTICATION = "reauthentication"

    @property
    def guesses(self) -> bool:
        """Whether somebody may have tried what he does not know."""
        return self not in (Failure.MECHANISM, Failure.STATE)


_FAILURES: Final = {
    UNSUPPORTED_SASL_MECHANISM: Failure.MECHANISM,
    SASL_AUTHENTICATION_FAILED: Failure.CREDENTIALS,
}


class Unreadable(Exception):
    """A login that must not reach the broker: the proxy could not tell whose it is, or others could read it,
    or its connection is somebody else's.

    Attributes:
        reason: a word for the metric.
        response: what the client gets instead.
        ends: its connection ends then.
    """

    def __init__(self, reason: str, response: bytes, ends: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.response = response
        self.ends = ends


class SaslObserver:
    """Follows one connection's SASL exchanges.

    Call `on_request` and `on_response` for every SaslHandshake and SaslAuthenticate, and for nothing else, in
    the order in which they pass, and handle nothing of the connection while `waiting`: what a client sends
    ahead of the broker's answer would pass under the name that it had before.

    A re-authentication repeats the exchange; until it succeeds the name stays. Under another name it does not
    reach the broker, which looks at passwords first: who is in could try everybody's, and would never wait.

    Args:
        oauth_claim: the claim of an OAUTHBEARER token that names the principal.
        token_ids: let logins by delegation token pass, under the token's id; its owner is not visible.
        plain: let logins by PLAIN pass, which show a password to who reads the connection.
    """

    __slots__ = (
        "_candidate", "_mechanism", "_oauth_claim", "_offered", "_plain", "_principal", "_rounds",
        "_token_ids", "failure", "lifetime_ms", "waiting",
    )  # fmt: skip

    def __init__(self, oauth_claim: str = "sub", token_ids: bool = False, plain: bool = True) -> None:
        self._oauth_claim = oauth_claim
        self._token_ids = token_ids
        self._plain = plain
        self._principal: str | None = None
        self._offered: Mechanism | None = None
        self._mechanism: Mechanism | None = None
        self._candidate: str | None = None
        self._rounds = 0
        self.waiting = False
        """Whether a SASL request has no answer yet."""
        self.failure: Failure | None = None
        """Why the login is over to which the last response belongs; None: it goes on, or has succeeded."""
        self.lifetime_ms: float | None = None
        """How long the session lasts that the last response began (KIP-368); None: it began none."""

    @property
    def succeeded(self) -> bool:
        """Whether a login has: until then the client is who it was before."""
        return self._principal is not None

    @property
    def principal(self) -> str:
        """The user name of the last exchange that succeeded, ANONYMOUS before."""
        return ANONYMOUS if self._principal is None else self._principal

    @property
    def token_bytes(self) -> int:
        """The longest token that is taken next; what is longer is no login."""
        return _BEARER_BYTES if self._mechanism is Mechanism.OAUTHBEARER else TOKEN_BYTES

    def begins(self, frame: bytes, header: RequestHeader) -> bool:
        """Whether a request shows credentials of somebody who was not let in yet.

        Raises:
            BadFrame: it cannot be read.
        """
        return (
            header.api_key == SASL_AUTHENTICATE
            and self._mechanism is not None
            and self._rounds == 0
            and not self.succeeded
            # The end of a refused login; another token is another login.
            and not (self._mechanism is Mechanism.OAUTHBEARER and _TOKEN(frame, header) == _ACKNOWLEDGED)
        )

    def on_request(self, frame: bytes, header: RequestHeader) -> None:
        """Takes a request on its way to the broker.

        Raises:
            BadFrame: a SASL request ends too early, a length in it is impossible, its token is too long, or
                the last one has no answer yet.
            Unreadable: it must not be passed on.
        """
        if self.waiting:
            raise BadFrame(Reason.BAD_VALUE)
        if header.api_key == SASL_HANDSHAKE:
            name = _OFFERED(frame, header)
            offered = next((each for each in Mechanism if each == name), None)
            if offered is None:
                raise Unreadable("mechanism", self._refused_handshake(header))
            if offered is Mechanism.PLAIN and not self._plain:
                raise Unreadable("plain_without_tls", self._refused_handshake(header))
            self._offered = offered
        else:
            token = _TOKEN(frame, header) or b""
            if len(token) > self.token_bytes:
                raise BadFrame(Reason.TOO_LARGE)
            if self._mechanism is not None and self._rounds == 0:
                self._candidate = self._name_in(self._mechanism, token, header)
        self.waiting = True

    def on_response(self, response: bytes, key: int, version: int) -> None:
        """Takes the broker's response to a request of that API and version on its way to the client.

        Raises:
            BadFrame: a SASL response ends too early, a length in it is impossible, nothing was asked, or it
                lets somebody in whose name was not seen.
        """
        said = _TOLD[key](response, version)
        if not self.waiting:
            raise BadFrame(Reason.BAD_VALUE)
        self.waiting, self.failure, self.lifetime_ms = False, None, None
        if key == SASL_HANDSHAKE:
            if not said:
                self._mechanism, self._candidate, self._rounds = self._offered, None, 0
            else:
                self._fail(said)
            return
        error, challenge, lifetime_ms = said
        self._finish_round(error, challenge or b"", lifetime_ms or inf)

    def _finish_round(self, error: int, challenge: bytes, lifetime_ms: float) -> None:
        mechanism = self._mechanism
        if error != 0:
            # Of a refused bearer token we know already.
            if mechanism is not Mechanism.OAUTHBEARER or self._candidate is not None:
                self._fail(error)
            self._mechanism = self._candidate = None
            return
        if mechanism is Mechanism.OAUTHBEARER and challenge:
            # A refused token is answered with error 0 and the refusal as a challenge; another may follow.
            if self._candidate is not None:
                self._fail(Failure.TOKEN)
            self._candidate = None
            return
        if mechanism is None or self._candidate is None:
            raise BadFrame(Reason.BAD_VALUE)
        self._rounds += 1
        if self._rounds == (2 if mechanism in _SCRAM else 1):
            self._principal, self.lifetime_ms = self._candidate, lifetime_ms
            self._mechanism = self._candidate = None

    def _fail(self, why: int | Failure) -> None:
        failure = why if isinstance(why, Failure) else _FAILURES.get(why, Failure.STATE)
        self.failure = Failure.REAUTHENTICATION if self.succeeded and failure.guesses else failure

    def _refused_handshake(self, header: RequestHeader) -> bytes:
        """Error 33 with the mechanisms that pass."""
        names = [str(name) for name in Mechanism if self._plain or name is not Mechanism.PLAIN]
        if not self._plain:
            names.append(_PLAIN_ALLOWED)
        mechanisms = [name.encode() for name in names]
        return answer(header, {"ErrorCode": UNSUPPORTED_SASL_MECHANISM, "Mechanisms": mechanisms})

    def _name_in(self, mechanism: Mechanism, token: bytes, header: RequestHeader) -> str | None:
        if mechanism is Mechanism.PLAIN:
            name = _plain_name(token)
        elif mechanism is Mechanism.OAUTHBEARER:
            if token == _ACKNOWLEDGED:
                return None
            name = _oauth_name(token, self._oauth_claim)
        else:
            name = _scram_name(token)
            if not self._token_ids and _names_a_token(token):
                text = "Weir does not see whose delegation token this is (proxy.delegation_tokens)"
                raise _refusal(header, "delegation_token", text)
        if name is None:
            raise _refusal(header, "name", "Weir finds no user name in this login, and quotas need one")
        if self._principal not in (None, name):
            text = "Cannot change principals during re-authentication"  # Kafka's words.
            raise _refusal(header, "reauthentication", text, ends=True)
        return name


def _refusal(header: RequestHeader, reason: str, message: str, ends: bool = False) -> Unreadable:
    """What is to be raised: error 58 with a message."""
    said = {"ErrorCode": SASL_AUTHENTICATION_FAILED, "ErrorMessage": message.encode()}
    return Unreadable(reason, answer(header, said), ends)


def _plain_name(token: bytes) -> str | None:
    """The middle of `authzid NUL user NUL password`; the broker refuses an authzid that is not the user."""
    parts = token.split(b"\0")
    return _text(parts[1]) if len(parts) == 3 else None


# The client's first message as Kafka's ScramMessages matches it (RFC 5802). The reserved `m=` is ignored
# there, extensions follow the nonce.
_SCRAM_NAME: Final = rb"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_SCRAM_VALUE: Final = rb"[\x01-\x2b\x2d-\x7f]+"
_SCRAM_FIRST: Final = re.compile(
    rb"n,(?:a=%b)?,(?:m=%b,)?n=(?P<name>%b),r=[\x21-\x2b\x2d-\x7e]+(?P<extensions>(?:,[A-Za-z]+=%b)*)"
    % (_SCRAM_NAME, _SCRAM_VALUE, _SCRAM_NAME, _SCRAM_VALUE)
)


def _scram_name(token: bytes) -> str | None:
    """The user in SCRAM's first message, where =2C is a comma and =3D an equals sign."""
    found = _SCRAM_FIRST.fullmatch(token)
    return None if found is None else found["name"].decode().replace("=2C", ",").replace("=3D", "=")


def _names_a_token(token: bytes) -> bool:
    """Whether the user in SCRAM's first message is a delegation token's id (KIP-48)."""
    found = _SCRAM_FIRST.fullmatch(token)
    if found is None:
        return False
    pairs = (pair.partition(b"=") for pair in found["extensions"].split(b","))
    return {key: value for key, _, value in pairs}.get(b"tokenauth", b"").lower() == b"true"


# As Kafka's OAuthBearerClientInitialResponse matches it (RFC 7628).
_OAUTH_FIRST: Final = re.compile(
    rb"n,(?:a=%b)?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01" % _SCRAM_NAME
)
_ACKNOWLEDGED: Final = b"\x01"
"""What a client says to a refused token, and the broker's error follows."""
_BEARER: Final = re.compile(rb"[bB][eE][aA][rR][eE][rR] +(?P<token>[-_~+/.a-zA-Z0-9]+=*)")
_BASE64URL: Final = re.compile(rb"[-_a-zA-Z0-9]*=*")


def _oauth_name(token: bytes, claim: str) -> str | None:
    """A claim of the JWT in `n,,^Aauth=Bearer TOKEN^A^A`; the broker checks the signature.

    Of several `auth` pairs the last counts, as it does for the broker: another one could lend a false name.
    """
    found = _OAUTH_FIRST.fullmatch(token)
    if found is None:
        return None
    pairs = dict(pair.split(b"=", 1) for pair in found["pairs"].split(b"\x01") if pair)
    bearer = _BEARER.fullmatch(pairs.get(b"auth", b""))
    return None if bearer is None else _claim(bearer["token"], claim)


def _claim(jwt: bytes, claim: str) -> str | None:
    parts = jwt.split(b".")
    if len(parts) != 3 or not _BASE64URL.fullmatch(parts[1]):
        return None
    payload = parts[1].rstrip(b"=")
    try:
        claims = json.loads(base64.urlsafe_b64decode(payload + b"=" * (-len(payload) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        return None
    name = claims.get(claim) if isinstance(claims, dict) else None
    if not isinstance(name, str):
        return None
    try:
        # JSON may hold halves of characters, which no event could say.
        return _text(name.encode())
    except UnicodeEncodeError:
        return None


def _text(raw: bytes) -> str | None:
    try:
        return raw.decode("utf-8") or None
    except UnicodeDecodeError:
        return None
