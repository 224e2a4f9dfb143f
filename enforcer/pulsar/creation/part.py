"""Topics that the client of one connection would create, as a part of the connection."""

import asyncio
import logging
from typing import Final

from enforcer.pulsar.creation.creation import KEPT_BYTES, Creation, TopicState
from enforcer.pulsar.creation.known_topics import Office, Questions
from enforcer.pulsar.creation.request import (
    ASKING,
    CLOSING,
    NAMING,
    CreationRequest,
    named,
    read_want,
    refusal,
)
from enforcer.pulsar.link import Link
from enforcer.wire.pulsar.commands import TEXT_MAX, ServerError, parse
from enforcer.wire.pulsar.frames import (
    ERROR,
    PARTITIONED_METADATA,
    PARTITIONED_METADATA_RESPONSE,
    PRODUCER_SUCCESS,
    SUCCESS,
)

CREATIONS_MAX: Final = 1_000
"""Requests of one connection looked at at a time that may create topics; then reading stops."""

logger = logging.getLogger(__name__)

_NONE: Final[frozenset[int]] = frozenset()
_ANSWERS: Final = frozenset({PRODUCER_SUCCESS, SUCCESS, ERROR, PARTITIONED_METADATA_RESPONSE}) | NAMING
_OVERHEAD_BYTES: Final = 4_096 + KEPT_BYTES
"""What a request that is kept takes beside its frame."""


class CreationPart:
    """Sees the requests that may create topics while a quota on partition mutations applies to the client.

    It is the last of its connection's parts, so that the others see these requests when they come, and their
    answers when the broker gives them.

    Args:
        link: the connection.
        office: what all connections share.
    """

    def __init__(self, link: Link, office: Office) -> None:
        self._link = link
        self._office = office
        self._questions = Questions(link)
        # Those whose client waits for an answer, by its request id; and all that are not done.
        self._open: dict[int, Creation] = {}
        # Those whose answer is withheld, by what it makes.
        self._withheld: dict[tuple[int, int] | None, Creation] = {}
        self._tasks: dict[asyncio.Task[None], Creation] = {}
        self.held_bytes = 0
        self._limited = office.limits(link.user)
        self.up, self.down = self._kinds()

    def take_up(self, kind: int, frame: bytes) -> bytes | None:
        """See link.Part."""
        if kind in CLOSING:
            self._let_go(kind, frame)
            return frame
        want = read_want(kind, frame)
        if want is None:
            return frame
        if not self._link.asks_only:
            # It cannot be asked without creating the topic.
            self._office.metrics.topics.labels("unasked").inc()
            return frame
        if len(want.body.topic) > TEXT_MAX:
            # Like those of producers. What is known of topics and namespaces is kept by their names.
            text = f"names of topics have at most {TEXT_MAX} characters here"
            self._link.to_client(refusal(want, ServerError.INVALID_TOPIC_NAME, text))
            return None
        if kind != PARTITIONED_METADATA and self._office.known.has(want.name, want.topic):
            self._office.metrics.topics.labels(TopicState.KNOWN.value).inc()
            return frame
        if want.request_id in self._open:
            self._link.end("request_id")
            return None
        self._begin(want)
        return None

    def take_down(self, kind: int, frame: bytes) -> bytes | None:
        """See link.Part."""
        body = parse(frame)
        if kind == PARTITIONED_METADATA_RESPONSE:
            if not self._questions.take(body):
                return frame
            self._look()
            return None
        if kind in NAMING:
            creation = self._withheld.get(named(kind, body))
        else:
            creation = self._open.get(body.request_id)
        if creation is not None and creation.withholds:
            creation.keep(frame)
            return None
        if creation is None or not creation.awaits:
            return frame
        if creation.answered(kind, frame):
            self._withheld[creation.want.owner] = creation
            return None
        self._closed(creation)
        return frame

    def check(self, now_ms: float) -> None:
        """See link.Part."""
        self._limited = self._office.limits(self._link.user)
        self._look()

    def close(self) -> None:
        """See link.Part. What is decided and not carried out is given back; what is at the broker is not."""
        for task in self._tasks:
            task.cancel()

    # ---------------------------------------------------------------------------------------------------

    def _begin(self, want: CreationRequest) -> None:
        creation = Creation(self._link, self._office, self._questions, want)
        self._open[want.request_id] = creation
        task = asyncio.get_running_loop().create_task(creation.run())
        self._tasks[task] = creation
        self.held_bytes += len(want.frame) + _OVERHEAD_BYTES
        self._office.metrics.held.inc()
        task.add_done_callback(self._done)
        if len(self._tasks) >= CREATIONS_MAX:
            self._link.pause(self)
        self._look()

    def _done(self, task: "asyncio.Task[None]") -> None:
        creation = self._tasks.pop(task)
        self._closed(creation)
        self.held_bytes -= len(creation.want.frame) + _OVERHEAD_BYTES
        self._office.metrics.held.dec()
        if len(self._tasks) < CREATIONS_MAX:
            self._link.resume(self)
        self._look()
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a topic's creation met a mistake of ours", exc_info=error)
            self._link.end("internal")

    def _closed(self, creation: Creation) -> None:
        """Its client has its answer."""
        if self._open.get(creation.want.request_id) is creation:
            del self._open[creation.want.request_id]
        if self._withheld.get(creation.want.owner) is creation:
            del self._withheld[creation.want.owner]

    def _let_go(self, kind: int, frame: bytes) -> None:
        """The client closes a producer or consumer that it has not got yet: it has stopped waiting."""
        body = parse(frame)
        owner = named(kind, body)
        for task, creation in self._tasks.items():
            if creation.want.owner == owner and creation.want.request_id in self._open:
                task.cancel()

    def _look(self) -> None:
        kinds = self._kinds()
        if kinds != (self.up, self.down):
            self.up, self.down = kinds
            self._link.look_again()

    def _kinds(self) -> tuple[frozenset[int], frozenset[int]]:
        if self._tasks:
            return ASKING | CLOSING, _ANSWERS
        return (ASKING if self._limited else _NONE), (_ANSWERS if self._questions.unanswered else _NONE)
