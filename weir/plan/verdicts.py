"""What the decisions of all laws come to for whoever asked: let through, made to wait, or refused.

Each law says something else of its own. Side by side they are one thing: an outcome and a delay in ms.

- mutation: the outcome and the throttle time of the admission.
- shares: a broker that used more in a round than the share that it went into the round with is throttled;
  its delay is the time that the rest takes at that share. A share is told for the next round, so a broker's
  first round is free. Parts of what may be in flight are no traffic, and left out: samples tell of it.
- dispatch: throttled if a throttle time is told, by that time.
- concurrency: a sample that found more in flight than the limit before it is throttled; by Little's law those
  beyond the limit wait for their part of a round trip.
- backlog: `producer_request_hold` throttles, `producer_exception` and `consumer_backlog_eviction` refuse; how
  long a producer is held no decision says, so its delay is 0.

What a shadow entry decides holds nobody back, so it counts as let through. For probes nobody waits.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming.columns.byte_strings import Integers
from streaming.columns.outputs import Decided, DecisionRows
from streaming.contract.names import INFLIGHT_GROUP_PREFIX, PROBE_SUFFIX
from streaming.laws.concurrency.samples import Samples
from streaming.laws.law import LawSpec
from streaming.policy.groups import LIFE_ROUNDS

_NUMBERS: Final = ("source", "ts", "outcome", "delay_ms")
ALLOWED, THROTTLED, REFUSED = 0, 1, 2
Outcomes = NDArray[np.int8]
_OUTCOMES: Final = {"allow": ALLOWED, "throttle": THROTTLED, "reject": REFUSED}
_NS: Final = 1_000_000
_HOLD: Final = "producer_request_hold"
_EXACT: Final = 1e-6
"""A share is a double: what was held to it is not beyond it for its last bits."""
EXACT_MAX: Final = 2**53
"""Delays are cut here, at 285,000 years: doubles hold them exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """Verdicts of one law, a row each, in the order decided.

    Attributes:
        law: its name.
        source: index of the record that each answers; of shares, which answer none, -1.
        ids, ts: of the decisions; ms since the epoch.
        subjects: names of all subjects, as summaries have them,
        subject: and which of them each is about.
        names, name: the same of whom it concerns: of shares the group, else the subject.
        outcome: ALLOWED, THROTTLED or REFUSED.
        delay_ms: what each had to wait.
        overshoot: by group: how far its brokers together were beyond its limit in the worst round, as a part
            of the limit; of shares only.
    """

    law: str
    source: Integers
    ids: pa.Array
    ts: Integers
    subjects: list[str]
    subject: Integers
    names: list[str]
    name: Integers
    outcome: Outcomes
    delay_ms: Integers
    overshoot: dict[str, float]

    def __len__(self) -> int:
        return len(self.ts)

    def only(self, wanted: NDArray[np.bool_]) -> Self:
        """Some of them, and of the names only those in use."""
        rows: dict[str, Any] = {name: getattr(self, name)[wanted] for name in _NUMBERS}
        subjects, subject = _in_use(self.subjects, self.subject[wanted])
        names, name = _in_use(self.names, self.name[wanted])
        return replace(
            self, **rows, ids=self.ids.filter(pa.array(wanted)), subjects=subjects, subject=subject,
            names=names, name=name,
        )  # fmt: skip

    def of_clients(self) -> Self:
        """Without proxies' probes, and without parts of what may be in flight."""
        wanted: NDArray[np.bool_] = np.ones(len(self), dtype=np.bool_)
        if self.law == "mutation":
            probes = pc.match_substring_regex(self.ids, rf"-\d+{PROBE_SUFFIX}$")
            wanted = ~probes.to_numpy(zero_copy_only=False)
        elif self.law == "shares":
            wanted = np.array([_is_traffic(group) for group in self.names], dtype=np.bool_)[self.name]
        return self if wanted.all() else self.only(wanted)

    def behind(self, before: Self | None) -> Self:
        """These, behind others of the same law."""
        if before is None or not len(before):
            return self
        both = before, self
        rows: dict[str, Any] = {
            name: np.concatenate([getattr(each, name) for each in both]) for name in _NUMBERS
        }
        return replace(
            self, **rows, ids=pa.concat_arrays([each.ids for each in both]),
            subjects=before.subjects + self.subjects, names=before.names + self.names,
            subject=np.concatenate([before.subject, len(before.subjects) + self.subject]),
            name=np.concatenate([before.name, len(before.names) + self.name]),
            overshoot={
                group: max(each.overshoot.get(group, 0.0) for each in both)
                for group in before.overshoot | self.overshoot
            },
        )  # fmt: skip

    @classmethod
    def of(
        cls, law: LawSpec, decided: DecisionRows, outcome: Outcomes, delay_ms: Integers,
        overshoot: dict[str, float] | None = None,
    ) -> Self:  # fmt: skip
        """Verdicts on decisions."""
        subjects = names = decided.keys.to_pylist()
        subject = name = np.arange(len(decided)) if decided.key is None else decided.key
        if overshoot is not None:
            groups = decided.rows["group"].dictionary_encode()
            names, name = groups.dictionary.to_pylist(), groups.indices.to_numpy().astype(np.int64)
        if "shadow" in decided.rows.schema.names:
            free = pc.fill_null(decided.rows["shadow"], False).to_numpy(zero_copy_only=False)
            outcome, delay_ms = np.where(free, ALLOWED, outcome), np.where(free, 0, delay_ms)
        return cls(
            law=law.name,
            source=decided.source if overshoot is None else np.full(len(decided), -1),
            ids=decided.rows["id"].cast(pa.string()), ts=decided.ts,
            subjects=subjects, subject=subject, names=names, name=name,
            outcome=outcome.astype(np.int8), delay_ms=np.minimum(delay_ms, EXACT_MAX).astype(np.int64),
            overshoot=overshoot or {},
        )  # fmt: skip


