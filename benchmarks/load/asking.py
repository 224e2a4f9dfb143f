"""Two ways to ask the job for decisions: as the proxy's own event link does, and as a client of the proxy."""

import asyncio
import struct
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol, Self

from kafka.protocol.admin import topics as messages

from enforcer.core.feeds.decisions import Read, decisions_tail
from enforcer.core.metrics import Metrics
from enforcer.core.reports import Reports
from enforcer.laws.mutation.law import READER
from streaming.contract.errors import WeirError
from streaming.contract.topics import Topics

ANSWER_LIMIT_S: Final = 60.0
CONNECTIONS: Final = 64
"""So many that no request waits for another one on its connection."""
_LATE_MS: Final = 60_000
_VERSION: Final = 7
"""Of CreateTopics: strict, so the proxy asks before it passes the request on."""
_POLL_S: Final = 0.05


class Asker(Protocol):
    """Something that sends requests and notes when each was answered."""

    latencies: dict[int, float]
    """ms by number of the request."""

    def ask(self, number: int) -> None:
        """Send request `number`."""


class EventLink:
    """Sends request events and follows the decisions with the proxy's own parts; async context manager.

    Args:
        bootstrap: `HOST:PORT` of the cluster.
        topics: of Weir.
        principals: requests go round among so many.
    """

    def __init__(self, bootstrap: str, topics: Topics, principals: int) -> None:
        self.latencies: dict[int, float] = {}
        self._sent: dict[str, tuple[int, float]] = {}
        self._principals = principals
        properties = {"bootstrap.servers": bootstrap}
        self._reports = Reports(
            properties, topics.requests, events_max=100_000, event_timeout_ms=_LATE_MS, metrics=Metrics(1),
            refused=lambda _event_id: None, learn=lambda _record_ms, _arrived_ms: None,
        )  # fmt: skip
        self._tail = decisions_tail(properties, topics.decisions, {READER.type: READER}, self._deliver)

    async def __aenter__(self) -> Self:
        self._reports.start()
        self._tail.start(asyncio.get_running_loop())
        async with asyncio.timeout(ANSWER_LIMIT_S):
            await self._tail.caught_up.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._tail.stop(5.0)
        await asyncio.to_thread(self._reports.stop, 5.0)

    def ask(self, number: int) -> None:
        """Send one request event, as the proxy would."""
        user = f"principal-{number % self._principals:06d}"
        name = f"latency-{number}"
        event = {
            "type": "request",
            "id": name,
            "proxy": "bench",
            "user": user,
            "client_id": "app",
            "api": "CreateTopics",
            "api_version": _VERSION,
            "strict": True,
            "validate_only": False,
            "items": [{"name": f"topic-{number}", "mutations": 1}],
            "subject": f"user={user}",
        }
        self._sent[name] = (number, time.perf_counter())
        if not self._reports.send(event, f"user={user}"):
            raise WeirError("an event was dropped: Kafka takes fewer than are asked for")

    def _deliver(self, decisions: list[Read]) -> None:
        now = time.perf_counter()
        for _, decision in decisions:
            number, sent = self._sent.pop(decision.id, (-1, 0.0))
            if number >= 0:
                self.latencies[number] = (now - sent) * 1000


class Client:
    """Asks proxies or brokers for CreateTopics over many connections; async context manager.

    Args:
        addresses: `HOST:PORT` of each, asked in turn, so that whatever the machine does meets all alike;
            CONNECTIONS is a multiple of their number.
        dry: whether its requests are dry runs, and create nothing.
    """

    def __init__(self, *addresses: str, dry: bool = True) -> None:
        self._addresses, self._dry = addresses, dry
        self.latencies: dict[int, float] = {}
        self.refused = 0
        self._writers: list[asyncio.StreamWriter] = []
        self._sent: list[deque[tuple[int, float]]] = []
        self._readers: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        for place in range(CONNECTIONS):
            host, _, port = self._addresses[place % len(self._addresses)].rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            self._writers.append(writer)
            self._sent.append(deque())
            self._readers.append(asyncio.create_task(self._read(reader, self._sent[-1])))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._readers:
            task.cancel()
        for writer in self._writers:
            writer.close()
        await asyncio.gather(*self._readers, return_exceptions=True)

    def ask(self, number: int) -> None:
        """Send one request."""
        place = number % CONNECTIONS
        api, version = messages.CreateTopicsRequest, _VERSION
        own = {"name": f"latency-{number}", "num_partitions": 1, "replication_factor": 1}
        topics = [api.CreatableTopic(version=version, **own)]
        message: Any = api(version=version, topics=topics, timeout_ms=10_000, validate_only=self._dry)
        message.with_header(number % 2**31, "bench")
        frame = bytes(message.encode(header=True))
        self._sent[place].append((number, time.perf_counter()))
        self._writers[place].write(struct.pack(">i", len(frame)) + frame)

    async def _read(self, reader: asyncio.StreamReader, sent: deque[tuple[int, float]]) -> None:
        # Kafka answers in order, so the next answer is to the oldest request.
        while True:
            (length,) = struct.unpack(">i", await reader.readexactly(4))
            frame = await reader.readexactly(length)
            number, begun = sent.popleft()
            self.latencies[number] = (time.perf_counter() - begun) * 1000
            answer: Any = messages.CreateTopicsResponse.decode(frame, version=_VERSION, header=True)
            self.refused += answer.topics[0].error_code != 0


async def drive(asker: Asker, rate: float, seconds: float, first: int, look: Callable[[float], None]) -> int:
    """Ask at a steady rate, whether answers come or not.

    Args:
        asker: who asks.
        rate: requests per second.
        seconds: how long.
        first: number of the first request.
        look: told the seconds that have passed; may raise.

    Returns:
        Number after the last request's.
    """
    loop = asyncio.get_running_loop()
    begun, number = loop.time(), first
    while (passed := loop.time() - begun) < seconds:
        due = first + int(passed * rate) + 1
        for each in range(number, due):
            asker.ask(each)
        number = due
        look(passed)
        await asyncio.sleep(max(0.0, begun + (number - first) / rate - loop.time()))
    return number


async def settled(asker: Asker, numbers: range) -> list[float]:
    """The latencies, ms, of some requests, once all of them were answered.

    Raises:
        WeirError: one was not, in ANSWER_LIMIT_S.
    """
    deadline = time.monotonic() + ANSWER_LIMIT_S
    while missing := [number for number in numbers if number not in asker.latencies]:
        if time.monotonic() > deadline:
            raise WeirError(
                f"{len(missing)} of {len(numbers)} requests got no answer in {ANSWER_LIMIT_S:.0f} s"
            )
        await asyncio.sleep(_POLL_S)
    return [asker.latencies[number] for number in numbers]
