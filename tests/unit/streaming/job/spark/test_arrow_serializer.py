"""What goes back to the JVM: output and states of groups, in batches that Arrow can hold."""

from collections.abc import Iterable, Iterator
from io import BytesIO
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.state import GroupState
from pyspark.sql.types import BinaryType, StructField, StructType
from spark_kit import group_state

from streaming.job.spark import arrow_serializer
from streaming.job.spark.arrow_serializer import Columns, ColumnSerializer

START_BYTES = 4
"""Of the number that announces a stream."""
ROW = pa.struct([("value", pa.binary())])


def called(*groups: list[int]) -> Iterator[Any]:
    """What pyspark's worker hands on of groups that give chunks of one row of so many bytes."""
    for sizes in groups:
        state = group_state()

        def outputs(sizes: list[int] = sizes, state: GroupState = state) -> Iterable[Columns]:
            for size in sizes:
                yield [pa.array([b"x" * size])]
            state.update((b"body of %d" % len(sizes),))

        state._value_schema = StructType([StructField("body", BinaryType())])
        yield [(outputs(), state, ROW)]


def written(monkeypatch: pytest.MonkeyPatch, *groups: list[int]) -> list[tuple[list[int], int]]:
    """Sizes of the rows, and the number of states, of each batch that is written."""
    monkeypatch.setattr(ColumnSerializer, "columnar", True)
    stream = BytesIO()
    made: Any = ColumnSerializer
    made("UTC", False, True, StructType(), 100, False, False).dump_stream(called(*groups), stream)
    batches = list(pa.ipc.open_stream(stream.getvalue()[START_BYTES:]))
    found = []
    for counts, data, states in (batch.to_struct_array().flatten() for batch in batches):
        count = counts[0].as_py()
        rows = [len(row["value"]) for row in data.to_pylist()[: count["dataCount"]]]
        bodies = [state["object"] for state in states.to_pylist()[: count["stateCount"]]]
        assert len(data) == max(count.values()) and all(bodies)
        found.append((rows, len(bodies)))
    return found


def test_usual_groups_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    assert written(monkeypatch, [10, 20], [], [30]) == [([10, 20, 30], 3)]


def test_much_goes_in_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one group, its state behind its last row; and of several, by outputs and states."""
    monkeypatch.setattr(arrow_serializer, "_BYTES_AT_ONCE", 1_000)
    assert written(monkeypatch, [600, 600, 300, 900], [10]) == [
        ([600, 600], 0), ([300, 900], 0), ([10], 2)
    ]  # fmt: skip
    assert written(monkeypatch, *[[400]] * 5) == [([400] * 3, 2), ([400] * 2, 3)]
    monkeypatch.setattr(arrow_serializer, "_BYTES_AT_ONCE", 10)
    assert written(monkeypatch, [], [], []) == [([], 1)] * 3
