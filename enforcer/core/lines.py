"""Who may go on first where several wait for the same counters, and what is on its way to those who have.

First come, first served. Held back are whole connections (docs/resource_groups.md, "Turns"), or their topics
for one subscription: a *claim*. Several counters may limit it, a subscription's beside the topic's, and it
stands in the line of each. The one in front looks again by a timer of its own, and is woken when something
changes; all others are woken on reaching the front, so a step costs the same whatever their number.

What a counter leaves is divided among those who may come now, so that a claim that needs less than its part
leaves the rest to the others within the same period; they go on in the order in which they began to wait. One
that goes on keeps free what it may bring until it has come, or for a moment: else all would read at once what
only one of them may have, and the same one might be the first each time.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from math import ceil, inf
from typing import Final, NamedTuple, Protocol

RESERVED_MS: Final = 100.0
"""For how long what a claim may bring keeps others waiting: a broker with records answers sooner."""
PLACES_MAX: Final = 100_000
"""Claims in all lines; who finds no place goes on when something is left, whoever waits."""
_LOOK_AT: Final = 8
"""Places that are looked at in one step, so that a step costs the same whatever their number."""
_SOON_MS: Final = 5.0
"""Who may come so soon comes now: all wait for the same period's end, and are not woken at once."""

Counter = tuple[str, ...]
"""Whose counters: a group's one way; a broker's, a topic's at a broker, a subscription's of that."""


class Waiter(Protocol):
    """A connection that waits."""

    def wake(self) -> None:
        """Look again, soon."""


class Pause(Waiter, Protocol):
    """What holds a connection back, whose head is looked at again then; see pacing.Pacer."""

    def pause(self, wait_ms: float) -> None:
        """Handle nothing until `wake`, and for so long at most."""


Claim = tuple[Waiter, str, str]
"""Who waits, for what topic and subscription."""


class OtherClaims(NamedTuple):
    """What others take of what a counter leaves.

    Attributes:
        claims: among so many the rest is divided, one's own among them.
        msgs: messages on their way to others.
        size: the same, bytes.
        kept_msgs: messages on their way to oneself: of these nobody else has a part.
        kept_size: the same, bytes.
    """

    claims: int
    msgs: float
    size: float
    kept_msgs: float = 0.0
    kept_size: float = 0.0

    def leaves(self, left: int, dimension: int) -> int:
        """What a claim may take of so much: whole messages or bytes, as long as there are any.

        >>> [OtherClaims(3, 2.5, 0.0).leaves(left, 0) for left in (40, 3, 2)]
        [13, 1, 0]
        >>> [OtherClaims(3, 2.5, 0.0, 10.0).leaves(left, 0) for left in (40, 12, 2)]
        [13, 10, 0]
        """
        free = left - self[1 + dimension]
        return max(0, ceil(max(free / self.claims, min(free, self[3 + dimension]))))


_NOTHING: Final = (0.0, 0.0, 0.0)
NOTHING: Final = OtherClaims(1, 0.0, 0.0)
"""Nobody else takes any."""
Others = Callable[[Counter], OtherClaims]
"""Tells what others take of what a counter leaves."""


