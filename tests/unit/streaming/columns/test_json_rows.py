"""Rows as JSON objects: the bytes that orjson writes of the same values."""

import math
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pack_kit import json_of

from streaming.columns.json_columns import Unlike, columns_of
from streaming.columns.json_rows import objects

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
INTEGERS = st.integers(-(2**63), 2**63 - 1)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "id": TEXTS,
            "ts": INTEGERS,
            "tokens": NUMBERS,
            "shadow": st.booleans(),
            "rejected": st.lists(TEXTS, max_size=3),
            "items": st.lists(st.tuples(TEXTS, INTEGERS), max_size=3),
            "limits": st.dictionaries(TEXTS, NUMBERS, max_size=3),
            "available": st.fixed_dictionaries({"msgs": INTEGERS}),
        }
    ),
    min_size=1,
    max_size=20,
)


@given(ROWS)
def test_bytes_are_those_of_orjson(rows: list[dict[str, Any]]) -> None:
    # In one order of fields, which Hypothesis does not promise.
    rows = [{name: row[name] for name in sorted(row)} for row in rows]
    for row in rows:
        row["items"] = [{"name": name, "mutations": mutations} for name, mutations in row["items"]]
    expected = json_of([{"type": "x"} | row for row in rows])
    assert objects("x", columns_of(rows)).to_pylist() == expected
    # A piece of columns, and texts that are dictionaries.
    batch = columns_of([*rows, *rows]).slice(1, len(rows))
    names = batch["id"].dictionary_encode()
    batch = batch.set_column(batch.schema.names.index("id"), "id", names)
    assert objects("x", batch).to_pylist() == (expected * 2)[1 : len(rows) + 1]


def test_null_is_absent_but_where_the_contract_says_null() -> None:
    rows = [
        {"limit": None, "late": True, "available": {"msgs": None, "bytes": 3}},
        {"limit": 2.5, "available": {"msgs": 0, "bytes": None}},
        {"limit": None, "late": None, "available": None},
    ]
    batch = columns_of(rows)
    assert objects("admission", batch).to_pylist() == [
        b'{"type":"admission","limit":null,"late":true,"available":{"bytes":3}}',
        b'{"type":"admission","limit":2.5,"available":{"msgs":0}}',
        b'{"type":"admission","limit":null}',
    ]
    assert objects("dispatch", batch)[0].as_py() == (
        b'{"type":"dispatch","late":true,"available":{"msgs":null,"bytes":3}}'
    )


def test_null_in_lists_and_maps() -> None:
    ledgers = [[{"id": 1, "closeTime": 5}, {"id": 2, "closeTime": None}], []]
    batch = columns_of([{"ledgers": one} for one in ledgers])
    assert objects("backlog", batch)[0].as_py() == (
        b'{"type":"backlog","ledgers":[{"id":1,"closeTime":5},{"id":2,"closeTime":null}]}'
    )
    names = pa.array([["a", None], None], pa.list_(pa.string()))
    limits = pa.array([[("x", None), ("y", 1.0)], []], pa.map_(pa.string(), pa.float64()))
    batch = pa.record_batch({"names": names, "limits": limits})
    assert objects("share", batch).to_pylist() == [
        b'{"type":"share","names":["a",null],"limits":{"y":1.0}}',
        b'{"type":"share","limits":{}}',
    ]


def test_what_is_no_number_is_null_as_orjson_has_it() -> None:
    numbers = [math.nan, math.inf, 1.0, None]
    batch = pa.record_batch({"tokens": pa.array(numbers, pa.float64(), from_pandas=False)})
    written = [orjson.loads(line) for line in objects("x", batch).to_pylist()]
    assert written == [{"type": "x", "tokens": None}] * 2 + [{"type": "x", "tokens": 1.0}, {"type": "x"}]


def test_rows_that_say_their_type() -> None:
    batch = columns_of([{"type": "tick", "ts": 1}, {"type": "tick"}])
    assert objects(None, batch).to_pylist() == [b'{"type":"tick","ts":1}', b'{"type":"tick"}']
    assert objects("x", pa.record_batch({"a": pa.array([], pa.string())})).to_pylist() == []


@pytest.mark.parametrize(
    "values", [[1, "a"], [1, 1.5], [2**53 + 1, 1.5], [{"a": 1}, [1]], [2**63], [True, 1], [[1, "a"]]]
)
def test_values_that_no_column_holds_as_they_are_are_refused(values: list[Any]) -> None:
    with pytest.raises(Unlike):
        columns_of([{"field": value} for value in values])


def test_integers_stand_beside_doubles_where_numbers_are_expected() -> None:
    """As far as a double holds them."""
    for rows in ([{"tokens": 1}, {"tokens": 1.5}], [{"decided": {"tokens": one}} for one in (1, 1.5)]):
        assert columns_of(rows).to_pylist() == rows
    with pytest.raises(Unlike):
        columns_of([{"tokens": 2**53 + 1}, {"tokens": 1.5}])
