"""Who may use the admin API: tokens with roles, or without tokens this machine only (docs/contract.md 4)."""

import base64
import contextlib
import hashlib
import hmac
import os
import stat
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_address
from typing import Annotated, Final, Self
from urllib.parse import urlsplit

from fastapi.security import HTTPBasic, HTTPBearer
from pydantic import ConfigDict, Field, Strict, model_validator
from starlette.exceptions import HTTPException
from starlette.requests import Request

from enforcer.control.groups import Refusal
from streaming.contract.errors import ConfigError, Problem
from streaming.policy.validation import ClosedMapping, Form, expected, sorted_problems, wrong
from streaming.policy.yaml.lines import read_yaml

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
# Set by anything that passes requests on; its clients may be anywhere.
_FORWARDED: Final = ("forwarded", "x-forwarded-for", "x-real-ip")
_JSON: Final = "application/json"
ASKS_FIRST_HEADER: Final = "x-requested-by"
"""Any header that forms cannot set makes a browser ask us before it sends another site's POST."""
BEARER: Final = HTTPBearer(scheme_name="token", auto_error=False)
_BASIC: Final = HTTPBasic(auto_error=False)


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


def digest_of(token: str) -> bytes:
    """What is kept of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


async def admit(grants: Sequence[Grant], request: Request, origins: Collection[str] = ()) -> str:
    """Let a request in; returns how logs call who sent it.

    Args:
        grants: the tokens; none lets this machine in.
        request: its head.
        origins: of pages that may use the API from a browser.

    Raises:
        Refusal: 401 without a token that is known, 403 without the right to do this.
    """
    if not grants:
        return _admit_loopback(request, origins)
    if request.method == "OPTIONS" and request.headers.get("origin") in origins:
        return "preflight"  # a browser asks on behalf of a listed page whether it may show a token
    token = await _token(request)
    grant = None if token is None else _find(grants, digest_of(token))
    if grant is None:
        raise Refusal(401, "No valid token; expected Authorization: Bearer TOKEN")
    if request.method not in SAFE_METHODS and grant.role is not Role.ADMIN:
        raise Refusal(403, f"Don't have admin permissions: the role of {grant.name} is {grant.role}")
    return grant.name


def is_ours(grants: Sequence[Grant], request: Request) -> bool:
    """Whether a request shows a token of Weir's, as bearer or as password."""
    scheme, _, credential = request.headers.get("authorization", "").partition(" ")
    token = credential.strip()
    if scheme.lower() == "basic":
        with contextlib.suppress(ValueError):
            token = base64.b64decode(token).decode().partition(":")[2]
    return _find(grants, digest_of(token)) is not None


def _find(grants: Iterable[Grant], digest: bytes) -> Grant | None:
    found = None
    for grant in grants:
        # All are compared, each in constant time: how long it takes tells nothing about any token.
        if hmac.compare_digest(grant.digest, digest):
            found = grant
    return found


async def _token(request: Request) -> str | None:
    bearer = await BEARER(request)
    if bearer is not None:
        return bearer.credentials.strip()
    # A browser cannot send a token, but asks for a password. Reading only: it would send it by itself
    # later, also when another site makes it change something.
    if request.method not in SAFE_METHODS:
        return None
    try:
        basic = await _BASIC(request)
    except HTTPException:
        return None
    return None if basic is None else basic.password


def _admit_loopback(request: Request, origins: Collection[str]) -> str:
    """Without tokens only programs on this machine may ask, and no browser on behalf of another site."""
    _must_be_here(request)
    origin = request.headers.get("origin")
    if origin in origins:
        return f"loopback, a page of {origin}"
    if origin is not None and origin != f"{request.scope.get('scheme', 'http')}://{request.headers['host']}":
        raise Refusal(403, "Without configured tokens no other site may ask but admin.allowed_origins")
    if request.method not in SAFE_METHODS:
        _must_not_be_sent_by_a_site(request)
    return "loopback"


def _must_be_here(request: Request) -> None:
    address = request.client.host if request.client else ""
    if not is_loopback(address) or any(name in request.headers for name in _FORWARDED):
        raise Refusal(403, "Without configured tokens only clients on this machine are answered")
    if not is_loopback(_host(f"//{request.headers.get('host', '')}")):
        raise Refusal(403, "Without configured tokens the Host header must name this machine")


def _must_not_be_sent_by_a_site(request: Request) -> None:
    """Not every browser names the site for which it asks, but all ask first before they PUT or DELETE.

    A POST they send at once, if a form could have sent it. We never agree when asked.
    """
    if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        raise Refusal(403, "Without configured tokens no other site may change anything")
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if request.method == "POST" and media_type != _JSON and ASKS_FIRST_HEADER not in request.headers:
        raise Refusal(
            403,
            f"Without configured tokens a POST needs Content-Type: {_JSON} or a header X-Requested-By, "
            "which no page of another site can send",
        )


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


class _Secret(ClosedMapping):
    # Whole files hold nothing but a token, by mistake.
    model_config = ConfigDict(json_schema_extra={"writeOnly": True})


class _Token(_Secret):
    token: Annotated[str, Field(min_length=1), expected("text (quote numbers)", writeOnly=True)] = ""
    sha256: Annotated[
        str, Field(pattern="^[0-9a-fA-F]{64}$"), expected("64 hexadecimal digits", writeOnly=True)
    ] = ""
    role: Annotated[Role, Strict(False)]
    name: Annotated[str, Field(min_length=1), expected("text that is not empty")] = ""

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if bool(self.token) == bool(self.sha256):
            raise wrong("has both or neither of token and sha256; expected one of them")
        return self


class _Tokens(_Secret):
    tokens: Annotated[
        list[_Token],
        Field(min_length=1),
        expected("a list of {token: ..., role: admin}", writeOnly=True),
    ]


def grants_of_file(path: str) -> list[Grant]:
    """Read a file of tokens: `tokens:` with a list of {token or sha256, role, name}.

    Raises:
        ConfigError: every problem; also a file without a token, since that would let everybody in, and one
            that others than its owner and its group may read, or others than its owner write.
    """
    source = read_yaml(path)
    mode = stat.S_IMODE(os.stat(path).st_mode)
    if mode & (stat.S_IRWXO | stat.S_IWGRP):
        who = "everybody on this machine may use" if mode & stat.S_IRWXO else "its group may change"
        message = f"has mode {mode:04o}, so {who} it; expected 0600, or 0640 for a group of its own"
        raise ConfigError([Problem(file=path, line=1, path="tokens", message=message)])
    read, findings = Form(_Tokens).read({} if source.value is None else source.value)
    problems = [*source.problems, *(source.problem(*finding) for finding in findings)]
    if read is None or problems:
        raise ConfigError(sorted_problems(problems))
    return [
        Grant(
            name=item.name or f"tokens[{number}]",
            role=item.role,
            digest=bytes.fromhex(item.sha256) if item.sha256 else digest_of(item.token),
        )
        for number, item in enumerate(read.tokens)
    ]


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
