"""Decisions in the order of docs/contract.md 4, written as they come: what is late is merged at the end."""

import heapq
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from streaming.columns.byte_strings import Integers, bytes_in
from streaming.columns.outputs import Decided
from streaming.columns.records import Records

KEY: Final = ("ts", "type", "id", "file", "line")
"""What decisions are sorted by: text by its bytes in UTF-8, which is the order of code points."""
_NOWHERE: Final = np.iinfo(np.int64).max
LATE_MAX: Final = 1 << 17
"""Late decisions that are kept in memory."""
AT_ONCE: Final = 4096
_Key = tuple[int, str, str, int, int]
_Line = tuple[_Key, bytes]


def keyed(decided: Decided, records: Records) -> pa.Table:
    """Decisions as lines, with what they are sorted by.

    Args:
        decided: what a law said.
        records: the events that it answers.
    """
    source = decided.column("source").to_numpy()
    known = source >= 0
    file, line = (
        np.where(known, column[source] if len(column) else 0, _NOWHERE)
        for column in records.arrivals()[:2]
    )
    columns = {name: decided.column(name) for name in ("ts", "type", "id")}
    return pa.table({**columns, "file": file, "line": line, "value": decided.column("line")})


class SortedDecisions:
    """A file of decisions, a JSON object a line.

    Decisions are held back until all that follow are later, and for one more stretch, since some laws speak
    of a time that is past. What is late nevertheless goes into runs of its own.

    Args:
        file: where to write, empty.
        spare: gives an empty file of our own.

    Attributes:
        count: how many there are.
    """

    def __init__(self, file: IO[bytes], spare: Callable[[], IO[bytes]]) -> None:
        self.count = 0
        self._file, self._places, self._spare = file, spare(), spare
        self._held: list[pa.Table] = []
        self._until = 0
        self._newest: _Key | None = None
        self._late: list[pa.Table] = []
        self._runs: list[IO[bytes]] = []

    def add(self, decided: Sequence[pa.Table], upto: int) -> None:
        """Take decisions as `keyed` gives them; mostly all that follow are of `upto` ms or later.

        Raises:
            OSError: there is no room.
        """
        self.count += sum(map(len, decided))
        self._held += decided
        if self._held:
            rows = _in_order(self._held)
            ready = int(np.searchsorted(rows["ts"].to_numpy(), self._until))
            self._write(rows.slice(0, ready))
            self._held = [rows.slice(ready)]
        self._until = upto

    def finish(self) -> Iterator[bytes] | None:
        """Write what is held; if some were late, all lines in order, else None: the file has them.

        Raises:
            OSError: there is no room.
        """
        if self._held:
            self._write(_in_order(self._held))
        self._file.flush()
        if not self._late and not self._runs:
            return None
        if self._late:
            self._put_by()
        self._file.seek(0)
        self._places.seek(0)
        return (value for _, value in heapq.merge(_written(self._file, self._places), *map(_run, self._runs)))

    def _write(self, rows: pa.Table) -> None:
        if self._newest is not None:
            late = bisect_left(range(len(rows)), self._newest, key=lambda row: _key_of(rows, row))
            if late:
                self._late.append(rows.slice(0, late))
                rows = rows.slice(late)
                if sum(map(len, self._late)) > LATE_MAX:
                    self._put_by()
        if not len(rows):
            return
        for chunk in rows["value"].chunks:
            text, ends = bytes_in(chunk)
            self._file.write(text[ends[0] : ends[-1]].data)
        place = [rows[name].to_numpy() for name in KEY[3:]]
        self._places.write(np.column_stack(place).astype(np.int64).tobytes())
        self._newest = _key_of(rows, len(rows) - 1)

    def _put_by(self) -> None:
        """Bring late ones into a run of their own."""
        rows = _in_order(self._late)
        self._late = []
        self._runs.append(self._spare())
        with pa.ipc.new_stream(self._runs[-1], rows.schema) as writer:
            writer.write_table(rows, AT_ONCE)
        self._runs[-1].seek(0)


def _in_order(some: Sequence[pa.Table]) -> pa.Table:
    rows = pa.concat_tables(some)
    order = pc.sort_indices(rows.select(KEY), sort_keys=[(name, "ascending") for name in KEY])
    places = order.to_numpy()
    # Mostly they are, and then no text is copied.
    return rows if (places[1:] > places[:-1]).all() else rows.take(order)


def _key_of(rows: pa.Table, row: int) -> _Key:
    ts, type, id, file, line = (rows[name][row].as_py() for name in KEY)
    return ts, type, id, file, line


def _written(lines: IO[bytes], places: IO[bytes]) -> Iterator[_Line]:
    """The lines of a file, with their keys."""
    while raw := places.read(16 * AT_ONCE):
        own: Integers = np.frombuffer(raw, dtype=np.int64).reshape(-1, 2)
        for (file, line), value in zip(own.tolist(), lines, strict=False):
            said = orjson.loads(value)
            yield (said["ts"], said["type"], said["id"], file, line), value


def _run(file: IO[bytes]) -> Iterator[_Line]:
    with pa.ipc.open_stream(file) as reader:
        for batch in reader:
            *keys, values = (batch[name].to_pylist() for name in (*KEY, "value"))
            yield from zip(zip(*keys, strict=True), values, strict=True)
