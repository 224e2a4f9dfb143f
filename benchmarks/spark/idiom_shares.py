"""The usual way to share groups out in PySpark, for comparison: one group, and one frame, a resource group.

The same law from the same function, the same reports, the same sink; one dimension, nobody expires, nothing
is stale, no policies that change, nothing is repeated: less work than the job does for a report.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import orjson
import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from benchmarks.load.rounds import LIMIT, ROUND_MS
from streaming.contract.topics import Topics
from streaming.laws.shares.law import FREE, THROTTLED, share_out

_REPORT: Final = (
    "broker string, ts bigint, period_ms bigint,"
    " usage map<string, struct<publishedBytes: bigint, throttledMs: map<string, bigint>>>"
)
_OUTPUT: Final = "key string, value binary"
_STATE: Final = "round bigint, members binary"
_DIMENSION: Final = "publishRateInBytes"
_HUNGRY_PARTS: Final = 20


def start_idiom(spark: SparkSession, *, bootstrap: str, topics: Topics, checkpoint: Path) -> StreamingQuery:
    """Share out by the reports that are there, then end.

    Args:
        spark: the session.
        bootstrap: `HOST:PORT` of the cluster.
        topics: of which the reports are read and the decisions written.
        checkpoint: folder of its own; started again on it, the query goes on.
    """
    source = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topics.usage)
        .option("startingOffsets", "earliest")
        .load()
    )
    writer = shared_out(source).writeStream.format("kafka").outputMode("update")
    writer = writer.option("kafka.bootstrap.servers", bootstrap).option("topic", topics.decisions)
    return writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()


def shared_out(kafka: DataFrame) -> DataFrame:
    """Records of reports to records of decisions, one group a resource group."""
    report = F.from_json(F.col("value").cast("string"), _REPORT).alias("report")
    entries = kafka.select(report).select(
        "report.broker", "report.ts", "report.period_ms", F.explode("report.usage").alias("group", "use")
    )
    rows = entries.select(
        "group", "broker", "ts",
        (F.col("use.publishedBytes") * 1000 / F.col("period_ms")).alias("used"),
        (F.col("use.throttledMs")[_DIMENSION] * _HUNGRY_PARTS >= F.col("period_ms")).alias("throttled"),
    )  # fmt: skip
    grouped = rows.groupBy("group")
    return grouped.applyInPandasWithState(_share, _OUTPUT, _STATE, "update", GroupStateTimeout.NoTimeout)


def _share(key: Any, chunks: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    number, raw = state.get if state.exists else (-1, b"{}")
    members: dict[str, list[Any]] = orjson.loads(raw)
    values: list[bytes] = []
    for row in pd.concat(chunks).sort_values("ts").itertuples():
        own = row.ts // ROUND_MS
        if own > number >= 0:
            values += _close(key[0], number, members)
        number = own
        last = members.get(row.broker, [0.0, FREE, None])[2]
        members[row.broker] = [row.used, THROTTLED if row.throttled else FREE, last]
    state.update((number, orjson.dumps(members)))
    yield pd.DataFrame({"key": [key[0]] * len(values), "value": values})


def _close(group: str, number: int, members: dict[str, list[Any]]) -> list[bytes]:
    names = sorted(members)
    used = np.array([members[name][0] for name in names])
    throttled = np.array([members[name][1] for name in names], dtype=np.int8)
    last = np.array([np.nan if members[name][2] is None else members[name][2] for name in names])
    shares = share_out(LIMIT, used, throttled, last)
    values = []
    for name, share in zip(names, shares.tolist(), strict=True):
        members[name][2] = share
        decision = {
            "type": "share", "id": f"{group}/{name}@{number}", "ts": (number + 1) * ROUND_MS, "group": group,
            "broker": name, "round": number, "usage": {_DIMENSION: members[name][0]},
            "limits": {_DIMENSION: share}, "shadow": False, "ttl_ms": 3 * ROUND_MS,
        }  # fmt: skip
        values.append(orjson.dumps(decision))
    return values
