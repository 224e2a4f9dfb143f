"""Parquet files: the same events as columns, replayed to the same bytes."""

import gzip
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from traces_kit import of_traces

from streaming.contract.errors import WeirError
from streaming.log.reading import read_lines
from streaming.log.writing import write_lines
from streaming.replay import replay_local

# Traces of one law have the same fields: one of each law with every change, all in `make soak`.
OF_EACH_LAW = of_traces("backlog/imprecise", "dispatch/all-levels", "mutation/both-defaults", "shares/minute")


def events_of(lines: Path) -> list[dict[str, Any]]:
    with gzip.open(lines) as stream:
        return [orjson.loads(line) for line in stream if line.strip()]


def decided_alike(policies: Path, lines: Path, columns: Path) -> None:
    """A trace as lines and as columns; what is named by its file is named alike."""
    plain, other = replay_local(str(policies), [str(lines)]), replay_local(str(policies), [str(columns)])
    there, here = columns.name.encode(), lines.name.encode()
    assert [line.replace(there, here) for line in other.decisions] == plain.decisions
    assert len(other.dead_letters) == len(plain.dead_letters)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "events.parquet"


@OF_EACH_LAW
def test_a_trace_as_columns_gives_the_same_bytes(policies: Path, log: Path, file: Path) -> None:
    write_lines(str(file), map(orjson.dumps, events_of(log)))
    decided_alike(policies, log, file)


@OF_EACH_LAW
def test_columns_as_arrow_itself_infers_them(policies: Path, log: Path, file: Path) -> None:
    """Structs in place of maps, and fields in the order of their names."""
    # Parquet has no struct without fields: such an object is null there, as if it were not said.
    rows = pa.array([_without_empty(event) for event in events_of(log)])
    pq.write_table(pa.Table.from_struct_array(rows), file)
    decided_alike(policies, log, file)


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {name: _without_empty(one) for name, one in value.items()}
        return {name: one for name, one in kept.items() if one != {} or name == "value"}
    return [_without_empty(one) for one in value] if isinstance(value, list) else value


def test_rows_are_numbered_from_one_and_null_types_are_none(file: Path) -> None:
    table = pa.table({"type": ["request", None, "backlog"], "ts": pa.array([1, 2, 3], pa.uint32())})
    pq.write_table(table, file)
    found = [(line.number, line.value) for line in read_lines([str(file)])]
    assert found == [(1, b'{"type":"request","ts":1}'), (2, b'{"ts":2}'), (3, b'{"type":"backlog","ts":3}')]
    pq.write_table(pa.table({"ts": [1]}), file)
    assert [line.value for line in read_lines([str(file)])] == [b'{"ts":1}']
    pq.write_table(pa.table({"type": [5]}), file)
    assert [line.value for line in read_lines([str(file)])] == [b'{"type":5}']


def test_what_is_no_parquet_file_is_told(file: Path) -> None:
    file.write_bytes(b"rubbish")
    with pytest.raises(WeirError, match="cannot be read"):
        list(read_lines([str(file)]))
    pq.write_table(pa.table({"ts": pa.array([1], pa.timestamp("ms"))}), file)
    with pytest.raises(WeirError, match="ts: timestamp"):
        list(read_lines([str(file)]))


def test_samples_of_proxies_are_held(file: Path) -> None:
    """As JSON, which proxies write for fewer partitions than they pack: no dump of such a log was written."""
    write_lines(str(file), [b'{"type":"latency","samples":[[1,2,3,false],[null,5,6,true],[7]]}'])
    (line,) = read_lines([str(file)])
    assert line.value == b'{"type":"latency","samples":[[1,2,3,0],[null,5,6,1],[7]]}'


@pytest.mark.parametrize(
    "values",
    [
        [b'"track"'],
        [b'{"subscriptions":{}}', b"{}"],
        [b'"track"', b'{"queue_depth":5}', b"null"],
        [b'{"fixed":{"limit":20}}', b'{"fixed":{"limit":20.5}}'],
        [b'{"alpha":3}', b'{"alpha":"3*log10"}', b'{"a":"\\"\xc3\xbc","b":{"c":[1.5]}}'],
    ],
    ids=["mode", "empty", "mode_and_others", "wrong_number", "number_and_text"],
)
def test_policies_of_every_kind_are_held(values: list[bytes], file: Path) -> None:
    """No dump was written of a cluster with a mode, or with a threshold as a number and one as a text."""
    lines = [b'{"type":"policy","ts":1,"path":"p","value":%b}' % value for value in values]
    write_lines(str(file), [*lines, b'{"type":"tick","ts":2}'])
    assert [line.value for line in read_lines([str(file)])] == [*lines, b'{"type":"tick","ts":2}']


def test_what_no_column_holds_is_told(tmp_path: Path) -> None:
    """One wrong number made all right ones doubles: of such a dump a replay had dead letters alone."""
    file = tmp_path / "out.parquet"
    for wrong, kinds in ((b'"x"', "int and str"), (b"1.5", "float and int")):
        with pytest.raises(WeirError, match=f"no column holds ts: {kinds}"):
            write_lines(str(file), [b'{"ts":1}', b'{"ts":%b}' % wrong])
    assert not list(tmp_path.iterdir())
