"""The one stateful operator: all records of a (law, shard) in, decisions and dead letters out.

It only carries data between Spark and `streaming.laws.shard.step`; no arithmetic here.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
from pyspark.accumulators import Accumulator
from pyspark.sql import DataFrame
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from streaming.columns.json_columns import columns_of
from streaming.columns.records import NameColumn, Records, unpacked
from streaming.columns.sent import SentBefore
from streaming.contract.errors import StateError
from streaming.contract.events import MAX_AHEAD_MS
from streaming.contract.topics import Topics
from streaming.job import schemas
from streaming.job.blobs.local import FileBlobStore
from streaming.job.blobs.remote import RemoteBlobStore
from streaming.job.grouping_keys import law_of_key
from streaming.job.output_columns import PackRule, limit_record_size, output_columns
from streaming.job.routing import live_router
from streaming.job.spark.arrow_serializer import Columns, GroupFunction, takes_columns
from streaming.job.spark.counts import BatchCounts, counts_of, tried_counts
from streaming.job.spark.memory import give_back, is_unusual
from streaming.laws.law import CandidatePolicies, StepContext
from streaming.laws.name_hashes import partition_of
from streaming.laws.registry import LAWS
from streaming.laws.shard import SENT, STATE_VERSION, step
from streaming.state.body import note_in
from streaming.state.cold_rows import ColdRows

_LATER_MS = 100_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """What the numbers in a record's columns stand for.

    Attributes:
        context: the laws' context, without the time of the batch.
        shards: per law.
        tasks: of the stateful stage.
        names: topic per origin (schemas.EVENT and so on); in a replay base name per file.
        topics: where outputs go; a replay's go to none.
        packing: how many decisions leave as packed records; None: each by itself.
        counts: counts what is read and written; None: nobody asks.
        blob_stores: where rows that are not needed rest; None: all stay in Spark's state.
        candidates: policies that are tried beside those in force.
    """

    context: StepContext
    shards: int
    tasks: int
    names: tuple[str, ...]
    topics: Topics = field(default_factory=Topics)
    packing: PackRule | None = None
    counts: Accumulator[BatchCounts] | None = None
    blob_stores: FileBlobStore | RemoteBlobStore | None = None
    candidates: tuple[CandidatePolicies, ...] = ()


def decide(records: DataFrame, given: Input) -> DataFrame:
    """Apply the laws: columns of `schemas.RECORD_COLUMNS` in, of `OUTPUT` or `REPLAY_OUTPUT` out.

    No time-outs: with them an idle job writes checkpoints for ever and a replay never ends
    (measured). Time moves by events.
    """
    output = schemas.REPLAY_OUTPUT if given.context.replay else schemas.OUTPUT
    return records.groupBy("grouping_key").applyInPandasWithState(
        group_function(given), output, schemas.STATE, "update", GroupStateTimeout.NoTimeout
    )


def group_function(given: Input) -> GroupFunction:
    """What Spark calls once for each (law, shard) that has records in a batch."""
    replay = given.context.replay

    def run(key: tuple[int], chunks: Iterable[Columns], state: GroupState) -> Iterator[Columns]:
        number, law, shard = law_of_key(key[0], given.shards, given.tasks)
        candidate = None if number is None else given.candidates[number]
        body = body_of(state)
        records = gather(chunks, given, body)
        # The batch's time is in Spark's offset log, so a batch that is run again after a crash has the same.
        processed_ts = None if replay else int(state.getCurrentProcessingTimeMs())
        blobs = None if given.blob_stores is None or candidate else given.blob_stores.of(law, shard)
        context = replace(given.context, processed_ts=processed_ts, blobs=blobs)
        body, outputs = step(law, shard, body, records, context.tried(candidate) if candidate else context)
        state.update((STATE_VERSION, body))
        if candidate:
            outputs = outputs.tried(candidate.name)
        if not replay:
            # Before anything is counted: what is too large becomes a dead letter here.
            limit_record_size(outputs, records)
        if given.counts is not None and candidate:
            given.counts.add(tried_counts(candidate.name, law, outputs))
        elif given.counts is not None:
            traffic = blobs.traffic if isinstance(blobs, RemoteBlobStore) else None
            given.counts.add(counts_of(law, records, outputs, state.getCurrentProcessingTimeMs(), traffic))
        for piece in outputs.pieces() if replay else ():
            yield [
                column.cast(pa.binary()) if name == "value" else column
                for name, column in piece.replayed(records).items()
            ]
        if not replay:
            # What is tried each in a record of its own: whoever goes by decisions sees at once whose it is.
            yield from output_columns(outputs, given.topics, None if candidate else given.packing)
        if is_unusual(records):
            del records, outputs
            give_back()

    return takes_columns(run)


def body_of(state: GroupState) -> bytes | None:
    """A shard's body after the batch before; None at its first.

    Raises:
        StateError: a later Weir wrote it.
    """
    if not state.exists:
        return None
    version, body = state.get
    if version > STATE_VERSION:
        raise StateError(
            f"the checkpoint's state is of version {version}, written by a later Weir; this one reads up to"
            f" version {STATE_VERSION}"
        )
    return bytes(body)


def gather(chunks: Iterable[Columns], given: Input, body: bytes | None) -> Records:
    """One group's records, but for copies. Spark hands a group over in chunks, in no promised order; the law
    sorts.

    Args:
        chunks: columns of `schemas.RECORD_COLUMNS`.
        given: what their numbers stand for.
        body: the shard's, after the batch before.
    """
    parts = zip(*(chunk[1:] for chunk in chunks), strict=True)
    origin, partition, offset, ts, sent, value = map(pa.chunked_array, parts)
    origins, partitions, offsets, times = (each.to_numpy() for each in (origin, partition, offset, ts))
    note, count = b"", len(origins)
    if sent.null_count < count:
        before = SentBefore(note_in(body, SENT))
        # A shard may read two topics, as of requests and of who is alive, and these in no common order.
        topics = np.array([given.names.index(name) for name in given.names])[origins]
        place = partitions * len(given.names) + topics
        own = ~before.copies(place, offsets, times, sent.combine_chunks())
        if not own.all():
            origins, partitions, offsets, times = (
                each[own] for each in (origins, partitions, offsets, times)
            )  # fmt: skip
            value = value.filter(pa.array(own))
        note = before.to_bytes()
    broadcast = np.isin(origins, list(schemas.BROADCAST))
    if not given.context.replay:
        records = unpacked(
            topic=NameColumn(given.names, origins), partition=partitions, offset=offsets, ts=times,
            value=value, broadcast=broadcast, packed=origins >= schemas.PACKED_EVENT,
            cut=origins >= schemas.CUT_EVENT,
        )  # fmt: skip
        records.sent, records.copies = note, count - len(origins)
        records.requests = given.names[schemas.EVENT]
        return records
    # As the local engine has them: by file and line, without a timestamp.
    return Records(
        topic=NameColumn(given.names, partitions), partition=np.zeros(len(offsets), dtype=np.int64),
        offset=offsets, ts=None, value=value, file=partitions, broadcast=broadcast,
    )  # fmt: skip


def warm_up() -> None:
    """Load or compile everything that a batch needs; called by the daemon that workers are forked from.

    Raises:
        Exception: whatever a law raised: better at the start than as a dead letter for every event.
    """
    for law in LAWS.by_name.values():
        context = StepContext(initial=law.warm_up.policies, processed_ts=0, fail_fast=True)
        for events in law.warm_up.batches:
            body, _ = step(law.name, 0, None, _records(events), context)
            # Later than anything is kept, so that the idle leave.
            step(law.name, 0, body, _records([{"type": "tick", "ts": _LATER_MS}]), context)
        if not law.on_requests:
            _route(orjson.dumps(law.warm_up.batches[0][0]))
        # Of packed records, and of rows that rest, which no event by itself leads to.
        if law.plain is not None:
            events = law.warm_up.batches[0]
            law.plain(columns_of(events), np.zeros(len(events), dtype=np.int64), MAX_AHEAD_MS)
    ColdRows().take(pa.array(["subject"]))


def _records(events: Sequence[Mapping[str, Any]]) -> Records:
    none, times = [0] * len(events), [int(event.get("ts", 0)) for event in events]
    values = [orjson.dumps(event) for event in events]
    return Records(topic=[""] * len(none), partition=none, offset=none, ts=times, value=values)


def _route(event: bytes) -> None:
    """Take one event through the stateless step."""
    report = pa.record_batch({
        "origin": [schemas.USAGE], "partition": [0], "offset": [0], "ts": [0],
        "sent": pa.nulls(1, pa.binary()), "value": pa.array([event], pa.binary()),
    })  # fmt: skip
    list(live_router(("",) * 3, 1, 1, max_ahead_ms=MAX_AHEAD_MS)([report]))
    partition_of(report["value"], 1)
