"""One connection's held Produce request: since when it is, and whether others stand behind it.

Answers leave in the order of requests, so whatever stands behind a held one waits with it. That may be so for
requests that are held themselves; for all others the held one gives way.
"""

import struct
from collections.abc import Callable, Collection, Iterable
from itertools import islice
from typing import Final

from enforcer.core import bounds
from enforcer.core.settings import ProxySettings
from enforcer.kafka.backlog.produce import Place
from enforcer.kafka.part import Behind
from enforcer.laws.backlog.blocks import Blocks
from enforcer.wire.kafka.frames import LENGTH, LENGTH_BYTES, PRODUCE

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
_HEAD: Final = struct.Struct(">ihhi")  # length, key, version, correlation id

IsHeld = Callable[[bytes], bool]
"""Whether a request, were it first, would be held: it is a Produce, and all of its partitions are."""


class HoldTimes:
    """Times of the held requests of one connection.

    Attributes:
        since_ms: since when the request at the head is held; None: it is not.
        correlation_id: of that request.
        gives_way: others stand behind it.
    """

    def __init__(self, blocks: Blocks, settings: ProxySettings, is_held: IsHeld) -> None:
        self.since_ms: float | None = None
        self.correlation_id = 0
        self.gives_way = False
        self._blocks = blocks
        self._settings = settings
        self._is_held = is_held
        self._blind = self._shared = False
        # What was let through last, and when.
        self._others: dict[Place, float] = {}
        # Correlation id -> when a request was seen behind a held one, to be held as well.
        self._arrived: dict[int, float] = {}
        self._generation = -1

    def went(self, places: Iterable[Place], now_ms: float) -> None:
        """These are free to be written to, and were."""
        others = self._others
        for place in islice(places, _OTHERS_MAX):
            others.pop(place, None)
            others[place] = now_ms
        while len(others) > _OTHERS_MAX:
            del others[next(iter(others))]

    def begin(self, correlation_id: int, places: Collection[Place], now_ms: float) -> bool:
        """The request at the head, for these partitions, is held; True: from now on."""
        if self.since_ms is not None:
            return False
        self._shared = any(
            now_ms - went_ms < SHARED_MS and place not in places for place, went_ms in self._others.items()
        )
        self.since_ms, self.correlation_id = self._arrived.pop(correlation_id, now_ms), correlation_id
        return True

    def end(self) -> None:
        """It is not any more."""
        self.since_ms = None
        self.gives_way = self._blind = self._shared = False

    def left_ms(self, timeout_ms: int, now_ms: float) -> float:
        """How long it may be held yet; 0: no longer.

        Somewhat less than the client waits for its answer, which it says in the request: else it would cut
        the connection and try again on another one.
        """
        if self.gives_way or self.since_ms is None:
            return 0.0
        own_ms = timeout_ms - max(50.0, timeout_ms / 10)
        limit_ms = min(own_ms, self._settings.backlog_hold_ms)
        if self._blind or self._shared:
            limit_ms = min(limit_ms, BLIND_MS)
        return max(0.0, self.since_ms + limit_ms - now_ms)

    def look(self, requests: Behind, now_ms: float) -> bool:
        """See what stands behind the held one; True if that changes how long it may be held."""
        before = self.gives_way, self._blind
        self._blind = (
            requests.waiting >= min(WINDOW, bounds.HELD_FRAMES_MAX)
            or requests.waiting_bytes >= bounds.HELD_BYTES_MAX
        )
        self.gives_way = self.gives_way or self._others_behind(requests, now_ms)
        return before != (self.gives_way, self._blind)

    def _others_behind(self, requests: Behind, now_ms: float) -> bool:
        data, end = requests.data, requests.pos + requests.waiting_bytes
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
