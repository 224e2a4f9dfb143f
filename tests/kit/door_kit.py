"""An entrance on a real socket, and who came through it."""

import asyncio
import contextlib
import gc
import ssl
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, cast

import uvloop
from prometheus_client import CollectorRegistry, Counter
from tls_kit import LOOPBACK

from enforcer.core.security.doors import DoorSettings
from enforcer.host.doors.certificates import Visitor
from enforcer.host.doors.entrance import Entrance
from enforcer.host.doors.listening import listen_at

LIMIT_S = 10.0


class Came(asyncio.Protocol):
    """A client that came in."""

    visitor: Visitor
    transport: asyncio.Transport

    def __init__(self, door: "Door") -> None:
        self._door, self.data, self.over = door, b"", asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is in."""
        self.transport = cast(asyncio.Transport, transport)
        self.visitor = self._door.entrance.visitor(self, transport)
        if self._door.paused:
            self.transport.pause_reading()
        self._door.came.put_nowait(self)

    def data_received(self, data: bytes) -> None:
        """What it sent."""
        self.data += data

    def connection_lost(self, _exc: Exception | None) -> None:
        """It is gone."""
        self.over.set()
        self._door.entrance.leave(self)


class Door:
    """An entrance whose clients are kept.

    Args:
        host: an address of this machine.
        room: how many may come.
        paused: clients are not read at first.
        goodbye_s: how long the end of TLS may take.
        made: what takes each who comes.
        doors: DoorSettings'.
    """

    def __init__(
        self, host: str = LOOPBACK, room: int = 100, paused: bool = False, goodbye_s: float = 1.0,
        made: Callable[["Door"], asyncio.Protocol] = Came, **doors: Any,
    ) -> None:  # fmt: skip
        self.paused, self._made = paused, made
        registry = CollectorRegistry()
        self.failures = Counter("failures", "of handshakes", ["reason"], registry=registry)
        self.refused = Counter("refused", "before", ["reason"], registry=registry)
        self.came = asyncio.Queue[Came]()
        self._listener = listen_at((host, 0))
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self.entrance = Entrance(DoorSettings(**doors), lambda: room, self.failures, self.refused, goodbye_s)

    async def open(self) -> None:
        """Let clients in."""
        await self.entrance.open(self._listener, lambda: self._made(self))

    async def close(self) -> None:
        """Let nobody in any more."""
        self.entrance.close()
        # What was cancelled ends.
        if others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others, timeout=0.1)
        await asyncio.sleep(0.01)

    async def __aenter__(self) -> "Door":
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def next(self) -> Came:
        """The next who came."""
        return await asyncio.wait_for(self.came.get(), LIMIT_S)

    async def connect(
        self, *parts: bytes, context: ssl.SSLContext | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A client that sends this; with a context the first part goes before its handshake."""
        reader, writer = await asyncio.open_connection(*self.address)
        for part in parts[:1] if context else parts:
            writer.write(part)
        if context is not None:
            await writer.start_tls(context, server_hostname=LOOPBACK)
            writer.writelines(parts[1:])
        return reader, writer

    def failed(self, reason: str) -> float:
        """Handshakes that failed so."""
        return float(self.failures.labels(reason)._value.get())

    async def fails(self, reason: str, count: int = 1) -> None:
        """Wait until so many handshakes failed so."""
        until = time.monotonic() + LIMIT_S
        while self.failed(reason) < count:
            assert time.monotonic() < until, f"{self.failed(reason)} failed as {reason}, expected {count}"
            await asyncio.sleep(0.01)

    def turned_away(self, reason: str) -> float:
        """Clients that were not let in for it."""
        return float(self.refused.labels(reason)._value.get())


@contextlib.contextmanager
def only_new_garbage() -> Iterator[None]:
    """The collector of garbage sees what is made within: all that a run of many tests holds takes seconds."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def in_loop(test: Coroutine[Any, Any, None]) -> None:
    """Run a test in the loop that proxies have."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test)
