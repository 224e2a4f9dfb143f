"""The law of backlogs over columns, for speed alone: `law.judge` says what it means, tests hold them equal.

Numbers are 64 bits wide here, and quotients are those of doubles. Reports whose sums or products do not fit
are left to `law.judge`, whose integers are of any size.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streaming.columns.compiled import compiled
from streaming.contract.fields import INT64_MAX
from streaming.laws.backlog.law import EVICTION, UNKNOWN_AGE, Rules, judge
from streaming.laws.backlog.reports import UNKNOWN, Ledgers, Positions, Reports
from streaming.policy.topics import BacklogKind

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
Doubles = NDArray[np.float64]
EXACT: Final = 2**53
"""Whole numbers up to this are exact as doubles, and quotients of them are rounded once."""
NOBODY: Final = -1


class Quotas(NamedTuple):
    """Rules as columns; see law.Rules. `evicts_*`: what is beyond the limit is to be acknowledged."""

    size: Integers
    age: Integers
    evicts_size: Flags
    evicts_age: Flags
    precise_size: Flags
    precise_age: Flags

    @classmethod
    def of(cls, rules: Sequence[Rules]) -> Self:
        return cls(
            np.array([each.size.limit for each in rules], dtype=np.int64),
            np.array([each.age.limit for each in rules], dtype=np.int64),
            *(
                np.array(flags, dtype=np.bool_)
                for flags in (
                    [each.size.policy == EVICTION for each in rules],
                    [each.age.policy == EVICTION for each in rules],
                    [each.precise_size for each in rules],
                    [each.precise_age for each in rules],
                )
            ),
        )


class Verdicts(NamedTuple):
    """What is found out, an entry a report.

    Attributes:
        size, age: of the backlog, bytes and seconds.
        oldest: number of the oldest subscription among all positions; NOBODY: none is behind.
        over_size, over_age: whether that is more than the quota.
        left: it is left to `law.judge`.
        first_line, lines: which of Lines are its plan.
    """

    size: Doubles
    age: Integers
    oldest: Integers
    over_size: Flags
    over_age: Flags
    left: Flags
    first_line: Integers
    lines: Integers

    @classmethod
    def of(cls, count: int) -> Self:
        return cls(
            np.zeros(count),
            np.full(count, UNKNOWN_AGE, dtype=np.int64),
            np.full(count, NOBODY, dtype=np.int64),
            *np.zeros((3, count), dtype=np.bool_),
            *np.zeros((2, count), dtype=np.int64),
        )


class Lines(NamedTuple):
    """Lines of plans, those of one report together.

    Attributes:
        position: number of the subscription among all positions.
        ledger, entry: the last entry to acknowledge.
        entries: so many; 0: what was published before a time is.
        before: that time, ms.
    """

    position: Integers
    ledger: Integers
    entry: Integers
    entries: Integers
    before: Integers

    @classmethod
    def of(cls, count: int) -> Self:
        return cls(*np.zeros((5, count), dtype=np.int64))


class Places(NamedTuple):
    """Room for what is worked out of one report after the other.

    Attributes:
        number, acknowledged: of each position, as `law.Log.place`; the number is that among all ledgers.
        before, rest: entries before each ledger, and bytes from it on; a report has one more than ledgers.
    """

    number: Integers
    acknowledged: Integers
    before: Integers
    rest: Integers

    @classmethod
    def of(cls, positions: int, ledgers: int) -> Self:
        return cls(*np.zeros((2, positions), dtype=np.int64), *np.zeros((2, ledgers), dtype=np.int64))


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Verdicts on all reports of a batch, with the lines of their plans."""

    verdicts: Verdicts
    lines: Lines


def judge_all(reports: Reports, rules: Sequence[Rules], kind: Integers) -> Judged:
    """What `law.judge` says of each report.

    Args:
        reports: the batch.
        rules: that apply to some of them.
        kind: which of these, for each.
    """
    ledgers, positions = reports.ledgers, reports.positions
    count, listed, subscribed = len(reports.ts), len(ledgers.id), len(positions.name)
    verdicts, lines = Verdicts.of(count), Lines.of(2 * subscribed)
    places = Places.of(subscribed, listed + count)
    written = walk(reports.ts, kind, Quotas.of(rules), ledgers, positions, places, verdicts, lines)
    lines = Lines(*(column[:written] for column in lines))
    left = np.flatnonzero(verdicts.left).tolist()
    if not left:
        return Judged(verdicts=verdicts, lines=lines)
    more = [line for i in left for line in _judge_one(reports, i, rules[int(kind[i])], verdicts)]
    verdicts.first_line[left] = written + np.cumsum([0, *verdicts.lines[left][:-1]])
    added = np.array(more, dtype=np.int64).reshape(-1, len(lines)).T
    return Judged(verdicts=verdicts, lines=Lines(*np.concatenate([lines, added], axis=1)))


