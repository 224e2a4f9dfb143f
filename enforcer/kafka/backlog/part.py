"""Produce requests of one connection while some topic is blocked (docs/backlog/producers.md).

Answers leave in the order of requests, so whatever stands behind a held one waits with it. That may be so for
requests that are held themselves; for all others the held one gives way.
"""

import struct
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Final

from cachetools import LRUCache

from enforcer.core import bounds
from enforcer.core.settings import ProxySettings
from enforcer.kafka.names import NameResolver
from enforcer.kafka.part import NO_KEYS, Behind, Limit, Link, Part, Request
from enforcer.kafka.produce import Place, ProduceTopics, answer, asked_in, merged, without
from enforcer.laws.backlog.block import Block
from enforcer.laws.backlog.blocks import Blocks
from enforcer.wire.kafka.frames import LENGTH, LENGTH_BYTES, PRODUCE, BadFrame, RequestHeader, parse_header
from enforcer.wire.kafka.mutations import POLICY_VIOLATION, REQUEST_TIMED_OUT
from enforcer.wire.kafka.traffic import PRODUCE_IDS_FROM

HELD, PASSED = "held", "passed"
FAILED, GAVE_WAY, SPLIT, DROPPED, REFUSED = "failed", "gave_way", "split", "dropped", "refused"
"""What became of a request: held, and then let through, or answered with error 7 when its time was over, when
others stood behind it, or at once, beside partitions that are free; without an answer; refused at once."""
NO_ACKS: Final = "blocked_without_acks"
"""Why a connection ends whose request cannot be answered."""

BLIND_MS: Final = 1_000.0
"""A request is held so long when no more may come on its connection: nobody sees what waits behind."""
WINDOW: Final = 5
"""Requests without an answer that clients have on a connection at most (max.in.flight.requests.per.connection
of idempotent ones, and the default of most): what they would send else waits in the client."""
SHARED_MS: Final = 60_000.0
"""So long a connection counts as one that others write through as well: what they send next may wait in the
client, which has as few as one request on its way."""
_OTHERS_MAX: Final = 8
_ARRIVED_MAX: Final = 4_096
_PLACE_BYTES: Final = 250
_HEAD: Final = struct.Struct(">ihhi")  # length, key, version, correlation id

_KEYS: Final = frozenset({PRODUCE})
_ONLY: Final = 0
"""The number of a topic's partition that may be the topic itself, as where there is but one."""


class BlocksLimit(Limit):
    """Blocks of producers, for all connections of a proxy: finds that of a partition.

    Attributes:
        blocks: of the proxy; while none is active Produce requests need not be read.
        names: topic id -> name, as far as brokers have said; whoever asks them adds to it.

    Args:
        full_name: what policies and decisions call a topic, by its Kafka name or, if so said, its id.
    """

    keys = _KEYS

    def __init__(
        self, blocks: Blocks, names: LRUCache[bytes, str], full_name: Callable[[bytes, bool], str | None],
        settings: ProxySettings, now_ms: Callable[[], float],
    ) -> None:  # fmt: skip
        super().__init__(blocks)
        self.blocks, self.names, self._full_name = blocks, names, full_name
        self.settings, self.now_ms = settings, now_ms

    def part(self, link: Link) -> Part:
        return BlocksPart(link, self)

    def block(self, topic: bytes, number: int, *, by_id: bool) -> Block | None:
        """What stands in the way of a partition's producers; None: nothing, or its name is not known.

        The partitions of a topic that has several are reported as `TOPIC-partition-N`, the only one of
        another as the topic.
        """
        full = self._full_name(topic, by_id)
        if full is None:
            return None
        found = self.blocks.block(f"{full}-partition-{number}")
        whole = self.blocks.block(full) if number == _ONLY else None
        if found is None or (whole is not None and found.holds):
            return whole or found
        return found


