"""What is late is merged where it belongs, by file and line where all else is alike."""

import io
import tempfile

import orjson
import pyarrow as pa

from streaming.log.sorted_decisions import SortedDecisions


def rows(*keys: tuple[int, int, int]) -> pa.Table:
    """Decisions of one type and id: time, file and line of each."""
    said = [{"ts": key[0], "type": "type", "id": "id", "of": key[1:]} for key in keys]
    columns = dict(zip(("ts", "file", "line"), zip(*keys, strict=True), strict=True))
    same = {name: [name] * len(keys) for name in ("type", "id")}
    value = pa.array([orjson.dumps(each) + b"\n" for each in said], pa.large_binary())
    return pa.table({**columns, **same, "value": value})


def test_the_late_go_by_file_and_line() -> None:
    """Between those of their own time that are written already, file before line."""
    with tempfile.TemporaryFile() as file:
        taken = SortedDecisions(file, io.BytesIO)
        taken.add([rows((5, 1, 9), (5, 3, 1))], 6)
        taken.add([], 7)
        taken.add([rows((5, 2, 4), (5, 1, 2))], 8)
        merged = taken.finish()
        assert merged is not None
        assert [orjson.loads(each)["of"] for each in merged] == [[1, 2], [1, 9], [2, 4], [3, 1]]
