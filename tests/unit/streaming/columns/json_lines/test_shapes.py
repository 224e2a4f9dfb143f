"""Lines of one shape: what is read is what their parser reads, and those that say the same are read."""

from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from property_kit import tries

from streaming.columns.byte_strings import bytes_in
from streaming.columns.json_lines import arrow
from streaming.columns.json_lines.shapes import STEPS_MAX, Shape

_ITEM = pa.struct([("name", pa.string()), ("n", pa.int64())])
_TOLD = pa.struct([("names", pa.list_(pa.string())), ("x", pa.float64())])
SCHEMA = pa.schema(
    [
        ("t", pa.string()), ("n", pa.int64()), ("x", pa.float64()), ("f", pa.bool_()),
        ("items", pa.list_(_ITEM)), ("told", _TOLD),
    ]
)  # fmt: skip
LINE = (
    b'{"t":"a b","n":-12,"other":"?","x":1.5,"f":true,"items":[{"name":"p","n":1,"more":0.25},'
    b'{"name":"","n":0,"more":7}],"told":{"names":["q"],"x":-0.5},"n2":3}'
)
SPACED = LINE.replace(b'":', b'": ').replace(b",", b", ")
VALUES = [
    b'"a b"', b'""', b'"', b"\\", b"\\n", b"\xc3\xa9", b"\x1f", b"\x7f", b"-12", b"-0", b"0", b"00", b"01",
    b"1.5", b"1.", b".5", b"1e5", b"-", b"+1", b"9" * 18, b"9" * 19, b"0.30000000000000004", b"-0.0", b"true",
    b"false", b"null", b"[]", b"[,]", b"]", b"}", b",", b", ", b",  ", b'{"name":"p","n":1,"more":0.25}',
    b'"q"',
    b":", b" ", b"\n", b'"n":1', b'"t":"z",',
]  # fmt: skip
WHOLE = st.integers(-(10**18) + 1, 10**18 - 1)
FRACTION = st.floats(-1e9, 1e9).filter(lambda x: "e" not in repr(x))
NAMES = st.lists(st.text("pq", max_size=2), max_size=3)


def read(lines: list[bytes], show: bytes) -> dict[int, dict[str, Any]]:
    """The rows of lines that are of the shape of one, by number."""
    text, ends = bytes_in(pa.array(lines, pa.large_binary()))
    taken, rows = Shape(show, SCHEMA).read(text, ends, np.arange(len(lines)))
    return dict(zip(np.flatnonzero(taken).tolist(), rows.to_pylist(), strict=True))


def expected(line: bytes) -> dict[str, Any]:
    """What a line's own parser makes of it, without what nobody asks for."""
    said = orjson.loads(line)
    if "items" in said:
        said["items"] = [{key: one[key] for key in ("name", "n") if key in one} for one in said["items"]]
    if "told" in said:
        said["told"] = {key: value for key, value in said["told"].items() if key in ("names", "x")}
    return {key: said[key] for key in SCHEMA.names if key in said}


@st.composite
def changed(draw: st.DrawFn, line: bytes) -> bytes:
    """A line in which some stretches are replaced."""
    for _ in range(draw(st.integers(0, 3))):
        begin = draw(st.integers(0, len(line)))
        end = begin + draw(st.integers(0, 6))
        line = line[:begin] + draw(st.sampled_from(VALUES)) + line[end:]
    return line


@given(st.sampled_from([LINE, SPACED]).flatmap(lambda one: st.tuples(
    st.just(one), st.lists(changed(one), max_size=8))))  # fmt: skip
@tries(600)
@example((LINE, [LINE.replace(b'[{"name":"p"', b'[,{"name":"p"'), LINE.replace(b'["q"]', b'["q"')]))
def test_a_row_is_its_lines_own(case: tuple[bytes, list[bytes]]) -> None:
    """Whatever else stands in the lines."""
    show, lines = case
    rows = read([show, *lines], show)
    assert rows[0] == expected(show)
    for number, row in rows.items():
        assert row == expected([show, *lines][number])


