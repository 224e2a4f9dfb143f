"""The usual ways to keep state per key in PySpark, for comparison: one group, and one frame, a key.

The same laws from the same functions, the same events, the same sink, and less work than the job does. Of
partition mutations: no policies that change, no late requests, no dead letters, no tables. Of shares: one
dimension, nobody expires, nothing is stale, no policies that change, nothing is repeated.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import orjson
import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from benchmarks.load.events import BURST, RATE
from benchmarks.load.rounds import LIMIT, ROUND_MS
from streaming.columns.compiled import machine
from streaming.laws.mutation import law, rates
from streaming.laws.mutation.law import REJECT, STRICT
from streaming.laws.shares.law import FREE, THROTTLED, share_out

bucket_wait_ms, refill = machine(rates.bucket_wait_ms), machine(rates.refill)
charge_bucket, outcome_of = machine(law.charge_bucket), machine(law.outcome_of)
_OUTPUT: Final = "key string, value binary"
_TOKENS: Final = "tokens double, last bigint"
_REPORT: Final = (
    "broker string, ts bigint, period_ms bigint,"
    " usage map<string, struct<publishedBytes: bigint, throttledMs: map<string, bigint>>>"
)
_MEMBERS: Final = "round bigint, members binary"
_DIMENSION: Final = "publishRateInBytes"
_HUNGRY_PARTS: Final = 20


def decided(kafka: DataFrame) -> DataFrame:
    """Records of requests to records of decisions, one group a principal."""
    rows = kafka.select(
        F.col("key").cast("string").alias("subject"), F.unix_millis("timestamp").alias("ts"), "value"
    )
    grouped = rows.groupBy("subject")
    return grouped.applyInPandasWithState(_decide, _OUTPUT, _TOKENS, "update", GroupStateTimeout.NoTimeout)


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
    return grouped.applyInPandasWithState(_share, _OUTPUT, _MEMBERS, "update", GroupStateTimeout.NoTimeout)


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
