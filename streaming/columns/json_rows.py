"""Rows of columns as JSON objects, written column by column; the bytes are those that orjson would write."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from streaming.columns.json_columns import POLICY_VALUE
from streaming.columns.packed import stretch

_NULLS: Final[Mapping[str, frozenset[str]]] = {
    "admission": frozenset({"algorithm", "limit"}),
    "share": frozenset({"limits"}),
    "dispatch": frozenset({"available.msgs", "available.bytes", "limited_by", "entries_to_read"}),
    "backlog": frozenset({"ledgers.closeTime", "oldestBacklogMessageSubscriptionName"}),
    "policy": frozenset({POLICY_VALUE}),
}
"""By `type`, the fields that docs/contract.md says to be null; any other that is null is absent."""
_ROWS_AT_ONCE: Final = 16_384
_TEXT: Final = pa.large_string()
_SPECIAL: Final = r'[\x00-\x1f"\\]'
"""What stands in JSON by an escape."""


def objects(type: str | None, rows: pa.RecordBatch, end: str = "") -> pa.LargeBinaryArray:
    """Each row as its JSON object: `type`, then the columns in order, without spaces.

    Null is absent, but where docs/contract.md writes it.

    Args:
        type: of all rows; None: the columns say it.
        rows: numbers, texts, bools, lists, maps with texts as keys, structs, dictionaries of these.
        end: what follows each.
    """
    nulls = _NULLS.get(type or "", frozenset())
    head = "{" if type is None else f'{{"type":{orjson.dumps(type).decode()}'
    names = [quoted_text(name) for name in rows.schema.names]
    parts = []
    for first in range(0, rows.num_rows, _ROWS_AT_ONCE):
        piece = rows.slice(first, _ROWS_AT_ONCE)
        members = _members(names, rows.schema.names, piece.columns, "", nulls)
        if type is None:
            members = [_without_first(_joined(members, len(piece)))]
        parts.append(_joined([_one(head), *members, _one("}" + end)], len(piece)))
    written = pa.chunked_array(parts, _TEXT).combine_chunks()
    return written.cast(pa.large_binary())


def quoted_text(text: str) -> str:
    """One text as JSON."""
    return orjson.dumps(text).decode()


def quoted(texts: pa.Array) -> pa.Array:
    """Texts as JSON, Arrow large_string; null stays null."""
    texts = texts.cast(_TEXT)
    whole = pc.binary_join_element_wise(_one('"'), texts, _one('"'), _one(""))
    if not _has_special(texts):
        return whole
    special = pc.match_substring_regex(texts, _SPECIAL).fill_null(False)
    escaped = [quoted_text(text) for text in texts.filter(special).to_pylist()]
    return pc.replace_with_mask(whole, special, pa.array(escaped, _TEXT))


def _has_special(texts: pa.Array) -> bool:
    _, ends, data = texts.buffers()
    if not len(texts) or data is None:
        return False
    bounds = np.frombuffer(ends, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    signs = np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]]
    return bool(((signs < 32) | (signs == ord('"')) | (signs == ord("\\"))).any())


def _members(
    quoted_names: Sequence[str], names: Sequence[str], columns: Sequence[pa.Array], path: str,
    nulls: frozenset[str],
) -> list[pa.Array | pa.Scalar]:  # fmt: skip
    """Of each column its part of every object: a comma, its name and value, or nothing; in pieces."""
    members: list[pa.Array | pa.Scalar] = []
    for key, name, column in zip(quoted_names, names, columns, strict=True):
        absent = f",{key}:null" if path + name in nulls else ""
        if _is_one(column):
            same = _values(column.slice(0, 1), path + name, nulls)[0].as_py()
            members.append(_one(f",{key}:{same}"))
            continue
        members += _member(_one(f",{key}:"), column, path + name, absent, nulls)
    return members


def _is_one(column: pa.Array) -> bool:
    """Whether a column says the same in every row, as far as that is quickly seen: to join it costs most."""
    kind = column.type
    if column.null_count or not len(column):
        return False
    if pa.types.is_dictionary(kind):
        return _is_one(column.indices)
    if pa.types.is_boolean(kind):
        return column.true_count in (0, len(column))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return bool(column.offsets[0] == column.offsets[len(column)])
    if not (pa.types.is_integer(kind) or pa.types.is_float64(kind)):
        return False
    # Bits, since 0.0 is -0.0 and NaN is not NaN.
    values = column.to_numpy(zero_copy_only=False).view(f"u{kind.bit_width // 8}")
    return bool(values[0] == values[-1] and (values == values[0]).all())


def _fused(parts: Sequence[pa.Array | pa.Scalar]) -> list[pa.Array | pa.Scalar]:
    """The same with texts that stand side by side in every row as one."""
    fused: list[pa.Array | pa.Scalar] = []
    for part in parts:
        if fused and isinstance(part, pa.Scalar) and isinstance(fused[-1], pa.Scalar):
            fused[-1] = _one(fused[-1].as_py() + part.as_py())
        else:
            fused.append(part)
    return fused


def _member(
    begin: pa.Array | pa.Scalar, column: pa.Array, path: str, absent: str, nulls: frozenset[str]
) -> list[pa.Array | pa.Scalar]:
    values = _values(column, path, nulls)
    if not values.null_count:
        # Not joined yet: each joining copies all texts.
        return [begin, values]
    return [pc.binary_join_element_wise(begin, values, _one("")).fill_null(absent)]


def _values(column: pa.Array, path: str, nulls: frozenset[str]) -> pa.Array:
    """Each value as JSON, Arrow large_string; null stays null."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        if len(column.dictionary) > len(column):
            return _values(column.dictionary_decode(), path, nulls)
        return _values(column.dictionary, path, nulls).take(column.indices)
    if pa.types.is_floating(kind):
        return _doubles(column)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        texts = quoted(column)
        if path != POLICY_VALUE or path not in nulls:
            return texts
        # An object that no column holds beside the others stands there as JSON.
        return pc.if_else(pc.starts_with(column, "{"), column.cast(_TEXT), texts)
    if pa.types.is_struct(kind):
        names = [kind.field(number).name for number in range(kind.num_fields)]
        members = _members([quoted_text(name) for name in names], names, column.flatten(), f"{path}.", nulls)
        return _enclosed("{", _without_first(_joined(members, len(column))), "}", column)
    if pa.types.is_map(kind):
        return _map(column, path, nulls)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        elements = _values(column.values.slice(*stretch(column)), path, nulls).fill_null("null")
        return _enclosed("[", pc.binary_join(_lists(column, elements), _one(",")), "]", column)
    # Integers, bool and null are written as Arrow writes them.
    return column.cast(_TEXT)


