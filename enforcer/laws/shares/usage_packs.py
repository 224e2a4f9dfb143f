"""Usage reports of many groups as packed records (docs/contract.md 1 and 3.2)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from enforcer.core.account import Use
from streaming.columns.packed import RECORD_BYTES, pack
from streaming.contract.usage_events import COUNTS, DIMENSIONS

Integers = NDArray[np.int64]
NOT_LIMITED: Final = -1
"""Instead of a time: the dimension is not limited, and nothing is reported of it."""
_WIDTHS: Final = (np.uint8, np.uint16, np.uint32, np.int64)


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
    yield from _parts(head, groups, counts, np.array(times, dtype=np.int64), most)


def _parts(
    head: Mapping[str, Any], groups: Sequence[str], counts: Integers, times: Integers, most: int
) -> Iterator[tuple[Sequence[str], bytes]]:
    rows = report_rows(**head, groups=groups, counts=counts, throttled_ms=times)
    (value,) = pack("group_usage", rows, most)
    if len(value) <= most or len(groups) == 1:
        yield groups, value
        return
    half = len(groups) // 2
    for part, stretch in enumerate((slice(0, half), slice(half, None))):
        own = {**head, "id": f"{head['id']}.{part}"}
        yield from _parts(own, groups[stretch], counts[stretch], times[stretch], most)


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
