"""The stateless step in Python: records to the shards that must see them (streaming.laws.routing)."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.columns.byte_strings import Integers, bytes_in
from streaming.columns.records import chosen, some_at_a_time
from streaming.contract.events import MAX_AHEAD_MS
from streaming.job import schemas
from streaming.job.grouping_keys import grouping_keys_of
from streaming.laws.name_hashes import partition_of
from streaming.laws.pack_routing import Record, parts
from streaming.laws.registry import LAWS
from streaming.laws.routing import policy_shards, routes
from streaming.policy.timeline import PolicyTimeline

Batches = Iterable[pa.RecordBatch]
ROUTED_COLUMNS = pa.schema(
    [
        ("grouping_key", pa.int32()), ("origin", pa.int32()),
        ("partition", pa.int32()), ("offset", pa.int64()),
        ("ts", pa.int64()), ("sent", pa.binary()), ("value", pa.binary()),
    ]
)  # fmt: skip
RECORDS_AT_ONCE: Final = 1024
BYTES_AT_ONCE: Final = 16 * 2**20
"""Read at once, unless a single record is larger: this bounds a task's memory."""
PACKED_BYTES_AT_ONCE: Final = 2 * 2**20
"""The same of packed records, which grow by some times as they are unpacked."""
_NO_TS = 0


def live_router(
    names: tuple[str, ...], shards: int, tasks: int, *, max_ahead_ms: int
) -> Callable[[Batches], Batches]:
    """For live records of all topics.

    Its batches have the columns `schemas.RECORD_COLUMNS`, with any origins but TICK and CUT, and instead of
    the grouping key `routing_key`, which of an EVENT is said.

    Args:
        names: topic of each origin.
        shards: shards per law.
        tasks: of the stateful stage.
        max_ahead_ms: how far an event may lie after its record's timestamp.
    """

    def run(batches: Batches) -> Batches:
        router = _Router(
            shards=shards,
            numbers=grouping_keys_of(shards, tasks),
            origins=(schemas.USAGE, schemas.TICK),
            timeline=None,
            max_ahead_ms=max_ahead_ms,
            name=lambda partition, offset: f"{names[schemas.USAGE]}-{partition}-{offset}",
        )
        for batch in batches:
            records = batch.select(ROUTED_COLUMNS.names[2:])
            origins = batch["origin"].to_numpy()
            for origin in np.unique(origins).tolist():
                some = chosen(records, pa.array(origins == origin))
                if origin == schemas.EVENT:
                    yield router.route_requests(chosen(batch, pa.array(origins == origin)))
                elif origin in schemas.PACKED:
                    yield from router.route_packs(some, names[origin], schemas.CUT[origin], origin)
                elif origin == schemas.POLICY:
                    yield from router.route_policies(some)
                else:
                    yield from router.route(some)

    return run


def line_router(
    names: tuple[str, ...], policies: tuple[bytes, bytes], shards: int, tasks: int
) -> Callable[[Batches], Batches]:
    """For a replay's lines: every event goes to the routing key of the quota that was in force at its time.

    Args:
        names: base names of the files.
        policies: the timeline of all policies, as JSON.
        shards: shards per law.
        tasks: of the stateful stage.
    """

    def run(batches: Batches) -> Batches:
        router = _Router(
            shards=shards,
            numbers=grouping_keys_of(shards, tasks),
            origins=(schemas.EVENT, schemas.POLICY),
            timeline=PolicyTimeline.from_json(*policies),
            # Lines have no timestamp to be ahead of.
            max_ahead_ms=MAX_AHEAD_MS,
            name=lambda file, line: f"{names[file]}:{line}",
        )
        for batch in batches:
            none = (pa.nulls(len(batch), form) for form in (pa.int64(), pa.binary()))
            columns = [batch["file"], batch["line"], *none, batch["value"]]
            yield from router.route(pa.record_batch(columns, ROUTED_COLUMNS.names[2:]))

    return run