def as_rows(decided: Decided) -> DecisionRows:
    """The decisions of a replay."""
    assert isinstance(decided, DecisionRows), "only what is said again is written as text"
    return decided


def _is_traffic(group: str) -> bool:
    return not group.startswith(INFLIGHT_GROUP_PREFIX)


def _in_use(names: list[str], number: Integers) -> tuple[list[str], Integers]:
    """The names that are in use, and the numbers that each has among them."""
    used, own = np.unique(number, return_inverse=True)
    return [names[each] for each in used.tolist()], own.ravel()


@dataclass(slots=True)
class Judge:
    """What the decisions of a law come to, some of a log after the other.

    Attributes:
        law: whose.
        limits: of partitions, so far.
        shares: of members of groups, so far.
    """

    law: LawSpec
    limits: "Limits" = field(default_factory=lambda: Limits())
    shares: dict[tuple[str, str], dict[str, float]] = field(default_factory=dict)

    def verdicts(self, events: Any, decided: DecisionRows) -> Verdicts:
        """Judge what comes next.

        Args:
            events: what the law was asked, as its intake has it.
            decided: what it said in a replay.
        """
        if self.law.name == "concurrency":
            return Verdicts.of(self.law, decided, *_held_back(events, decided, self.limits))
        if self.law.name == "shares":
            return Verdicts.of(self.law, decided, *_shared(decided.rows, self.shares))
        return Verdicts.of(self.law, decided, *_BY_LAW[self.law.name](decided.rows))


def _admitted(rows: pa.RecordBatch) -> tuple[Outcomes, Integers]:
    said = rows["outcome"]
    by_word = np.array([_OUTCOMES[word] for word in said.dictionary.to_pylist()], dtype=np.int8)
    return by_word[said.indices.to_numpy()], rows["throttle_time_ms"].to_numpy()


def _delivered(rows: pa.RecordBatch) -> tuple[Outcomes, Integers]:
    wait_ms = rows["throttle_time_ms"].to_numpy()
    return np.where(wait_ms > 0, THROTTLED, ALLOWED).astype(np.int8), wait_ms


def _stored(rows: pa.RecordBatch) -> tuple[Outcomes, Integers]:
    outcome, actions = np.zeros(len(rows), dtype=np.int8), rows["actions"]
    row = np.repeat(np.arange(len(rows)), pc.list_value_length(actions).to_numpy(zero_copy_only=False))
    policies = pc.struct_field(actions.flatten(), "policy").cast(pa.string())
    held = pc.equal(policies, _HOLD).to_numpy(zero_copy_only=False)
    np.maximum.at(outcome, row, np.where(held, THROTTLED, REFUSED).astype(np.int8))
    return outcome, np.zeros(len(rows), dtype=np.int64)


