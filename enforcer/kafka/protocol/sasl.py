"""Who a connection belongs to, learned by watching its SASL exchange pass (docs/protocol_notes.md 3.4).

Nothing is changed on the wire. Passwords and tokens pass through here and are never kept: what stays is the
name, and it counts only after the broker's last answer of the exchange has error 0.
"""

import base64
import binascii
import json
from collections import deque
from enum import StrEnum
from typing import Final, NamedTuple

from enforcer.kafka.protocol.fields import Cursor
from enforcer.kafka.protocol.frames import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    BadFrame,
    Reason,
    RequestHeader,
    is_flexible,
    response_body_offset,
)

ANONYMOUS: Final = "ANONYMOUS"
_SASL_KEYS: Final = frozenset({SASL_HANDSHAKE, SASL_AUTHENTICATE})


class Mechanism(StrEnum):
    """The SASL mechanisms whose user name can be seen in passing."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"


# Rounds of SaslAuthenticate until the broker has decided: SCRAM's first answer is only a challenge.
_ROUNDS: Final = {
    Mechanism.PLAIN: 1,
    Mechanism.SCRAM_SHA_256: 2,
    Mechanism.SCRAM_SHA_512: 2,
    Mechanism.OAUTHBEARER: 1,
}


# SASL requests without an answer. A client sends one at a time, since each needs the answer to the last.
MAX_PENDING: Final = 4


class _Pending(NamedTuple):
    """A SASL request that waits for its answer: the mechanism in use, and the name in it, if any."""

    mechanism: Mechanism | None
    name: str | None


class SaslObserver:
    """Follows one connection's SASL exchanges.

    Call `on_request` and `on_response` for every SaslHandshake and SaslAuthenticate in the order in which
    they pass (others are ignored). Names are matched to answers one by one: a second token sent ahead of the
    answer to the first must not lend it its name.

    A re-authentication repeats the exchange; until it succeeds the name stays, and the broker refuses it
    under another name. With a SCRAM delegation token the name is the token's id: its owner is not visible.

    Args:
        oauth_claim: the claim of an OAUTHBEARER token that names the principal.
    """

    __slots__ = ("_candidate", "_mechanism", "_oauth_claim", "_offered", "_pending", "_principal", "_rounds")

    def __init__(self, oauth_claim: str = "sub") -> None:
        self._oauth_claim = oauth_claim
        self._principal: str | None = None
        self._offered: Mechanism | None = None
        self._mechanism: Mechanism | None = None
        self._candidate: str | None = None
        self._rounds = 0
        self._pending: deque[_Pending] = deque()

    @property
    def principal(self) -> str:
        """The user name of the last exchange that succeeded, ANONYMOUS before and where it cannot be seen."""
        return ANONYMOUS if self._principal is None else self._principal

    def on_request(self, frame: bytes, header: RequestHeader) -> None:
        """Takes a request on its way to the broker.

        Raises:
            BadFrame: a SASL request ends too early or a length in it is impossible, or more than
                MAX_PENDING of them have no answer.
        """
        if header.api_key not in _SASL_KEYS:
            return
        if len(self._pending) == MAX_PENDING:
            raise BadFrame(Reason.BAD_VALUE)
        flexible = is_flexible(header.api_key, header.api_version)
        cursor = Cursor(frame, header.body_offset, flexible)
        if header.api_key == SASL_HANDSHAKE:
            self._offered = _mechanism_of(cursor.string())
            self._pending.append(_Pending(self._offered, None))
            return
        token = cursor.nullable_bytes() or b""
        name = None if self._offered is None else self._name_in(self._offered, token)
        self._pending.append(_Pending(self._offered, name))

    def on_response(self, response: bytes, key: int, version: int) -> None:
        """Takes the broker's response to a request of that API and version on its way to the client.

        Raises:
            BadFrame: a SASL response ends too early, a length in it is impossible, or nothing was asked.
        """
        if key not in _SASL_KEYS:
            return
        cursor = Cursor(response, response_body_offset(key, version, response), is_flexible(key, version))
        error = cursor.int16()
        if not self._pending:
            raise BadFrame(Reason.BAD_VALUE)
        request = self._pending.popleft()
        if key == SASL_HANDSHAKE:
            self._begin(request.mechanism if error == 0 else None)
            return
        cursor.skip_string()
        if self._rounds == 0:
            self._candidate = request.name if request.mechanism is self._mechanism else None
        self._finish_round(error, cursor.nullable_bytes() or b"")

    def _begin(self, mechanism: Mechanism | None) -> None:
        self._mechanism = mechanism
        self._candidate = None
        self._rounds = 0

    def _finish_round(self, error: int, challenge: bytes) -> None:
        mechanism = self._mechanism
        if mechanism is None:
            return
        # A refused OAUTHBEARER token is answered with error 0 and the refusal as a challenge.
        if error != 0 or (mechanism is Mechanism.OAUTHBEARER and challenge):
            self._begin(None)
            return
        self._rounds += 1
        if self._rounds == _ROUNDS[mechanism]:
            self._principal = self._candidate
            self._begin(None)

    def _name_in(self, mechanism: Mechanism, token: bytes) -> str | None:
        if mechanism is Mechanism.PLAIN:
            return _plain_name(token)
        if mechanism is Mechanism.OAUTHBEARER:
            return _oauth_name(token, self._oauth_claim)
        return _scram_name(token)


def _mechanism_of(name: str) -> Mechanism | None:
    try:
        return Mechanism(name)
    except ValueError:
        return None


def _plain_name(token: bytes) -> str | None:
    """The middle of `authzid NUL user NUL password`; the broker refuses an authzid that is not the user."""
    parts = token.split(b"\0")
    return _text(parts[1]) if len(parts) == 3 else None


def _scram_name(token: bytes) -> str | None:
    """The n= attribute of `n,,n=user,r=nonce` (RFC 5802), where =2C is a comma and =3D an equals sign."""
    parts = token.split(b",")
    if len(parts) < 4 or not parts[2].startswith(b"n="):
        return None
    name = _text(parts[2][2:])
    return None if name is None else name.replace("=2C", ",").replace("=3D", "=")


def _oauth_name(token: bytes, claim: str) -> str | None:
    """A claim of the JWT in `n,,^Aauth=Bearer TOKEN^A^A` (RFC 7628); the broker checks the signature.

    Of several `auth` pairs the last counts, as it does for the broker: another one could lend a false name.
    """
    pairs = [part for part in token.split(b"\x01") if part.startswith(b"auth=")]
    if not pairs:
        return None
    scheme, _, jwt = pairs[-1].removeprefix(b"auth=").partition(b" ")
    return _claim(jwt.strip(), claim) if scheme.lower() == b"bearer" else None


def _claim(jwt: bytes, claim: str) -> str | None:
    parts = jwt.split(b".")
    if len(parts) != 3:
        return None
    padded = parts[1] + b"=" * (-len(parts[1]) % 4)
    try:
        claims = json.loads(base64.urlsafe_b64decode(padded))
    except (binascii.Error, ValueError, RecursionError):
        return None
    name = claims.get(claim) if isinstance(claims, dict) else None
    return name if isinstance(name, str) and name else None


def _text(raw: bytes) -> str | None:
    try:
        return raw.decode("utf-8") or None
    except UnicodeDecodeError:
        return None
