"""One listening port per broker, so that every address a client learns leads back to the proxy.

docs/protocol_notes.md 3.3: a single address that slips through lets clients walk around their quota.
"""

import logging
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from enforcer.host.doors.listening import listen_at
from enforcer.wire.kafka.addresses import Rewriter
from enforcer.wire.kafka.frames import CORRELATION_BYTES, LENGTH_BYTES
from streaming.contract.errors import WeirError
from streaming.contract.topics import address_text

logger = logging.getLogger(__name__)

PORT_MAX = 65_535
REPEATS_MAX: Final = 256
"""Changed answers that are known at a time."""
REPEATED_BYTES: Final = 4_096
"""The longest of them; the work on a longer one is little beside that of copying it."""


class TooManyBrokers(WeirError):
    """More broker ids than the setting allows; the response that named one more must not pass."""


@dataclass(slots=True, kw_only=True)
class Broker:
    """A broker as the proxy knows it.

    Attributes:
        host: where it is reached.
        port: where it is reached.
        listen_port: our port that leads there.
    """

    host: str
    port: int
    listen_port: int


class Brokers:
    """The brokers seen so far and their ports.

    Args:
        listen_host: where the ports are opened.
        advertise: the host that clients are told.
        port_base: port of broker 0, others follow by id, so a restarted proxy has them again; 0: any.
        brokers_max: bound on broker ids.
        domain: one port leads to all brokers, by names in this domain (SNI); empty: a port each.
        domain_port: that port.
        serve: begins to accept on a new socket for a broker.
        shared: other workers of the same proxy have the same ports.
    """

    def __init__(
        self,
        *,
        listen_host: str,
        advertise: str,
        port_base: int,
        brokers_max: int,
        serve: Callable[[socket.socket, Broker], None],
        shared: bool = False,
        domain: str = "",
        domain_port: int = 0,
    ) -> None:
        self._listen_host = listen_host
        self._advertise = advertise
        self._port_base = port_base
        self._brokers_max = brokers_max
        self._serve = serve
        self._shared = shared
        self._domain, self._domain_port = domain.lower(), domain_port
        self._named = re.compile(rf"broker-([0-9]{{1,10}})\.{re.escape(self._domain)}\.?", re.IGNORECASE)
        self._brokers: dict[int, Broker] = {}
        self.changes = 0
        """How often an address became known or another one."""
        self.repeats = Repeats()
        """Answers with our addresses, until one of these changes."""
        self.rewrite = Rewriter(self.address, lambda: self.changes)
        """Puts our addresses into responses."""

    @property
    def ports(self) -> dict[int, int]:
        """Broker id -> our port."""
        return {node_id: broker.listen_port for node_id, broker in self._brokers.items()}

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Where the brokers are reached."""
        return [(broker.host, broker.port) for broker in self._brokers.values()]

    def address(self, node_id: int, host: str, port: int) -> tuple[str, int]:
        """Where clients must go instead of a broker; opens its port at first sight.

        The socket listens before this returns: the client may connect as soon as it has read the response.

        Raises:
            TooManyBrokers: there is no room for one more.
            WeirError: no port can be had.
        """
        broker = self._brokers.get(node_id)
        if broker is None:
            broker = self._open(node_id, host, port)
        elif (broker.host, broker.port) != (host, port):
            before, after = address_text(broker.host, broker.port), address_text(host, port)
            logger.info("broker %d moved from %s to %s", node_id, before, after)
            broker.host, broker.port = host, port
            self._change()
        if self._domain:
            return f"broker-{node_id}.{self._domain}", self._domain_port
        return self._advertise, broker.listen_port

    def node_named(self, name: str) -> int | None:
        """The id in a server's name (SNI), whether there is such a broker or not; None: it is no broker's."""
        found = self._named.fullmatch(name) if self._domain else None
        return None if found is None else int(found[1])

    def address_of(self, node_id: int) -> tuple[str, int] | None:
        """Where a broker is reached; None: it is not known."""
        broker = self._brokers.get(node_id)
        return None if broker is None else (broker.host, broker.port)

    def partition_at(self, address: tuple[str, int]) -> str | None:
        """The partition of load (docs/contract.md 3.4) at an address; where one broker is known, at any.

        A cluster's bootstrap address may be another than the one that the same broker is known by.
        Of several at one address the one that came last is there.

        Returns:
            None: it is not known yet which of several it is, or there is none.
        """
        for node_id, broker in reversed(self._brokers.items()):
            if (broker.host, broker.port) == address or len(self._brokers) == 1:
                return f"broker-{node_id}"
        return None

    def _change(self) -> None:
        self.changes += 1
        self.repeats.clear()

    def _open(self, node_id: int, host: str, port: int) -> Broker:
        if len(self._brokers) >= self._brokers_max:
            raise TooManyBrokers(f"broker {node_id} is one more than {self._brokers_max} since the start")
        listener = None if self._domain else self._listen(node_id)
        ours = self._domain_port if listener is None else listener.getsockname()[1]
        broker = self._brokers[node_id] = Broker(host=host, port=port, listen_port=ours)
        self._change()
        if listener is not None:
            logger.info("broker %d (%s) is served on port %d", node_id, address_text(host, port), ours)
            self._serve(listener, broker)
        return broker

    def _listen(self, node_id: int) -> socket.socket:
        wanted = self._port_base + node_id
        if self._port_base > 0 and wanted <= PORT_MAX:
            try:
                return listen_at((self._listen_host, wanted), self._shared)
            except WeirError as error:
                logger.warning(
                    "port %d of broker %d is taken (%s); any free one is used", wanted, node_id, error
                )
        return listen_at((self._listen_host, 0))


class Repeats:
    """What small answers were changed to, for all connections of a proxy: it is done once for the same bytes.

    A cluster says the same to every client for hours. Whatever changes what answers become calls `clear`.
    """

    __slots__ = ("_known", "since")

    def __init__(self) -> None:
        self._known: dict[tuple[int, int, bytes], tuple[bytes, bytes]] = {}
        self.since = object()
        """Another one once answers become something else."""

    def find(self, key: int, version: int, came: bytes) -> tuple[bytes, bytes] | None:
        """What an answer becomes: its length as it stands before it, and all behind its correlation id.

        Args:
            came: the broker's answer behind the correlation id.

        Returns:
            None: it was not seen before, or is too long.
        """
        return self._known.get((key, version, came)) if len(came) <= REPEATED_BYTES else None

    def keep(self, key: int, version: int, came: bytes, left: bytes) -> None:
        """Note that an answer became this, both without correlation id, if it is short enough."""
        if len(came) > REPEATED_BYTES or len(left) > REPEATED_BYTES:
            return
        if len(self._known) >= REPEATS_MAX:
            # Those that are still asked for come back at their next answer.
            self._known.clear()
        length = (CORRELATION_BYTES + len(left)).to_bytes(LENGTH_BYTES, "big")
        self._known[key, version, came] = length, left

    def clear(self) -> None:
        """Answers become something else from now on."""
        self._known.clear()
        self.since = object()
