"""A relay before a broker that serves Produce requests one at a time, each in a given time; a process.

The time is real: a request that others are before waits for them, as at a broker whose disk is slow. What it
is told stands in lines of JSON on its standard input: `{"service_ms": 2.0}` changes the time, and
`{"take": true}` is answered with the round trips since the last time.
"""

import asyncio
import sys
import time
from collections import deque
from typing import Any

import orjson
import uvloop

from benchmarks.load.asked import say

PRODUCE = b"\0\0"
_LENGTH = 4


class Service:
    """The one that serves.

    Attributes:
        service_ms: how long it takes over one request.
        took_ms: of those answered since they were asked for.
        most: requests under way at a time, the greatest number since then.
    """

    def __init__(self, service_ms: float) -> None:
        self.service_ms = service_ms
        self.took_ms: list[float] = []
        self.inflight = self.most = 0
        self._free = asyncio.Lock()

    async def serve(self) -> None:
        """Wait for those before, then for the service itself."""
        async with self._free:
            await asyncio.sleep(self.service_ms / 1000)

    def taken(self) -> dict[str, Any]:
        """What was seen since the last time."""
        found = {"took_ms": self.took_ms, "most": self.most}
        self.took_ms, self.most = [], self.inflight
        return found


class Pair:
    """A client's connection and its broker connection."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._asked: deque[tuple[bool, float]] = deque()

    async def requests(self, client: asyncio.StreamReader, broker: asyncio.StreamWriter) -> None:
        """Pass on what the client asks, Produce in its time."""
        service = self._service
        while True:
            frame = await _frame(client)
            produces = frame[_LENGTH : _LENGTH + 2] == PRODUCE
            self._asked.append((produces, time.monotonic()))
            if produces:
                service.inflight += 1
                service.most = max(service.most, service.inflight)
                await service.serve()
            broker.write(frame)

    async def responses(self, broker: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        """Pass on the answers."""
        while True:
            frame = await _frame(broker)
            produced, since = self._asked.popleft()
            if produced:
                self._service.inflight -= 1
                self._service.took_ms.append(1000 * (time.monotonic() - since))
            client.write(frame)

    def end(self) -> None:
        """What is not answered will not be."""
        self._service.inflight -= sum(produced for produced, _ in self._asked)


async def _frame(source: asyncio.StreamReader) -> bytes:
    head = await source.readexactly(_LENGTH)
    return head + await source.readexactly(int.from_bytes(head, "big"))


async def main(port: int, broker_port: int, service_ms: float) -> None:
    """Serve until the standard input ends."""
    service = Service(service_ms)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_read, to_write = await asyncio.open_connection("127.0.0.1", broker_port)
        pair = Pair(service)
        ways = [
            asyncio.ensure_future(pair.requests(reader, to_write)),
            asyncio.ensure_future(pair.responses(to_read, writer)),
        ]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        pair.end()
        writer.close()
        to_write.close()

    await asyncio.start_server(connected, "127.0.0.1", port, limit=1 << 24)
    said = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(said), sys.stdin)
    while line := await said.readline():
        told = orjson.loads(line)
        service.service_ms = told.get("service_ms", service.service_ms)
        say(service.taken() if told.get("take") else {})


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
