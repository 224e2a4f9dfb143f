"""Who may use the admin API: tokens with roles, or without tokens this machine only (docs/contract.md 4)."""

import base64
import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

from enforcer.admin.groups import Refused
from streaming.contract.errors import ConfigError, Problem
from streaming.policy.yaml_lines import YamlFile, read_yaml

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
# Set by anything that passes requests on; its clients may be anywhere.
_FORWARDED: Final = ("forwarded", "x-forwarded-for", "x-real-ip")
_KEYS: Final = ("token", "sha256", "role", "name")
_DIGEST_DIGITS: Final = 64


class Role(StrEnum):
    """What a token allows."""

    ADMIN = "admin"
    READER = "reader"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """One token.

    Attributes:
        name: how logs call its holder.
        role: what it allows.
        digest: SHA-256 of the token; the token itself is not kept.
    """

    name: str
    role: Role
    digest: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Where a request comes from, as far as access depends on it.

    Attributes:
        method: HTTP method.
        address: the peer's IP address, empty if there is none.
        headers: by lower-case name.
    """

    method: str
    address: str
    headers: Mapping[str, str]


def digest_of(token: str) -> bytes:
    """What is kept of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def admit(grants: Sequence[Grant], caller: Caller) -> str:
    """Let a request in; returns how logs call who sent it.

    Raises:
        Refused: 401 without a token that is known, 403 without the right to do this.
    """
    if not grants:
        return _admit_loopback(caller)
    token = _token(caller)
    grant = None if token is None else _find(grants, digest_of(token))
    if grant is None:
        raise Refused(401, "No valid token; expected Authorization: Bearer TOKEN")
    if caller.method not in SAFE_METHODS and grant.role is not Role.ADMIN:
        raise Refused(403, f"Don't have admin permissions: the role of {grant.name} is {grant.role}")
    return grant.name


def _find(grants: Iterable[Grant], digest: bytes) -> Grant | None:
    found = None
    for grant in grants:
        # All are compared, each in constant time: how long it takes tells nothing about any token.
        if hmac.compare_digest(grant.digest, digest):
            found = grant
    return found


def _token(caller: Caller) -> str | None:
    kind, _, value = caller.headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return value.strip()
    # A browser cannot send a token, but asks for a password. Reading only: it would send it by itself
    # later, also when another site makes it change something.
    if kind.lower() == "basic" and caller.method in SAFE_METHODS:
        try:
            return base64.b64decode(value, validate=True).decode().partition(":")[2]
        except ValueError:
            return None
    return None


def _admit_loopback(caller: Caller) -> str:
    """Without tokens only programs on this machine may ask, and no browser on behalf of another site."""
    if not is_loopback(caller.address) or any(name in caller.headers for name in _FORWARDED):
        raise Refused(403, "Without configured tokens only clients on this machine are answered")
    if not is_loopback(_host(f"//{caller.headers.get('host', '')}")):
        raise Refused(403, "Without configured tokens the Host header must name this machine")
    origin = caller.headers.get("origin")
    if origin is not None and not is_loopback(_host(origin)):
        raise Refused(403, "Without configured tokens no other site may ask")
    return "loopback"


def is_loopback(address: str) -> bool:
    """Whether an IP address or host name is this machine's own."""
    if address == "localhost":
        return True
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    mapped = getattr(parsed, "ipv4_mapped", None)
    return (mapped or parsed).is_loopback


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def grants_of_file(path: str) -> list[Grant]:
    """Read a file of tokens: `tokens:` with a list of {token or sha256, role, name}.

    Raises:
        ConfigError: every problem; also a file without a token, since that would let everybody in.
    """
    source = read_yaml(path)
    problems = list(source.problems)
    items = source.value.get("tokens") if isinstance(source.value, dict) else None
    grants: list[Grant] = []
    if not isinstance(items, list) or not items:
        message = "is missing or empty; expected a list of {token: ..., role: admin}"
        problems.append(source.problem(("tokens",), message))
        items = []
    for number, item in enumerate(items):
        wrong = _wrong(item)
        if wrong:
            problems.append(source.problem(("tokens", number), wrong))
        else:
            grants.append(_grant(item, number))
    problems += _unknown_keys(source)
    if problems:
        raise ConfigError(sorted(problems, key=lambda problem: problem.line))
    return grants


def _unknown_keys(source: YamlFile) -> list[Problem]:
    keys = source.value if isinstance(source.value, dict) else {}
    return [source.problem((key,), "is not known; expected tokens") for key in keys if key != "tokens"]


def _wrong(item: Any) -> str | None:
    if not isinstance(item, dict) or not set(item) <= set(_KEYS):
        return f"is not a token; expected {', '.join(_KEYS)}"
    if ("token" in item) == ("sha256" in item):
        return "has both or neither of token and sha256; expected one of them"
    if not all(isinstance(value, str) and value for value in item.values()):
        return "has a value that is empty or no text; expected text (quote numbers)"
    if item.get("role") not in list(Role):
        return f"has no known role; expected role: {' or '.join(Role)}"
    digest = item.get("sha256", "0" * _DIGEST_DIGITS)
    if len(digest) != _DIGEST_DIGITS or not set(digest.lower()) <= set("0123456789abcdef"):
        return f"has a sha256 that is none; expected {_DIGEST_DIGITS} hexadecimal digits"
    return None


def _grant(item: Mapping[str, str], number: int) -> Grant:
    digest = bytes.fromhex(item["sha256"]) if "sha256" in item else digest_of(item["token"])
    return Grant(name=item.get("name", f"tokens[{number}]"), role=Role(item["role"]), digest=digest)


def grants_of_text(text: str, source: str) -> list[Grant]:
    """Read `ROLE:TOKEN[,ROLE:TOKEN...]`, the form for an environment variable.

    Args:
        text: its value.
        source: its name, for messages, which never show a token.

    Raises:
        ConfigError: it is empty, or a part is not of that form.
    """
    grants = []
    for number, part in enumerate(text.split(",")):
        role, _, token = part.strip().partition(":")
        if role not in list(Role) or not token:
            message = f"part {number + 1} is not ROLE:TOKEN; expected role {' or '.join(Role)} and a token"
            raise ConfigError([Problem(file=source, line=1, path=source, message=message)])
        grants.append(Grant(name=f"{source}[{number}]", role=Role(role), digest=digest_of(token)))
    return grants
