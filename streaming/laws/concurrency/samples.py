"""Round-trip times as columns, one row a sample: what speed needs, the law is in law.py."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.contract.broker_events import INT64_MIN, Latency, Sample
from streaming.contract.errors import BadEvent
from streaming.contract.fields import INT64_MAX
from streaming.laws.column_intake import ColumnIntake
from streaming.laws.concurrency.law import Flags, Integers
from streaming.laws.law import Intake
from streaming.laws.row_fields import WORDS, listed
from streaming.laws.sheet import MISSING, Sheet, objects_of

_NUMBER: Final = ("start_ns", "rtt_ns", "inflight")
_SAMPLE: Final = pa.struct(
    [
        *(pa.field(name, pa.int64()) for name in _NUMBER),
        pa.field("did_drop", pa.bool_()),
        pa.field("k", pa.int64()),  # place in its event; ALONE: the event is the sample
    ]
)
_NS: Final = 1_000_000
"""Nanoseconds of a millisecond."""
ALONE: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """A batch of samples in order, a row each.

    Attributes:
        rows: columns source, id, ts, at (see sheet.HEAD), partition, of the events.
        event: which of them each sample belongs to.
        k: place of each in its event; ALONE: the event is the sample.
        at: when each is applied, ms.
        partition: number of each one's partition,
        names: among these, Arrow text.
        start_ns, rtt, inflight, drop: see contract.broker_events.Sample.
    """

    rows: pa.RecordBatch
    event: Integers
    k: Integers
    at: Integers
    partition: Integers
    names: pa.Array
    start_ns: Integers
    rtt: Integers
    inflight: Integers
    drop: Flags

    @classmethod
    def of(cls, rows: pa.RecordBatch) -> Self:
        """What the columns of `SampleIntake` say."""
        samples, partition = rows["samples"], rows["partition"]
        event = np.repeat(np.arange(len(rows)), pc.list_value_length(samples).to_numpy())
        start_ns, rtt, inflight, drop, k = samples.flatten().flatten()
        return cls(
            rows=rows,
            event=event,
            k=k.to_numpy(),
            at=rows["at"].to_numpy()[event],
            partition=partition.indices.to_numpy()[event].astype(np.int64),
            names=partition.dictionary,
            # Copies, since Numba compiles anew for arrays that cannot be written.
            start_ns=start_ns.to_numpy().copy(),
            rtt=rtt.to_numpy().copy(),
            inflight=inflight.to_numpy().copy(),
            drop=drop.to_numpy(zero_copy_only=False).copy(),
        )

    def ids(self, chosen: Integers) -> pa.Array:
        """The names of these samples."""
        ids, k = self.rows["id"].take(pa.array(self.event[chosen])), self.k[chosen]
        if (k == ALONE).all():
            return ids
        number = pa.array(k, mask=k == ALONE).cast(pa.string())
        return pc.binary_join_element_wise(ids, number, "/", null_handling="skip")


class SampleIntake(ColumnIntake, Intake):
    """Samples of one batch."""

    type = "latency"
    fields = (pa.field("partition", WORDS), pa.field("samples", pa.list_(_SAMPLE)))
    batch = Samples

    def put(self, i: int, event: Any) -> None:
        """Take an event, or those of its samples that can be used.

        Raises:
            BadEvent: during another of its samples the clock went back.
        """
        super().put(i, event)
        if event.wrong is not None:
            raise BadEvent(event.wrong)

    def read(self, sheet: Sheet, ts: Integers) -> list[pa.Array]:
        """As `contract.broker_events.latency`."""
        sheet.require("partition")
        partition, several = sheet.encoded("partition"), sheet.said("samples")
        parts, places = list[pa.Array](), list[Integers]()
        for which, read in ((~several, _alone), (several, _together)):
            rows = np.flatnonzero(which)
            if len(rows):
                part = sheet.only(rows)
                parts.append(read(part, ts[rows]))
                places.append(rows)
                sheet.plain[rows] &= part.plain
        samples = pa.concat_arrays(parts)
        if len(parts) > 1:
            samples = samples.take(pa.array(np.argsort(np.concatenate(places))))
        return [partition, samples]

    def listed(self, events: Sequence[Latency]) -> list[pa.Array]:
        """Those that the parser has read."""
        rows, ends = list[tuple[Any, ...]](), [0]
        for event in events:
            numbered = enumerate(event.samples, ALONE if event.alone else 0)
            rows += [(*sample, k) for k, sample in numbered if sample is not None]
            ends.append(len(rows))
        columns = list(zip(*rows, strict=True)) if rows else [()] * _SAMPLE.num_fields
        partition = pa.array([event.partition for event in events], pa.string()).dictionary_encode()
        return [partition, _column(np.array(ends), columns[:-1], columns[-1])]


def _column(ends: Integers, sample: Sequence[Any], k: Any) -> pa.Array:
    """The column `samples`: lists of so many samples, and their places."""
    parts = [pa.array(values, _SAMPLE.field(number).type) for number, values in enumerate([*sample, k])]
    return listed(ends, parts, _SAMPLE)


def _alone(sheet: Sheet, ts: Integers) -> pa.Array:
    """The column `samples` of events that are one each."""
    # Of a later time there are no nanoseconds in 64 bits.
    sheet.plain &= ts <= INT64_MAX // _NS
    rtt = sheet.integers("rtt_ns", MISSING, minimum=1)
    start = sheet.integers("start_ns", ts * _NS - rtt, minimum=INT64_MIN)
    sample = [start, rtt, sheet.integers("inflight", MISSING), sheet.flags("did_drop", False)]
    return _column(np.arange(len(sheet) + 1), sample, np.full(len(sheet), ALONE))


def _together(sheet: Sheet, ts: Integers) -> pa.Array:
    """The column `samples` of events that list theirs; a list with anything unusual in it is left."""
    elements, row, ends = sheet.elements("samples", _is_sample)
    items = _quadruples(elements, row) if pa.types.is_list(elements.type) else objects_of(elements, row)
    items.require("start_ns")
    sample = [
        items.integers("start_ns", 0, minimum=INT64_MIN),
        items.integers("rtt_ns", MISSING, minimum=1),
        items.integers("inflight", MISSING),
        items.flags("did_drop", False),
    ]
    sheet.plain[row[~items.plain]] = False
    return _column(ends, sample, np.arange(len(row)) - ends[row])


def _is_sample(kind: pa.DataType) -> bool:
    return bool(pa.types.is_struct(kind) or (pa.types.is_list(kind) and pa.types.is_int64(kind.value_type)))


def _quadruples(elements: pa.Array, row: Integers) -> Sheet:
    """Samples that are lists of integers as objects."""
    width = len(Sample._fields)
    whole = pc.equal(pc.list_value_length(elements), width).fill_null(False)
    values, right = elements.filter(whole).flatten(), whole.to_numpy(zero_copy_only=False)
    first = (np.cumsum(right) - 1) * width
    columns = [values.take(pa.array(first + place, mask=~right)) for place in range(width)]
    dropped = columns.pop()
    flag = pc.or_(pc.equal(dropped, 0), pc.equal(dropped, 1)).fill_null(False)
    columns.append(pc.equal(dropped, 1))
    items = Sheet(pa.RecordBatch.from_arrays(columns, list(Sample._fields)), row)
    items.plain &= flag.to_numpy(zero_copy_only=False)
    return items
