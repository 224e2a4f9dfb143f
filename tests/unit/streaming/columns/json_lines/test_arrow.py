"""JSON objects read by Arrow: each row is its line's, whatever the lines hold."""

from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from property_kit import tries

from streaming.columns.json_lines.arrow import LINES_AT_ONCE, LINES_MIN, read
from streaming.contract.events import DEPTH_MAX

SCHEMA = pa.schema([("n", pa.int64()), ("a", pa.list_(pa.struct([("b", pa.string())])))])
FILLING = [b'{"n":%d}' % number for number in range(LINES_MIN)]
PIECES = [
    b"{", b"}", b"[", b"]", b",", b":", b'"', b'"n":1', b'"n":2', b'"a":[{"b":"x"}]', b'"x":{"n":3}', b"\n",
    b" ", b"{}", b'{"n":4}', b"\\", b"null", b"NaN", b"1e999", b"-0", b"\xff", b"\xc3\xa9", b"\x00", b"/**/",
    b"\xef\xbb\xbf", b'"a":[null]', b'"x":-Infinity', b'\\ud800', b'"\\u006e":5',
]  # fmt: skip


def rows_of(values: list[bytes] | pa.ChunkedArray) -> dict[int, dict[str, Any]]:
    """What was read, by line."""
    return {
        int(number): row
        for numbers, rows in read(values, SCHEMA)
        for number, row in zip(numbers, rows.to_pylist(), strict=True)
    }


def expected(value: bytes) -> dict[str, Any] | None:
    """What a line's own parser makes of it."""
    try:
        loaded = orjson.loads(value)
    except orjson.JSONDecodeError:
        return None
    return loaded if type(loaded) is dict else None


@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=7).map(b"".join), max_size=12))
@tries(600)
@example([b'{"n":1}{"n":2}', b'{"x":', b'{"n":3}}'])
@example([b'{"n":1}\n{"n":2}', b'{"x":[', b'{"n":3}]}'])
@example([b'{"x":"', b'{"n":3}"}'])
@example([b'{"n":1,"n":2}', b'{"n":1.0}', b'{"n":null}', b'{"n":9223372036854775808}', b'{"x":NaN}'])
def test_a_row_is_its_lines_own(lines: list[bytes]) -> None:
    """Lines that are none, half of one or two do not move the others; what is read is what orjson reads."""
    values = FILLING[: LINES_MIN // 2] + lines + FILLING[LINES_MIN // 2 :]
    for number, row in rows_of(values).items():
        loaded = expected(values[number])
        assert loaded is not None, values[number]
        assert row.get("n") == loaded.get("n")
        listed = [{"b": one.get("b")} for one in loaded["a"]] if "a" in loaded else None
        assert row.get("a") == listed


def test_most_lines_are_read_whatever_stands_between_them() -> None:
    """One that cannot be read costs its neighbours nothing but time."""
    values = [b'{"n":%d,"x":"\\u00e9 \\n"}' % number for number in range(2 * LINES_AT_ONCE)]
    values[1000] = b'{"n":"no"}'
    found = rows_of(values)
    assert set(range(2 * LINES_AT_ONCE)) - set(found) <= set(range(1000 - LINES_MIN, 1001 + LINES_MIN))
    assert all(row["n"] == number for number, row in found.items())


@pytest.mark.parametrize(
    "value",
    [
        b'{"n":1,"x":null}', b'{"n":1,"x":NaN}', b'{"n":1,"x":-Infinity}', b'{"n":1,"x":"\xff"}', b' {"n":1}',
        b"", b"{", b'{"n":1,"x":%s}' % (b"[" * 2000 + b"]" * 2000),
        b'{"n":1,"x":%s}' % (b"[" * DEPTH_MAX + b"]" * DEPTH_MAX),
    ],
)  # fmt: skip
def test_what_arrow_takes_and_the_parser_does_not_is_left_alone(value: bytes) -> None:
    """Without a look at its neighbours."""
    values = [*FILLING, value, *FILLING]
    assert set(rows_of(values)) == set(range(len(values))) - {len(FILLING)}


@given(st.lists(st.sampled_from([*PIECES, b",", b'"x":1', b'"x":true']), max_size=7).map(b"".join))
@tries(300)
@example(b"{}")
@example(b'{"x":1}')
@example(b'{"x":[1],"n":1}')
def test_lines_that_all_say_the_same_are_read_as_others_are(line: bytes) -> None:
    """Whatever the first line says, with lines like it and with others."""
    for values in ([line] * LINES_MIN, [line, *FILLING]):
        for number, row in rows_of(values).items():
            loaded = expected(values[number])
            assert loaded is not None and row.get("n") == loaded.get("n")
            assert set(row) <= {"n", "a"}


def test_few_lines_are_left_to_the_parser() -> None:
    """To begin would cost more than to read them."""
    assert not rows_of(FILLING[1:])


def test_lines_may_come_as_arrow_chunks() -> None:
    """That may be stretches of larger arrays, of any of Arrow's binary types."""
    for kind in (pa.binary(), pa.large_binary()):
        whole = pa.array([b"before", *FILLING, b"between", *FILLING], kind)
        cut = len(FILLING) + 1
        chunks = pa.chunked_array([whole.slice(1, cut - 1), whole.slice(cut, 0), whole.slice(cut)])
        found = {number: row["n"] for number, row in rows_of(chunks).items()}
        own = list(range(len(FILLING)))
        assert found == dict(enumerate(own)) | dict(enumerate(own, start=cut))