@dataclass(frozen=True, slots=True, kw_only=True)
class _Router:
    """Routes the records of one topic, or of a replay.

    Attributes:
        shards: shards per law.
        numbers: per law, the number of each of its shards.
        origins: what stands in that column for a record for one routing key, and for one for all.
        timeline, max_ahead_ms: see `routes`.
        name: id of a record that names none, by partition and offset.
    """

    shards: int
    numbers: dict[str, list[int]]
    origins: tuple[int, int]
    timeline: PolicyTimeline | None
    max_ahead_ms: int
    name: Callable[[int, int], str]

    def route(self, batch: pa.RecordBatch) -> Batches:
        """Route records as the contract's parser reads them, one by one.

        Args:
            batch: columns `partition`, `offset`, `ts`, `sent` (null: none) and `value`.
        """
        for records in _stretches(batch, BYTES_AT_ONCE):
            columns = (records[name].to_pylist() for name in ("partition", "offset", "ts", "value"))
            found = (
                (i, route)
                for i, (partition, offset, ts, value) in enumerate(zip(*columns, strict=True))
                for route in routes(
                    value, default_id=self.name(partition, offset), default_ts=ts, shards=self.shards,
                    timeline=self.timeline, max_ahead_ms=self.max_ahead_ms,
                )
            )  # fmt: skip
            for some in some_at_a_time(found, BYTES_AT_ONCE, lambda one: len(one[1].value)):
                yield _routed(
                    records,
                    np.array([i for i, _ in some], dtype=np.int64),
                    np.array([self.numbers[route.law][route.shard] for _, route in some], dtype=np.int64),
                    np.array([self.origins[route.for_all] for _, route in some], dtype=np.int64),
                    pa.array([route.value for _, route in some], pa.binary()),
                )

    def route_requests(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Route single requests by the column `routing_key`, which is not asked what it says."""
        numbers = np.array(self.numbers[LAWS.on_requests.name])
        keys = numbers[partition_of(batch["routing_key"], self.shards)]
        columns = [pa.array(keys), *(batch[name] for name in ROUTED_COLUMNS.names[1:])]
        return pa.RecordBatch.from_arrays(columns, ROUTED_COLUMNS.names).cast(ROUTED_COLUMNS)

    def route_policies(self, batch: pa.RecordBatch) -> Batches:
        """Route records of the topic of policies, with the same columns."""
        # Of fewer records, whose copies for all shards are no more than that; of a larger one some.
        for records in _stretches(batch, BYTES_AT_ONCE // sum(map(len, self.numbers.values()))):
            times, values = (records[name].to_pylist() for name in ("ts", "value"))
            copies = list(map(self._policy_keys, values, times))
            keys = np.array([*chain.from_iterable(copies)], dtype=np.int64)
            record = np.repeat(np.arange(len(copies)), list(map(len, copies)))
            step = max(1, BYTES_AT_ONCE // max(1, *map(len, values)))
            for first in range(0, len(keys), step):
                own = record[first : first + step]
                copied = records["value"].take(pa.array(own))
                origins = np.full(len(own), schemas.POLICY)
                yield _routed(records, own, keys[first : first + step], origins, copied)

    def _policy_keys(self, value: bytes, ts: int) -> list[int]:
        """The number of each shard that must see a record of the topic of policies."""
        keys: list[int] = []
        for law, shards in policy_shards(value, default_ts=ts, shards=self.shards):
            keys += self.numbers[law][shards.start : shards.stop]
        return keys

    def route_packs(self, batch: pa.RecordBatch, topic: str, cut: int, whole: int) -> Batches:
        """Route packed records of one topic, with the same columns.

        Args:
            batch: the records.
            topic: where they come from.
            cut, whole: origins of what was cut out of records, and of a record as it came.
        """
        for records in _stretches(batch, PACKED_BYTES_AT_ONCE):
            columns = (records.column(name).to_pylist() for name in ("partition", "offset", "ts"))
            values = [value.as_buffer() for value in records["value"]]
            given = list(map(Record, values, *columns))
            requests = whole == schemas.PACKED_EVENT
            found = parts(
                given, topic=topic, shards=self.shards, max_ahead_ms=self.max_ahead_ms, requests=requests
            )
            for some in some_at_a_time(found, BYTES_AT_ONCE, lambda part: len(part.value)):
                # Of some laws, rows of several records are together; nothing is known of those.
                lone = [not part.cut or LAWS.by_name[part.law].plain is None for part in some]
                yield _routed(
                    records,
                    np.array([part.record for part in some], dtype=np.int64),
                    np.array([self.numbers[part.law][part.shard] for part in some], dtype=np.int64),
                    np.array([cut if part.cut else whole for part in some], dtype=np.int64),
                    pa.array([part.value for part in some], pa.binary()),
                    pa.array(lone, pa.bool_()),
                )


def _routed(
    records: pa.RecordBatch, record: Integers, keys: Integers, origins: Integers, values: pa.Array,
    lone: pa.Array | None = None,
) -> pa.RecordBatch:  # fmt: skip
    """Rows of ROUTED_COLUMNS, each made from one of the records, or, if not `lone`, from several."""
    source = records.select(["partition", "offset", "ts", "sent"]).take(pa.array(record))
    return pa.RecordBatch.from_arrays(
        [
            pa.array(keys, pa.int32()),
            pa.array(origins, pa.int32()),
            source["partition"].cast(pa.int32()),
            source["offset"],
            source["ts"].fill_null(_NO_TS),
            source["sent"] if lone is None else pc.if_else(lone, source["sent"], None),
            values,
        ],
        schema=ROUTED_COLUMNS,
    )


def _stretches(batch: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
    """The records to read at once, in turn, of at most `size` bytes."""
    ends = bytes_in(batch["value"])[1]
    first, count = 0, len(batch)
    while first < count:
        most = int(np.searchsorted(ends, ends[first] + size, side="right")) - 1
        last = min(max(most, first + 1), first + RECORDS_AT_ONCE, count)
        yield batch.slice(first, last - first)
        first = last
