"""The one stateful operator: all records of a (law, shard) in, decisions and dead letters out.

It only carries data between Spark and `streaming.laws.shard.step`; no arithmetic here and no pandas there.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from streaming.contract.decisions import Outputs
from streaming.job import schemas
from streaming.laws.shard import STATE_VERSION, Records, StepContext, step

_WARM_UP_POLICY = {"quotas[user=u]": {"controller_mutation_rate": 1}}
_WARM_UP_EVENTS = {
    "mutation": b'{"type":"request","user":"u","subject":"user=u","items":[{"name":"t","mutations":1}]}'
}
"""One event that every compiled part of a law sees."""
GroupFunction = Callable[[tuple[Any, ...], Iterator[pd.DataFrame], GroupState], Iterator[pd.DataFrame]]


def decide(records: DataFrame, context: StepContext) -> DataFrame:
    """Apply the laws: columns of `schemas.RECORD_COLUMNS` in, of `schemas.OUTPUT` out.

    No time-outs: with them an idle job writes checkpoints for ever and a replay never ends (design.md
    section 3). Time moves by events.
    """
    return records.groupBy("law", "shard").applyInPandasWithState(
        group_function(context), schemas.OUTPUT, schemas.STATE, "update", GroupStateTimeout.NoTimeout
    )


def group_function(context: StepContext) -> GroupFunction:
    """What Spark calls once for each (law, shard) that has records in a batch."""

    def run(
        key: tuple[Any, ...], chunks: Iterator[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        # Spark documents numpy types for keys; the laws take Python's own.
        law, shard = str(key[0]), int(key[1])
        records = gather(chunks, replay=context.replay)
        body = bytes(state.get[1]) if state.exists else None
        # The batch's time is in Spark's offset log, so a batch that is run again after a crash has the same.
        processed_ts = None if context.replay else int(state.getCurrentProcessingTimeMs())
        body, outputs = step(law, shard, body, records, replace(context, processed_ts=processed_ts))
        if body is not None:
            state.update((STATE_VERSION, body))
        elif state.exists:
            state.remove()
        if outputs.value:
            yield frame(outputs, records)

    return run


def gather(chunks: Iterator[pd.DataFrame], *, replay: bool) -> Records:
    """One group's records. Spark hands a group over in chunks, in no promised order; the law sorts.

    Args:
        chunks: frames with the columns of `schemas.RECORD_COLUMNS`.
        replay: lines of files: they have no record timestamp, but a subject.
    """
    records = Records(broadcast=[])
    for chunk in chunks:
        count = len(chunk)
        records.topic += chunk["topic"].tolist()
        records.partition += chunk["partition"].tolist()
        records.offset += chunk["offset"].tolist()
        # A column of nulls comes as NaN or None depending on its neighbours, so it is not looked at.
        records.ts += [None] * count if replay else chunk["ts"].tolist()
        records.subject += chunk["subject"].tolist() if replay else [None] * count
        records.value += chunk["value"].tolist()
        records.broadcast += chunk["broadcast"].tolist()
    if replay:
        _as_lines(records)
    return records


def _as_lines(records: Records) -> None:
    """Name and number records as the local engine does: by file and line."""
    records.name = [f"{base}:{line}" for base, line in zip(records.topic, records.offset, strict=True)]
    records.order = list(zip(records.partition, records.offset, strict=True))
    records.partition = [0] * len(records.partition)


def frame(outputs: Outputs, records: Records) -> pd.DataFrame:
    """The operator's output rows, columns of `schemas.OUTPUT`."""
    return pd.DataFrame(
        {
            "sink": outputs.sink,
            "key": outputs.key,
            "value": outputs.value,
            "ts": outputs.ts,
            "type": outputs.type,
            "id": outputs.id,
            "file": [records.order_of(position)[0] for position in outputs.source],
            "line": [records.order_of(position)[1] for position in outputs.source],
        }
    )


def warm_up() -> None:
    """Load or compile everything that a batch needs; called by the daemon that workers are forked from.

    Raises:
        Exception: whatever a law raised: better at the start than as a dead letter for every event.
    """
    context = StepContext(initial=_WARM_UP_POLICY, processed_ts=0, fail_fast=True)
    for law, event in _WARM_UP_EVENTS.items():
        records = Records(topic=[""], partition=[0], offset=[0], ts=[0], value=[event], subject=[None])
        step(law, 0, None, records, context)