class BlocksPart(Part):
    """The blocks' side of a connection."""

    def __init__(self, link: Link, limit: BlocksLimit) -> None:
        self._link, self._limit, self._now_ms = link, limit, limit.now_ms
        self._blocks, self._metrics = limit.blocks, limit.blocks.metrics
        # Since when the request at the head is held, and which it is; None: it is not. Whether others stand
        # behind it; whether nobody sees what does; whether others write through this connection.
        self._since_ms: float | None = None
        self._correlation_id = 0
        self._gives_way = self._blind = self._shared = False
        # What was let through last, and when.
        self._others: dict[Place, float] = {}
        # Correlation id -> when a request was seen behind a held one, to be held as well.
        self._arrived: dict[int, float] = {}
        self._generation = -1
        self._kinds: set[tuple[str, str]] = set()
        self._over = self._ended = False
        self._naming = NameResolver(limit.names, link, limit.now_ms)

    @property
    def asked(self) -> frozenset[int]:  # type: ignore[override]
        """While the request at the head is held it is judged again, blocks or none."""
        return NO_KEYS if self._since_ms is None else _KEYS

    def take(self, request: Request) -> bool:
        header = request.header
        if header.correlation_id != self._correlation_id:
            # The one that was held was answered since it found no slot (slots.SlotsPart).
            self._end(FAILED)
        asked = asked_in(request.frame, header)
        if self._must_ask(asked, request):
            self._link.hold(request)
            return False
        blocked = self._blocked(asked, header)
        if not blocked:
            self._end(PASSED)
            self._went(asked.places)
            return True
        for block in blocked.values():
            self._blocks.began(block)
        free = len(asked.places) > len(blocked)
        if not free and all(block.holds for block in blocked.values()) and self._hold(asked, header, blocked):
            self._link.hold(request)
            return False
        outcome = SPLIT
        if self._since_ms is not None:
            outcome = GAVE_WAY if self._gives_way else FAILED
        if self._over or asked.acks == 0:
            outcome = DROPPED
        self._end()
        self._went(place for place in asked.places if place not in blocked)
        return self._refuse(asked, request, blocked, outcome)

    def look_behind(self, requests: Behind, *, over: bool) -> None:
        if self._since_ms is None or self._over:
            # Woken once it was over: if it waits on, for a slot, that comes no sooner for asking again.
            return
        if not requests.waiting:
            # It was answered since it found no slot (slots.SlotsPart); of the next one only a part is here.
            self._end(FAILED)
        elif over:
            self.unheard()
        elif self._look(requests):
            self._link.pacer.wake()

    def unheard(self) -> None:
        """The client leaves: what it would do without an answer it does elsewhere, so nothing may be held for
        it, to be written when it has long tried again."""
        self._over = True
        if self._since_ms is not None:
            self._link.pacer.wake()

    def close(self) -> None:
        self._end(DROPPED)

    def _blocked(self, asked: ProduceTopics, header: RequestHeader) -> dict[Place, Block]:
        by_id = header.api_version >= PRODUCE_IDS_FROM
        found = {place: self._limit.block(*place, by_id=by_id) for place in asked.places}
        return {place: block for place, block in found.items() if block is not None}

    def _is_held(self, frame: bytes) -> bool:
        """Whether a Produce request, were it first, would be held: all of its partitions are.

        One that cannot be read is not, so that it is looked at.
        """
        try:
            header = parse_header(frame)
            asked = asked_in(frame, header)
        except BadFrame:
            return False
        blocked = self._blocked(asked, header)
        return len(blocked) == len(asked.places) and all(block.holds for block in blocked.values())

    def _hold(self, asked: ProduceTopics, header: RequestHeader, blocked: Mapping[Place, Block]) -> bool:
        """Hold the request if it may be, for as long as it may."""
        if self._over:
            return False
        now_ms, others = self._now_ms(), self._others.items()
        if self._since_ms is None:
            self._correlation_id = header.correlation_id
            self._since_ms = self._arrived.pop(header.correlation_id, now_ms)
            self._shared = any(now_ms - at_ms < SHARED_MS and place not in blocked for place, at_ms in others)
            self._kinds = {block.kind for block in blocked.values()}
            self._count(HELD, self._kinds)
            self._metrics.held.inc()
        # Somewhat less than the client waits for its answer, which it says in the request: else it would cut
        # the connection and try again on another one.
        own_ms = asked.timeout_ms - max(50.0, asked.timeout_ms / 10)
        limit_ms = min(own_ms, self._limit.settings.backlog_hold_ms)
        if self._blind or self._shared:
            limit_ms = min(limit_ms, BLIND_MS)
        left_ms = self._since_ms + limit_ms - now_ms
        if self._gives_way or left_ms <= 0:
            return False
        self._blocks.wait(self._link.pacer.wake)
        self._link.pacer.pause(left_ms)
        return True

    def _end(self, outcome: str = "") -> None:
        """A request is held no more; the outcome is counted, if it is said."""
        if self._since_ms is None:
            return
        self._blocks.stop_waiting(self._link.pacer.wake)
        self._metrics.held.dec()
        self._metrics.held_seconds.observe(max(0.0, self._now_ms() - self._since_ms) / 1000)
        self._since_ms = None
        self._gives_way = self._blind = self._shared = False
        if outcome:
            self._count(outcome, self._kinds)

    def _went(self, places: Iterable[Place]) -> None:
        """These are free to be written to, and were."""
        others, now_ms = self._others, self._now_ms()
        for place in islice(places, _OTHERS_MAX):
            others.pop(place, None)
            others[place] = now_ms
        while len(others) > _OTHERS_MAX:
            del others[next(iter(others))]

    def _look(self, requests: Behind) -> bool:
        """See what stands behind the held one; True if that changes how long it may be held."""
        before = self._gives_way, self._blind
        self._blind = (
            requests.waiting >= min(WINDOW, bounds.HELD_FRAMES_MAX)
            or requests.waiting_bytes >= bounds.HELD_BYTES_MAX
        )
        self._gives_way = self._gives_way or self._others_behind(requests)
        return before != (self._gives_way, self._blind)

    def _others_behind(self, requests: Behind) -> bool:
        data, end, now_ms = requests.data, requests.pos + requests.waiting_bytes, self._now_ms()
        known = self._generation == self._blocks.generation
        self._generation = self._blocks.generation
        if len(self._arrived) > _ARRIVED_MAX:
            self._arrived.clear()
        pos = requests.pos + LENGTH_BYTES + LENGTH.unpack_from(data, requests.pos)[0]
        while len(data) - pos >= _HEAD.size:
            length, key, _, correlation_id = _HEAD.unpack_from(data, pos)
            if key != PRODUCE:
                return True
            stop = pos + LENGTH_BYTES + length
            if stop > end:
                # Not whole: what it asks for is not known yet.
                return False
            if not (known and correlation_id in self._arrived):
                if not self._is_held(requests.copy(pos + LENGTH_BYTES, stop)):
                    return True
                self._arrived.setdefault(correlation_id, now_ms)
            pos = stop
        return False

    def _refuse(
        self, asked: ProduceTopics, request: Request, blocked: Mapping[Place, Block], outcome: str
    ) -> bool:
        """Answer for what is blocked; True: what is free goes on."""
        frame, header = request.frame, request.header
        kinds = {
            (block.kind, outcome if block.holds or asked.acks == 0 else REFUSED) for block in blocked.values()
        }

        def count() -> None:
            for kind, became in kinds:
                self._count(became, {kind})

        free = len(asked.places) > len(blocked)
        if free:
            request.frame = without(frame, header, blocked)
        if asked.acks == 0:
            if not self._ended:
                # A later part may hold what is free of it: then all of it is judged again.
                self._ended = True
                count()
            # As a broker does where nobody can be told of an error.
            request.ends = NO_ACKS
            return free
        refused = {
            place: (REQUEST_TIMED_OUT if block.holds else POLICY_VIOLATION, block.message)
            for place, block in blocked.items()
        }
        if not free:
            count()
            self._link.answer(request, answer(header, refused))
            return False

        def finish(response: bytes) -> bytes:
            count()
            return merged(header, refused, response)

        request.kept += _PLACE_BYTES * len(refused)
        request.amend(finish)
        return True

    def _count(self, outcome: str, kinds: set[tuple[str, str]]) -> None:
        for quota_type, policy in kinds:
            self._metrics.requests.labels(quota_type, policy, outcome).inc()

    def _must_ask(self, asked: ProduceTopics, request: Request) -> bool:
        """Whether the broker is asked first: who the client is, or what its topic ids are called.

        Nobody who was not let in learns of a backlog, or has a request held. What has no name is the
        broker's to refuse.
        """
        naming, by_id = self._naming, request.header.api_version >= PRODUCE_IDS_FROM
        with naming.about(request):
            return naming.must_wait(topic for topic, _ in asked.places if by_id) or naming.must_prove()
