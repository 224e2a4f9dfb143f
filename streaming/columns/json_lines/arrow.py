"""JSON objects read as Arrow columns, thousands at once: those of one shape by shapes.py, others by Arrow.

It is an accelerator and no second parser: `contract.events.parse` alone says what an event is. Here only what
is surely read like it is read; all else is left. tests/unit/streaming/columns/json_lines/ holds both equal.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from numpy.typing import NDArray

from streaming.columns.byte_strings import Integers, bytes_in
from streaming.columns.json_lines.shapes import BYTES_MAX, Shape
from streaming.contract.events import DEPTH_MAX

Flags = NDArray[np.bool_]
LINES_AT_ONCE: Final = 4096
"""About a megabyte, which stays in the cache while it is looked through and read."""
LINES_MIN: Final = 16
"""Fewer are left: to begin to read costs as much as to read them one by one."""
_LAX: Final = (b"null", b"NaN", b"Inf")
"""Arrow does not tell null from absent, and takes numbers for which JSON has no word."""
_LAX_WORDS: Final = "null|NaN|Inf"
SHAPES: Final = 4
"""That are looked for among some lines: mostly all are of one or two."""
_OPEN, _CLOSE = ord("{"), ord("}")


def read(
    values: Sequence[bytes] | pa.ChunkedArray, schema: pa.Schema
) -> Iterator[tuple[Integers, pa.RecordBatch]]:
    """Those of some JSON objects that are plain, as columns: the numbers of some values, and their rows.

    A key that is absent gives null, or there is no such column where no row says it; keys that are not in
    the schema are passed over. An object that does not fit the schema, says a key of it twice, or says null
    anywhere is left.

    Args:
        values: an object each; a list, or Arrow binary without nulls.
        schema: keys and their types; text, int64, bool, lists and structs.
    """
    options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")

    for first, lines in _pieces(values):
        found, left = _shaped(lines, schema)
        for numbers, rows in found:
            yield first + numbers, rows
        if len(left):
            lines = lines.take(pa.array(left))
            sure = _sure(lines)
            if not sure.all():
                lines = lines.filter(pa.array(sure))
            yield from _rows(first + left[sure], lines, options)


def _pieces(values: Sequence[bytes] | pa.ChunkedArray) -> Iterator[tuple[int, pa.Array]]:
    """The values some at a time as Arrow binary: number of the first, and they."""
    if isinstance(values, pa.ChunkedArray):
        before = 0
        for chunk in values.chunks:
            for first in range(0, len(chunk), LINES_AT_ONCE):
                yield before + first, chunk.slice(first, LINES_AT_ONCE)
            before += len(chunk)
        return
    for first in range(0, len(values), LINES_AT_ONCE):
        yield first, pa.array(values[first : first + LINES_AT_ONCE], pa.large_binary())


def _shaped(
    lines: pa.Array, schema: pa.Schema
) -> tuple[list[tuple[Integers, pa.RecordBatch]], Integers]:
    """Numbers and rows of lines that are of the shape of one of them, and the numbers of the others."""
    found, left = [], np.arange(len(lines))
    text, ends = bytes_in(lines)
    for one in range(SHAPES):
        if len(left) < LINES_MIN or ends[-1] - ends[0] > BYTES_MAX:
            break
        try:
            shape = Shape(lines[int(left[one * len(left) // SHAPES])].as_py(), schema)
        except ValueError:
            continue
        taken, rows = shape.read(text, ends, left)
        found.append((left[taken], rows))
        left = left[~taken]
    return found, left


def _rows(
    numbers: Integers, lines: pa.Array, options: pj.ParseOptions
) -> Iterator[tuple[Integers, pa.RecordBatch]]:
    """What can be read of some lines: one that cannot costs that all are read anew in halves."""
    if len(lines) < LINES_MIN:
        return
    rows = _parsed(lines, options)
    if rows is not None:
        yield numbers, rows
    else:
        half = len(lines) // 2
        yield from _rows(numbers[:half], lines.slice(0, half), options)
        yield from _rows(numbers[half:], lines.slice(half), options)


def _parsed(lines: pa.Array, options: pj.ParseOptions) -> pa.RecordBatch | None:
    """The rows of some lines; None: one of them cannot be read.

    A brace that closes and one that opens are never neighbours inside a JSON value, and no text holds the end
    of a line. So each line is one whole value or more, and as many rows as lines means one each.
    """
    text = _in_lines(lines)
    try:
        rows = pj.read_json(
            pa.BufferReader(text), pj.ReadOptions(use_threads=False, block_size=len(text) + 1), options
        )
    except (pa.ArrowException, UnicodeDecodeError):
        return None
    return rows.combine_chunks().to_batches()[0] if len(rows) == len(lines) else None


def _in_lines(lines: pa.Array) -> bytes:
    return b"\n".join(lines.to_numpy(zero_copy_only=False))


def _sure(lines: pa.Array) -> Flags:
    """Which lines Arrow reads as the contract's parser does, or refuses."""
    text, ends = bytes_in(lines)
    sizes = np.diff(ends)
    sure: Flags = sizes >= len("{}")
    sure[sure] = (text[ends[:-1][sure]] == _OPEN) & (text[ends[1:][sure] - 1] == _CLOSE)
    whole = text[ends[0] : ends[-1]].tobytes()
    # From the end: that takes half as long.
    if any(whole.rfind(word) >= 0 for word in _LAX):
        sure &= ~pc.match_substring_regex(lines, _LAX_WORDS).to_numpy(zero_copy_only=False)
    if not whole.isascii():
        sure &= np.array([_is_text(line) for line in lines.to_numpy(zero_copy_only=False)])
    # Arrow reads over what is nested too deeply for the parser.
    long = sizes > 2 * DEPTH_MAX
    if long.any():
        some = lines.filter(pa.array(long))
        begun = pc.add(pc.count_substring(some, "["), pc.count_substring(some, "{"))
        sure[long] &= begun.to_numpy() <= DEPTH_MAX
    return sure


def _is_text(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True
