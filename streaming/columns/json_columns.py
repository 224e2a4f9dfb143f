"""JSON objects as columns, for packed records and Parquet files: the way back of `json_rows`."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import orjson
import pyarrow as pa

MAPS: Final = frozenset({"usage", "limits", "acquired"})
"""Fields whose objects are keyed by names."""
POLICY_VALUE: Final = "value"
"""A policy's: an object, of the mode a text."""
_SAMPLES: Final = "samples"
_DID_DROP: Final = 3
"""Place of the flag in a sample of docs/contract.md 3.4."""
_EXACT: Final = 2**53
"""Every integer up to this is a double."""
_NUMBERS: Final = frozenset({"avg_publish_entry_bytes", "decided.tokens", "limit", "tokens"})
"""Fields in which integers and doubles may stand side by side. Elsewhere one that is wrong would make all
that are right doubles, which no reader takes for integers."""


class Unlike(Exception):
    """Values that no column can hold as they are."""


def columns_of(objects: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    """The union of the fields of some objects as columns, in the order in which they are first seen.

    A field that an object lacks, and one that is null there, is null.

    Raises:
        Unlike: a field has values of different kinds, or a number beyond 64 bits.
    """
    names = list(dict.fromkeys(name for one in objects for name in one))
    columns = [_column([one.get(name) for one in objects], name) for name in names]
    return pa.RecordBatch.from_arrays(columns, names)


def _column(values: list[Any], name: str) -> pa.Array:
    if name == _SAMPLES:
        values = list(map(_flags_as_numbers, values))
    if name != POLICY_VALUE:
        return _as_they_are(values, name)
    with suppress(Unlike):
        column = _as_they_are(values, name)
        # Parquet has no object without fields.
        if "struct<>" not in str(column.type):
            return column
    # Of the mode and of others, or one field as a number and as a text.
    texts = [
        value if value is None or type(value) is str else orjson.dumps(value).decode()
        for value in values
    ]
    return pa.array(texts, pa.string())


def _as_they_are(values: list[Any], name: str) -> pa.Array:
    kind = _kind(values, name)
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, OverflowError, TypeError) as error:
        raise Unlike(f"{name}: {error}") from error


def _flags_as_numbers(samples: Any) -> Any:
    """Round trips with 0 or 1 for did_drop, as packed records have it: a list there holds integers alone."""
    if type(samples) is not list:
        return samples
    return [
        [*one[:_DID_DROP], int(one[_DID_DROP])]
        if type(one) is list and len(one) == _DID_DROP + 1 and type(one[_DID_DROP]) is bool
        else one
        for one in samples
    ]


def _kind(values: Iterable[Any], name: str) -> pa.DataType:
    """The type of a column that holds these values as they are."""
    there = [value for value in values if value is not None]
    kinds = {type(value) for value in there}
    if not kinds:
        return pa.null()
    if kinds == {int, float} and name in _NUMBERS and all(abs(value) <= _EXACT for value in there):
        return pa.float64()
    if len(kinds) > 1:
        raise Unlike(f"{name}: {' and '.join(sorted(kind.__name__ for kind in kinds))}")
    (kind,) = kinds
    if kind is list:
        return pa.list_(_kind((item for value in there for item in value), name))
    if kind is dict:
        keys = dict.fromkeys(key for value in there for key in value)
        if name in MAPS:
            items = (item for value in there for item in value.values())
            return pa.map_(pa.string(), _kind(items, f"{name}.*"))
        return pa.struct([(key, _kind((value.get(key) for value in there), f"{name}.{key}")) for key in keys])
    return {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}[kind]
