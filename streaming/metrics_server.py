"""Where a part's metrics are shown: a server of /metrics in threads of its own, by TLS where that is set.

Whoever reaches it may be slow or mean no good: threads are few, and nobody keeps one for long.
"""

import contextlib
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, cast

from prometheus_client import CollectorRegistry, MetricsHandler

from streaming.contract.errors import WeirError
from streaming.contract.topics import address_text
from streaming.metrics import PrintableLabels

CLIENTS_MAX: Final = 16
"""Clients at a time; with more of them one ends, the oldest of the address that has most."""
_SILENCE_S: Final = 5.0
"""So long a client may say, or take, nothing."""
_CLIENT_S: Final = 30.0
"""So long all of a client may take; Prometheus waits 10 s for an answer."""
_ROOM_S: Final = 1.0
"""So long a client waits for the place of the one that ended for it, then it ends."""
TlsContext = Callable[[], ssl.SSLContext]
"""What the next client is shown, by the certificate of now."""


class MetricsListener(ThreadingHTTPServer):
    """A server with a thread a client, in which the handshake is made too: one that is slow delays no other.

    Args:
        address: host and port, 0 for any free one.
        handler: of one request.
        tls: None: plain text.

    Raises:
        OSError: the address cannot be had.
    """

    # With the usual 5, others that come at once keep Prometheus off for a second.
    request_queue_size = 128

    def __init__(
        self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], tls: TlsContext | None
    ) -> None:
        self._tls = tls
        self.scheme = "http" if tls is None else "https"
        # ThreadingHTTPServer knows no address of IPv6.
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._clients: dict[socket.socket, tuple[str, float]] = {}
        self._places = threading.Semaphore(CLIENTS_MAX)
        super().__init__(address, handler)

    @property
    def url(self) -> str:
        """Where it is."""
        return f"{self.scheme}://{address_text(str(self.server_address[0]), self.server_port)}/metrics"

    def get_request(self) -> tuple[Any, Any]:
        """See socketserver."""
        client, address = super().get_request()
        client.settimeout(_SILENCE_S)
        if self._tls is None:
            return client, address
        return self._tls().wrap_socket(client, True, do_handshake_on_connect=False), address

    def process_request(self, request: Any, client_address: Any) -> None:
        """See socketserver; a thread begins if there is one to be had."""
        if not self._places.acquire(blocking=False):
            self._end_one()
            if not self._places.acquire(timeout=_ROOM_S):
                self.shutdown_request(request)
                return
        self._clients[request] = (client_address[0], time.monotonic())
        try:
            super().process_request(request, client_address)
        except RuntimeError:
            # The machine has no thread left.
            self._forget(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """See socketserver; the client's own thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._forget(request)

    def _forget(self, client: socket.socket) -> None:
        del self._clients[client]
        self._places.release()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """See socketserver; called in the client's own thread."""
        # Who does not speak TLS, is too slow or ends in the middle gets nothing and is worth no line.
        with contextlib.suppress(OSError):
            if isinstance(request, ssl.SSLSocket):
                request.do_handshake()
            super().finish_request(request, client_address)

    def service_actions(self) -> None:
        """See socketserver; called about twice a second."""
        late = time.monotonic() - _CLIENT_S
        for client, (_, since) in self._clients.copy().items():
            if since < late:
                _end(client)

    def _end_one(self) -> None:
        clients = self._clients.copy()
        for greediest, _ in Counter(address for address, _ in clients.values()).most_common(1):
            # They stand in the order in which they came.
            _end(next(client for client, (address, _) in clients.items() if address == greediest))


def _end(client: socket.socket) -> None:
    # Its thread finds the end, and closes it. By socket's own: SSLSocket's would go on in plain text.
    with contextlib.suppress(OSError):
        socket.socket.shutdown(client, socket.SHUT_RDWR)


def serve_metrics(registry: CollectorRegistry, host: str, port: int, tls: TlsContext | None = None) -> str:
    """Serve a registry from a thread; returns its URL, since port 0 takes any free one.

    Raises:
        WeirError: the port is taken, or the address not ours.
    """
    handler = MetricsHandler.factory(cast(CollectorRegistry, PrintableLabels(registry)))
    try:
        server = MetricsListener((host, port), handler, tls)
    except OSError as error:
        where = address_text(host, port)
        raise WeirError(f"cannot serve metrics on {where}: {error.strerror or error}") from error
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server.url
