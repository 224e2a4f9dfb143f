"""Who may go on first where several wait for the same counters, and what is on its way to those who have.

Held back are whole topics of a connection for one subscription: a *claim*. Claims go on in the order in which
they began to wait. One that goes on keeps free what it may bring until it has come, or for a moment: else all
would read at once what only one of them may have, and the same one might be the first each time.
"""

from collections.abc import Callable
from itertools import islice
from typing import Final, Protocol

RESERVED_MS: Final = 100.0
"""For how long a claim keeps others waiting: a broker with records answers sooner."""
PLACES_MAX: Final = 100_000
"""Places in all lines; who finds none goes on when something is left, whoever waits."""
_LOOK_AT: Final = 8
"""Places that are looked at in one step, so that a step costs the same whatever their number."""

Counter = tuple[str, ...]
"""Whose counters: a broker's, a topic's at a broker, a subscription's of that."""


class Waiter(Protocol):
    """A connection that waits."""

    def wake(self) -> None:
        """Look again, soon."""
        ...


Claim = tuple[Waiter, str, str]
"""Who waits, for what topic and subscription."""


class _Line:
    """The claims that wait for a counter, and until when their places are kept; what is on its way."""

    __slots__ = ("msgs", "reserved", "size", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[Claim, float] = {}
        self.reserved: dict[Claim, tuple[float, float, float]] = {}
        self.msgs = self.size = 0.0


class Lines:
    """The lines of all counters.

    Args:
        steady_ms: the clock.
        places_max: see PLACES_MAX.
    """

    def __init__(self, steady_ms: Callable[[], float], places_max: int = PLACES_MAX) -> None:
        self._steady_ms = steady_ms
        self._places_max = places_max
        self._lines: dict[Counter, _Line] = {}
        self._places: dict[Claim, Counter] = {}
        self._reservations: dict[Claim, Counter] = {}

    def __len__(self) -> int:
        return len(self._places) + len(self._reservations)

    def others(self, counter: Counter, claim: Claim) -> tuple[float, float]:
        """Messages and bytes that are on their way to others."""
        line = self._lines.get(counter)
        if line is None or not line.reserved:
            return 0.0, 0.0
        now_ms = self._steady_ms()
        for old, (_, _, until_ms) in list(islice(line.reserved.items(), _LOOK_AT)):
            if until_ms > now_ms:
                # They stand in the order of time, so the rest is younger.
                break
            self._take_back(old)
        own_msgs, own_size, _ = line.reserved.get(claim, (0.0, 0.0, 0.0))
        return line.msgs - own_msgs, line.size - own_size

    def is_next(self, counter: Counter, claim: Claim) -> bool:
        """Whether nobody waits in front of a claim who still may come."""
        line = self._lines.get(counter)
        if line is None or not line.waiting:
            return True
        now_ms = self._steady_ms()
        for first, until_ms in list(islice(line.waiting.items(), _LOOK_AT)):
            if first == claim:
                return True
            if until_ms > now_ms:
                return False
            self.leave(first)
        return not line.waiting

    def has(self, claim: Claim) -> bool:
        """Whether it has a place in a line."""
        return claim in self._places

    def waiting(self, counter: Counter) -> int:
        """How many wait."""
        line = self._lines.get(counter)
        return 0 if line is None else len(line.waiting)

    def wake(self, counter: Counter) -> None:
        """Something has changed: the one in front looks again."""
        line = self._lines.get(counter)
        if line is not None and line.waiting:
            next(iter(line.waiting))[0].wake()

    def join(self, counter: Counter, claim: Claim, within_ms: float) -> None:
        """Wait, behind those who do; the place is kept for so long. Who waits already keeps it."""
        if self._places.get(claim, counter) != counter:
            self.leave(claim)
        if claim not in self._places and len(self) >= self._places_max:
            return
        self._places[claim] = counter
        self._line(counter).waiting[claim] = self._steady_ms() + within_ms

    def leave(self, claim: Claim) -> None:
        """Wait no more."""
        counter = self._places.pop(claim, None)
        if counter is None:
            return
        line = self._lines[counter]
        first = next(iter(line.waiting)) == claim
        del line.waiting[claim]
        self._left(counter, line, wake=first)

    def reserve(self, counter: Counter, claim: Claim, msgs: float, size: float) -> None:
        """So much may be on its way now; what this claim had reserved before is settled."""
        self._take_back(claim)
        if len(self) >= self._places_max:
            return
        self._reservations[claim] = counter
        line = self._line(counter)
        line.reserved[claim] = msgs, size, self._steady_ms() + RESERVED_MS
        line.msgs += msgs
        line.size += size

    def settle(self, claim: Claim) -> None:
        """It has come, or will not come."""
        counter = self._reservations.get(claim)
        self._take_back(claim)
        line = None if counter is None else self._lines.get(counter)
        if line is not None and line.waiting:
            next(iter(line.waiting))[0].wake()

    def _line(self, counter: Counter) -> _Line:
        line = self._lines.get(counter)
        if line is None:
            line = self._lines[counter] = _Line()
        return line

    def _take_back(self, claim: Claim) -> None:
        counter = self._reservations.pop(claim, None)
        if counter is not None:
            line = self._lines[counter]
            msgs, size, _ = line.reserved.pop(claim)
            # Sums of differences drift; with nobody there it is nothing.
            line.msgs = line.msgs - msgs if line.reserved else 0.0
            line.size = line.size - size if line.reserved else 0.0
            self._left(counter, line, wake=False)

    def _left(self, counter: Counter, line: _Line, wake: bool) -> None:
        if wake and line.waiting:
            next(iter(line.waiting))[0].wake()
        if not (line.waiting or line.reserved):
            del self._lines[counter]
