"""A shard's state as bytes."""

import pyarrow as pa
import pytest

from streaming.contract.errors import WeirError
from streaming.state.body import Body, decode, encode, packed

BODY = Body(
    columns={"subject": pa.array(["a", "b"]), "tokens": pa.array([0.1 + 0.2, float("inf")])},
    notes={"policies": b"\x00{}", "newest": b"7"},
)


def test_a_body_comes_back_exactly() -> None:
    """Columns, doubles to the last bit, and notes."""
    found = decode(encode(BODY))
    assert found.columns["tokens"].to_pylist() == [0.1 + 0.2, float("inf")]
    assert found.columns["subject"].to_pylist() == ["a", "b"]
    assert found.notes == BODY.notes


def test_an_empty_table_comes_back_empty() -> None:
    """A shard that has only policies."""
    empty = Body(columns={"subject": pa.array([], type=pa.string())}, notes={})
    assert len(decode(encode(empty)).columns["subject"]) == 0


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"garbage",
        encode(BODY)[:50],
        encode(BODY).replace(b"newest", b"\xffewest"),
        packed(pa.RecordBatch.from_pydict({"subject": ["a", "b"]})).replace(b"ab", b"a\xff"),
    ],
)
def test_damaged_bytes_are_named_as_such(raw: bytes) -> None:
    """One error that says what is wrong with the checkpoint."""
    with pytest.raises(WeirError, match="checkpoint is damaged"):
        decode(raw)
