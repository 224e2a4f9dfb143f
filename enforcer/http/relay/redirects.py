"""Requests that the upstream sends on to another server: followed here, so that no client leaves the proxy.

Pulsar's brokers answer 307 where another one owns the topic. The request goes there with its body and its
credential, so only to hosts that are ours, and only if the upstream itself named them.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Final
from urllib.parse import urljoin, urlsplit

from enforcer.http.metrics import HttpMetrics
from enforcer.http.relay.upstream import Address, ApiRequest, Headers, Reply, Upstream, UpstreamFailed
from streaming.contract.topics import address_text

REDIRECTS_MAX: Final = 5
"""How often one request may be sent on: brokers send it to the owner at once, and a circle ends."""
_SENT_ON: Final = frozenset((307, 308))
_OF_ONE_HOST: Final = frozenset((b"cookie",))


class Redirects:
    """Sends requests, wherever the upstream sends them on to.

    Args:
        upstream: sends them.
        home: the upstream's own address.
        allowed: hosts that they may be sent to, HOST or HOST:PORT with `*`; `home`'s host always; from https
            to https alone.
        metrics: counts.
    """

    def __init__(
        self, upstream: Upstream, home: Address, allowed: Sequence[str], metrics: HttpMetrics
    ) -> None:
        self._upstream = upstream
        self._home = home
        # The brackets of IPv6 are meant as such.
        self._allowed = [re.sub(r"^\[(?=.*:.*\])", "[[]", pattern.lower()) for pattern in allowed]
        self._metrics = metrics

    async def send(self, request: ApiRequest) -> Reply:
        """The answer of the server that answers itself, to a target without the upstream's base.

        Raises:
            UpstreamFailed: none did.
        """
        address = self._home
        outgoing = replace(request, target=self._home.base.encode() + request.target)
        for hops in range(REDIRECTS_MAX + 1):
            reply = await self._upstream.send(address, outgoing)
            location = reply.header(b"location")
            if reply.status not in _SENT_ON or location is None:
                return reply
            if reply.header(b"content-length") == b"0":
                await anext(reply.chunks(), None)  # or its connection could not be used again
            await reply.aclose()
            if hops == REDIRECTS_MAX:
                raise self._refused(f"The upstream sent it on more than {REDIRECTS_MAX} times")
            if not isinstance(request.content, bytes):
                raise self._refused("The upstream sent it on, and its body was too large to be kept")
            address, target = self._next(address, outgoing.target, location)
            outgoing = replace(outgoing, target=target, headers=self._headers(address, request.headers))
            self._metrics.redirects.labels("followed").inc()
        raise AssertionError("the last hop answers or is refused")

    def _next(self, address: Address, target: bytes, location: bytes) -> tuple[Address, bytes]:
        try:
            here = f"{address.scheme}://{address.authority}{target.decode('latin-1')}"
            url = urljoin(here, location.decode("latin-1"))
            to, parts = Address.of_url(url), urlsplit(url)
        except ValueError:
            raise self._refused("The upstream sent it on to no address") from None
        if not self._is_known(to):
            where = f"{to.scheme}://{to.authority}"
            raise self._refused(f"The upstream sent it on to {where}: not in http.allowed_hosts, or no TLS")
        path = parts.path or "/"
        return to, f"{path}?{parts.query}".encode("latin-1") if parts.query else path.encode("latin-1")

    def _is_known(self, to: Address) -> bool:
        if to.scheme != self._home.scheme == "https":
            # Its credential would go there in the clear.
            return False
        if to.host == self._home.host and to.scheme == self._home.scheme:
            return True
        text = address_text(to.host, to.port)
        names = to.host, f"{to.host}:{to.port}", text, text.rpartition(":")[0]
        return any(fnmatchcase(name, pattern) for name in names for pattern in self._allowed)

    def _headers(self, to: Address, headers: Headers) -> Headers:
        if to.host == self._home.host:
            return headers
        return [(name, value) for name, value in headers if name not in _OF_ONE_HOST]

    def _refused(self, reason: str) -> UpstreamFailed:
        self._metrics.redirects.labels("refused").inc()
        # Whoever sends a request on has not carried it out.
        return UpstreamFailed(502, reason, "redirect", sent=False)
