"""Who a client says it is, as far as that can be read from its login."""

import base64
import binascii
import json

from enforcer.pulsar.protocol.commands import TEXT_MAX

_TOKEN_MAX = 65_536


def name_in(method: str, data: bytes, claim: str) -> str | None:
    """The name in a login; None if there is none that can be read.

    Args:
        method: `token` or `basic`.
        data: what the client sent for it.
        claim: of a token that holds the name; of a list the first one is taken, as brokers do.
    """
    if len(data) > _TOKEN_MAX:
        return None
    if method == "basic":
        name, colon, _ = data.partition(b":")
        return _text(name) if colon else None
    return _claimed(data, claim) if method == "token" else None


def _claimed(token: bytes, claim: str) -> str | None:
    parts = token.split(b".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + b"=" * (-len(parts[1]) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        return None
    found = claims.get(claim) if isinstance(claims, dict) else None
    if isinstance(found, list) and found:
        found = found[0]
    return found if isinstance(found, str) and 0 < len(found) <= TEXT_MAX else None


def _text(data: bytes) -> str | None:
    try:
        return data.decode() if 0 < len(data) <= TEXT_MAX else None
    except UnicodeDecodeError:
        return None
