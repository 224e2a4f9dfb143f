"""Who else enforces, and whether we hear enough to decide at once (docs/contract.md 3.1).

Times are ms on the brokers' clock. Every proxy writes `{"type":"alive","id","proxy"}` to `weir.usage`
at its start, every ALIVE_EVERY_MS, and with `"leaving":true` at its end. Who counts is said by the times of
these records alone, our own among them: a proxy that is cut off from Kafka hears nobody, and must not think
that it is alone. Before it lets clients in, a proxy waits until its own `alive` was read, and where it is not
alone about a second longer: then the others have heard of it.

A process is told by the random `instance` in its `alive`: two with one name are two that decide, though
shares and decisions take them for one. Who starts and hears one of its name that is older and still there
must not go on.
"""

import secrets
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

ALIVE_EVERY_MS: Final = 5_000
"""How often a proxy says that it is there."""
ALIVE_MS: Final = 15_000
"""How long it counts after it said so."""
PREDECESSOR_MS: Final = 7_500
"""One of our own name that said nothing since we came counts so long: then it has missed its next word."""
UNACKNOWLEDGED_MS: Final = 10_000
"""Once nobody took our own `alive` for so long, others will soon not count us any more."""
BEHIND_MS: Final = 5_000
"""A proxy that was not at the end of the decisions for so long is behind."""
PROXIES_MAX: Final = 1_000
"""Other proxies that are counted; the one heard of longest ago leaves."""
_UNACKNOWLEDGED_MAX: Final = 16
METERING: Final = frozenset({"kafka", "pulsar"})
"""Protocols whose traffic is metered; others only ask for partition mutations."""
AWAY_MS: Final = 8_000
"""The job is away once an event of ours stands on the topic undecided for so long."""
_LOST_MS: Final = 60_000
"""One that is so much older than what the job decides now will never be decided."""
_STANDING_MAX: Final = 10_000
"""Events whose decision is waited for to see that the job is there; of more the newest are not looked at."""


@dataclass(slots=True)
class _Heard:
    first_ts: int
    ts: int
    leaving: bool
    speaks: str

    def alive(self, ts: int, for_ms: int = ALIVE_MS) -> bool:
        return not self.leaving and ts - self.ts < for_ms

    def may_be_undecided(self, decided_ts: int) -> bool:
        """Whether it may have sent events that stand after those that are decided."""
        return decided_ts <= self.ts + (0 if self.leaving else ALIVE_MS)


class Alive:
    """The proxies that count.

    Attributes:
        instance: random text that tells this process from others of its name.

    Args:
        own: name of this one, which always counts.
        instance: see there.
    """

    def __init__(self, own: str, instance: str = "") -> None:
        self._own = own
        self.instance = instance
        self._own_ts: int | None = None
        self._others: OrderedDict[tuple[str, str], _Heard] = OrderedDict()
        self._newest_ts = self._decided_ts = -1
        self._unacknowledged: deque[int] = deque(maxlen=_UNACKNOWLEDGED_MAX)
        self._known = False
        self._end_ts: int | None = None

    def heard(
        self, proxy: str, ts: int, *, leaving: bool = False, speaks: str = "", instance: str = ""
    ) -> bool:
        """An `alive` was read from `weir.usage`, another's or our own.

        Args:
            proxy: who wrote it.
            ts: time of its record, ms.
            leaving: it was its last one.
            speaks: the protocol of its clients; "": it does not say.
            instance: which process of that name; "": it does not say.

        Returns:
            Whether it shows that another process lives that has our name.
        """
        if self.read_own and ts - self._newest_ts > PREDECESSOR_MS:
            # Our own word is missing too: Kafka was silent, or a leader's clock stepped on.
            for (name, _), other in self._others.items():
                if name != self._own and not other.leaving:
                    other.ts = max(other.ts, ts - ALIVE_EVERY_MS)
        # Not the greatest: by a leader whose clock was ahead and is right again, or a new one that is behind,
        # all others would be dead.
        self._newest_ts = ts
        process = proxy, instance
        if process == (self._own, self.instance):
            if self._own_ts is None:
                self._own_ts = ts
            return False
        known = self._others.get(process)
        self._others[process] = heard = _Heard(ts if known is None else known.first_ts, ts, leaving, speaks)
        self._others.move_to_end(process)
        if len(self._others) > PROXIES_MAX:
            self._others.popitem(last=False)
        return proxy == self._own and not leaving and not self._precedes(heard)

    @property
    def read_own(self) -> bool:
        """Whether our own `alive` was read."""
        return self._own_ts is not None

    def predecessor_ms(self, ts: int) -> int:
        """How long at most, from a time on, until one that had our name before says a word or is gone, ms."""
        mine = (heard for (name, _), heard in self._others.items() if name == self._own)
        last = (heard.ts for heard in mine if self._precedes(heard) and not heard.leaving)
        return max(0, max(last, default=0) + PREDECESSOR_MS - ts)

    @property
    def name_is_taken(self) -> bool:
        """Whether one that had our name before us has said since that it lives."""
        own_ts = self._own_ts
        return own_ts is not None and any(
            # Of two of one time one must go.
            (heard.first_ts, instance) < (own_ts, self.instance)
            and not self._precedes(heard)
            and heard.alive(self._newest_ts)
            for (name, instance), heard in self._others.items()
            if name == self._own
        )

    def decided(self, ts: int) -> None:
        """The job has decided what stood on `weir.requests` before this record time, ms.

        Known from the admission of an event of our own whose acknowledgement told its record's time.
        """
        self._decided_ts = max(self._decided_ts, ts)

    def count(self, *, away: bool) -> int:
        """How many proxies count, this one included.

        Args:
            away: the job is: an event of ours stands on the topic undecided for long.
        """
        # Who comes back under its name has read what it sent before, and takes its own place.
        back = {name for (name, _), heard in self._others.items() if heard.alive(self._newest_ts)}
        for process, heard in list(self._others.items()):
            replaced = process[0] == self._own and self._precedes(heard)
            if heard.alive(self._newest_ts, PREDECESSOR_MS if replaced else ALIVE_MS):
                continue
            waits = away and not replaced and process[0] not in back
            if not (waits and heard.may_be_undecided(self._decided_ts)):
                del self._others[process]
        return 1 + len(self._others)

    def count_of(self, protocols: frozenset[str]) -> int:
        """How many of those that were just counted speak one of these, or do not say; this one included."""
        return 1 + sum(not heard.speaks or heard.speaks in protocols for heard in self._others.values())

    def _precedes(self, heard: _Heard) -> bool:
        """Whether one of our name has said nothing since our own first `alive`."""
        return self._own_ts is None or heard.ts <= self._own_ts

    def sent(self, ts: int) -> None:
        """An own `alive` was sent, ms."""
        self._unacknowledged.append(ts)

    def acknowledged(self, sent_ts: int) -> None:
        """The own `alive` of that time stands on the topic, and so do those before it."""
        self._known = True
        while self._unacknowledged and self._unacknowledged[0] <= sent_ts:
            self._unacknowledged.popleft()

    def at_end(self, ts: int) -> None:
        """At this time, ms, everything had been read that stands on `weir.decisions`."""
        self._end_ts = ts

    def blind(self, ts: int) -> bool:
        """Whether we must decide nothing at once while there are others.

        Before the first `alive` is acknowledged nobody counts us, and before the end was reached once we know
        nothing of what others took.
        """
        if not self._known or self._end_ts is None or ts - self._end_ts >= BEHIND_MS:
            return True
        return bool(self._unacknowledged) and ts - self._unacknowledged[0] >= UNACKNOWLEDGED_MS


