"""Arrow columns between the JVM and a group's function, without pandas on the way.

pyspark makes pandas Series of every column of every group, concatenates them, and makes Arrow of frames
again: in a batch of a few events that is more work than everything that the laws do. The daemon of our
workers (`streaming.job.process.worker`) puts this in its place for functions marked by `takes_columns`;
others are served as ever. What goes over the wire is pyspark 4.1's own form
(ApplyInPandasWithStateSerializer and, in the JVM, ApplyInPandasWithStateWriter), which is why pyspark is
pinned.
"""

import functools
import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import orjson
import pyarrow as pa
from pyspark.serializers import CPickleSerializer, SpecialLengths
from pyspark.sql.pandas.serializers import ApplyInPandasWithStateSerializer, ArrowStreamSerializer
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.streaming.state import GroupState

_ARROW: Any = ArrowStreamSerializer
_PICKLE: Any = CPickleSerializer()
_WORKER: Any = importlib.import_module("pyspark.worker")
Columns = list[pa.Array]
"""A chunk of a group, or of its output: one array a column, in the order of the schema."""
GroupFunction = Callable[[tuple[Any, ...], Iterable[Columns], GroupState], Iterable[Columns]]
_MARK: Final = "takes_columns"
_COUNTS: Final = pa.struct([("dataCount", pa.int32()), ("stateCount", pa.int32())])
_STATES: Final = pa.struct(
    [
        ("properties", pa.string()), ("keyRowAsUnsafe", pa.binary()), ("object", pa.binary()),
        ("oldTimeoutTimestamp", pa.int64()),
    ]
)  # fmt: skip
_ROWS_AT_ONCE: Final = 20_000
"""Output rows sent at once: the JVM writes them to Kafka while the next group is decided."""
_BYTES_AT_ONCE: Final = 64 * 2**20
"""The same of outputs and states: Arrow's columns end at 2 GiB."""
_stopiteration = _WORKER.fail_on_stopiteration
_pandas_wrapped = _WORKER.wrap_grouped_map_pandas_udf_with_state
_Called = tuple[Iterable[Columns], GroupState, pa.StructType]


def takes_columns(function: GroupFunction) -> GroupFunction:
    """Mark a function for `applyInPandasWithState` whose chunks are Arrow columns, in and out."""
    setattr(function, _MARK, True)
    return function


def install() -> None:
    """Put this in pyspark's place, in the process that workers are forked from."""
    _WORKER.fail_on_stopiteration = _fail_on_stopiteration
    _WORKER.wrap_grouped_map_pandas_udf_with_state = _wrapped
    _WORKER.ApplyInPandasWithStateSerializer = ColumnSerializer