@given(st.lists(st.tuples(st.text("ab%=,{}[]:", max_size=4), WHOLE, st.booleans(), FRACTION, NAMES)))
@tries(100)
def test_lines_that_say_the_same_keys_plainly_are_read(rows: list[Any]) -> None:
    """Else all would be right, and slow."""
    lines = [
        orjson.dumps({"t": t, "n": n, "f": f, "x": x, "items": [{"name": one, "n": n} for one in names]})
        for t, n, f, x, names in [*rows, ("", 0, True, 0.5, ["p"])]
    ]
    assert read(lines, lines[-1]) == {number: orjson.loads(line) for number, line in enumerate(lines)}


@pytest.mark.parametrize(
    "line",
    [
        b"", b"[]", b"{", b"{}", b'{"other":1}', b'{"n":null}', b'{"n":"1"}', b'{"n":1.5}', b'{"t":1}',
        b'{"x":true}', b'{"n":1,"other":{}}', b'{"n":1,"other":[]}', b'{"items":{}}', b'{"items":[1]}',
        b'{"told":{"other":1}}', b'{"n":1,"\\u00e9":1}', b'{"\\"":1,"n":2}', b'{"\\\\":1,"n":2}',
        b'{"\\n":1,"n":2}', b'{"n":1,"other":%s}' % (b"[" * 1000 + b"]" * 1000),
    ],
)  # fmt: skip
def test_a_line_that_shows_no_shape(line: bytes) -> None:
    """It is no object, says nothing that is read, or what no shape can have; above all a key with escapes,
    whose bytes unescaped would stand for other keys."""
    with pytest.raises(ValueError, match=r"\w"):
        Shape(line, SCHEMA)


@pytest.mark.parametrize("line", [b'{"n":1,"n":2}', b'{ "n":1}', b'{"n":1} ', b'{"n" :1}'])
def test_a_line_that_is_not_of_the_shape_that_it_shows(line: bytes) -> None:
    """It says a key twice, or has spaces elsewhere than those that most write."""
    assert not read([line], line)
    assert read([b'{"n":3}'], b'{"n":1}') == {0: {"n": 3}}


def test_a_shape_has_a_bound() -> None:
    """A line of very many keys would cost as many steps of Python."""
    keys = {f"k{number}": 1 for number in range(STEPS_MAX - 2)}
    line = orjson.dumps({**keys, "n": 1})
    assert read([line], line) == {0: {"n": 1}}
    with pytest.raises(ValueError, match="more values"):
        Shape(orjson.dumps({**keys, "more": 1, "n": 1}), SCHEMA)


def test_more_elements_than_there_is_room_for_leave_their_line() -> None:
    """Room is made by the bytes of all lines; the others are read."""
    many = b'{"told":{"names":[%s]}}' % b",".join([b'""'] * 1000)
    one = b'{"told":{"names":[""]}}'
    assert read([one, many, one], one) == {0: orjson.loads(one), 2: orjson.loads(one)}


def test_lines_of_too_many_bytes_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where their texts begin could not be said in 32 bits; Arrow reads them."""
    lines = [b'{"n":%d}' % number for number in range(arrow.LINES_MIN)]
    monkeypatch.setattr(arrow, "Shape", None)
    monkeypatch.setattr(arrow, "BYTES_MAX", len(b"".join(lines)) - 1)
    ((numbers, rows),) = arrow.read(lines, SCHEMA)
    assert rows["n"].to_pylist() == numbers.tolist() == list(range(len(lines)))


def test_lines_of_several_shapes_are_each_read_by_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """As requests and what was decided of them stand in one log; Arrow is not asked."""
    monkeypatch.setattr(arrow, "_sure", None)
    kinds = [b'{"n":%d}', b'{"t":"x","n":%d}', b'{"n":%d,"f":true}']
    lines = [kinds[number % 3] % number for number in range(20 * arrow.LINES_MIN)]
    found = {
        int(number): row
        for numbers, rows in arrow.read(lines[:-20], SCHEMA)
        for number, row in zip(numbers, rows.to_pylist(), strict=True)
    }
    assert found == {number: orjson.loads(line) for number, line in enumerate(lines[:-20])}
