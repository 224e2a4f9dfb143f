"""What goes into a shard's step: records as parallel columns."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streaming.columns.byte_strings import Bytes, Integers, bytes_in
from streaming.contract.errors import BadEvent

CHUNK: Final = 4096
"""Records that are joined at once: about a megabyte, which stays in the cache until it is read."""


class Named(Sequence[str]):
    """Names by number: a name a record without a list as long as the records."""

    def __init__(self, names: Sequence[str], numbers: Integers) -> None:
        self._names, self._numbers = names, numbers

    def __getitem__(self, i: Any) -> Any:
        return self._names[self._numbers[i]]

    def __len__(self) -> int:
        return len(self._numbers)


@dataclass(slots=True)
class Records:
    """Records of one shard, in any order, as parallel columns: lists, or arrays where they are many.

    Attributes:
        topic: topic, or base name of a file.
        partition: partition; 0 for a file.
        offset: offset, or line number from 1.
        ts: record timestamp in ms; None for a line of a file.
        value: the bytes; a list, or Arrow binary without nulls.
        file: number of the file, in the order given; None: the records come from Kafka.
        broadcast: whether every shard concerned got this record, as of policies and ticks and nothing else;
            None: there is one shard only.
    """

    topic: Sequence[str] = field(default_factory=list)
    partition: Sequence[int] | Integers = field(default_factory=list)
    offset: Sequence[int] | Integers = field(default_factory=list)
    ts: Sequence[int | None] | Integers = field(default_factory=list)
    value: Sequence[bytes] | pa.ChunkedArray = field(default_factory=list)
    file: Sequence[int] | Integers | None = None
    broadcast: Sequence[bool] | np.ndarray[Any, np.dtype[np.bool_]] | None = None

    def __len__(self) -> int:
        return len(self.value)

    def value_of(self, i: int) -> bytes:
        """The bytes of a record."""
        value = self.value[i]
        return value if isinstance(value, bytes) else bytes(value.as_py())

    def ts_of(self, i: int) -> int | None:
        """Timestamp of a record in ms; None for a line of a file."""
        ts = self.ts[i]
        return None if ts is None else int(ts)

    def name_of(self, i: int) -> str:
        """Id of a record that names none itself (docs/contract.md 1)."""
        if self.file is not None:
            return f"{self.topic[i]}:{self.offset[i]}"
        return f"{self.topic[i]}-{self.partition[i]}-{self.offset[i]}"

    def check_channel(self, i: int, for_all: bool) -> None:
        """A policy or tick that one shard alone saw, or an event that all saw, would be decided wrongly.

        Raises:
            BadEvent: it came by the wrong topic.
        """
        if self.broadcast is not None and self.broadcast[i] != for_all:
            raise BadEvent(f"type: {'for all shards' if for_all else 'for one shard'}; this topic is not")

    def order_of(self, i: int) -> tuple[int, int]:
        """Arrival of a record: (partition, offset), or in a replay (file, line)."""
        return int((self.partition if self.file is None else self.file)[i]), int(self.offset[i])

    def arrivals(self) -> tuple[Integers, Integers]:
        """`order_of` of all records, as columns."""
        first = self.partition if self.file is None else self.file
        return np.asarray(first, dtype=np.int64), np.asarray(self.offset, dtype=np.int64)

    def times(self) -> Integers:
        """Timestamps of all records in ms, -1 where there is none."""
        if isinstance(self.ts, np.ndarray):
            # A copy can be written to, what Arrow holds cannot, and Numba compiles anew for such arrays.
            return np.array(self.ts, dtype=np.int64)
        return np.array([-1 if ts is None else ts for ts in self.ts], dtype=np.int64)

    def sizes(self) -> Integers:
        """Bytes of all records."""
        if isinstance(self.value, pa.ChunkedArray):
            return np.concatenate([np.diff(bytes_in(chunk)[1]) for chunk in self.value.chunks])
        return np.fromiter(map(len, self.value), np.int64, len(self.value))

    def texts(self) -> Iterator[tuple[int, Bytes, Integers]]:
        """The values piece by piece: number of the first, bytes, where each begins and the last one ends."""
        if isinstance(self.value, pa.ChunkedArray):
            first = 0
            for chunk in self.value.chunks:
                yield first, *bytes_in(chunk)
                first += len(chunk)
            return
        ends = np.zeros(CHUNK + 1, dtype=np.int64)
        sizes = self.sizes()
        for first in range(0, len(sizes), CHUNK):
            piece = sizes[first : first + CHUNK]
            np.cumsum(piece, out=ends[1 : len(piece) + 1])
            joined = b"".join(self.value[first : first + CHUNK])
            yield first, np.frombuffer(joined, dtype=np.uint8), ends[: len(piece) + 1]


def too_far_ahead(at: Integers, times: Integers, max_ahead_ms: int) -> NDArray[np.bool_]:
    """Which events `contract.events.parse` refuses for that; the compiled readers leave them to it.

    Args:
        at: when each is applied, ms.
        times: timestamps of their records, ms; -1: none.
        max_ahead_ms: how far an event may lie after its record's timestamp, if that has one.
    """
    ahead: NDArray[np.bool_] = (times >= 0) & (at - times > max_ahead_ms)
    return ahead
