"""The one stateful operator: all records of a (law, shard) in, decisions and dead letters out.

It only carries data between Spark and `streaming.laws.shard.step`; no arithmetic here.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
from pyspark.accumulators import Accumulator
from pyspark.sql import DataFrame
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from streaming.contract.decisions import DEADLETTER, Outputs
from streaming.job import schemas
from streaming.job.fit import fit
from streaming.job.handover import Columns, GroupFunction, takes_columns
from streaming.job.places import places_of
from streaming.job.tally import Tally, tally_of
from streaming.laws.records import Records, StepContext
from streaming.laws.shard import STATE_VERSION, step

_WARM_UP_POLICY = {
    "quotas[user=u]": {"controller_mutation_rate": 1},
    "resourcegroups.g": {"publishRateInMsgs": 1},
    "namespaces.t/n": {"dispatchRate": {"dispatchThrottlingRateInMsg": 1}},
    "backpressure.partitions.*": {"algorithm": "aimd"},
}
_TOPIC = "persistent://t/n/x"
_WARM_UP_EVENTS: dict[str, dict[str, Any]] = {
    "mutation": {
        "type": "request", "user": "u", "subject": "user=u", "items": [{"name": "t", "mutations": 1}],
    },
    "shares": {"type": "group_usage", "broker": "b", "period_ms": 1, "usage": {"g": {"publishedMsg": 1}}},
    "dispatch": {
        "type": "dispatch_usage", "broker": "b", "topic": _TOPIC, "subscription": "s", "msgs": 1, "bytes": 1,
        "entries": 1, "backlog": True,
    },
    "concurrency": {"type": "latency", "partition": "p", "rtt_ns": 1, "inflight": 1},
    "backlog": {"type": "backlog", "topic": _TOPIC, "ledgers": [], "subscriptions": []},
}  # fmt: skip
"""One event that every compiled part of a law sees."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """What the numbers in a record's columns stand for.

    Attributes:
        context: the laws' context, without the time of the batch.
        shards: per law.
        tasks: of the stateful stage.
        names: topic per origin (schemas.EVENT and so on); in a replay base name per file.
        tally: counts what is read and written; None: nobody asks.
    """

    context: StepContext
    shards: int
    tasks: int
    names: tuple[str, ...]
    tally: Accumulator[Tally] | None = None


def decide(records: DataFrame, given: Input) -> DataFrame:
    """Apply the laws: columns of `schemas.RECORD_COLUMNS` in, of `OUTPUT` or `REPLAY_OUTPUT` out.

    No time-outs: with them an idle job writes checkpoints for ever and a replay never ends (design.md
    section 3). Time moves by events.
    """
    output = schemas.REPLAY_OUTPUT if given.context.replay else schemas.OUTPUT
    return records.groupBy("place").applyInPandasWithState(
        group_function(given), output, schemas.STATE, "update", GroupStateTimeout.NoTimeout
    )


def group_function(given: Input) -> GroupFunction:
    """What Spark calls once for each (law, shard) that has records in a batch."""
    replay = given.context.replay

    def run(key: tuple[int], chunks: Iterable[Columns], state: GroupState) -> Iterator[Columns]:
        law, shard = places_of(given.shards, given.tasks).shards[key[0]]
        records = gather(chunks, given)
        body = bytes(state.get[1]) if state.exists else None
        # The batch's time is in Spark's offset log, so a batch that is run again after a crash has the same.
        processed_ts = None if replay else int(state.getCurrentProcessingTimeMs())
        context = replace(given.context, processed_ts=processed_ts)
        body, outputs = step(law, shard, body, records, context)
        state.update((STATE_VERSION, body))
        if given.tally is not None:
            given.tally.add(tally_of(law, records, outputs, state.getCurrentProcessingTimeMs()))
        if outputs.value and replay:
            yield replay_columns(outputs, records)
        elif outputs.value:
            fit(outputs, records)
            yield columns(outputs)

    return takes_columns(run)


def gather(chunks: Iterable[Columns], given: Input) -> Records:
    """One group's records. Spark hands a group over in chunks, in no promised order; the law sorts.

    Args:
        chunks: columns of `schemas.RECORD_COLUMNS`.
        given: what their numbers stand for.
    """
    records = Records(broadcast=[])
    origins: list[int] = []
    for _, *chunk in chunks:
        origin, partition, offset, ts, value = map(_listed, chunk)
        origins += origin
        records.partition += partition
        records.offset += offset
        records.ts += ts
        records.value += value
    records.broadcast = [origin in schemas.BROADCAST for origin in origins]
    if given.context.replay:
        _as_lines(records, given.names)
    else:
        records.topic = [given.names[origin] for origin in origins]
    return records


def _as_lines(records: Records, names: tuple[str, ...]) -> None:
    """Name and number records as the local engine does: by file and line, without a timestamp."""
    records.order = list(zip(records.partition, records.offset, strict=True))
    records.topic = [names[file] for file in records.partition]
    records.name = [f"{base}:{line}" for base, line in zip(records.topic, records.offset, strict=True)]
    records.partition = [0] * len(records.offset)
    records.ts = [None] * len(records.offset)


def _listed(column: pa.Array) -> Any:
    # Several times faster than to_pylist, which makes a scalar object of each value.
    return np.asarray(column.to_numpy(zero_copy_only=False)).tolist()


def columns(outputs: Outputs) -> Columns:
    """Output rows with the columns of `schemas.OUTPUT`."""
    return [
        pa.array([sink == DEADLETTER for sink in outputs.sink], pa.bool_()),
        pa.array(outputs.key, pa.string()),
        pa.array(outputs.value, pa.binary()),
        pa.array(outputs.ts, pa.int64()),
    ]


def replay_columns(outputs: Outputs, records: Records) -> Columns:
    """Output rows with the columns of `schemas.REPLAY_OUTPUT`."""
    arrivals = [records.order_of(position) for position in outputs.source]
    return [
        *columns(outputs),
        pa.array(outputs.type, pa.string()),
        pa.array(outputs.id, pa.string()),
        pa.array([file for file, _ in arrivals], pa.int32()),
        pa.array([line for _, line in arrivals], pa.int64()),
    ]


def warm_up() -> None:
    """Load or compile everything that a batch needs; called by the daemon that workers are forked from.

    Raises:
        Exception: whatever a law raised: better at the start than as a dead letter for every event.
    """
    context = StepContext(initial=_WARM_UP_POLICY, processed_ts=0, fail_fast=True)
    for law, event in _WARM_UP_EVENTS.items():
        records = Records(topic=[""], partition=[0], offset=[0], ts=[0], value=[orjson.dumps(event)])
        step(law, 0, None, records, context)
