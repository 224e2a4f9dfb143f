"""Produce requests of one connection while some topic is blocked (docs/backlog/producers.md)."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

from enforcer.core.pacing import Pacer
from enforcer.kafka.backlog.produce import Asked, Place, Refused, answer, asked_in, merged, without
from enforcer.kafka.backlog.waiting import Waiting
from enforcer.kafka.concurrency.refusal import REQUEST_TIMED_OUT
from enforcer.kafka.link import Hub, Line, NameQuestions, Slot
from enforcer.kafka.requests import Requests
from enforcer.laws.backlog.block import Block
from enforcer.wire.kafka.answers import POLICY_VIOLATION
from enforcer.wire.kafka.frames import BadFrame, RequestHeader, parse_header
from enforcer.wire.kafka.traffic import PRODUCE_IDS_FROM
from streaming.contract.events import ANONYMOUS

HELD, PASSED = "held", "passed"
FAILED, GAVE_WAY, SPLIT, DROPPED, REFUSED = "failed", "gave_way", "split", "dropped", "refused"
"""What became of a request: held, and then let through, or answered with error 7 when its time was over, when
others stood behind it, or at once, beside partitions that are free; without an answer; refused at once."""
NO_ACKS: Final = "blocked_without_acks"
"""Why a connection ends whose request cannot be answered."""
_ABSENT_MS: Final = 5_000.0
_ABSENT_MAX: Final = 1_000
_ASKED_AT_ONCE: Final = 500

Finish = Callable[[bytes], bytes]


class Going(NamedTuple):
    """What goes on of a request.

    Attributes:
        frame: for the broker; None: nothing.
        finish: puts what was refused into the broker's answer; None: nothing was.
        ends: the connection ends behind it.
    """

    frame: bytes | None
    finish: Finish | None = None
    ends: bool = False


class Producing:
    """The blocks' side of a connection.

    Args:
        hub: what all connections share.
        line: the connection.
        pacer: holds it back.
    """

    def __init__(self, hub: Hub, line: Line, pacer: Pacer) -> None:
        self._desk = hub.block_desk
        self._blocks = hub.block_desk.blocks
        self._metrics = self._blocks.metrics
        self._now_ms = hub.now_ms
        self._line = line
        self._pacer = pacer
        self._ask_again_ms = hub.settings.mute_split_ms
        self._questions = NameQuestions(line)
        self._waiting = Waiting(self._blocks, hub.settings, self._is_held)
        self._kinds: set[tuple[str, str]] = set()
        self._over = False
        # The broker has answered what it answers only to those whom it lets in.
        self._proven = False
        self._asking = False
        self._absent: dict[bytes, float] = {}

    @property
    def holds(self) -> bool:
        """Whether the request at the head is held; it is to be judged again, blocks or none."""
        return self._waiting.since_ms is not None

    def judge(self, frame: bytes, header: RequestHeader, user: str, whole: bytes) -> Going:
        """What becomes of a Produce request.

        Args:
            frame: what is left of it.
            header: its header.
            user: whose it is.
            whole: the request as it came, which is put back if it must wait.

        Raises:
            BadFrame: it cannot be read.
        """
        asked = asked_in(frame, header)
        if self._must_ask(asked, frame, header, user):
            self._line.put_back(whole)
            return Going(None)
        blocked = self._blocked(asked, header)
        if not blocked:
            self._end(PASSED)
            self._waiting.went(asked.places, self._now_ms())
            return Going(frame)
        for block in blocked.values():
            self._blocks.began(block)
        free = len(asked.places) > len(blocked)
        if not free and all(block.holds for block in blocked.values()) and self._hold(asked, header, blocked):
            self._line.put_back(whole)
            return Going(None)
        outcome = SPLIT
        if self._waiting.since_ms is not None:
            outcome = GAVE_WAY if self._waiting.gives_way else FAILED
        if self._over or asked.acks == 0:
            outcome = DROPPED
        self._end()
        self._waiting.went((place for place in asked.places if place not in blocked), self._now_ms())
        return self._refuse(asked, frame, header, blocked, outcome)

    def look_behind(self, requests: Requests, *, over: bool) -> None:
        """More has come, or, if it is over, nothing will any more: whether a held request may wait on."""
        if self._waiting.since_ms is None:
            return
        if over:
            self.unheard()
        elif self._waiting.look(requests, self._now_ms()):
            self._pacer.wake()

    def unheard(self) -> None:
        """The client leaves: what it would do without an answer it does elsewhere, so nothing may be held for
        it, to be written when it has long tried again."""
        self._over = True
        if self._waiting.since_ms is not None:
            self._pacer.wake()

    def close(self) -> None:
        """The connection is over."""
        self._end(DROPPED)

    def _blocked(self, asked: Asked, header: RequestHeader) -> dict[Place, Block]:
        by_id = header.api_version >= PRODUCE_IDS_FROM
        found = {place: self._desk.block(*place, by_id=by_id) for place in asked.places}
        return {place: block for place, block in found.items() if block is not None}

    def _is_held(self, frame: bytes) -> bool:
        """See waiting.IsHeld; one that cannot be read is not, so that it is looked at."""
        try:
            header = parse_header(frame)
            asked = asked_in(frame, header)
        except BadFrame:
            return False
        blocked = self._blocked(asked, header)
        return len(blocked) == len(asked.places) and all(block.holds for block in blocked.values())

    def _hold(self, asked: Asked, header: RequestHeader, blocked: Mapping[Place, Block]) -> bool:
        """Hold the request if it may be, for as long as it may."""
        if self._over:
            return False
        waiting, now_ms = self._waiting, self._now_ms()
        begins = waiting.begin(header.correlation_id, blocked, now_ms)
        if begins:
            self._kinds = {block.kind for block in blocked.values()}
            self._count(HELD, self._kinds)
            self._metrics.held.inc()
        left_ms = waiting.left_ms(asked.timeout_ms, now_ms)
        if left_ms <= 0:
            return False
        self._blocks.wait(self._pacer.wake)
        self._pacer.pause(left_ms)
        return True

    def _end(self, outcome: str = "") -> None:
        """A request is held no more; the outcome is counted, if it is said."""
        since_ms = self._waiting.since_ms
        if since_ms is None:
            return
        self._blocks.stop_waiting(self._pacer.wake)
        self._metrics.held.dec()
        self._metrics.held_s.observe(max(0.0, self._now_ms() - since_ms) / 1000)
        self._waiting.end()
        if outcome:
            self._count(outcome, self._kinds)

    def _refuse(
        self, asked: Asked, frame: bytes, header: RequestHeader, blocked: Mapping[Place, Block], outcome: str
    ) -> Going:
        """Answer for what is blocked; what is free goes on."""
        kinds = {
            (block.kind, outcome if block.holds or asked.acks == 0 else REFUSED) for block in blocked.values()
        }

        def count() -> None:
            for kind, became in kinds:
                self._count(became, {kind})

        free = len(asked.places) > len(blocked)
        left = without(frame, header, blocked) if free else None
        if asked.acks == 0:
            count()
            return Going(left, ends=True)
        refused = {
            place: Refused(REQUEST_TIMED_OUT if block.holds else POLICY_VIOLATION, block.message)
            for place, block in blocked.items()
        }
        if left is not None:

            def finish(response: bytes) -> bytes:
                count()
                return merged(header, refused, response)

            return Going(left, finish)
        count()
        slot = Slot(*header[:3])
        slot.response = answer(header, refused)
        self._line.reply(slot)
        return Going(None)

    def _count(self, outcome: str, kinds: set[tuple[str, str]]) -> None:
        for quota_type, policy in kinds:
            self._metrics.requests.labels(quota_type, policy, outcome).inc()

    def _must_ask(self, asked: Asked, frame: bytes, header: RequestHeader, user: str) -> bool:
        """Whether the broker is asked first: who the client is, or what its topic ids are called.

        Nobody who was not let in learns of a backlog, or has a request held.
        """
        now_ms = self._now_ms()
        unknown: list[bytes] = []
        if header.api_version >= PRODUCE_IDS_FROM:
            topics = self._desk.unknown(topic for topic, _ in asked.places)
            unknown = [topic for topic in topics if self._absent.get(topic, 0.0) <= now_ms]
        if not unknown and not self._asking and (self._proven or user != ANONYMOUS):
            return False
        self._pacer.pause(self._ask_again_ms)
        if not self._asking:
            self._asking = True
            topics = unknown[:_ASKED_AT_ONCE]
            self._questions.begin(frame, header)
            try:
                self._questions.ask(topics, partial(self._learn, topics))
            finally:
                self._questions.end()
        return True

    def _learn(self, topics: list[bytes], names: Mapping[bytes, str]) -> None:
        self._asking, self._proven = False, True
        self._desk.learn(names)
        until_ms = self._now_ms() + _ABSENT_MS
        for topic in topics:
            if topic not in names:
                # No topic of the broker's, or not this client's to see: it is the broker's to refuse.
                self._absent.pop(topic, None)
                if len(self._absent) >= _ABSENT_MAX:
                    del self._absent[next(iter(self._absent))]
                self._absent[topic] = until_ms
        self._pacer.wake()


def both(first: Finish | None, second: Finish | None) -> Finish | None:
    """What is done to an answer, one after the other."""
    if first is None or second is None:
        return first or second
    return lambda response: first(second(response))
