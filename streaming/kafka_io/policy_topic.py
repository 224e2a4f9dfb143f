"""The topic `weir.policies`: read to its end, and what would have to change (docs/contract.md 1 and 2).

Used by `weir policy`, `weir up`, `weir admin` and the collector of a cluster's own quotas. Every wait has a
limit. What is written is written by policy_turn.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from typing import Any, Self

import orjson

from streaming.contract.errors import BadEvent, WeirError
from streaming.contract.events import PolicyChange, load_object, parse
from streaming.contract.fields import TS_MAX_MS
from streaming.contract.topics import Cluster
from streaming.kafka_io.reader import NoTopic, Reader
from streaming.policy.files import check_entry
from streaming.policy.policy_set import parse_path
from streaming.policy.schema import VALUES
from streaming.policy.timeline import PolicyTimeline

TIMEOUT_S = 30.0
KEEP_MS = 600_000
"""How far back `PolicyLog.timeline` reaches at least; older changes are folded into its first set."""
EARLIER_MAX = 10
"""Changes before the last one that a record tells of, since compaction takes their own records."""
EARLIER_MAX_BYTES = 16_384
"""What these may take in a record,"""
ALL_EARLIER_MAX_BYTES = 4 * 2**20
"""and in all records that are written in one transaction."""
_FOLD_AT_LEAST = 64
_FETCH_WAIT_MS = 20
"""The end behind a transaction is only told when a fetch comes back empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """One entry to publish; the value None removes it."""

    path: str
    value: Any | None


@dataclass(frozen=True, slots=True)
class Author:
    """Who changes policies.

    Attributes:
        origin: by which way: file, apply, mode, kafka or admin.
        actor: as the log of changes names whoever it is; empty: as the origin.
        reason: why, in that one's words; may be empty.
    """

    origin: str
    actor: str = ""
    reason: str = ""