class ColumnSerializer(ApplyInPandasWithStateSerializer):
    """Groups from and to the JVM; as columns if the task's function is marked."""

    columnar = False
    """Of the task at hand: a worker has one at a time and reads its function before its data."""

    def load_stream(self, stream: Any) -> Iterator[Any]:
        """Yield (chunks, state) of each group; a chunk is (columns,), as pyspark's worker takes it."""
        if not ColumnSerializer.columnar:
            yield from super().load_stream(stream)  # type: ignore[no-untyped-call]
            return
        parts = self._parts(_ARROW.load_stream(self, stream))
        for part in parts:
            chunks = _chunks(part, parts)
            yield chunks, part[1]
            for _ in chunks:
                """What the function left over is not the next group's."""

    def dump_stream(self, iterator: Iterable[Any], stream: Any) -> None:
        """Write what the groups' functions gave."""
        if not ColumnSerializer.columnar:
            super().dump_stream(iterator, stream)  # type: ignore[no-untyped-call]
            return
        called: Iterable[_Called] = (result[0] for result in iterator)
        _ARROW.dump_stream(self, _announced(self._batches(called), stream), stream)

    def _parts(self, batches: Iterable[pa.RecordBatch]) -> Iterator["_Part"]:
        """Cut batches into (columns, state, whether the group ends here)."""
        state = None
        for batch in batches:
            properties, key, body, start, count, last = batch.columns[-1].flatten()
            # There is an entry for each chunk; the rest of the rows is filled up with nothing.
            for i in range(batch.num_rows - properties.null_count):
                if state is None:
                    state = self._state(properties[i].as_py(), key[i].as_py(), body[i].as_py())
                at, rows, is_last = start[i].as_py(), count[i].as_py(), last[i].as_py()
                yield [column.slice(at, rows) for column in batch.columns[:-1]], state, is_last
                state = None if is_last else state

    def _state(self, properties: str, key: bytes, body: bytes | None) -> GroupState:
        value = _PICKLE.loads(body) if body else None
        known = orjson.loads(properties)
        known["optionalValue"] = value
        return GroupState(keyAsUnsafe=key, valueSchema=self.state_object_schema, **known)

    def _batches(self, called: Iterable[_Called]) -> Iterator[pa.RecordBatch]:
        chunks: list[pa.StructArray] = []
        states: list[dict[str, Any]] = []
        size = 0
        for outputs, state, row in called:
            for columns in outputs:
                chunks.append(pa.StructArray.from_arrays(columns, fields=list(row)))
                size += chunks[-1].nbytes
                if size >= _BYTES_AT_ONCE:
                    yield _batch(chunks, states, row)
                    chunks, states, size = [], [], 0
            # Only now has the function run to its end and left its state.
            states.append(self._state_row(state))
            size += len(states[-1]["object"] or b"")
            if size >= _BYTES_AT_ONCE or sum(map(len, chunks)) >= _ROWS_AT_ONCE:
                yield _batch(chunks, states, row)
                chunks, states, size = [], [], 0
        if states:
            yield _batch(chunks, states, row)

    def _state_row(self, state: GroupState) -> dict[str, Any]:
        value = state._value_schema.toInternal(state._value) if state.exists else None
        return {
            "properties": state.json(),
            "keyRowAsUnsafe": state._keyAsUnsafe,
            "object": _PICKLE.dumps(value) if state.exists else None,
            "oldTimeoutTimestamp": state.oldTimeoutTimestamp,
        }


_Part = tuple[Columns, GroupState, bool]


def _chunks(first: _Part, parts: Iterator[_Part]) -> Iterator[tuple[Columns]]:
    """The chunks of one group, the first of which is at hand; takes the others from `parts`."""
    columns, _, is_last = first
    yield (columns,)
    while not is_last:
        columns, _, is_last = next(parts)
        yield (columns,)


def _batch(
    chunks: Sequence[pa.StructArray], states: list[dict[str, Any]], row: pa.StructType
) -> pa.RecordBatch:
    """Output and states beside each other, the shorter one filled up: Arrow wants columns of one length."""
    count = sum(map(len, chunks))
    length = max(count, len(states))
    counts = pa.array([{"dataCount": count, "stateCount": len(states)}], _COUNTS)
    return pa.RecordBatch.from_arrays(
        [
            _filled_up([counts], length),
            _filled_up(chunks or [pa.nulls(0, row)], length),
            _filled_up([pa.array(states, _STATES)], length),
        ],
        ["_0", "_1", "_2"],
    )


def _filled_up(parts: Sequence[pa.StructArray], length: int) -> pa.StructArray:
    """The parts one after the other, then nothing; a single part that is long enough is not copied."""
    missing = length - sum(map(len, parts))
    if not missing and len(parts) == 1:
        return parts[0]
    return pa.concat_arrays([*parts, pa.nulls(missing, parts[0].type)])


def _announced(batches: Iterable[pa.RecordBatch], stream: Any) -> Iterator[pa.RecordBatch]:
    """Tell the JVM that data begin, but only once there are any: before, it still takes an error."""
    for number, batch in enumerate(batches):
        if number == 0:
            _WORKER.write_int(SpecialLengths.START_ARROW_STREAM, stream)
        yield batch


def _fail_on_stopiteration(function: Callable[..., Any]) -> Callable[..., Any]:
    """pyspark's own, which hides what a function is marked with."""
    return functools.wraps(function)(_stopiteration(function))


def _wrapped(function: Callable[..., Any], return_type: Any, runner_conf: dict[str, str]) -> Any:
    ColumnSerializer.columnar = getattr(function, _MARK, False)
    if not ColumnSerializer.columnar:
        return _pandas_wrapped(function, return_type, runner_conf)
    row = to_arrow_type(return_type)

    def call(key: Columns, chunks: Iterable[Columns], state: GroupState) -> list[_Called]:
        return [(function(tuple(column[0].as_py() for column in key), chunks, state), state, row)]

    return call