def _judge_one(reports: Reports, i: int, rules: Rules, verdicts: Verdicts) -> list[tuple[int, ...]]:
    """Fill in the verdict of a report that is left, but for where its lines stand; its lines."""
    said = judge(reports.event(i), rules)
    first, end = reports.positions.ends[i : i + 2].tolist()
    names = reports.names.take(pa.array(reports.positions.name[first:end])).to_pylist()
    number = {name: first + place for place, name in enumerate(names)}
    oldest = said["oldestBacklogMessageSubscriptionName"]
    verdicts.size[i], verdicts.age[i] = said["backlogSize"], said["oldestBacklogMessageAgeSeconds"]
    verdicts.oldest[i] = NOBODY if oldest is None else number[oldest]
    verdicts.over_size[i] = BacklogKind.SIZE.value in said["exceeded"]
    verdicts.over_age[i] = BacklogKind.AGE.value in said["exceeded"]
    verdicts.lines[i] = len(said["evict"])
    return [(number[line["subscription"]], *_line(line)) for line in said["evict"]]


def _line(line: dict[str, Any]) -> tuple[int, ...]:
    if "before_publish_time" in line:
        return 0, 0, 0, line["before_publish_time"]
    # A sum that no 64 bits hold is cut there.
    return line["ledger"], line["entry"], min(INT64_MAX, line["entries"]), 0


@compiled
def walk(
    ts: Integers,
    kind: Integers,
    quotas: Quotas,
    ledgers: Ledgers,
    positions: Positions,
    places: Places,
    verdicts: Verdicts,
    lines: Lines,
) -> int:
    """Judge all reports but those that are left; how many lines their plans have."""
    written = 0
    for i in range(len(ts)):
        k = kind[i]
        verdicts.first_line[i] = written
        if not measured(i, quotas.precise_size[k], ledgers, positions, places):
            verdicts.left[i] = True
            continue
        oldest = oldest_of(i, ledgers, positions, places)
        verdicts.oldest[i] = oldest
        if oldest != NOBODY:
            weigh(i, oldest, quotas.precise_size[k], ledgers, places, verdicts)
            since = ledgers.closed[places.number[oldest]]
            if quotas.precise_age[k]:
                since = positions.published[oldest]
            if since != UNKNOWN:
                verdicts.age[i] = (ts[i] - since) // 1000
            if quotas.size[k] >= 0:
                verdicts.over_size[i] = exceeds(
                    i, oldest, quotas.size[k], quotas.precise_size[k], ledgers, places
                )
        verdicts.over_age[i] = 0 < quotas.age[k] < verdicts.age[i]
        if verdicts.over_size[i] and quotas.evicts_size[k]:
            written = plan(
                i, quotas.size[k], quotas.precise_size[k], ledgers, positions, places, lines, written
            )
        if verdicts.over_age[i] and quotas.evicts_age[k]:
            written = expire(i, ts[i] - quotas.age[k] * 1000, positions, lines, written)
        verdicts.lines[i] = written - verdicts.first_line[i]
    return written


@compiled
def measured(i: int, precise: bool, ledgers: Ledgers, positions: Positions, places: Places) -> bool:
    """Fill in the places of a report; whether all its numbers are small enough."""
    first, end = ledgers.ends[i], ledgers.ends[i + 1]
    most = 1
    count = size = 0
    for number in range(first, end):
        places.before[number + i] = count
        # Compared before they are added: sums may pass 64 bits.
        if ledgers.entries[number] > EXACT - count or ledgers.size[number] > EXACT - size:
            return False
        count += ledgers.entries[number]
        size += ledgers.size[number]
        most = max(most, ledgers.entries[number])
    if precise and size > EXACT // most:
        return False
    places.before[end + i] = count
    for number in range(first, end):
        places.rest[number + i] = size
        size -= ledgers.size[number]
    places.rest[end + i] = 0
    for one in range(positions.ends[i], positions.ends[i + 1]):
        if positions.entry[one] >= EXACT:
            return False
        number, acknowledged = place(first, end, ledgers, positions.ledger[one], positions.entry[one])
        places.number[one] = number
        places.acknowledged[one] = acknowledged
    return True


