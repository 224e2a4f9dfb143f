"""Who may use the admin API: tokens with roles, or without tokens this machine only (docs/contract.md 4)."""

import base64
import hmac
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

from fastapi.security import HTTPBearer
from starlette.requests import Request

from enforcer.control.access.tokens import Grant, Role, digest_of
from enforcer.control.groups import Entries, Refusal, attached, group_names
from streaming.policy.policy_set import Section

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
# Set by anything that passes requests on; its clients may be anywhere.
_FORWARDED: Final = ("forwarded", "x-forwarded-for", "x-real-ip")
_JSON: Final = "application/json"
_CONSOLE: Final = "/console/"
ASKS_FIRST_HEADER: Final = "x-requested-by"
"""Any header that forms cannot set makes a browser ask us before it sends another site's POST."""
_GROUPS: Final = ("/admin/v2/resourcegroups", "/admin/v2/resourcegroup")
_VIEW: Final = ("entities", "entities/{law}/{entity:rest}", "summary", "stream")
_FOR_ALL: Final = frozenset(
    {"/docs", *_GROUPS, *(f"{path}/" for path in _GROUPS), *(f"/weir/v1/{path}" for path in _VIEW)}
)
"""What says the same to everybody, and lists that tell each one's own."""
BEARER: Final = HTTPBearer(scheme_name="token", auto_error=False)


def admit(grants: Sequence[Grant], request: Request, origins: Collection[str] = ()) -> Grant:
    """Let a request in; returns who sent it, and what that one may do.

    What a tenant's token may do depends on what the path names: see `check_reach`.

    Args:
        grants: the tokens; none lets this machine in.
        request: its head.
        origins: of pages that may use the API from a browser.

    Raises:
        Refusal: 401 without a token that is known, 403 without the right to do this, or to do it by Basic.
    """
    if not grants:
        return _admit_loopback(request, origins)
    if request.method == "OPTIONS" and request.headers.get("origin") in origins:
        # A browser asks on behalf of a listed page whether it may show a token.
        return Grant(name="preflight", role=Role.VIEWER)
    path: str = request.scope["path"]
    if request.method in SAFE_METHODS and (path == "/" or path.startswith(_CONSOLE)):
        # The console's own files tell nothing: the page asks for a token itself.
        return Grant(name="page", role=Role.VIEWER)
    scheme, token = _shown(request)
    grant = _find(grants, digest_of(token)) if scheme in ("bearer", "basic") else None
    if grant is None:
        raise Refusal(401, "No valid token; expected Authorization: Bearer TOKEN")
    if scheme == "basic" and request.method not in SAFE_METHODS:
        # A browser sends it by itself, also when another site makes it change something.
        raise Refusal(403, "A token as password only reads; expected Authorization: Bearer TOKEN")
    if request.method not in SAFE_METHODS and grant.role is Role.VIEWER:
        raise Refusal(403, f"Don't have admin permissions: the role of {grant.name} is {grant.role}")
    return grant


def check_reach(grant: Grant, request: Request, entries: Callable[[], Entries]) -> None:
    """Keep a tenant's token to its tenants, their namespaces and topics, and to see the groups that they use.

    The request's path is known to name something.

    Raises:
        Refusal: 403, it is somebody else's.
    """
    if grant.role is not Role.TENANT or request.scope["route"].path in _FOR_ALL:
        return
    names = request.path_params
    tenant, group = names.get("tenant"), names.get("rg")
    reached: bool = tenant in grant.tenants
    if reached and group is not None:
        reached = _may_attach(grant, names, entries())
    elif tenant is None and group is not None and request.method in SAFE_METHODS:
        reached = group in groups_seen(grant, entries())
    if not reached:
        own = ", ".join(sorted(grant.tenants))
        raise Refusal(403, f"Don't have admin permissions: {grant.name} is for what belongs to {own}")


def _may_attach(grant: Grant, names: Mapping[str, Any], entries: Entries) -> bool:
    """Whether a tenant's token may attach what a path names: where it is, or where only its own are.

    Who joins a group takes from what its members have, and what nobody has may be meant for others.
    """
    members = [who for who, held in attached(entries) if held == names["rg"]]
    name = names["tenant"] + (f"/{names['namespace']}" if "namespace" in names else "")
    only_own = {who.tenant for who in members} <= grant.tenants
    return any(only_own or who.name == name for who in members)


def groups_seen(grant: Grant, entries: Entries) -> list[str]:
    """Names of the groups that a token shows, sorted; a tenant's those that anything of it is attached to."""
    if grant.role is not Role.TENANT:
        return group_names(entries)
    own = {group for who, group in attached(entries) if who.tenant in grant.tenants}
    return sorted(group for group in own if f"{Section.RESOURCE_GROUPS}.{group}" in entries)


def is_ours(grants: Sequence[Grant], request: Request) -> bool:
    """Whether a request shows a token of Weir's, as bearer, as password or in any other way."""
    return _find(grants, digest_of(_shown(request)[1])) is not None


def _shown(request: Request) -> tuple[str, str]:
    """How a request shows a token, in small letters, empty if that cannot be read; and the token."""
    scheme, _, credential = as_written(request.headers.get("authorization", "")).partition(" ")
    token = credential.strip()
    if scheme.lower() != "basic":
        return scheme.lower(), token
    try:
        # A browser cannot send a token, but asks for a password.
        return "basic", base64.b64decode(token).decode().partition(":")[2]
    except ValueError:
        return "", token


def as_written(header: str) -> str:
    """What a header says: servers read them as Latin-1, and people write UTF-8."""
    with suppress(UnicodeDecodeError):
        return header.encode("latin-1").decode()
    return header


def _find(grants: Iterable[Grant], digest: bytes) -> Grant | None:
    # All are compared, each in constant time: how long it takes tells nothing about any token.
    found = [grant for grant in grants if hmac.compare_digest(grant.digest, digest)]
    return found[-1] if found else None


def check_in_force(grants: Sequence[Grant], caller: Grant) -> None:
    """Whether what let a request in still does, with the tokens of now; raises Refusal (401) if not."""
    if caller.digest and caller not in grants:
        raise Refusal(401, f"The token of {caller.name} is not in force any more; nothing was changed")


def _admit_loopback(request: Request, origins: Collection[str]) -> Grant:
    """Without tokens only programs on this machine may ask, and no browser on behalf of another site."""
    _must_be_here(request)
    origin = request.headers.get("origin")
    if origin in origins:
        return Grant(name=f"loopback, a page of {origin}", role=Role.OPERATOR)
    if origin is not None and origin != f"{request.scope.get('scheme', 'http')}://{request.headers['host']}":
        raise Refusal(403, "Without configured tokens no other site may ask but admin.allowed_origins")
    if request.method not in SAFE_METHODS:
        _must_not_be_sent_by_a_site(request)
    return Grant(name="loopback", role=Role.OPERATOR)


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