class Limits:
    """The limits that partitions had last."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}

    def before(self, samples: Samples, decided: DecisionRows) -> Integers:
        """The limit that the partition of each sample had before it; of the first, and without: endless.

        Args:
            samples: in order.
            decided: what was decided on those of them whose partitions are limited, in the same order.
        """
        before = np.full(len(samples.at), np.iinfo(np.int64).max)
        # A partition is limited in all samples of an event, or in none.
        asked = np.flatnonzero(np.isin(samples.rows["source"].to_numpy()[samples.event], decided.source))
        partition, limit = samples.partition[asked], decided.rows["limit"].to_numpy()
        order = np.argsort(partition, kind="stable")
        same = partition[order[1:]] == partition[order[:-1]]
        before[asked[order[1:][same]]] = limit[order[:-1][same]]
        ends = np.flatnonzero(np.diff(partition[order], append=-1))
        firsts = np.append(0, ends[:-1] + 1)[: len(ends)]
        names = samples.names.take(pa.array(partition[order[ends]])).to_pylist()
        for name, first, last in zip(names, order[firsts].tolist(), order[ends].tolist(), strict=True):
            before[asked[first]] = self._last.get(name, before[asked[first]])
            self._last[name] = int(limit[last])
        return before


def _held_back(samples: Samples, decided: DecisionRows, limits: Limits) -> tuple[Outcomes, Integers]:
    """By the limit before each."""
    asked = np.isin(samples.rows["source"].to_numpy()[samples.event], decided.source)
    limit = limits.before(samples, decided)[asked]
    beyond = np.maximum(0, samples.inflight[asked] - limit)
    wait_ms = np.minimum(np.ceil(samples.rtt[asked] * (beyond / limit) / _NS), EXACT_MAX).astype(np.int64)
    return np.where(beyond > 0, THROTTLED, ALLOWED).astype(np.int8), wait_ms


def _shared(
    rows: pa.RecordBatch, last: dict[tuple[str, str], dict[str, float]]
) -> tuple[Outcomes, Integers, dict[str, float]]:
    """By the share that each broker had before the round; `last` goes on."""
    outcome, wait_ms = np.zeros(len(rows), dtype=np.int8), np.zeros(len(rows), dtype=np.int64)
    names = ("group", "broker", "usage", "limits", "ttl_ms")
    for place, (group, broker, usage, limits, ttl_ms) in enumerate(
        zip(*(rows[name].to_pylist() for name in names), strict=True)
    ):
        used, had = dict(usage or ()), last.get((group, broker), {})
        beyond = max((used.get(name, 0.0) / share - 1.0 for name, share in had.items()), default=0.0)
        if beyond > _EXACT:
            outcome[place] = THROTTLED
            wait_ms[place] = min(np.ceil(beyond * ttl_ms / LIFE_ROUNDS), EXACT_MAX)
        last[group, broker] = dict(limits or ())
    return outcome, wait_ms, overshoot_of(rows)


def overshoot_of(rows: pa.RecordBatch) -> dict[str, float]:
    """How far each group's brokers together were beyond its limit in its worst round, as a part of it.

    The shares of a dimension's members add up to its limit.
    """
    rounds: dict[tuple[str, int], dict[str, list[float]]] = {}
    said = (rows[name].to_pylist() for name in ("group", "round", "usage", "limits"))
    for group, number, usage, limits in zip(*said, strict=True):
        sums, used = rounds.setdefault((group, number), {}), dict(usage or ())
        for name, share in limits or ():
            each = sums.setdefault(name, [0.0, 0.0])
            each[0] += used[name]
            each[1] += share
    worst: dict[str, float] = {}
    for (group, _), sums in rounds.items():
        if not _is_traffic(group):
            continue
        beyond = max((used / limit - 1.0 for used, limit in sums.values()), default=0.0)
        worst[group] = max(worst.get(group, 0.0), beyond if beyond > _EXACT else 0.0)
    return worst


def nth(values: Integers) -> Integers:
    """How many equal ones stand before each.

    >>> nth(np.array([7, 3, 7, 7])).tolist()
    [0, 0, 1, 2]
    """
    order = np.argsort(values, kind="stable")
    first = np.flatnonzero(np.diff(values[order], prepend=-1))
    found = np.empty(len(values), dtype=np.int64)
    found[order] = np.arange(len(values)) - np.repeat(first, np.diff(np.append(first, len(values))))
    return found


_BY_LAW: Final[dict[str, Callable[[pa.RecordBatch], tuple[Any, ...]]]] = {
    "mutation": _admitted, "dispatch": _delivered, "backlog": _stored,
}  # fmt: skip
