"""How clients come in: before a protocol hears of one, it was announced (PROXY protocol), there is room for
it where it comes from, and its handshake is over; all that failed is counted."""

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Callable
from functools import partial
from ipaddress import ip_network
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from prometheus_client import Counter as Metric

from enforcer.core.security.doors import DoorSettings, ProxyProtocol, source_of
from enforcer.host.doors.certificates import ServerTls, Visitor, failure_of
from enforcer.host.doors.listening import BACKLOG
from enforcer.host.doors.proxy_header import plain, read_header
from enforcer.host.doors.sources import Sources, TurnedAway
from enforcer.host.secured import Secured
from enforcer.host.sockets import Address, peer_of

logger = logging.getLogger(__name__)

HANDSHAKE_S: Final = 10.0
"""So long a client may take for its handshake, and a load balancer for its header; brokers wait no longer for
a first request."""
_PAUSE_S: Final = 0.1
"""Where the machine has no descriptor left for a client, the next one is looked at so much later."""

Accept = Callable[[], asyncio.Protocol]


class _Guest(NamedTuple):
    """A connection that `accept` made.

    Attributes:
        source: where it counts.
        address: what a load balancer told; None: that of the socket stands.
        task: lets it in.
    """

    source: str
    address: Address | None
    task: asyncio.Task[None] | None


