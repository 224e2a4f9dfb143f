"""Where a part's metrics are shown: a server of /metrics in threads of its own, by TLS where that is set."""

import contextlib
import socket
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Protocol, cast

from prometheus_client import CollectorRegistry, MetricsHandler

from streaming.contract.errors import WeirError
from streaming.metrics import PrintableLabels

_HANDSHAKE_S: Final = 5.0
"""So long a client of /metrics may take for its handshake, and for its request."""


class TlsContext(Protocol):
    """What the next client is shown."""

    @property
    def context(self) -> ssl.SSLContext:
        """By the certificate of now."""
        ...


class MetricsListener(ThreadingHTTPServer):
    """A server with a thread a client, in which the handshake is made too: one that is slow delays no other.

    Args:
        address: host and port, 0 for any free one.
        handler: of one request.
        tls: None: plain text.

    Raises:
        OSError: the address cannot be had.
    """

    def __init__(
        self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], tls: TlsContext | None
    ) -> None:
        self._tls = tls
        self.scheme = "http" if tls is None else "https"
        # ThreadingHTTPServer knows no address of IPv6.
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)

    @property
    def url(self) -> str:
        """Where it is."""
        host, port = str(self.server_address[0]), self.server_port
        return f"{self.scheme}://{f'[{host}]' if ':' in host else host}:{port}/metrics"

    def finish_request(self, request: Any, client_address: Any) -> None:
        """See socketserver; called in the client's own thread."""
        if self._tls is None:
            super().finish_request(request, client_address)
            return
        request.settimeout(_HANDSHAKE_S)
        # Who does not speak TLS, or ends in the middle, gets nothing and is worth no line.
        with contextlib.suppress(OSError), self._tls.context.wrap_socket(request, True) as secured:
            super().finish_request(secured, client_address)


def serve_metrics(registry: CollectorRegistry, host: str, port: int, tls: TlsContext | None = None) -> str:
    """Serve a registry from a thread; returns its URL, since port 0 takes any free one.

    Raises:
        WeirError: the port is taken, or the address not ours.
    """
    handler = MetricsHandler.factory(cast(CollectorRegistry, PrintableLabels(registry)))
    try:
        server = MetricsListener((host, port), handler, tls)
    except OSError as error:
        raise WeirError(f"cannot serve metrics on {host}:{port}: {error.strerror or error}") from error
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server.url
