"""The usual way to keep state per key in PySpark, for comparison: one group, and one frame, a principal.

The same law from the same functions, the same events, the same sink; no policies that change, no late
requests, no dead letters, no tables: less work than the job does for an event.
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

from benchmarks.load.events import BURST, RATE
from streaming.columns.compiled import machine
from streaming.contract.topics import Topics
from streaming.laws.mutation import law, rates
from streaming.laws.mutation.law import REJECT, STRICT

bucket_wait_ms, refill = machine(rates.bucket_wait_ms), machine(rates.refill)
charge_bucket, outcome_of = machine(law.charge_bucket), machine(law.outcome_of)
_OUTPUT: Final = "key string, value binary"
_STATE: Final = "tokens double, last bigint"


def start_idiom(
    spark: SparkSession, *, bootstrap: str, topics: Topics, checkpoint: Path, batch: int
) -> StreamingQuery:
    """Decide the requests that are there, then end.

    Args:
        spark: the session.
        bootstrap: `HOST:PORT` of the cluster.
        topics: of which the requests are read and the decisions written.
        checkpoint: folder of its own.
        batch: requests in one batch.
    """
    source = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topics.requests)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", batch)
        .load()
    )
    writer = decided(source).writeStream.format("kafka").outputMode("update")
    writer = writer.option("kafka.bootstrap.servers", bootstrap).option("topic", topics.decisions)
    return writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()


def decided(kafka: DataFrame) -> DataFrame:
    """Records of requests to records of decisions, one group a principal."""
    rows = kafka.select(
        F.col("key").cast("string").alias("subject"), F.unix_millis("timestamp").alias("ts"), "value"
    )
    grouped = rows.groupBy("subject")
    return grouped.applyInPandasWithState(_decide, _OUTPUT, _STATE, "update", GroupStateTimeout.NoTimeout)


def _decide(key: Any, chunks: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    tokens, last = state.get if state.exists else (BURST, 0)
    values: list[bytes] = []
    for chunk in chunks:
        for ts, value in zip(chunk["ts"].tolist(), chunk["value"].tolist(), strict=True):
            event = orjson.loads(value)
            items = event["items"]
            gone = np.zeros(len(items), dtype=np.bool_)
            now = max(ts, last)
            tokens = refill(tokens, RATE, BURST, now - last)
            mutations = np.array([item["mutations"] for item in items], dtype=np.float64)
            tokens, last = charge_bucket(tokens, mutations, gone, STRICT, False), now
            rejected = outcome_of(STRICT, tokens < 0.0, gone) == REJECT
            values.append(
                orjson.dumps(
                    {
                        "type": "admission",
                        "id": event["id"],
                        "ts": ts,
                        "subject": key[0],
                        "outcome": "reject" if rejected else "allow",
                        "throttle_time_ms": bucket_wait_ms(tokens, RATE) if rejected else 0,
                        "rejected": [item["name"] for item, out in zip(items, gone, strict=True) if out],
                        "tokens": tokens,
                        "limit": RATE,
                    }
                )
            )
    state.update((tokens, last))
    yield pd.DataFrame({"key": [key[0]] * len(values), "value": values})
