"""Requests to a cluster's brokers, each awaited within a limit."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextvars import ContextVar
from typing import Any, Final, TypeVar

from kafka.errors import KafkaError, for_code
from kafka.protocol.metadata import MetadataRequest

from streaming.contract.errors import WeirError
from streaming.contract.printable import printable
from streaming.contract.topics import Cluster
from streaming.kafka_io.admin_client import AdminClient

REQUEST_MS: Final = 10_000
"""Limit of one request to a broker; what it was about is left out of that check."""
REQUESTS_AT_ONCE: Final = 4
"""Requests under way at a time: enough for some brokers, and nothing that clients would notice."""
ANSWER_MAX_BYTES: Final = 64 * 1024 * 1024
"""Limit of one answer, bytes; a larger one is a failure."""

Item = TypeVar("Item")
Answer = TypeVar("Answer")
ATTEMPTS: Final = 3
"""Of a request that any broker may answer: some of them may be down."""
GRACE_S: Final = 1.0
"""By which we wait longer than the client, which knows better why there is no answer."""


class Unanswered(WeirError):
    """A broker did not answer, or not with what was asked for."""


class Connection:
    """A cluster's brokers; connects when first used, and anew after `close`."""

    def __init__(self, cluster: Cluster) -> None:
        self._options: dict[str, Any] = {
            "cluster": cluster,
            "timeout_ms": REQUEST_MS,
            "receive_message_max_bytes": ANSWER_MAX_BYTES,
            "reconnect_backoff_max_ms": 1_000,
        }
        self._slots = asyncio.Semaphore(REQUESTS_AT_ONCE)
        self._opening: asyncio.Task[AdminClient] | None = None
        self._admin: AdminClient | None = None
        # Of one task and those that it starts: who acts meanwhile has limits of its own.
        self._ends = ContextVar[float | None]("ends", default=None)

    @contextlib.contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Requests inside end before `seconds` have passed, whatever their own limit."""
        before = self._ends.set(time.monotonic() + seconds)
        try:
            yield
        finally:
            self._ends.reset(before)

    async def send(self, request: Any, node: int | None = None) -> Any:
        """A broker's answer.

        Args:
            request: a message of kafka-python.
            node: the broker; None: any.

        Raises:
            Unanswered: there is none within the limit.
        """
        for _ in range(ATTEMPTS - 1 if node is None else 0):
            # The client does not ask a broker again at once that it could not reach.
            with contextlib.suppress(Unanswered):
                return await self._limited(node, lambda admin: admin._manager.send(request, node))
        return await self._limited(node, lambda admin: admin._manager.send(request, node))

    async def metadata(self, topics: Sequence[str] | None) -> Any:
        """What the cluster says of its brokers and of these topics; None: of all.

        Raises:
            Unanswered: no broker tells.
        """
        topic = MetadataRequest.MetadataRequestTopic
        named = None if topics is None else [topic(name=name) for name in topics]
        answer = await self.send(
            MetadataRequest(topics=named, allow_auto_topic_creation=False, min_version=10)
        )
        there = {broker.node_id for broker in answer.brokers}
        if self._admin is not None:
            known = {broker.node_id for broker in self._admin._manager.cluster.brokers()}
            if not known >= there:
                # A broker has joined: the client by itself looks every five minutes.
                await self._limited(None, lambda admin: admin._manager.cluster.refresh_metadata())
        return answer

    async def _limited(self, node: int | None, call: Callable[[AdminClient], Any]) -> Any:
        async with self._slots:
            limit = REQUEST_MS / 1000 + GRACE_S
            ends = self._ends.get()
            if ends is not None:
                limit = max(0.0, min(limit, ends - time.monotonic()))
            try:
                async with asyncio.timeout(limit):
                    return await self._answer_of(await self._opened(), call)
            except TimeoutError as error:
                raise Unanswered(f"{_who(node)} did not answer in {limit:.1f} s") from error
            # The library raises its own, those of sockets, and ValueError for what it cannot write.
            except (KafkaError, OSError, ValueError) as error:
                raise Unanswered(f"{_who(node)}: {printable(str(error))}") from error

    @staticmethod
    async def _answer_of(admin: AdminClient, call: Callable[[AdminClient], Any]) -> Any:
        """The result of a call on the client's own thread."""
        answer: Future[Any] = Future()
        # Whoever stops waiting cannot take it back: the client still tells it.
        answer.set_running_or_notify_cancel()
        asked = admin._manager.call_soon(call, admin)
        asked.add_callback(answer.set_result)
        asked.add_errback(answer.set_exception)
        return await asyncio.wrap_future(answer)

    async def _opened(self) -> AdminClient:
        """The client; one that is still connecting when we stop waiting is there for the next request."""
        if self._admin is not None:
            return self._admin
        if self._opening is None:
            self._opening = asyncio.create_task(asyncio.to_thread(AdminClient, **self._options))
        opening = self._opening
        try:
            self._admin = await asyncio.shield(opening)
        finally:
            # Whoever heard of its failure before us may have begun anew.
            if opening.done() and self._opening is opening:
                self._opening = None
        return self._admin

    def close(self) -> None:
        """Close the connections, if there are any; the next request opens new ones."""
        if self._admin is not None:
            admin, self._admin = self._admin, None
            admin.close()


def _who(node: int | None) -> str:
    return "the cluster" if node is None else f"broker {node}"


def why(code: int) -> str:
    """An error code in words."""
    return str(for_code(code).__name__)


def chunks(items: Sequence[Item], size: int) -> list[Sequence[Item]]:
    """In pieces of at most `size`.

    >>> chunks([1, 2, 3], 2)
    [[1, 2], [3]]
    """
    return [items[begin : begin + size] for begin in range(0, len(items), size)]


async def gathered(work: Iterable[Awaitable[Answer]]) -> list[Answer | Unanswered]:
    """The answers, or why there was none, in order.

    Raises:
        BaseException: whatever else went wrong, once all have ended.
    """
    found = await asyncio.gather(*work, return_exceptions=True)
    for one in found:
        if isinstance(one, BaseException) and not isinstance(one, Unanswered):
            raise one
    return [one for one in found if isinstance(one, Unanswered) or not isinstance(one, BaseException)]
