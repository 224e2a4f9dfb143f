"""Policies over time: what a log of policy events means (docs/contract.md 1 and 2).

Every reader of `weir.policies` (the job, each proxy, replay) feeds its records to a timeline and asks it what
was in force when. The same events give the same answers in whatever order they come in, except that events
with one and the same time count in the order in which they came.
"""

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Final, Self

import orjson
from cachetools import LRUCache

from streaming.contract.events import VERSION_MAX
from streaming.policy.policy_set import PolicySet, raised_until

# Sets kept for reuse. Each holds a table as large as the policies, so they are few.
MAX_CACHED_SETS: Final = 32
FOLD_PARTS: Final = 8
"""Changes that are past are folded into the first set once they are one for so many of its entries: a
table of a hundred thousand is not made anew for each change of one of them."""
KEPT_BYTES: Final = 64 * 2**20
"""Of JSON whose entries and timelines are kept: shards have much alike, and most batches change nothing."""
_LEAST_BYTES: Final = 1024
_arrivals = itertools.count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One entry set, or removed (value None), from `ts` on.

    Attributes:
        path: the entry; None: all that is known is that there were changes, which count as versions.
        version: the version afterwards is at least this one,
        count: and at least so many more than the version before; 0: nobody has written anything, a raise of
            the entry ends that was set at the time (ms) that stands in `value`.
        arrival: of two with one time the later one has more.
    """

    ts: int
    path: str | None
    value: Any
    version: int
    count: int = 1
    arrival: int = field(default_factory=_arrivals.__next__, compare=False)


class PolicyTimeline:
    """Policies as a function of time.

    Args:
        initial: entries in force before every change, version 1.
    """

    __slots__ = (
        "_changes", "_folded", "_initial", "_json", "_last", "_past", "_raised", "_sets", "_shared", "_since",
        "_times", "_until", "_version", "_versions",
    )  # fmt: skip

    def __init__(self, initial: Mapping[str, Any] | None = None) -> None:
        self._initial: Mapping[str, Any] = dict(initial or {})  # replaced, never changed
        self._version = 1
        self._folded = -1  # the newest time of a change that counts as made at all times
        self._changes: list[Change] = []  # in order of time, then of arrival
        self._times: list[int] = []  # of _changes, for bisect
        self._versions: list[int] = []  # of _changes as far as computed; a late change cuts it
        self._past = 0  # so many of _changes count as made at all times
        self._shared = False  # lists and sets belong to other timelines too, and are copied before a change
        # As read or written last, entries and changes; policies change far less often than state.
        self._json: tuple[bytes | None, bytes | None] = (None, None)
        self._sets: dict[int, PolicySet] = {}  # number of changes made -> set, least recently used first
        self._last = PolicySet()  # the set asked for last, in force in [_since, _until)
        self._since = self._until = 0.0
        self._raised: dict[str, list[Change]] = {}  # ends by entry; lists are replaced, not changed
        for path, value in self._initial.items():
            self._note_end(path, value, -1)

    def apply(self, path: str, value: Any | None, ts: int, version: int | None = None) -> None:
        """Take a change in force from `ts` on; None removes the entry.

        Its version is the one given if that is greater than the version before it in time, else one more
        than that. A change that comes late, with an older `ts` than others, is filed where it belongs, and
        the versions after it move up if they must.
        """
        self._insert(Change(ts=ts, path=path, value=value, version=version or 0))
        if path in self._raised:
            self._drop_ends(path, ts)
        self._note_end(path, value, ts)

    def _note_end(self, path: str, value: Any, ts: int) -> None:
        """Note when the raise ends that an entry has from `ts` on."""
        ends = raised_until(value)
        if ends is not None and ends > ts:
            end = Change(ts=ends, path=path, value=ts, version=0, count=0)
            self._insert(end)
            self._raised[path] = [*self._raised.get(path, ()), end]

    def _drop_ends(self, path: str, ts: int) -> None:
        """Those ends are none any more that come after an entry was written anew, at `ts`."""
        for end in [end for end in self._raised[path] if end.ts > ts >= end.value]:
            # Thousands may end at one time.
            place = bisect_left(self._changes, _order(end), self._past, key=_order)
            if place < len(self._changes) and self._changes[place] is end:
                self._alter(place)
                del self._changes[place], self._times[place]
                self._raised[path] = [other for other in self._raised[path] if other is not end]

    def count(self, ts: int, version: int | None = None) -> None:
        """Take a change of an entry that is of no use here: it is a version as any other, and no more.

        Many of them at one time take no more room than one.
        """
        position = bisect_right(self._times, ts, self._past)
        if position == self._past or self._times[position - 1] != ts or not self._changes[position - 1].count:
            self._insert(Change(ts=ts, path=None, value=None, version=version or 0))
            return
        self._alter(position - 1)
        before = self._changes[position - 1]
        # What both make of the version before them.
        after = max(version or 0, before.version + 1)
        self._changes[position - 1] = replace(before, version=after, count=before.count + 1)

    def at(self, ts: int) -> PolicySet:
        """The policies that apply to what happens at `ts`: changes at that very time are made already."""
        # Nearly every question is about the stretch of time of the one before.
        if self._since <= ts < self._until:
            return self._last
        made = bisect_right(self._times, ts, self._past)
        found = self._sets.pop(made, None)
        if found is None:
            found = self._build(made)
            if len(self._sets) >= MAX_CACHED_SETS:
                del self._sets[next(iter(self._sets))]
        self._sets[made] = self._last = found
        self._since = self._times[made - 1] if made > self._past else -inf
        self._until = self._times[made] if made < len(self._times) else inf
        return found

    def since(self, ts: int) -> int:
        """Since when what applies at `ts` has been so, ms; -1: ever."""
        made = bisect_right(self._times, ts, self._past)
        return self._newest(made) if made > self._past else -1

    def changes(self, after: int, upto: int) -> list[int]:
        """Distinct times of change in (after, upto], ascending."""
        return sorted(set(self._times[self._span(after, upto)]))

    def changed(self, after: int, upto: int, *, written: bool = False) -> list[tuple[int, str]]:
        """Time and path of every change in (after, upto], in order; not of those that only count.

        Args:
            after, upto: ms.
            written: leave the ends of raises out.
        """
        span = self._changes[self._span(after, upto)]
        return [
            (change.ts, change.path)
            for change in span
            if change.path is not None and (change.count or not written)
        ]

    def forget_before(self, ts: int) -> None:
        """Let the changes made at or before `ts` count as made ever since; `at` is exact from `ts` on."""
        made = bisect_right(self._times, ts, self._past)
        if made == self._past:
            return
        counted = not any(map(_alters, self._changes[:made]))
        folded = self.at(ts) if counted or made * FOLD_PARTS >= len(self._initial) else None
        self._json = self._json[0] if folded is None or counted else None, None
        self._since = self._until = 0.0
        self._past, self._folded = made, max(self._folded, self._times[made - 1])
        if folded is None:
            return
        self._initial, self._version = folded.written, folded.version
        self._sets = {count - made: kept for count, kept in self._sets.items() if count >= made}
        self._changes, self._times = self._changes[made:], self._times[made:]
        self._versions = self._versions[made:]
        self._past, self._shared, self._raised = 0, False, _raised(self._changes)

    def version_at(self, ts: int) -> int:
        """The version of what applies at `ts`, without making the set."""
        return self._version_after(bisect_right(self._times, ts, self._past))

    @property
    def newest_version(self) -> int:
        """The version after all changes, those of the future too."""
        return self._version_after(len(self._changes))

    def to_json(self) -> tuple[bytes, bytes]:
        """All of it, for a checkpoint; `from_json` gives an equal timeline back.

        Returns:
            The first entries, which are often many and stay the same, and what changes.
        """
        entries, rest = self._json
        if entries is None:
            entries = orjson.dumps(self._initial)
            _entries[entries] = entries, self._initial
        if rest is None:
            changes = [
                [change.ts, change.path, change.value, change.version, change.count]
                for change in self._changes
            ]
            rest = orjson.dumps(
                {"version": self._version, "folded": self._folded, "past": self._past, "changes": changes}
            )
        if self._json != (entries, rest):
            self._json = entries, rest
            _remember(self, entries, rest)
        return entries, rest

    @classmethod
    def from_json(cls, entries: bytes, rest: bytes) -> Self:
        """Read what `to_json` wrote."""
        known = _timelines.get((entries, rest)) or _read(entries, rest)
        timeline = cls()
        timeline._take(known)
        return timeline

    def _take(self, other: "PolicyTimeline") -> None:
        """Be what another timeline is; what it holds is shared until one of them changes."""
        self._initial, self._version, self._past = other._initial, other._version, other._past
        self._folded = other._folded
        self._changes, self._times, self._versions = other._changes, other._times, other._versions
        self._sets, self._json, self._raised = other._sets, other._json, other._raised
        self._shared = other._shared = True

    def _insert(self, change: Change) -> None:
        position = bisect_right(self._times, change.ts, self._past)
        self._alter(position)
        self._changes.insert(position, change)
        self._times.insert(position, change.ts)

    def _alter(self, position: int) -> None:
        """Forget what follows from the changes from this one on, before they become others."""
        if self._shared:
            self._changes, self._times = self._changes.copy(), self._times.copy()
            self._versions, self._sets, self._shared = self._versions.copy(), self._sets.copy(), False
            self._raised = self._raised.copy()
        self._json = self._json[0], None
        self._since = self._until = 0.0
        del self._versions[position:]
        for made in [made for made in self._sets if made > position]:
            del self._sets[made]

    def _span(self, after: int, upto: int) -> slice:
        return slice(
            bisect_right(self._times, after, self._past), bisect_right(self._times, upto, self._past)
        )

    def _version_after(self, made: int) -> int:
        for change in self._changes[len(self._versions) : made]:
            before = self._versions[-1] if self._versions else self._version
            self._versions.append(max(change.version, before + change.count))
        return self._versions[made - 1] if made else self._version

    def _build(self, made: int) -> PolicySet:
        """Start from the nearest older set that is still kept; most times that is the one just before."""
        start = max((count for count in self._sets if count < made), default=0)
        entries = self._sets[start].written if start in self._sets else self._initial
        changes = list(filter(_alters, self._changes[start:made]))
        if changes:
            # A new table: the old one belongs to other sets.
            altered = dict(entries)
            for change in changes:
                assert change.path is not None
                if change.value is None:
                    altered.pop(change.path, None)
                else:
                    altered[change.path] = change.value
            entries = altered
        return PolicySet(entries, self._version_after(made), self._newest(made))

    def _newest(self, made: int) -> int:
        """Time of the newest of so many changes: a late one may be older than what was forgotten before."""
        return max(self._folded, self._times[made - 1]) if made else self._folded


def _order(change: Change) -> tuple[int, int]:
    return change.ts, change.arrival


def _raised(changes: Iterable[Change]) -> dict[str, list[Change]]:
    """The ends of raises that are among the changes, by entry."""
    ends: dict[str, list[Change]] = {}
    for change in changes:
        if change.path is not None and not change.count:
            ends.setdefault(change.path, []).append(change)
    return ends


def _alters(change: Change) -> bool:
    """Whether an entry is written."""
    return change.path is not None and change.count > 0


# What is larger than the bound is kept alone: else the largest policies would be read again in each batch.
_entries: LRUCache[bytes, tuple[bytes, Mapping[str, Any]]] = LRUCache(
    KEPT_BYTES, getsizeof=lambda kept: min(KEPT_BYTES, len(kept[0]))
)
"""First entries by their JSON, which stands beside them; nobody may change them."""
_timelines: LRUCache[tuple[bytes, bytes], PolicyTimeline] = LRUCache(
    KEPT_BYTES,
    getsizeof=lambda kept: min(KEPT_BYTES, _LEAST_BYTES + sum(len(part or b"") for part in kept._json)),
)
"""By their JSON, in both parts; nobody may change them."""


def _read(entries: bytes, rest: bytes) -> PolicyTimeline:
    try:
        _, initial = _entries[entries]
    except KeyError:
        initial = orjson.loads(entries)
        _entries[entries] = entries, initial
    timeline, fields = PolicyTimeline(), orjson.loads(rest)
    # What an older release kept may hold versions that are refused by now.
    timeline._initial, timeline._version = initial, min(fields["version"], VERSION_MAX)
    timeline._past, timeline._folded = fields["past"], fields.get("folded", -1)
    timeline._changes = [
        Change(ts=ts, path=path, value=value, version=min(version, VERSION_MAX), count=count)
        for ts, path, value, version, count in fields["changes"]
    ]
    timeline._times = [change.ts for change in timeline._changes]
    timeline._raised = _raised(timeline._changes)
    timeline._json = entries, rest
    _remember(timeline, entries, rest)
    return timeline


def _remember(timeline: PolicyTimeline, entries: bytes, rest: bytes) -> None:
    """Keep it for whoever reads the same JSON."""
    kept = PolicyTimeline()
    kept._take(timeline)
    _timelines[entries, rest] = kept
