"""What all connections share to keep limits of dispatch: what is left, who is in turn, what is held.

What passes within one step of the event loop is counted together, by consumer: one event, not one for each
entry. Until it is counted it is taken off what was left when the step began, so nothing passes twice.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from prometheus_client import CollectorRegistry

from enforcer.core.lines import Waiter
from enforcer.core.metrics import Metrics
from enforcer.pulsar.delivery.entry import ArrivedEntry
from enforcer.pulsar.delivery.limits import FREE, GROUP, NO_TURN, USER, Laws, Limits, Room
from streaming.contract.usage_events import DIMENSIONS
from streaming.metrics import MetricTable, counter, read_gauge

_LOOK_MS: Final = 25.0
"""How often it is looked whether limits have changed: they come into force at most so late."""
_LOOKERS: Final = 100
"""Connections that follow such a change in one step of the loop."""
CAUGHT_UP_MS: Final = 1_000
"""Who gets messages that are younger has no backlog, if they are not the next of many that wait here."""

CallLater = Callable[[float, Callable[[], None]], asyncio.TimerHandle]
Look = Callable[[], None]


class Taker(Waiter, Protocol):
    """A consumer, as it is counted."""

    limits: Limits


class DeliveryMetrics(MetricTable):
    """What the delivering side tells Prometheus (docs/metrics.md).

    Args:
        registry: shows them.
        context: what is held there is read off it.
    """

    prefix = "weir_consumer_"

    banked_permits = read_gauge(
        "Permits that clients gave and that wait to be forwarded", of="context.banked"
    )
    held_frames = read_gauge("Frames for consumers that wait for a limit", of="context.held_frames")
    held_bytes = read_gauge("What they take", of="context.held")
    exempt = counter("Consumers that a dispatch rate leaves alone, by why", "why")
    holds = counter("Messages that had to wait with the proxy")
    lost_messages = counter("Messages of topics that are not stored, dropped for a limit")
    permit_questions = counter("Brokers asked for a consumer's permits, by what came", "result")
    full = counter("Times that a broker was not read, since too much was held")
    unreadable_messages = counter("Messages without metadata, counted as one each")

    def __init__(self, registry: CollectorRegistry, context: object) -> None:
        self.context = context
        super().__init__(registry)


class DeliveryContext:
    """Shared by all connections of a proxy.

    Attributes:
        laws: what limits.
        lines: who waits for what, in what order.
        held: bytes of all that is held.
        held_frames: how many frames that is.
        banked: permits that clients gave and that were not forwarded.
        metrics: counts.

    Args:
        laws: see there.
        metrics: counts of all proxies.
        call_later: calls a function after some ms.
    """

    def __init__(self, laws: Laws, metrics: Metrics, call_later: CallLater) -> None:
        self.laws = laws
        self.lines = laws.dispatch.lines
        self.held = self.held_frames = self.banked = 0
        self.metrics = DeliveryMetrics(metrics.registry, self)
        self._throttled = metrics.throttled_frames
        self._call_later = call_later
        self._lookers: dict[Look, None] = {}
        # Those that are still to hear of a change.
        self._untold: list[Look] = []
        self._looking = False
        self._generation = laws.generation
        # Whose room was asked for last, and for what; who got what passed since the last count.
        self._room_of: tuple[Taker, bool, bool] | None = None
        self._found_room = FREE
        self._units, self._left_msgs, self._left_size = FREE[:3]
        self._passed_of: tuple[Taker, bool] | None = None
        self._msgs = self._size = self._entries = 0
        self._ending = False

    # What is left -----------------------------------------------------------------------------------------

    def room(self, consumer: Taker, *, charged: bool = True, granted: bool = False) -> Room:
        """What may be delivered to a consumer now.

        What is left belongs to those first who wait for the same limit, so there may be none for it though
        something is left: then `level` says whose limit that is, and the wait is short.

        Args:
            consumer: whose.
            charged: dispatch rates count it.
            granted: it had its turn, and this is what it was granted then.
        """
        for_what = consumer, charged, granted
        if self._room_of != for_what or not self._is_left():
            self.flush()
            self._found_room = room = self._found(consumer, charged, granted)
            self._units, self._left_msgs, self._left_size = room[:3]
            self._room_of = for_what
            self._end_soon()
            return room
        return self._found_room._replace(units=self._units, msgs=self._left_msgs, size=self._left_size)

    def admits(self, consumer: Taker, *, charged: bool, granted: bool) -> bool:
        """Whether one more entry may be delivered now; see `room`."""
        if self._room_of == (consumer, charged, granted) and self._is_left():
            return True
        return has_room(self.room(consumer, charged=charged, granted=granted))

    def count(self, consumer: Taker, came: ArrivedEntry, *, backlog: bool) -> None:
        """A message goes on to the client."""
        if came.marker:
            return
        if self._passed_of != (consumer, backlog):
            self.flush()
            self._passed_of = consumer, backlog
            self._end_soon()
        self._msgs += came.msgs
        self._size += came.size
        self._entries += 1
        if self._room_of is None or self._room_of[0] is not consumer:
            self._room_of = None
            return
        self._units -= 1 if self.laws.dispatch.by_entry else came.msgs
        self._left_msgs -= came.msgs
        self._left_size -= came.size

    def flush(self) -> None:
        """Count what has passed."""
        if self._passed_of is None:
            return
        (consumer, backlog), self._passed_of = self._passed_of, None
        msgs, size, entries = self._msgs, self._size, self._entries
        self._msgs = self._size = self._entries = 0
        consumer.limits.charge(msgs, size, entries, backlog=backlog)

    def _end_soon(self) -> None:
        if not self._ending:
            self._ending = True
            self._call_later(0, self._end_step)

    def _end_step(self) -> None:
        self._ending = False
        self._room_of = None
        self.flush()

    def is_young(self, came: ArrivedEntry) -> bool:
        """Whether a message was published just now, so that its subscription has read nearly everything.

        One of times to come says nothing: its producer could leave all that it sends uncharged.
        """
        return abs(self.laws.brokers_ms() - came.published) < CAUGHT_UP_MS

    def throttled(self, limits: Limits, room: Room) -> None:
        """A consumer begins to wait; for metrics."""
        if room.level in (GROUP, USER):
            dimension = DIMENSIONS[3 if room.dimension == "bytes" else 2]
            self._throttled.labels(room.level, dimension).inc()
        elif room.dimension:
            limits.throttled(room.level, room.dimension)

    # Who follows the policies ------------------------------------------------------------------------------

    def follow(self, look: Look) -> None:
        """Call this after changes of what the policies say."""
        self._lookers[look] = None
        if not self._looking:
            self._look_later()

    def leave(self, look: Look) -> None:
        """Do not, any more."""
        self._lookers.pop(look, None)

    def _look(self) -> None:
        if not self._lookers:
            self._looking = False
            return
        self._look_later()
        generation = self.laws.generation
        if generation != self._generation and not self._untold:
            self._generation, self._untold = generation, list(self._lookers)
            self._tell()

    def _look_later(self) -> None:
        self._looking = True
        self._call_later(_LOOK_MS, self._look)

    def _tell(self) -> None:
        """Some now, the rest in the next steps: clients' bytes come in between."""
        now, self._untold = self._untold[:_LOOKERS], self._untold[_LOOKERS:]
        if self._untold:
            self._call_later(0, self._tell)
        for look in now:
            if look in self._lookers:
                look()

    def _is_left(self) -> bool:
        return self._units > 0 and self._left_msgs > 0 and self._left_size > 0

    def _found(self, consumer: Taker, charged: bool, granted: bool) -> Room:
        limits = consumer.limits
        room = limits.room(charged=charged)
        if room.wait_ms or room is FREE or granted or not charged:
            return room
        claim = (consumer, limits.topic, limits.subscription)
        for line in limits.counters:
            if not self.lines.is_next(line, claim):
                return NO_TURN._replace(level=level_of(line))
        return room


def level_of(line: tuple[str, ...]) -> str:
    """Which level's limit a line is for."""
    if line[0] in (GROUP, USER):
        return line[0]
    return ("broker", "topic", "subscription")[len(line) - 1]


def has_room(room: Room) -> bool:
    """Whether one more entry may be delivered."""
    return room.units > 0 and room.msgs > 0 and room.size > 0
