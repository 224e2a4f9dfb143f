"""Shares as columns: a row a decision, the fields of docs/contract.md 3.2 in their order."""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming.columns.byte_strings import Integers
from streaming.columns.compiled import lean
from streaming.columns.outputs import DecisionRows
from streaming.contract.usage_events import DIMENSIONS
from streaming.laws.law import Flags
from streaming.laws.row_fields import places
from streaming.laws.shares.columns import SHARE, WIDTH, Told
from streaming.laws.shares.law import Codes, Doubles
from streaming.policy.groups import LIFE_ROUNDS

Ends = NDArray[np.int32]
TYPE: Final = "share"
_DIMENSIONS: Final = pa.array(DIMENSIONS, pa.string())
_REMOVED: Final = pa.array([None, "idle", "expired"], pa.string())
"""By the numbers SHARE, IDLE and EXPIRED."""


def rows_of(
    told: Told, order: Integers, groups: pa.Array, brokers: pa.Array, *, repeat: bool
) -> DecisionRows:
    """What was told.

    Args:
        told: rounds and their decisions; only what is filled counts.
        order: the rounds in the order in which they are told.
        groups: names of all groups.
        brokers: names of all brokers.
        repeat: it is said again.
    """
    rounds, count = told.filled.tolist()
    first = np.append(told.first[:rounds], count)
    each = np.diff(first)[order]
    closed = np.repeat(order, each)
    number = places(first[order], each)
    this_round = pa.array(told.end[closed] // told.every[closed] - 1)
    broker = pa.DictionaryArray.from_arrays(pa.array(told.broker[number].astype(np.int32)), brokers)
    group, shared = groups.take(pa.array(told.group[closed])), told.why[number] == SHARE
    key = pc.binary_join_element_wise(group, brokers.take(broker.indices), "/")
    used, shares = told.used[number], told.shares[number]
    columns = {
        "id": pc.binary_join_element_wise(key, this_round.cast(pa.string()), "@"),
        "ts": pa.array(told.end[closed]),
        "group": group,
        "broker": broker,
        "round": this_round,
        "usage": _rates(used, told.limited[closed], shared),
        "limits": _rates(shares, ~np.isnan(shares), shared),
        "removed": _REMOVED.take(pa.array(told.why[number])),
        "shadow": pa.array(told.shadow[closed]),
        "ttl_ms": pa.array(LIFE_ROUNDS * told.every[closed]),
        "repeat": pa.array(np.ones(len(closed), dtype=np.bool_)),
    }
    if shared.all():
        del columns["removed"]
    if not repeat:
        del columns["repeat"]
    rows = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
    return DecisionRows(type=TYPE, rows=rows, source=told.source[closed], keys=key)


def _rates(rates: Doubles, there: Flags, shared: Flags) -> pa.MapArray:
    """Objects of rates by dimension; null for who has no share any more."""
    ends = np.zeros(len(rates) + 1, dtype=np.int32)
    _count(there, shared, ends)
    places, values = np.empty(ends[-1], dtype=np.int8), np.empty(ends[-1])
    _fill(rates, there, shared, places, values)
    mask = None if shared.all() else pa.array(~shared)
    return pa.MapArray.from_arrays(
        pa.array(ends), _DIMENSIONS.take(pa.array(places)), pa.array(values), mask=mask
    )


@lean
def _count(there: Flags, shared: Flags, ends: Ends) -> None:
    """Fill in where each object's entries end."""
    for row in range(len(shared)):
        ends[row + 1] = ends[row]
        for dimension in range(WIDTH):
            ends[row + 1] += shared[row] and there[row, dimension]


@lean
def _fill(rates: Doubles, there: Flags, shared: Flags, places: Codes, values: Doubles) -> None:
    """Fill in number of the dimension and rate of each entry."""
    entry = 0
    for row in range(len(shared)):
        for dimension in range(WIDTH):
            if shared[row] and there[row, dimension]:
                places[entry], values[entry] = dimension, rates[row, dimension]
                entry += 1