@compiled
def place(first: int, end: int, ledgers: Ledgers, ledger: int, entry: int) -> tuple[int, int]:
    """As `law.Log.place`, among the ledgers from `first` to `end`."""
    low, high = first, end
    while low < high:
        middle = (low + high) // 2
        if ledgers.id[middle] < ledger:
            low = middle + 1
        else:
            high = middle
    acknowledged = 0
    if low < end and ledgers.id[low] == ledger:
        acknowledged = entry + 1
    while low < end and acknowledged >= ledgers.entries[low]:
        low += 1
        acknowledged = 0
    return low, acknowledged


@compiled
def oldest_of(i: int, ledgers: Ledgers, positions: Positions, places: Places) -> int:
    """The durable subscription with a backlog and the smallest position, of two the first by name."""
    oldest = NOBODY
    for place_by_name in range(positions.ends[i], positions.ends[i + 1]):
        one = positions.by_name[place_by_name]
        if not positions.durable[one] or places.number[one] == ledgers.ends[i + 1]:
            continue
        if (
            oldest == NOBODY
            or positions.ledger[one] < positions.ledger[oldest]
            or (
                positions.ledger[one] == positions.ledger[oldest]
                and positions.entry[one] < positions.entry[oldest]
            )
        ):
            oldest = one
    return oldest


@compiled
def weigh(
    i: int, one: int, precise: bool, ledgers: Ledgers, places: Places, verdicts: Verdicts
) -> None:
    """The size of a subscription's backlog, as `law.Log.size`."""
    number, acknowledged = places.number[one], places.acknowledged[one]
    rest = places.rest[number + i]
    if not precise or acknowledged == 0:
        verdicts.size[i] = float(rest)
    else:
        entries = ledgers.entries[number]
        verdicts.size[i] = float(rest * entries - acknowledged * ledgers.size[number]) / float(entries)


@compiled
def exceeds(i: int, one: int, limit: int, precise: bool, ledgers: Ledgers, places: Places) -> bool:
    """As `law.Log.exceeds`."""
    number, acknowledged = places.number[one], places.acknowledged[one]
    surplus = places.rest[number + i] - limit
    if surplus <= 0 or not precise or acknowledged == 0:
        return bool(surplus > 0)
    return bool(surplus * ledgers.entries[number] > acknowledged * ledgers.size[number])


@compiled
def first_within(i: int, limit: int, precise: bool, ledgers: Ledgers, places: Places) -> tuple[int, int]:
    """As `law.Log.first_within`."""
    number = ledgers.ends[i]
    while places.rest[number + i] > limit:
        number += 1
    if not precise or number == ledgers.ends[i]:
        return number, 0
    before = number - 1
    surplus = places.rest[before + i] - limit
    entries = -(-surplus * ledgers.entries[before] // ledgers.size[before])
    if entries >= ledgers.entries[before]:
        return number, 0
    return before, entries


@compiled
def plan(
    i: int,
    limit: int,
    precise: bool,
    ledgers: Ledgers,
    positions: Positions,
    places: Places,
    lines: Lines,
    written: int,
) -> int:
    """As `law.Log.plan`; how many lines are written then."""
    target, within = first_within(i, limit, precise, ledgers, places)
    number, entries = target, within
    while number > ledgers.ends[i] and entries == 0:
        number -= 1
        entries = ledgers.entries[number]
    for place_by_name in range(positions.ends[i], positions.ends[i + 1]):
        one = positions.by_name[place_by_name]
        begin, acknowledged = places.number[one], places.acknowledged[one]
        if not positions.durable[one] or begin == ledgers.ends[i + 1]:
            continue
        if begin < target or (begin == target and acknowledged < within):
            lines.position[written] = one
            lines.ledger[written] = ledgers.id[number]
            lines.entry[written] = entries - 1
            done = places.before[begin + i] + acknowledged
            lines.entries[written] = places.before[target + i] + within - done
            written += 1
    return written


@compiled
def expire(i: int, before: int, positions: Positions, lines: Lines, written: int) -> int:
    """Lines for durable subscriptions whose oldest message is older; how many are written then."""
    for place_by_name in range(positions.ends[i], positions.ends[i + 1]):
        one = positions.by_name[place_by_name]
        if positions.durable[one] and UNKNOWN != positions.published[one] < before:
            lines.position[written] = one
            lines.before[written] = before
            written += 1
    return written