class _Line:
    """The claims that wait for a counter: from when they may come, how long their places are kept, costs."""

    __slots__ = ("cost", "msgs", "reserved", "size", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[Claim, tuple[float, float, float]] = {}
        self.cost = 0.0
        self.reserved: dict[Claim, tuple[float, float, float]] = {}
        self.msgs = self.size = 0.0

    def is_left_to(self, claim: Claim) -> bool:
        """Whether nobody else is there."""
        waiting, reserved = self.waiting, self.reserved
        return len(waiting) + len(reserved) == (claim in waiting) + (claim in reserved)


_NOBODY: Final = _Line()
"""That of a counter for which nobody waits."""


class Lines:
    """The lines of all counters."""

    def __init__(self, steady_ms: Callable[[], float], places_max: int = PLACES_MAX) -> None:
        self._steady_ms = steady_ms
        self._places_max = places_max
        self._lines: dict[Counter, _Line] = {}
        self._places: dict[Claim, tuple[Counter, ...]] = {}
        self._reservations: dict[Claim, tuple[Counter, ...]] = {}

    def __len__(self) -> int:
        return len(self._places) + len(self._reservations)

    def busy(self, counter: Counter) -> bool:
        """Whether anybody waits, or may have something on its way."""
        return counter in self._lines

    def taken(self, counter: Counter, claim: Claim) -> OtherClaims:
        """What others than a claim take of what a counter leaves."""
        line = self._lines.get(counter)
        if line is None or line.is_left_to(claim):
            return NOTHING
        claims = 1 + self._rivals(line, claim) if line.waiting else 1
        msgs, size = self.others(counter, claim)
        kept_msgs, kept_size, _ = line.reserved.get(claim, _NOTHING)
        return OtherClaims(claims, msgs, size, kept_msgs, kept_size)

    def are_left_to(self, counters: Iterable[Counter], claim: Claim) -> bool:
        """Whether nobody else waits for what these leave, or has something of it on its way."""
        for counter in counters:
            line = self._lines.get(counter)
            if line is not None and not line.is_left_to(claim):
                return False
        return True

    def others(self, counter: Counter, claim: Claim | None) -> tuple[float, float]:
        """Messages and bytes that are on their way to others; to anybody, without a claim."""
        line = self._lines.get(counter)
        if line is None or not line.reserved:
            return 0.0, 0.0
        now_ms = self._steady_ms()
        for old, (_, _, until_ms) in list(islice(line.reserved.items(), _LOOK_AT)):
            if until_ms > now_ms:
                # They stand in the order of time, so the rest is younger.
                break
            self._take_back(old)
        own_msgs, own_size, _ = _NOTHING if claim is None else line.reserved.get(claim, _NOTHING)
        return line.msgs - own_msgs, line.size - own_size

    def is_next(self, counter: Counter, claim: Claim) -> bool:
        """Whether nobody waits in front of a claim who may come now."""
        line = self._lines.get(counter)
        if line is None or not line.waiting or (len(line.waiting) == 1 and claim in line.waiting):
            return True
        now_ms = self._steady_ms()
        for first, (ready_ms, until_ms, _) in list(islice(line.waiting.items(), _LOOK_AT)):
            if first == claim:
                return True
            if until_ms <= now_ms:
                self.leave(first)
            elif ready_ms <= now_ms + _SOON_MS:
                return False
        return True

    def has(self, claim: Claim) -> bool:
        """Whether it has a place in a line."""
        return claim in self._places

    def waiting(self, counter: Counter) -> int:
        """How many wait."""
        return len(self._lines.get(counter, _NOBODY).waiting)

    def cost(self, counter: Counter) -> float:
        """What those who wait will cost."""
        return self._lines.get(counter, _NOBODY).cost

    def wake_all(self, counter: Counter) -> None:
        """There is nothing to wait for any more."""
        for claim in list(self._lines.get(counter, _NOBODY).waiting):
            claim[0].wake()

    def wake(self, counter: Counter) -> None:
        """Something has changed: the one in front looks again."""
        waiting = self._lines.get(counter, _NOBODY).waiting
        if waiting:
            next(iter(waiting))[0].wake()

    def join(
        self, counters: Sequence[Counter], claim: Claim, *, wait_ms: float = 0.0, within_ms: float = inf,
        cost: float = 0.0,
    ) -> None:  # fmt: skip
        """Wait, behind those who do. Who waits already keeps its places.

        Args:
            counters: all that limit it.
            claim: who waits.
            wait_ms: when it may come; until then nobody waits for it.
            within_ms: its places are kept for so long.
            cost: what it will cost.
        """
        counters, before = tuple(counters), self._places.get(claim)
        if before is not None and before != counters:
            self.leave(claim)
            before = None
        if before is None:
            if len(self) >= self._places_max:
                return
            self._places[claim] = counters
        now_ms = self._steady_ms()
        for counter in counters:
            line = self._line(counter)
            line.cost += cost - line.waiting.get(claim, _NOTHING)[2]
            line.waiting[claim] = now_ms + wait_ms, now_ms + within_ms, cost

    def leave(self, claim: Claim) -> None:
        """Wait no more."""
        for counter in self._places.pop(claim, ()):
            line = self._lines[counter]
            if len(line.waiting) == 1:
                # Sums of differences drift; with nobody there it is nothing.
                del line.waiting[claim]
                line.cost = 0.0
                self._end(counter, line)
                continue
            was_first = self._first(line) == claim
            cost = line.waiting.pop(claim)[2]
            line.cost -= cost
            if was_first:
                self._wake_next(line)

    def reserve(self, counters: Sequence[Counter], claim: Claim, msgs: float, size: float = 0.0) -> None:
        """So much may be on its way now (`msgs`: or ms of a rate); what was reserved before is settled."""
        self._take_back(claim)
        if len(self) >= self._places_max:
            return
        # It may be one name of two accounts: one that made room for others, and the one that came after it.
        self._reservations[claim] = counters = tuple(dict.fromkeys(counters))
        until_ms = self._steady_ms() + RESERVED_MS
        for counter in counters:
            line = self._line(counter)
            line.reserved[claim] = msgs, size, until_ms
            line.msgs += msgs
            line.size += size

    def settle(self, claim: Claim) -> None:
        """It has come, or will not come."""
        for counter in self._take_back(claim):
            if (line := self._lines.get(counter)) is not None:
                self._wake_next(line)

    def _rivals(self, line: _Line, claim: Claim) -> int:
        """How many others may come now; where all that are looked at may, all do."""
        now_ms = self._steady_ms() + _SOON_MS
        first = list(islice(line.waiting.items(), _LOOK_AT))
        ready = sum(ready_ms <= now_ms for _, (ready_ms, _, _) in first)
        if ready == len(first):
            return len(line.waiting) - (claim in line.waiting)
        return ready - any(its == claim and ready_ms <= now_ms for its, (ready_ms, _, _) in first)

    def _line(self, counter: Counter) -> _Line:
        line = self._lines.get(counter)
        if line is None:
            line = self._lines[counter] = _Line()
        return line

    def _take_back(self, claim: Claim) -> tuple[Counter, ...]:
        """Whose counters it had reserved something of."""
        counters = self._reservations.pop(claim, ())
        for counter in counters:
            line = self._lines[counter]
            msgs, size, _ = line.reserved.pop(claim)
            line.msgs = line.msgs - msgs if line.reserved else 0.0
            line.size = line.size - size if line.reserved else 0.0
            self._end(counter, line)
        return counters

    def _first(self, line: _Line) -> Claim | None:
        """Who is in front, of those that may come now."""
        if not line.waiting:
            return None
        now_ms = self._steady_ms() + _SOON_MS
        some = islice(line.waiting.items(), _LOOK_AT)
        return next((claim for claim, (ready_ms, _, _) in some if ready_ms <= now_ms), None)

    def _wake_next(self, line: _Line) -> None:
        """Somebody waits or takes no more: who is in front may look again."""
        if (first := self._first(line)) is not None:
            first[0].wake()

    def _end(self, counter: Counter, line: _Line) -> None:
        """A line of nobody goes."""
        if not (line.waiting or line.reserved):
            self._lines.pop(counter, None)
