"""Questions of our own on a client's connection: does a topic exist, and how many partitions has it?"""

import asyncio
from typing import Any

from enforcer.pulsar.link import Link
from enforcer.wire.pulsar.commands import build, own_request_id
from enforcer.wire.pulsar.frames import PARTITIONED_METADATA
from enforcer.wire.pulsar.schema import new_body


class Questions:
    """PARTITIONED_METADATA requests under ids of our own.

    Attributes:
        unanswered: those whose answer has not come, whoever may still wait for it.

    Args:
        link: the connection.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._first = self._next = own_request_id()
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self.unanswered = 0

    async def ask(self, topic: str, limit_s: float) -> Any:
        """Ask for a topic's partitions so that nothing is created; returns the body of the answer.

        Raises:
            TimeoutError: there was none within the limit.
        """
        body = new_body(PARTITIONED_METADATA, topic=topic, metadata_auto_creation_enabled=False)
        return await self.put(body, limit_s)

    async def put(self, body: Any, limit_s: float) -> Any:
        """Send a request with another id; returns the body of its answer.

        Raises:
            TimeoutError: there was none within the limit.
        """
        number = self._next
        self._next += 1
        body.request_id = number
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        self.unanswered += 1
        self._link.to_broker(build(PARTITIONED_METADATA, body))
        try:
            async with asyncio.timeout(limit_s):
                return await answer
        finally:
            del self._asked[number]

    def take(self, body: Any) -> bool:
        """A PARTITIONED_METADATA_RESPONSE has come; whether it is to one of ours, in time or not."""
        if not self._first <= body.request_id < self._next:
            return False
        self.unanswered -= 1
        answer = self._asked.get(body.request_id)
        if answer is not None and not answer.done():
            answer.set_result(body)
        return True
