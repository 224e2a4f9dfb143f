"""How clients come in: before a protocol hears of one, its handshake is over; failed ones are counted."""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Final

from prometheus_client import Counter

from enforcer.host.doors.certificates import ServerTls, failure_of

logger = logging.getLogger(__name__)

HANDSHAKE_S: Final = 10.0
"""So long a client may take for its handshake; brokers wait no longer for a first request."""
_GOODBYE_S: Final = 2.0
"""So long a client may take to answer that a connection is closed."""
_PAUSE_S: Final = 0.1
"""Where the machine has no descriptor left for a client, the next one is looked at so much later."""

Accept = Callable[[], asyncio.Protocol]


class Entrance:
    """Lets clients in on any number of listening sockets.

    Args:
        tls: None: they speak in plain text.
        room: how many more may come.
        failures: counts handshakes that failed, by reason.
    """

    def __init__(self, tls: ServerTls | None, room: Callable[[], int], failures: Counter) -> None:
        self._tls, self._room, self._failures = tls, room, failures
        self._servers: list[asyncio.Server] = []
        self._accepting: set[asyncio.Task[None]] = set()
        self._coming: set[asyncio.Task[None]] = set()
        self._closed = False

    async def open(self, listener: socket.socket, accept: Accept) -> None:
        """Let clients in on one more socket."""
        if self._tls is None:
            server = await asyncio.get_running_loop().create_server(accept, sock=listener)
            if self._closed:
                server.close()
            self._servers.append(server)
        elif not self._closed:
            task = asyncio.get_running_loop().create_task(self._accept_on(listener, accept, self._tls))
            self._accepting.add(task)

    def close(self) -> None:
        """Let nobody in any more; who is not in yet is sent away."""
        self._closed = True
        for server in self._servers:
            server.close()
        for task in (*self._accepting, *self._coming):
            task.cancel()

    async def _accept_on(self, listener: socket.socket, accept: Accept, tls: ServerTls) -> None:
        with listener:
            while True:
                try:
                    client, _ = await asyncio.get_running_loop().sock_accept(listener)
                except OSError:
                    await asyncio.sleep(_PAUSE_S)
                    continue
                if self._room() <= len(self._coming):
                    self._failures.labels("full").inc()
                    client.close()
                    continue
                task = asyncio.get_running_loop().create_task(self._let_in(client, accept, tls))
                self._coming.add(task)
                task.add_done_callback(self._coming.discard)

    async def _let_in(self, client: socket.socket, accept: Accept, tls: ServerTls) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                accept, client, ssl=tls.context,
                ssl_handshake_timeout=HANDSHAKE_S, ssl_shutdown_timeout=_GOODBYE_S,
            )  # fmt: skip
        except OSError as error:
            self._failures.labels(failure_of(error)).inc()
            logger.debug("a client's handshake failed: %s", error)
            client.close()
        except BaseException:
            client.close()
            raise
