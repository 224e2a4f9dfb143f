"""The job's Python worker without Spark and Kafka: the same functions on the same columns, in one process."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Row
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.types import StructType

from streaming.contract.errors import WeirError
from streaming.contract.events import MAX_AHEAD_MS
from streaming.contract.topics import Topics
from streaming.job.blobs.local import SUFFIX, FileBlobStore, segments_folder
from streaming.job.grouping_keys import law_of_key
from streaming.job.operator import Input, group_function, warm_up
from streaming.job.output_columns import PACK_MIN, PackRule
from streaming.job.query import names_of
from streaming.job.routing import ROUTED_COLUMNS, live_router
from streaming.job.spark.arrow_serializer import Columns
from streaming.laws.law import StepContext
from streaming.laws.mutation.table import COLD
from streaming.state.cold_rows import ColdRows
from streaming.state.spilled import SpilledBody

P = ParamSpec("P")
T = TypeVar("T")
_BATCHES_KEPT: Final = 2
"""So many batches back what was discarded stays on the disk; the job keeps 100, and nothing is seen of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What a batch cost and gave.

    Attributes:
        seconds: from its records to its decisions, the state read and written.
        cpu_s: processor time of it.
        written: bytes of the decisions' records.
    """

    seconds: float
    cpu_s: float
    written: int


class LoneWorker:
    """All shards of all laws, one after the other.

    Args:
        folder: where segments lie.
        policies: in force from the start.
        shards: per law, and tasks.
    """

    def __init__(self, folder: Path, policies: dict[str, Any], shards: int) -> None:
        self._stores = FileBlobStore(segments_folder(folder), _BATCHES_KEPT)
        self._given = Input(
            context=StepContext(initial=policies, fail_fast=True), shards=shards, tasks=shards,
            names=names_of(Topics()), blob_stores=self._stores,
            packing=PackRule(least=PACK_MIN, partitions=shards),
        )  # fmt: skip
        self._route = live_router(self._given.names, shards, shards, max_ahead_ms=MAX_AHEAD_MS)
        self._decide = group_function(self._given)
        self._states: dict[int, Any] = {}
        self._offset = 0

    def take(self, records: Sequence[tuple[int, bytes]], ts: int) -> Taken:
        """Take a batch of records that came at `ts` ms, with their origins (schemas.PACKED_EVENT and others).

        Raises:
            WeirError: one became a dead letter.
        """
        origins, values = zip(*records, strict=True)
        numbers = range(self._offset, self._offset + len(values))
        self._offset = numbers.stop
        none = pa.nulls(len(values), pa.binary())
        columns = (origins, [0] * len(values), numbers, [ts] * len(values), none, values)
        batch = pa.record_batch([*map(pa.array, columns)], ROUTED_COLUMNS.names[1:])
        begun, cpu = time.perf_counter(), time.process_time()
        routed = pa.Table.from_batches(self._route([batch]), ROUTED_COLUMNS)
        outputs = [
            chunk
            for key in routed["grouping_key"].unique().to_pylist()
            for chunk in self._group(routed, key, ts)
        ]
        seconds, cpu_s = time.perf_counter() - begun, time.process_time() - cpu
        return Taken(seconds=seconds, cpu_s=cpu_s, written=sum(map(self._bytes_of, outputs)))

    def state_bytes(self) -> int:
        """Bytes of what the newest batch left: bodies, and the segments that they name."""
        size = 0
        for key, (_, body) in self._states.items():
            _, law, shard = law_of_key(key, self._given.shards, self._given.tasks)
            store = self._stores.of(law, shard)
            spilled = SpilledBody.of(body, store)
            names = [*spilled.names.values(), *ColdRows(spilled.body.notes.get(COLD), store).segments]
            size += len(body) + sum((store.folder / f"{name}{SUFFIX}").stat().st_size for name in names)
        return size

    def _group(self, routed: pa.Table, key: int, ts: int) -> list[Columns]:
        """What the records of one law and shard give."""
        own = routed.filter(pc.equal(routed["grouping_key"], key))
        known = self._states.get(key)
        state = GroupState(
            optionalValue=Row(*known or ()), batchProcessingTimeMs=ts, eventTimeWatermarkMs=-1,
            timeoutConf=GroupStateTimeout.NoTimeout, hasTimedOut=False, watermarkPresent=False,
            defined=known is not None, updated=False, removed=False, timeoutTimestamp=-1, keyAsUnsafe=b"",
            valueSchema=StructType(),
        )  # fmt: skip
        outputs = list(self._decide((key,), [batch.columns for batch in own.to_batches()], state))
        self._states[key] = state.get
        return outputs

    def _bytes_of(self, outputs: Columns) -> int:
        topics, keys, values, *_ = outputs
        if pc.any(pc.equal(topics, self._given.topics.deadletter)).as_py():
            raise WeirError(f"a dead letter: {values[0].as_py()!r}")
        return sum(pc.sum(pc.binary_length(column)).as_py() or 0 for column in (keys, values))


_warm: Final = cache(warm_up)


def apart(work: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """What `work` gives in a process of its own, forked from one that is warm as Spark's daemon is."""
    _warm()
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
        return pool.submit(work, *args, **named).result()
