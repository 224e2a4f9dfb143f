"""Which brokers clients may be connected to: nobody can reach anything else through the proxy."""

import contextlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from cachetools import LRUCache

from enforcer.host.sockets import Address

TARGETS_MAX: Final = 1_000
"""Brokers that are known from lookups, ten times a large cluster; the oldest go first."""

_HOST_MAX: Final = 255
_PART_MAX: Final = 63
PLAIN: Final = "pulsar://"
SECURE: Final = "pulsar+ssl://"
_ADDRESS: Final = re.compile(r"[\d.*]+", re.ASCII)
"""The beginning of an IPv4 address."""


class Targets:
    """The brokers that are known: by the settings, and by what brokers have said in answers to clients.

    Args:
        bootstrap: those of --pulsar.
        patterns: HOST:PORT, `*` stands for any part of a name or any port. At the end of a host it stands for
            no dot, or a name in a domain of anybody's own could begin like ours; behind digits and dots alone
            it stands for more of these.
        known_max: bound on those that brokers have named; what was named longest ago goes first.
        secure: brokers are spoken to by TLS.
        sign: there while the newest answer to any worker of this proxy named brokers that are reached by way
            of those of --pulsar, for one that has had none; None: it is alone.
    """

    def __init__(
        self, bootstrap: Iterable[Address], patterns: Sequence[str], known_max: int, *, secure: bool = False,
        sign: Path | None = None,
    ) -> None:  # fmt: skip
        self.secure, self._sign = secure, sign
        self._scheme = SECURE if secure else PLAIN
        self._bootstrap = {(host.lower(), port) for host, port in bootstrap}
        # Of IPv6 a target has no brackets.
        bare = (re.sub(r"[\[\]]", "", pattern.lower()) for pattern in patterns)
        self._patterns = [re.compile(_expression(pattern)) for pattern in bare]
        self._known: LRUCache[Address, None] = LRUCache(known_max)
        self._through: bool | None = None

    def __len__(self) -> int:
        return len(self._known)

    def learn(self, url: str, *, through: bool = False, by: Address | None = None) -> Address | None:
        """A broker has named another one, pulsar://HOST:PORT, or pulsar+ssl:// where we speak TLS to them.

        Args:
            url: how to get there.
            through: by way of who has named it, a proxy of Pulsar's, which knows whether by TLS.
            by: who that is; what is between us and brokers further on is not for clients to say.

        Returns:
            The broker; None if that is no such address.
        """
        spoken = url.startswith((PLAIN, SECURE) if through else self._scheme)
        found = parse_target(url.partition("://")[2]) if spoken else None
        if found is not None:
            self._known[found] = None
            if by is None or (by[0].lower(), by[1]) in self._bootstrap:
                # A Pulsar that stands alone says so of itself.
                through = through and found not in self._bootstrap
                if through is not self._through and self._sign is not None:
                    # Without it the others hear it of their own lookups.
                    with contextlib.suppress(OSError):
                        if through:
                            self._sign.touch()
                        else:
                            self._sign.unlink()
                self._through = through
        return found

    def through(self, target: Address) -> bool:
        """Whether it is reached by way of those of --pulsar, as the newest answer said."""
        if target in self._bootstrap:
            return False
        if self._through is None:
            return self._sign is not None and self._sign.exists()
        return self._through

    def allows(self, target: Address) -> bool:
        """Whether a client may be connected to it."""
        if target in self._known or target in self._bootstrap:
            return True
        text = f"{target[0]}:{target[1]}"
        return any(pattern.fullmatch(text) for pattern in self._patterns)


def _expression(pattern: str) -> str:
    host, colon, port = pattern.rpartition(":")
    end = ""
    if len(host) > 1 and host.endswith("*"):
        end = r"[\d.]*" if _ADDRESS.fullmatch(host) else "[^.]*"
        host = host[:-1]
    # Of IPv6 any port must not be the end of another address.
    return _any(host) + end + colon + _any(port, "[^:]*" if colon else ".*")


def _any(pattern: str, meant: str = ".*") -> str:
    return meant.join(map(re.escape, pattern.split("*")))


def parse_target(text: str) -> Address | None:
    """HOST:PORT, also [HOST]:PORT of IPv6; None if it is none. The host in small letters."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        return None
    if not colon or not 0 < len(host) <= _HOST_MAX or not (port.isascii() and port.isdigit()):
        return None
    if len(port) > 5 or not 0 < int(port) < 1 << 16 or not re.fullmatch(r"[\w.:%-]+", host, re.ASCII):
        return None
    # Parts that no name has: to look such a one up is no failure of a connection, but of the program.
    if not all(0 < len(part) <= _PART_MAX for part in host.removesuffix(".").split(".")):
        return None
    return host.lower(), int(port)
