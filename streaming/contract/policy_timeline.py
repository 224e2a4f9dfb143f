"""Policies over time: what a log of policy events means (contract sections 1 and 2).

Every reader of `weir.policies` (the job, each proxy, replay) feeds its records to a timeline and asks it what
was in force when. The same events give the same answers in whatever order they come in, except that events
with one and the same time count in the order in which they came.
"""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import Any, Self

import orjson

from streaming.contract.policy import PolicySet

# Sets kept for reuse. Each holds a table as large as the policies, so they are few.
MAX_CACHED_SETS = 32
# Every shard of a worker keeps the same policies in its state; between changes they are parsed once.
MAX_CACHED_JSON = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One entry set (or removed, value None) from `ts` on; `version` as the event named it, if it did."""

    ts: int
    path: str
    value: Any | None
    version: int | None


class PolicyTimeline:
    """Policies as a function of time.

    Args:
        initial: entries in force before every change.
        version: their version.
    """

    __slots__ = (
        "_changes", "_initial", "_json", "_last", "_sets", "_since", "_times", "_until", "_version",
        "_versions",
    )  # fmt: skip

    def __init__(self, initial: Mapping[str, Any] | None = None, version: int = 1) -> None:
        self._initial: dict[str, Any] = dict(initial or {})
        self._version = version
        self._changes: list[Change] = []  # in order of time, then of arrival
        self._times: list[int] = []  # of _changes, for bisect
        self._versions: list[int] = []  # of _changes as far as computed; a late change cuts it
        self._sets: dict[int, PolicySet] = {}  # number of changes made -> set, least recently used first
        self._last = PolicySet()  # the set asked for last, in force in [_since, _until)
        self._since = self._until = 0.0
        self._json: bytes | None = None  # as read or written last; policies change far less often than state

    def apply(self, path: str, value: Any | None, ts: int, version: int | None = None) -> None:
        """Take a change in force from `ts` on; None removes the entry.

        Its version is the one given if that is greater than the version before it in time, else one more
        than that. A change that comes late, with an older `ts` than others, is filed where it belongs, and
        the versions after it move up if they must.
        """
        self._json = None
        self._since = self._until = 0.0
        position = bisect_right(self._times, ts)
        self._changes.insert(position, Change(ts=ts, path=path, value=value, version=version))
        self._times.insert(position, ts)
        del self._versions[position:]
        # A new table: the old one may be shared with other timelines of the same past.
        self._sets = {made: kept for made, kept in self._sets.items() if made <= position}

    def at(self, ts: int) -> PolicySet:
        """The policies that apply to what happens at `ts`: changes at that very time are made already."""
        # Nearly every question is about the stretch of time of the one before.
        if self._since <= ts < self._until:
            return self._last
        made = bisect_right(self._times, ts)
        found = self._sets.pop(made, None)
        if found is None:
            found = self._build(made)
            if len(self._sets) >= MAX_CACHED_SETS:
                del self._sets[next(iter(self._sets))]
        self._sets[made] = self._last = found
        self._since = self._times[made - 1] if made else -inf
        self._until = self._times[made] if made < len(self._times) else inf
        return found

    def changes(self, after: int, upto: int) -> list[int]:
        """Distinct times of change in (after, upto], ascending."""
        first, last = bisect_right(self._times, after), bisect_right(self._times, upto)
        return sorted(set(self._times[first:last]))

    def changed(self, after: int, upto: int) -> list[tuple[int, str]]:
        """Time and path of every change in (after, upto], in order."""
        first, last = bisect_right(self._times, after), bisect_right(self._times, upto)
        return [(change.ts, change.path) for change in self._changes[first:last]]

    def forget_before(self, ts: int) -> None:
        """Fold the changes made at or before `ts` into the initial set; `at` is exact from `ts` on."""
        made = bisect_right(self._times, ts)
        if not made:
            return
        folded = self.at(ts)
        self._json = None
        self._since = self._until = 0.0
        self._initial, self._version = dict(folded.entries), folded.version
        self._sets = {count - made: kept for count, kept in self._sets.items() if count >= made}
        del self._changes[:made], self._times[:made], self._versions[:made]

    @property
    def newest_version(self) -> int:
        """The version after all changes, those of the future too."""
        return self._version_after(len(self._changes))

    def to_json(self) -> bytes:
        """All of it, for a checkpoint; `from_json` gives an equal timeline back."""
        if self._json is None:
            changes = [[change.ts, change.path, change.value, change.version] for change in self._changes]
            fields = {"version": self._version, "initial": self._initial, "changes": changes}
            self._json = orjson.dumps(fields)
        return self._json

    @classmethod
    def from_json(cls, raw: bytes) -> Self:
        """Read what `to_json` wrote."""
        timeline, read = cls(), _read(raw)
        timeline._initial, timeline._version = read._initial, read._version  # replaced, never changed
        timeline._changes, timeline._times = read._changes.copy(), read._times.copy()
        timeline._versions = read._versions.copy()
        timeline._sets = read._sets  # shared until a change: what one step has built serves the next
        timeline._json = raw
        return timeline

    def _version_after(self, made: int) -> int:
        for change in self._changes[len(self._versions) : made]:
            before = self._versions[-1] if self._versions else self._version
            named = change.version
            self._versions.append(named if named is not None and named > before else before + 1)
        return self._versions[made - 1] if made else self._version

    def _build(self, made: int) -> PolicySet:
        """Start from the nearest older set that is still kept; most times that is the one just before."""
        if not made:
            return PolicySet(self._initial, self._version)
        start = max((count for count in self._sets if count < made), default=0)
        entries = dict(self._sets[start].entries if start else self._initial)
        for change in self._changes[start:made]:
            if change.value is None:
                entries.pop(change.path, None)
            else:
                entries[change.path] = change.value
        return PolicySet(entries, self._version_after(made))


@lru_cache(maxsize=MAX_CACHED_JSON)
def _read(raw: bytes) -> PolicyTimeline:
    """The timeline that `to_json` wrote; nobody may change it."""
    fields = orjson.loads(raw)
    timeline = PolicyTimeline(fields["initial"], fields["version"])
    for ts, path, value, version in fields["changes"]:
        timeline.apply(path, value, ts, version)
    return timeline