class Membership:
    """The enforcers that count, as of the last look.

    Attributes:
        alive: what is known of each.
        speaks: the protocol of our clients.
        looked_ms: when that look was, by the brokers' clock.
        count: how many count, this one included.
        blind: they may not know of us, or we not of them.
        metering: how many see traffic that counts for groups; None while blind.
        peers: how many of them may stand before the same brokers: those of our protocol, as far as is known.

    Args:
        proxy_id: name of this one.
        speaks: see there.
        brokers_ms: the brokers' time.
        read_to_ms: tells up to which record time all decisions are read; None: all that there are.
    """

    def __init__(
        self, proxy_id: str, speaks: str, brokers_ms: Callable[[], int], read_to_ms: Callable[[], int | None]
    ) -> None:
        self.alive = Alive(proxy_id, secrets.token_hex(8))
        self.speaks = speaks
        self._brokers_ms = brokers_ms
        self._read_to_ms = read_to_ms
        # Record times of own events that stand on the topic undecided, in order.
        self._standing: OrderedDict[str, int] = OrderedDict()
        self._followers: list[Callable[[], None]] = []
        self.looked_ms = 0
        self.count = 1
        self.blind = True
        self.metering: int | None = None
        self.peers = 1

    def follow(self, looked: Callable[[], None]) -> None:
        """Call this after each look."""
        self._followers.append(looked)

    def look(self) -> None:
        """Once a second, and with each sign of life: see who lives, and whether we hear what they take."""
        ts = self.looked_ms = self._brokers_ms()
        read_to_ms = self._read_to_ms()
        self.alive.at_end(ts if read_to_ms is None else read_to_ms)
        oldest_ms = next(iter(self._standing.values()), ts)
        self.count, self.blind = self.alive.count(away=ts - oldest_ms >= AWAY_MS), self.alive.blind(ts)
        self.metering = None if self.blind else self.alive.count_of(METERING)
        self.peers = self.alive.count_of(frozenset({self.speaks}))
        for looked in self._followers:
            looked()

    @property
    def hears_of_no_decision(self) -> bool:
        """Whether there are others, and no event of ours whose decision will show that the job is there."""
        oldest_ms = next(iter(self._standing.values()), None)
        # One that the job never decides must not be waited for for ever.
        awaits = oldest_ms is not None and self._brokers_ms() - oldest_ms < AWAY_MS
        return self.count > 1 and not awaits

    def stands(self, event_id: str, record_ms: int) -> None:
        """An own event, to be decided, stands on the topic since this time of its record."""
        if len(self._standing) < _STANDING_MAX:
            self._standing[event_id] = record_ms

    def decided(self, event_id: str) -> None:
        """An own event was decided."""
        record_ms = self._standing.pop(event_id, None)
        if record_ms is None:
            return
        self.alive.decided(record_ms)
        while self._standing and next(iter(self._standing.values())) < record_ms - _LOST_MS:
            self._standing.popitem(last=False)
