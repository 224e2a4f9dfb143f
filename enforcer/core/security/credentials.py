"""Whom a credential names, before anybody has looked whether it is right."""

import base64
import binascii
from typing import Any, Final

import orjson

_CREDENTIAL_MAX: Final = 65_536
NAME_MAX: Final = 1_024
"""Bytes of a name; who has a longer one is nobody in particular."""


def name_of_token(token: bytes, claim: str) -> str | None:
    """The user of a JSON Web Token; None if it names none that can be read.

    >>> name_of_token(b"e30.eyJzdWIiOiJhbGljZSJ9.x", "sub")
    'alice'

    Args:
        token: its three parts; its signature is not looked at.
        claim: that holds the name; of a list the first one is taken, as brokers do.
    """
    parts = token.split(b".") if len(token) <= _CREDENTIAL_MAX else []
    if len(parts) != 3:
        return None
    try:
        claims = orjson.loads(base64.urlsafe_b64decode(parts[1] + b"=" * (-len(parts[1]) % 4)))
    except (binascii.Error, ValueError):
        return None
    found = claims.get(claim) if isinstance(claims, dict) else None
    if isinstance(found, list) and found:
        found = found[0]
    return _checked(found)


def name_of_password(credential: bytes) -> str | None:
    """The user of `USER:PASSWORD`; None if there is none that can be read.

    >>> name_of_password(b"alice:secret")
    'alice'
    """
    name, colon, _ = credential.partition(b":")
    try:
        return _checked(name.decode()) if colon and len(credential) <= _CREDENTIAL_MAX else None
    except UnicodeDecodeError:
        return None


def _checked(name: Any) -> str | None:
    return name if isinstance(name, str) and 0 < len(name.encode("utf-8", "replace")) <= NAME_MAX else None