class Entrance:
    """Lets clients in on any number of listening sockets.

    Args:
        doors: who may come, and how.
        room: how many more may come.
        failures: counts handshakes that failed, by reason.
        refused: counts who was turned away before, by reason.
        goodbye_s: so long a client may take for the last bytes of a connection that is closed.
    """

    def __init__(
        self, doors: DoorSettings, room: Callable[[], int], failures: Metric, refused: Metric,
        goodbye_s: float,
    ) -> None:  # fmt: skip
        self._tls = None if doors.tls is None else ServerTls(doors.tls)
        self._announcing = doors.proxy_protocol is ProxyProtocol.REQUIRED
        self._balancers = tuple(ip_network(network) for network in doors.proxy_protocol_from)
        self._sources = Sources(doors.connections_per_address, doors.connection_creation_rate)
        self._room, self._failures, self._refused = room, failures, refused
        # TLS takes no 0.
        self._goodbye_s = max(0.001, goodbye_s)
        self._servers: list[asyncio.Server] = []
        self._listeners: list[socket.socket] = []
        self._coming: dict[asyncio.Task[None], str] = {}
        self._guests: WeakKeyDictionary[object, _Guest] = WeakKeyDictionary()
        self._closed = False

    async def open(self, listener: socket.socket, accept: Accept) -> None:
        """Let clients in on one more socket."""
        loop = asyncio.get_running_loop()
        if self._closed:
            listener.close()
        elif self._tls is None and not self._announcing and not self._sources.bounded:
            # By itself it makes room for 100, whatever the socket had.
            server = await loop.create_server(accept, sock=listener, backlog=BACKLOG)
            if self._closed:
                server.close()
            self._servers.append(server)
        else:
            self._listeners.append(listener)
            self._listen(listener, accept)

    def close(self) -> None:
        """Let nobody in any more; who is not in yet is sent away."""
        self._closed = True
        for server in self._servers:
            server.close()
        for listener in self._listeners:
            asyncio.get_running_loop().remove_reader(listener)
            listener.close()
        for task in self._coming:
            task.cancel()

    def greet(self, connection: object) -> Address | None:
        """A connection is made, and makes room for no other from now on.

        Returns:
            What a load balancer told of it; None: the address of the socket stands.
        """
        guest = self._guests.get(connection)
        if guest is None:
            return None
        if guest.task is not None:
            self._coming.pop(guest.task, None)
            # It is over soon, and would stay as long as the connection.
            self._guests[connection] = guest._replace(task=None)
        return guest.address

    def visitor(self, connection: object, transport: asyncio.BaseTransport) -> Visitor:
        """Who has come, as a connection asks that is made."""
        peer = self.greet(connection) or peer_of(transport)
        return Visitor(peer=peer) if self._tls is None else self._tls.visitor(transport, peer)

    def leave(self, connection: object | None) -> None:
        """A connection that `accept` made is over, or never came to be."""
        if connection is not None and (guest := self._guests.pop(connection, None)) is not None:
            self._sources.leave(guest.source)

    def _listen(self, listener: socket.socket, accept: Accept) -> None:
        # By a reader: of a task that is cancelled as it accepts, the client would be nobody's.
        if not self._closed:
            asyncio.get_running_loop().add_reader(listener, self._come, listener, accept)

    def _come(self, listener: socket.socket, accept: Accept) -> None:
        loop = asyncio.get_running_loop()
        try:
            client, peer = listener.accept()
        except BlockingIOError:  # it has gone again
            return
        except OSError:
            loop.remove_reader(listener)
            loop.call_later(_PAUSE_S, self._listen, listener, accept)
            return
        if self._room() <= len(self._coming) and not self._make_room():
            self._count_full()
            client.close()
            return
        client.setblocking(False)
        task = loop.create_task(self._let_in(client, peer[:2], accept))
        self._coming[task] = source_of(peer[0])
        task.add_done_callback(partial(self._forget, client))

    def _forget(self, client: socket.socket, task: asyncio.Task[None]) -> None:
        self._coming.pop(task, None)
        # Also where it had not begun: then nothing of it has run.
        if task.cancelled():
            client.close()

    def _make_room(self) -> bool:
        """End the oldest handshake of whoever has most of them; False: there is none."""
        if not self._coming:
            return False
        greediest, _ = Counter(self._coming.values()).most_common(1)[0]
        oldest = next(task for task, source in self._coming.items() if source == greediest)
        del self._coming[oldest]
        if oldest.cancel():
            self._count_full()
        # Else it has ended in this very turn, which makes room as well.
        return True

    def _count_full(self) -> None:
        (self._refused if self._tls is None else self._failures).labels("full").inc()

    async def _let_in(self, client: socket.socket, peer: Address, accept: Accept) -> None:
        connection: asyncio.Protocol | None = None
        try:
            address = await self._read_header(client, peer)
            source = source_of((address or peer)[0])
            # First, since it could fail.
            connection = accept()
            self._sources.enter(source)
            self._guests[connection] = _Guest(source, address, asyncio.current_task())
            await self._shake_hands(client, connection)
        except TurnedAway as turned:
            self._refused.labels(turned.reason).inc()
            logger.debug("a client that comes by %s is turned away: %s", peer, turned)
            client.close()
        except OSError as error:
            self._failures.labels(failure_of(error)).inc()
            logger.debug("a client's handshake failed: %s", error)
            client.close()
            self.leave(connection)
        except BaseException:
            client.close()
            self.leave(connection)
            raise

    async def _read_header(self, client: socket.socket, peer: Address) -> Address | None:
        if not self._announcing:
            return None
        if self._balancers:
            balancer = plain(peer[0])
            if not any(balancer in network for network in self._balancers):
                raise TurnedAway("untrusted")
        address = await read_header(client, HANDSHAKE_S)
        if address is not None and (task := asyncio.current_task()) in self._coming:
            # From here on its own place counts, not the load balancer's.
            self._coming[task] = source_of(address[0])
        return address

    async def _shake_hands(self, client: socket.socket, connection: asyncio.Protocol) -> None:
        loop = asyncio.get_running_loop()
        if self._tls is None:
            await loop.connect_accepted_socket(lambda: connection, client)
            return
        secured = Secured(connection, self._tls.now(), goodbye_s=self._goodbye_s)
        await loop.connect_accepted_socket(lambda: secured, client)
        await secured.shaken(HANDSHAKE_S)
