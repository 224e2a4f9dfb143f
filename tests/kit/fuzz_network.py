"""Hostile clients and a hostile broker on real sockets, and a bystander who only wants to be served."""

import asyncio
import contextlib
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Self, cast

from cluster_kit import LOOPBACK, address
from fuzz_kit import pieces, requests
from fuzz_sockets import FakeBroker, FakeSocket
from threaded import Threaded

_READ_S = 0.04
_THREADS = 8
_CONNECT_S = 5.0
_SMALL = struct.pack(">ihhih", 10, 18, 0, 1, -1)  # ApiVersions v0
_EVERY_S = 0.004


def attack(bootstrap: str, seed: int, frames: int, *, honest: bool = False) -> None:
    """Send so many hostile frames in sessions, several at a time.

    Args:
        bootstrap: of the proxy.
        seed: of all chance.
        frames: how many.
        honest: they are as recorded, and each client waits for its answers.

    Raises:
        OSError: the proxy takes no connection any more.
    """
    plan: list[tuple[int, list[bytes]]] = []
    sent = 0
    while sent < frames:
        rng = Random(f"{seed}/{len(plan)}")
        stream = requests(rng, 0.0, broken=0.0) if honest else requests(rng, rng.choice((0, 0, 0, 0, 0.05)))
        plan.append((len(plan), pieces(rng, b"".join(stream))))
        sent += len(stream)
    with ThreadPoolExecutor(_THREADS) as pool:
        for _ in pool.map(
            lambda one: _session(bootstrap, Random(f"{seed}/{one[0]}/end"), one[1], honest), plan
        ):
            pass


def _session(bootstrap: str, rng: Random, stream: list[bytes], honest: bool) -> None:
    with socket.create_connection(address(bootstrap), timeout=_CONNECT_S) as client:
        with contextlib.suppress(OSError):
            for piece in stream:
                client.sendall(piece)
            way = 0.5 if honest else rng.random()
            if way < 0.3:
                client.shutdown(socket.SHUT_WR)
            if way < 0.6:
                client.settimeout(_READ_S)
                while client.recv(65_536):
                    pass
        if rng.random() < 0.2:
            # Gone without a word: reset, not closed.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


class LyingBroker:
    """A broker that answers with recorded answers, mutated; a context manager with a thread.

    Args:
        seed: of its chance.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, name="lying broker")
        self._count = 0
        self.address = ""
        self.answers: list[bytes] = []

    def __enter__(self) -> Self:
        self._server = self._loop.run_until_complete(self._loop.create_server(self._accept, LOOPBACK, 0))
        self.address = "{}:{}".format(*self._server.sockets[0].getsockname()[:2])
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        assert self._server is not None
        self._server.close()
        self._loop.close()

    def _accept(self) -> asyncio.Protocol:
        self._count += 1
        return _Liar(Random(f"{self._seed}/{self._count}"), self.answers)


class _Liar(asyncio.Protocol):
    def __init__(self, rng: Random, told: list[bytes]) -> None:
        self._rng, self._told = rng, told
        self.reading, self.closed = True, False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The proxy comes for a client."""
        self._transport = cast(asyncio.Transport, transport)
        self._broker = FakeBroker(self._rng, cast(FakeSocket, self), self._told)

    def data_received(self, data: bytes) -> None:
        """Requests."""
        self._broker.take(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """The proxy is gone."""
        self.closed = True

    def receive(self, data: bytes) -> None:
        """What the broker says goes to the proxy (FakeSocket)."""
        if not self._transport.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        """The broker hangs up (FakeSocket)."""
        self.closed = True
        self._transport.close()


class Bystander(Threaded):
    """One small request after another on one connection; how long each took, in seconds."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(self._run, name="bystander")
        self._address = address(bootstrap)
        self.took: list[float] = []
        self.error: BaseException | None = None

    def p99_ms(self) -> float:
        """Of all requests so far."""
        assert self.error is None, f"the bystander was not served: {self.error!r}"
        return 1000 * sorted(self.took)[int(len(self.took) * 0.99)]

    def _run(self) -> None:
        try:
            with socket.create_connection(self._address, timeout=_CONNECT_S) as client:
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while not self._stopping.wait(_EVERY_S):
                    before = time.monotonic()
                    client.sendall(_SMALL)
                    (size,) = struct.unpack(">i", client.recv(4, socket.MSG_WAITALL))
                    if len(client.recv(size, socket.MSG_WAITALL)) < size:
                        raise ConnectionResetError
                    self.took.append(time.monotonic() - before)
        except (OSError, struct.error) as error:
            self.error = error
