"""How clients come in: before a protocol hears of one, its handshake is over; failed ones are counted."""

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Callable
from typing import Final

from prometheus_client import Counter as Metric

from enforcer.host.doors.certificates import ServerTls, failure_of

logger = logging.getLogger(__name__)

HANDSHAKE_S: Final = 10.0
"""So long a client may take for its handshake; brokers wait no longer for a first request."""
_PAUSE_S: Final = 0.1
"""Where the machine has no descriptor left for a client, the next one is looked at so much later."""

Accept = Callable[[], asyncio.Protocol]


class Entrance:
    """Lets clients in on any number of listening sockets.

    Args:
        tls: None: they speak in plain text.
        room: how many more may come.
        failures: counts handshakes that failed, by reason.
        goodbye_s: so long a client may take for the last bytes of a connection that is closed.
    """

    def __init__(
        self, tls: ServerTls | None, room: Callable[[], int], failures: Metric, goodbye_s: float
    ) -> None:
        self._tls, self._room, self._failures, self._goodbye_s = tls, room, failures, goodbye_s
        self._servers: list[asyncio.Server] = []
        self._accepting: set[asyncio.Task[None]] = set()
        self._coming: dict[asyncio.Task[None], str] = {}
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
                    client, peer = await asyncio.get_running_loop().sock_accept(listener)
                except OSError:
                    await asyncio.sleep(_PAUSE_S)
                    continue
                if self._room() <= len(self._coming) and not self._make_room():
                    self._failures.labels("full").inc()
                    client.close()
                    continue
                task = asyncio.get_running_loop().create_task(self._let_in(client, accept, tls))
                self._coming[task] = peer[0]
                task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._coming.pop(task, None)

    def _make_room(self) -> bool:
        """End the oldest handshake of whoever has most of them; False: there is none."""
        if not self._coming:
            return False
        greediest, _ = Counter(self._coming.values()).most_common(1)[0]
        oldest = next(task for task, source in self._coming.items() if source == greediest)
        self._failures.labels("full").inc()
        del self._coming[oldest]
        return oldest.cancel()

    async def _let_in(self, client: socket.socket, accept: Accept, tls: ServerTls) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                accept, client, ssl=tls.context,
                ssl_handshake_timeout=HANDSHAKE_S, ssl_shutdown_timeout=self._goodbye_s,
            )  # fmt: skip
        except OSError as error:
            self._failures.labels(failure_of(error)).inc()
            logger.debug("a client's handshake failed: %s", error)
            client.close()
        except BaseException:
            client.close()
            raise
