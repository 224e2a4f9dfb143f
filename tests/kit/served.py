"""Servers on this machine, each in a thread of its own, nearly all of HTTP."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class _Files(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Tests say what went wrong."""


@contextmanager
def files_of(folder: Path) -> Iterator[str]:
    """URL of what lies in a folder."""
    with _served(partial(_Files, directory=str(folder))) as port:
        yield f"http://127.0.0.1:{port}"


@contextmanager
def answering(status: int) -> Iterator[int]:
    """Port of a server that answers everybody with a status."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Nobody reads it."""

    with _served(Answer) as port:
        yield port


@contextmanager
def saying(answer: bytes) -> Iterator[int]:
    """Port of a server that hears the first who comes, and says this to him."""

    def serve() -> None:
        with listener.accept()[0] as asking:
            asking.recv(4_096)
            asking.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(10)


@contextmanager
def _served(handler: Callable[..., BaseHTTPRequestHandler]) -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()
