"""Usage reports: what this proxy tells the job of its groups (docs/contract.md 3.2, PIP-82).

One record a round with all groups that have something to say, packed if they are many or have long names.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray

from enforcer.core import bounds
from enforcer.core.account import Account, Use
from enforcer.core.law import Context
from enforcer.laws.shares.meter import Meter
from streaming.columns.packed import RECORD_BYTES, pack
from streaming.contract.usage_events import COUNTS, DIMENSIONS

USAGE_RECORD_BYTES: Final = 524_288
"""A larger report is packed, which is cut: half of what brokers take by default (message.max.bytes)."""
ROUNDS_MAX: Final = 3
"""A group in use is reported at least once in so many rounds."""
_CHANGE: Final = 0.1
"""A change of use by this part is reported at once."""
_SAME_SHARE: Final = 0.001
"""A share that differs by less is no new one."""
_NO_SHARE: Final = (None,) * len(DIMENSIONS)
_ZEROS_MAX: Final = 2
"""Reports of silence in a row; after them a group is not looked at until it is used again."""
_LOG_AGAIN_MS: Final = 60_000.0
"""A group that was not held back for so long is news when it is again."""
_SHOWN: Final = 20
"""Groups of a round that the log names: a client may make up names, and be held back under each."""

Integers = NDArray[np.int64]
NOT_LIMITED: Final = -1
"""Instead of a time: the dimension is not limited, and nothing is reported of it."""
_WIDTHS: Final = (np.uint8, np.uint16, np.uint32, np.int64)

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class LastReport:
    """What was last reported of a group.

    Attributes:
        rates: per second, in the order of DIMENSIONS.
        share: what the proxy could use then.
        quiet: rounds without a report since.
        zeros: reports of silence in a row.
    """

    rates: tuple[float, ...]
    share: tuple[float | None, ...]
    quiet: int = 0
    zeros: int = 0


def worth_telling(told: LastReport | None, rates: tuple[float, ...], share: tuple[float | None, ...]) -> bool:
    """Whether a group that is not throttled is reported in this round.

    >>> told = LastReport(rates=(100.0, 0.0, 0.0, 0.0), share=(None,) * 4)
    >>> [worth_telling(told, (use, 0.0, 0.0, 0.0), told.share) for use in (109.0, 110.0, 0.0)]
    [False, True, True]

    Args:
        told: what was reported last; None: never anything, or nothing but silence for long.
        rates: use per second now.
        share: what the proxy may use now.
    """
    if told is None:
        return any(rates)
    for now, before in zip(rates, told.rates, strict=True):
        if now != before and abs(now - before) >= _CHANGE * before:
            return True
    if any(_is_new(now, before) for now, before in zip(share, told.share, strict=True)):
        return True
    # Silence is said twice, in case the first time was lost, and then no more.
    return told.quiet + 1 >= ROUNDS_MAX and (any(rates) or told.zeros < _ZEROS_MAX)


def _is_new(now: float | None, before: float | None) -> bool:
    if now is None or before is None:
        return now is not before
    return abs(now - before) > _SAME_SHARE * before


class UsageReports:
    """Writes the reports of one proxy.

    Args:
        context: its name is the `broker` of reports.
    """

    def __init__(self, context: Context, meter: Meter) -> None:
        self._context = context
        self._meter = meter
        self._proxy_id = context.proxy_id
        self._clock = clock = context.clock
        self._told: dict[str, LastReport] = {}
        self._since_ms = clock.steady_ms()
        self._id_head = f"{context.proxy_id}-usage-{clock.wall_ms()}"
        self._count = 0
        self._quiet_until_ms: dict[str, float] = {}
        self._news = 0
        self.rates: dict[str, tuple[float, ...]] = {}
        """Use per second in the last round, by group; for metrics."""
        self.reported: dict[str, int] = {}
        """Reports so far, by group; for metrics."""
        self.held_back: dict[str, tuple[float, ...]] = {}
        """The part of the last round in which each dimension was in debt; for metrics."""

    def report(self) -> None:
        """End a round: report what is worth telling."""
        now_ms = self._clock.steady_ms()
        period_ms = max(1, round(now_ms - self._since_ms))
        self._since_ms = now_ms
        self._meter.fill(period_ms)
        uses: dict[str, Use] = {}
        rates, held_back = {}, {}
        for account in list(self._meter.accounts.values()):
            if account.idle and account.name not in self._told:
                # Most groups, most of the time: ten thousand of them shall not hold up the loop.
                continue
            use = account.period(now_ms)
            per_second = _rates(use, period_ms)
            rates[account.name] = per_second
            held_back[account.name] = tuple((time or 0) / period_ms for time in use.throttled_ms)
            if any(use.throttled_ms):
                self._log(account, use, now_ms)
            if self._is_due(account, use, per_second):
                uses[account.name] = use
        if self._news > _SHOWN:
            logger.info("%d more groups are held back", self._news - _SHOWN)
        self._news = 0
        self.rates, self.held_back = rates, held_back
        uses.update(self._of_gone(self._meter.take_left(), period_ms))
        for table in (self.reported, self._quiet_until_ms):
            for name in table.keys() - self._meter.accounts.keys():
                del table[name]
        self._send(uses, period_ms)

    def farewell(self) -> None:
        """The proxy stops: what it has may go to the others at once."""
        now_ms = self._clock.steady_ms()
        period_ms = max(1, round(now_ms - self._since_ms))
        self._send({name: _SILENCE for name, told in self._told.items() if any(told.rates)}, period_ms)
        self._told.clear()

    def _of_gone(self, left: Mapping[str, Use], period_ms: int) -> dict[str, Use]:
        """The use of groups without an account: what they used before it went, then silence once."""
        gone = self._told.keys() - self._meter.accounts.keys() - left.keys()
        uses = {name: _SILENCE for name in gone if any(self._told[name].rates)}
        for name in gone:
            del self._told[name]
        for name, use in left.items():
            uses[name] = use
            self._told[name] = LastReport(rates=_rates(use, period_ms), share=_NO_SHARE)
        return uses

    def _log(self, account: Account, use: Use, now_ms: float) -> None:
        """Say that a group is held back, once until it was not for a while; of many in a round some."""
        news = now_ms >= self._quiet_until_ms.get(account.name, 0.0)
        self._quiet_until_ms[account.name] = now_ms + _LOG_AGAIN_MS
        self._news += news
        if news and self._news <= _SHOWN:
            dimension = max(range(len(DIMENSIONS)), key=lambda place: use.throttled_ms[place] or 0)
            logger.info(
                "group %s is held back: %s, of which this proxy may use %.6g per second (%s)",
                account.name, DIMENSIONS[dimension], account.rate(dimension), account.state.value,
            )  # fmt: skip

    def _is_due(self, account: Account, use: Use, rates: tuple[float, ...]) -> bool:
        share = tuple(account.share)
        told = self._told.get(account.name)
        if not any(use.throttled_ms) and not worth_telling(told, rates, share):
            if told is not None:
                told.quiet += 1
                if told.zeros >= _ZEROS_MAX and not any(rates):
                    del self._told[account.name]
            return False
        zeros = 0 if any(rates) else 1 if told is None else told.zeros + 1
        self._told[account.name] = LastReport(rates=rates, share=share, zeros=zeros)
        return True

    def _send(self, uses: Mapping[str, Use], period_ms: int) -> None:
        """Send a report, of many groups, or such with long names, as packed records, else as JSON."""
        self._count += 1
        if not uses:
            return
        head = {"id": f"{self._id_head}-{self._count}", "broker": self._proxy_id, "period_ms": period_ms}
        if len(uses) < bounds.PACK_MIN:
            usage = {group: _entry(use) for group, use in uses.items()}
            event = {"type": "group_usage", **head, "usage": usage}
            if len(orjson.dumps(event)) <= USAGE_RECORD_BYTES:
                self._sent(uses, self._context.send_usage(event, self._proxy_id))
                return
        for groups, value in packed_reports(head, uses):
            self._sent(groups, self._context.send_usage_pack(value, self._proxy_id))

    def _sent(self, groups: Iterable[str], taken: bool) -> None:
        for group in groups:
            if taken:
                self.reported[group] = self.reported.get(group, 0) + 1
            else:
                # Counted where it was dropped; in the next round it is all told again.
                self._told.pop(group, None)


def _rates(use: Use, period_ms: int) -> tuple[float, ...]:
    return tuple(count * 1000 / period_ms for count in use.counts)


def _entry(use: Use) -> dict[str, Any]:
    entry: dict[str, Any] = dict(zip(COUNTS, use.counts, strict=True))
    times = zip(DIMENSIONS, use.throttled_ms, strict=True)
    throttled = {name: time_ms for name, time_ms in times if time_ms is not None}
    return {**entry, "throttledMs": throttled} if throttled else entry


_SILENCE: Final = Use((0,) * len(DIMENSIONS), (None,) * len(DIMENSIONS))


def packed_reports(
    head: Mapping[str, Any], uses: Mapping[str, Use], most: int = RECORD_BYTES
) -> Iterator[tuple[Sequence[str], bytes]]:
    """A report as packed records, cut where it is too large for one: (groups, value) of each.

    Args:
        head: fields of the report before `usage`: id, broker, period_ms; of parts the id ends with a number.
        uses: by group.
        most: bytes of a record; that of a single group may be larger.
    """
    groups = list(uses)
    counts = np.array([use.counts for use in uses.values()], dtype=np.int64)
    times = [[NOT_LIMITED if t is None else t for t in use.throttled_ms] for use in uses.values()]
    rows = report_rows(**head, groups=groups, counts=counts, throttled_ms=np.array(times, dtype=np.int64))
    (value,) = pack("group_usage", rows, most)
    if len(value) <= most or len(groups) == 1:
        yield groups, value
        return
    half = len(groups) // 2
    for part, names in enumerate((groups[:half], groups[half:])):
        own = {**head, "id": f"{head['id']}.{part}"}
        yield from packed_reports(own, {name: uses[name] for name in names}, most)


def report_rows(
    *, id: str, broker: str, period_ms: int, groups: Sequence[str], counts: Integers, throttled_ms: Integers,
    ts: int | None = None,
) -> pa.RecordBatch:  # fmt: skip
    """One report as a row.

    Args:
        id: of the event.
        broker: who reports.
        period_ms: the time that the counts cover.
        groups: their names, no two alike, at least one.
        counts: of each group, a column for each of DIMENSIONS.
        throttled_ms: the same, or NOT_LIMITED.
        ts: when it was reported, ms; None: the record's time counts.
    """
    fields = [_narrow(counts[:, place]) for place in range(len(COUNTS))]
    limited = [place for place in range(len(DIMENSIONS)) if (throttled_ms[:, place] >= 0).any()]
    held = [_narrow(throttled_ms[:, place], throttled_ms[:, place] < 0) for place in limited]
    names = list(COUNTS)
    if limited:
        # Who is limited in nothing reports no such object, as in JSON.
        nobody = pa.array((throttled_ms < 0).all(axis=1))
        names.append("throttledMs")
        fields.append(pa.StructArray.from_arrays(held, [DIMENSIONS[place] for place in limited], mask=nobody))
    entries = pa.StructArray.from_arrays(fields, names)
    names_of = pa.array(groups, pa.string())
    usage = pa.MapArray.from_arrays(pa.array([0, len(groups)], pa.int32()), names_of, entries)
    columns = {"id": pa.array([id]), "ts": pa.array([ts], pa.int64()), "broker": pa.array([broker])}
    if ts is None:
        del columns["ts"]
    columns |= {"period_ms": pa.array([period_ms], pa.int64()), "usage": usage}
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _narrow(numbers: Integers, mask: NDArray[np.bool_] | None = None) -> pa.Array:
    """Integers of the fewest bytes that hold them, which pack best."""
    greatest = int(numbers.max(initial=0))
    width = next(each for each in _WIDTHS if greatest <= np.iinfo(each).max)
    return pa.array(np.maximum(numbers, 0).astype(width), mask=mask)