def _map(column: pa.Array, path: str, nulls: frozenset[str]) -> pa.Array:
    keys, items = (part.slice(*stretch(column)) for part in (column.keys, column.items))
    begin = pc.binary_join_element_wise(_one(","), quoted(keys), _one(":"), _one(""))
    entries = pc.binary_join_element_wise(*_member(begin, items, path, "", nulls), _one(""))
    return _enclosed("{", _without_first(pc.binary_join(_lists(column, entries), _one(""))), "}", column)


def _lists(column: pa.Array, elements: pa.Array) -> pa.Array:
    """Texts of a column's elements, listed as these are."""
    ends = column.offsets.to_numpy().astype(np.int64)
    return pa.LargeListArray.from_arrays(pa.array(ends - ends[0]), elements)


def _doubles(column: pa.Array) -> pa.Array:
    """Doubles as orjson writes them; what is no number is null there."""
    if not len(column):
        return pa.array([], _TEXT)
    numbers = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    written = orjson.dumps(np.ascontiguousarray(numbers), option=orjson.OPT_SERIALIZE_NUMPY)
    signs = np.frombuffer(written, dtype=np.uint8)
    ends = np.empty(len(numbers) + 1, dtype=np.int64)
    ends[0] = 0
    # The bracket that opens is left out, the comma after each is left to the next.
    ends[1:] = np.append(np.flatnonzero(signs == ord(",")), len(signs) - 1)
    texts = pa.LargeStringArray.from_buffers(len(numbers), pa.py_buffer(ends), pa.py_buffer(written))
    texts = _without_first(texts)
    return pc.if_else(column.is_valid(), texts, pa.scalar(None, _TEXT)) if column.null_count else texts


def _joined(members: Sequence[pa.Array | pa.Scalar], count: int) -> pa.Array:
    if not members:
        return pa.repeat(_one(""), count)
    fused = _fused(members)
    if isinstance(fused[0], pa.Scalar) and len(fused) == 1:
        return pa.repeat(fused[0], count)
    return pc.binary_join_element_wise(*fused, _one(""))


def _without_first(texts: pa.Array) -> pa.Array:
    """Texts without the sign in ASCII that each begins with."""
    return pc.binary_replace_slice(texts, 0, 1, "")


def _enclosed(begin: str, texts: pa.Array, end: str, column: pa.Array) -> pa.Array:
    whole = pc.binary_join_element_wise(_one(begin), texts, _one(end), _one(""))
    return pc.if_else(column.is_valid(), whole, pa.scalar(None, _TEXT)) if column.null_count else whole


def _one(text: str) -> pa.Scalar:
    return pa.scalar(text, _TEXT)
