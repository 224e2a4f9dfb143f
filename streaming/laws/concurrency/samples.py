"""Round-trip times as columns, one row a sample: what speed needs, the law is in law.py."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.contract.broker_events import INT64_MIN, Latencies, Latency, Sample
from streaming.contract.errors import BadEvent
from streaming.contract.fields import INT64_MAX
from streaming.laws.concurrency.law import Flags, Integers
from streaming.laws.gathering import Gathering
from streaming.laws.law import Intake
from streaming.laws.sheet import WORDS, NotPlain, Sheet, flags_of, integers_of
from streaming.policy.timeline import PolicyTimeline

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
        start_ns, rtt, inflight, drop: see contract.broker_events.Latency.
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
        listed, partition = rows["samples"], rows["partition"]
        event = np.repeat(np.arange(len(rows)), pc.list_value_length(listed).to_numpy())
        start_ns, rtt, inflight, drop, k = listed.flatten().flatten()
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
        listed = pc.binary_join_element_wise(ids, pc.cast(pa.array(k), pa.string()), "/")
        return pc.if_else(pa.array(k == ALONE), ids, listed)


class SampleIntake(Gathering, Intake):
    """Samples of one batch."""

    type = "latency"
    fields = (pa.field("partition", WORDS), pa.field("samples", pa.list_(_SAMPLE)))

    def put(self, i: int, event: Any) -> None:
        """Take an event, or those of its samples that can be used.

        Raises:
            BadEvent: during another of its samples the clock went back.
        """
        super().put(i, event)
        if isinstance(event, Latencies) and event.wrong is not None:
            raise BadEvent(event.wrong)

    def read(self, sheet: Sheet, ts: Integers) -> list[pa.Array]:
        """As `contract.broker_events.latency`."""
        partition, alone = sheet.words("partition", None), sheet.column("samples").is_null()
        parts, places = list[pa.Array](), list[Integers]()
        for which, read in ((alone, _alone), (pc.invert(alone), _together)):
            rows = np.flatnonzero(which.to_numpy(zero_copy_only=False))
            if len(rows):
                part = sheet.only(rows)
                parts.append(read(part, ts[rows]))
                places.append(rows)
                sheet.good[rows] &= part.good
        samples = pa.concat_arrays(parts)
        if len(parts) > 1:
            samples = samples.take(pa.array(np.argsort(np.concatenate(places))))
        return [partition, samples]

    def listed(self, events: Sequence[Latency | Latencies]) -> list[pa.Array]:
        """Those that the parser has read."""
        rows, ends = list[tuple[Any, ...]](), [0]
        for event in events:
            if isinstance(event, Latency):
                rows.append((event.start_ns, event.rtt_ns, event.inflight, event.did_drop, ALONE))
            else:
                rows += [(*sample, k) for k, sample in enumerate(event.samples) if sample is not None]
            ends.append(len(rows))
        columns = list(zip(*rows, strict=True)) if rows else [()] * _SAMPLE.num_fields
        partition = pa.array([event.partition for event in events], pa.string()).dictionary_encode()
        return [partition, _column(np.array(ends), columns[:-1], columns[-1])]

    def events(self, timeline: PolicyTimeline, *, replay: bool) -> Samples | None:
        """All of them in order."""
        rows = self.gathered()
        return None if rows is None else Samples.of(rows)


def _column(ends: Integers, sample: Sequence[Any], k: Any) -> pa.Array:
    """The column `samples`: lists of so many samples, and their places."""
    parts = [pa.array(values, _SAMPLE.field(number).type) for number, values in enumerate([*sample, k])]
    return pa.ListArray.from_arrays(
        pa.array(ends, pa.int32()), pa.StructArray.from_arrays(parts, fields=list(_SAMPLE))
    )


def _alone(sheet: Sheet, ts: Integers) -> pa.Array:
    """The column `samples` of events that are one each."""
    rtt = sheet.integers("rtt_ns", None, least=1)
    # Of a later time there are no nanoseconds in 64 bits.
    sheet.good &= ts <= INT64_MAX // _NS
    start = sheet.integers("start_ns", ts * _NS - rtt, least=INT64_MIN)
    sample = [start, rtt, sheet.integers("inflight", None), sheet.flags("did_drop", False)]
    return _column(np.arange(len(sheet) + 1), sample, np.full(len(sheet), ALONE))


def _together(sheet: Sheet, ts: Integers) -> pa.Array:
    """The column `samples` of events that list theirs; a list with anything unusual in it is left."""
    listed = sheet.column("samples")
    if not pa.types.is_list(listed.type):
        raise NotPlain
    lengths, flat = pc.list_value_length(listed).to_numpy(), listed.flatten()
    ends = np.cumsum([0, *lengths])
    if not len(flat):
        return _column(ends, [()] * len(Sample._fields), ())
    if pa.types.is_struct(flat.type):
        if not _named(flat.type):
            raise NotPlain
        parts = [flat.field(name) for name in Sample._fields]
        (start, first), (rtt, second), (inflight, third) = map(integers_of, parts[:3])
        drop, fourth = flags_of(parts[3])
        right = first & second & third & fourth & flat.is_valid().to_numpy(zero_copy_only=False)
    else:
        start, rtt, inflight, dropped, right = _quadruples(flat)
        drop, right = dropped == 1, right & (dropped >= 0) & (dropped <= 1)
    right &= (rtt >= 1) & (inflight >= 0)
    row = np.repeat(np.arange(len(sheet)), lengths)
    sheet.good[row[~right]] = False
    return _column(ends, [start, rtt, inflight, drop], np.arange(len(row)) - ends[row])


def _named(kind: pa.StructType) -> bool:
    return all(kind.get_field_index(name) >= 0 for name in Sample._fields)


def _quadruples(flat: pa.Array) -> tuple[Integers, Integers, Integers, Integers, Flags]:
    """Samples that are lists of integers: their four columns, and which of them hold no null.

    Raises:
        NotPlain: they are none.
    """
    width = len(Sample._fields)
    if not pa.types.is_list(flat.type) or flat.null_count:
        raise NotPlain
    if (pc.list_value_length(flat).to_numpy() != width).any():
        raise NotPlain
    values, given = integers_of(flat.flatten())
    start, rtt, inflight, dropped = values.reshape(-1, width).T
    whole: Flags = np.logical_and.reduce(given.reshape(-1, width), axis=1)
    return start, rtt, inflight, dropped, whole
