"""The stateless step in Python: records to the shards that must see them (streaming.laws.routing)."""

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from streaming.contract.policy_timeline import PolicyTimeline
from streaming.job import schemas
from streaming.job.places import places_of
from streaming.laws.routing import Origin, Place, places

Batches = Iterable[pa.RecordBatch]
PLACED_COLUMNS = pa.schema(
    [
        ("place", pa.int32()), ("origin", pa.int32()), ("partition", pa.int32()), ("offset", pa.int64()),
        ("ts", pa.int64()), ("value", pa.binary()),
    ]
)  # fmt: skip
_NO_TS = 0
_USAGE_ORIGINS = {Origin.EVENT: schemas.USAGE, Origin.BROADCAST: schemas.TICK}
_LINE_ORIGINS = {Origin.EVENT: schemas.EVENT, Origin.BROADCAST: schemas.POLICY}


def usage_placer(topic: str, shards: int, tasks: int) -> Callable[[Batches], Batches]:
    """For live records of `weir.usage`; its batches have the record columns of `schemas.RECORD_COLUMNS`."""

    def run(batches: Batches) -> Batches:
        numbers = places_of(shards, tasks).numbers
        for batch in batches:
            rows = batch.to_pylist()
            found = [
                places(
                    row["value"],
                    default_id=f"{topic}-{row['partition']}-{row['offset']}",
                    default_ts=row["ts"],
                    shards=shards,
                    timeline=None,
                )
                for row in rows
            ]
            yield _placed(rows, found, numbers, _USAGE_ORIGINS)

    return run


def line_placer(
    names: tuple[str, ...], policies: bytes, shards: int, tasks: int
) -> Callable[[Batches], Batches]:
    """For a replay's lines: every event goes to the home of the quota that was in force at its time.

    Args:
        names: base names of the files.
        policies: the timeline of all policies, as JSON.
        shards: shards per law.
        tasks: of the stateful stage.
    """

    def run(batches: Batches) -> Batches:
        timeline = PolicyTimeline.from_json(policies)
        numbers = places_of(shards, tasks).numbers
        for batch in batches:
            rows = [
                {"partition": row["file"], "offset": row["line"], "ts": _NO_TS, "value": row["value"]}
                for row in batch.to_pylist()
            ]
            found = [
                places(
                    row["value"],
                    default_id=f"{names[row['partition']]}:{row['offset']}",
                    default_ts=None,
                    shards=shards,
                    timeline=timeline,
                )
                for row in rows
            ]
            yield _placed(rows, found, numbers, _LINE_ORIGINS)

    return run


def _placed(
    rows: list[dict[str, Any]],
    found: list[list[Place]],
    numbers: dict[str, list[int]],
    origins: dict[Origin, int],
) -> pa.RecordBatch:
    pairs = [(row, place) for row, own in zip(rows, found, strict=True) for place in own]
    return pa.RecordBatch.from_pydict(
        {
            "place": [numbers[place.law][place.shard] for _, place in pairs],
            "origin": [origins[place.origin] for _, place in pairs],
            "partition": [row["partition"] for row, _ in pairs],
            "offset": [row["offset"] for row, _ in pairs],
            "ts": [row["ts"] for row, _ in pairs],
            "value": [place.value for _, place in pairs],
        },
        schema=PLACED_COLUMNS,
    )