@dataclass(slots=True, kw_only=True)
class PolicyLog:
    """What the topic says.

    Attributes:
        timeline: all changes, those that take effect soon included.
        origins: entry -> who set it last, as Author.origin; empty if the record does not say.
        removers: entry that is gone -> who removed it.
        told: entry -> its last changes, oldest first, each as JSON: when it was written by the broker's clock
            (`at`), `actor`, `reason`, the `version` that it made, the entry's `value` since, and `first` if
            nothing was there before.
        told_max: so many of them; by default what the next record tells of.
        effective: entry -> time from which its last change is in force, ms since the epoch.
        records: how many were read; 0 means that nobody has set anything yet.
        bad_records: how many of them could not be used.
        last_bad: why not the newest of these.
        arrived: whether the record that `await_record` named has come.
    """

    timeline: PolicyTimeline = field(default_factory=PolicyTimeline)
    origins: dict[str, str] = field(default_factory=dict)
    removers: dict[str, str] = field(default_factory=dict)
    told: dict[str, list[bytes]] = field(default_factory=dict)
    told_max: int = EARLIER_MAX
    effective: dict[str, int] = field(default_factory=dict)
    records: int = 0
    bad_records: int = 0
    last_bad: str = ""
    arrived: bool = False
    _awaited: bytes | None = None
    _newest_ts: int = 0
    _unfolded: int = 0

    @property
    def entries(self) -> Mapping[str, Any]:
        """The entries after all changes, as they were written."""
        return self.timeline.at(self._newest_ts).written

    @property
    def newest_version(self) -> int:
        """The version of the last change; 1 if there is none."""
        return self.timeline.newest_version

    def take(self, value: bytes | None, timestamp_ms: int) -> None:
        """Add one record; one that can't be used is counted, with its reason."""
        self.records += 1
        self.arrived |= value is not None and value == self._awaited
        try:
            self._apply(value or b"", timestamp_ms)
        except BadEvent as error:
            self.bad_records += 1
            self.last_bad = error.reason

    def await_record(self, value: bytes) -> None:
        """From now on `arrived` tells whether this very record has come, of use or not."""
        self._awaited, self.arrived = value, False

    def anew(self) -> "PolicyLog":
        """An empty one that waits for the same record."""
        return PolicyLog(told_max=self.told_max, _awaited=self._awaited)

    def _apply(self, value: bytes, timestamp_ms: int) -> None:
        change = parse(value, default_id="", default_ts=timestamp_ms)
        if not isinstance(change, PolicyChange):
            raise BadEvent("type: no policy; a policy event was expected")
        check_entry(change.path, change.value)
        fields = load_object(value)
        self.timeline.apply(change.path, change.value, change.ts, change.version)
        self.effective[change.path] = max(change.ts, self.effective.get(change.path, change.ts))
        self._newest_ts = max(change.ts, self._newest_ts)
        removed = change.value is None
        (self.origins if removed else self.removers).pop(change.path, None)
        (self.removers if removed else self.origins)[change.path] = fields.get("origin", "")
        if self.told_max and fields.get("repeat") is not True:
            self._tell(change, fields, timestamp_ms)
        self._fold()

    def _tell(self, change: PolicyChange, fields: Mapping[str, Any], at: int) -> None:
        earlier = fields.get("earlier")
        told = self.told.get(change.path)
        if told is None:
            # Compaction takes older records, or nobody has written any.
            told = self.told[change.path] = _earlier(change.path, earlier)
        mine = _told({
            **fields, "at": at, "actor": fields.get("actor", fields.get("origin")), "value": change.value,
            "version": self.timeline.version_at(change.ts), "first": earlier == [],
        })  # fmt: skip
        told.append(mine)
        del told[: -self.told_max]

    def _fold(self) -> None:
        """A reader that runs for months keeps its entries, not every change that led to them."""
        self._unfolded += 1
        # Folding copies the entries: as rarely as there are many of them.
        if self._unfolded > max(_FOLD_AT_LEAST, len(self.origins)):
            # By the clock, not by the newest change: one may be dated far ahead.
            self.timeline.forget_before(time.time_ns() // 1_000_000 - KEEP_MS)
            self._unfolded = 0


def _earlier(path: str, items: Any) -> list[bytes]:
    """What a record tells of the changes before it, up from where it becomes of no use, oldest first."""
    told: list[bytes] = []
    form = VALUES[parse_path(path).section]
    last: list[Any] = items[-EARLIER_MAX:] if isinstance(items, list) else []
    for item in reversed(last):
        if not isinstance(item, dict):
            break
        value = item.get("value")
        # What is no value of this entry may be nested too deeply to be written again.
        if value is not None and form.check(value):
            break
        told.insert(0, _told(item))
    return told


def _told(fields: Mapping[str, Any]) -> bytes:
    """A change as a record tells of it; whatever else writes there may have written anything."""
    at, version, actor, reason = (fields.get(name) for name in ("at", "version", "actor", "reason"))
    told = {
        "at": at if type(at) is int and 0 <= at <= TS_MAX_MS else 0,
        "actor": actor if isinstance(actor, str) else "",
        "reason": reason if isinstance(reason, str) else "",
        "version": version if type(version) is int else 0,
        "value": fields.get("value"),
    }
    dumped = orjson.dumps({**told, "first": True} if fields.get("first") is True else told)
    # Kept for long, a copy: what orjson returns has room for much more.
    return bytes(memoryview(dumped))


def earlier_of(told: Sequence[bytes], most_bytes: int) -> list[orjson.Fragment]:
    """What the next record of an entry tells of its changes so far: the newest of them, oldest first."""
    kept: list[orjson.Fragment] = []
    for change in reversed(told[-EARLIER_MAX:]):
        most_bytes -= len(change)
        if most_bytes < 0:
            break
        kept.insert(0, orjson.Fragment(change))
    return kept


def rows(log: PolicyLog, entry: str | None, from_ms: int) -> list[dict[str, Any]]:
    """The changes from a time on (ms since the epoch), oldest first, of the entry at a path, or of all."""
    told = log.told if entry is None else {entry: log.told.get(entry, [])}
    found = [row for path, each in told.items() for row in _of_entry(path, each) if row["at"] >= from_ms]
    return sorted(found, key=_place)


def newest_rows(told: Mapping[str, Sequence[bytes]], begin: int, size: int) -> list[dict[str, Any]]:
    """`size` changes behind the first `begin`, the newest first; of a million no others are made."""
    if begin + size < len(told):
        # An entry whose last change comes before so many has none among them.
        paths = nlargest(begin + size, told, key=lambda path: _place(orjson.loads(told[path][-1])))
        told = {path: told[path] for path in paths}
    changes = ((path, number, orjson.loads(each)) for path in told for number, each in enumerate(told[path]))
    places = nlargest(begin + size, ((*_place(change), path, number) for path, number, change in changes))
    return [[*_of_entry(path, told[path])][number] for *_, path, number in places[begin:]]


def _place(change: Mapping[str, Any]) -> tuple[int, int]:
    return change["version"], change["at"]


def _of_entry(path: str, told: Iterable[bytes]) -> Iterable[dict[str, Any]]:
    before: dict[str, Any] | None = None
    for change in map(orjson.loads, told):
        row = {
            "at": change["at"],
            "actor": change["actor"],
            "entry": path,
            "old": before["value"] if before else None,
            "new": change["value"],
            "reason": change["reason"],
            "version": change["version"],
        }
        yield row if before or "first" in change else row | {"old_known": False}
        before = change


def differences(
    log: PolicyLog,
    wanted: Mapping[str, Any],
    owned: Sequence[str],
    *,
    override: bool,
    respected: Sequence[str] = (),
) -> list[Update]:
    """The updates that turn what the topic says into `wanted`.

    Entries of the origins `owned` that are not wanted are removed; those of other origins are left alone.

    Args:
        log: the topic as it was just read.
        wanted: path -> value, checked.
        owned: origins that the caller speaks for: file and apply for a file, kafka for the collector.
        override: True takes wanted entries over from other origins (a file), False leaves them to those.
        respected: origins whose last word on an entry stands all the same, a removal too.
    """
    held = log.entries
    said = log.origins | log.removers
    left = {path for path in wanted if said.get(path) in respected}
    # An entry that is taken over is written even if it is equal: its old owner must let go of it.
    foreign = {path for path in held if log.origins.get(path) not in owned}
    updates = [
        Update(path=path, value=value)
        for path, value in wanted.items()
        if path not in left and (override if path in foreign else held.get(path) != value)
    ]
    gone = [path for path in held if path not in wanted and log.origins.get(path) in owned]
    return updates + [Update(path=path, value=None) for path in gone]


class PolicyReader:
    """Reads the topic to its end, and later on from there; a context manager, also again and again.

    Args:
        cluster: that holds it.
        told_max: see PolicyLog.
    """

    def __init__(self, cluster: Cluster, told_max: int = EARLIER_MAX) -> None:
        self.log = PolicyLog(told_max=told_max)
        """What has been read."""
        self._cluster, self._topic = cluster, cluster.topics.policies
        self._partitions = 0
        self._read_to: dict[tuple[str, int], int] = {}
        self._reader: Reader

    def read(self, timeout_s: float) -> PolicyLog:
        """Read to where the topic ends now; what was read before is not read again.

        Raises:
            WeirError: no such topic, or the cluster did not answer in time.
        """
        deadline = time.monotonic() + timeout_s
        try:
            spans = self._reader.spans(self._topic, until_s=deadline)
        except NoTopic as absent:
            raise WeirError(
                f"there is no topic {self._topic} on {self._cluster.bootstrap}; start `weir up` or `weir job`"
                " there first"
            ) from absent
        self._partitions = len(spans)
        if any(map(self._reader.made_again, spans)):
            # What the former topic said is in force no longer.
            self.log = self.log.anew()
        for message in self._reader.read_on(spans, timeout_s, deadline):
            self.log.take(message.value(), message.timestamp()[1])
            if time.monotonic() > deadline:
                raise WeirError(f"{self._topic} could not be read to its end in time")
        return self.log

    def check_order(self) -> None:
        """Refuse to go by a topic whose records have no order.

        Raises:
            WeirError: it has several partitions, and versions count up in one order.
        """
        if self._partitions > 1:
            raise WeirError(
                f"{self._topic} on {self._cluster.bootstrap} has {self._partitions} partitions, but versions"
                " count up in one order; one was expected, as `weir job` says with the commands that mend it"
            )

    def __enter__(self) -> Self:
        own = {"fetch.wait.max.ms": _FETCH_WAIT_MS}
        self._reader = Reader(self._cluster.bootstrap, self._cluster.client, own, self._read_to)
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()


def read_policies(cluster: Cluster, timeout_s: float = TIMEOUT_S, told_max: int = 0) -> PolicyLog:
    """Read the topic from its beginning to where it ends now.

    Args:
        cluster: that holds it.
        timeout_s: limit of all of it.
        told_max: see PolicyLog; who writes does not read so, and needs what the next record tells of.

    Raises:
        WeirError: no such topic, or the cluster did not answer in time.
    """
    with PolicyReader(cluster, told_max) as reader:
        return reader.read(timeout_s)
