"""Which records are copies of ones that stand before them (docs/contract.md 1).

librdkafka begins a new epoch once a record has timed out, as when all brokers were away for longer, and sends
all others again that it had heard nothing of. Their broker may have them: in a new epoch it cannot know.

Without Numba, which enforcers would wait for.
"""

from collections.abc import Callable
from itertools import count
from struct import Struct
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

SENT_HEADER: Final = "weir-sent"
"""Of a record: 8 bytes that name its producer, and its number among all that this one sends, big-endian. In a
partition a producer's numbers rise, but where it sends again: from some record on, in order."""
KEPT_MS: Final = 600_000
"""A producer is forgotten so long after its newest record: ten times as long as it tries to send one
(enforcer.core.reports.EVENT_TIMEOUT_MS)."""
PRODUCERS_MAX: Final = 8_000
"""Producers of partitions that are known: those heard of last. A note of them stays in its shard's body
(streaming.state.spilled.BLOB_BYTES)."""
STAMP_NAME_BYTES: Final = 8
"""Of the name of a producer, drawn anew whenever one begins."""
_STAMP: Final = Struct(f">{STAMP_NAME_BYTES}sq")
STAMP_BYTES: Final = _STAMP.size
_NONE: Final = -1
Integers = NDArray[np.int64]


def stamps(producer: bytes) -> Callable[[], bytes]:
    """What gives the header of each record that a producer sends; its name has STAMP_NAME_BYTES."""
    numbers = count(1)
    return lambda: _STAMP.pack(producer, next(numbers))


class SentBefore:
    """The newest number of each producer at each place: a partition of a topic.

    Args:
        note: what `to_bytes` gave.

    Example: after the third of four records the second and the third are sent again.

    >>> stamp, before = stamps(b"producer"), SentBefore()
    >>> first, second, third, fourth = (stamp() for _ in range(4))
    >>> sent = pa.array([first, second, third, second, third, fourth, None])
    >>> before.copies(np.zeros(7, dtype=int), np.arange(7), np.full(7, 1795166700000), sent).tolist()
    [False, False, False, True, True, False, False]
    """

    def __init__(self, note: bytes = b"") -> None:
        known = np.frombuffer(note, dtype=np.int64).reshape(-1, 4).tolist()
        self._newest = {(place, producer): (number, ts) for place, producer, number, ts in known}

    def copies(
        self, place: Integers, offset: Integers, ts: Integers, sent: pa.Array
    ) -> NDArray[np.bool_]:
        """Which of some records stood before them, or before others of them.

        Args:
            place: number of its topic and partition.
            offset, ts: where and when each was written there, ms; those of one offset are parts of one.
            sent: its header; of one that has none, or another, nothing is known.
        """
        found = np.zeros(len(sent), dtype=np.bool_)
        which = np.flatnonzero(pc.fill_null(pc.equal(pc.binary_length(sent), STAMP_BYTES), False))
        if not len(which):
            return found
        said = b"".join(sent.take(pa.array(which)).to_pylist())
        producer, number = np.frombuffer(said, dtype=">i8").astype(np.int64).reshape(-1, 2).T
        order = np.lexsort((offset[which], producer, place[which]))
        which, producer, number = which[order], producer[order], number[order]
        at = place[which]
        begins = np.flatnonzero((at[1:] != at[:-1]) | (producer[1:] != producer[:-1])) + 1
        for own in np.split(np.arange(len(which)), begins):
            key, rows = (int(at[own[0]]), int(producer[own[0]])), which[own]
            found[rows] = self._follow(key, offset[rows], int(ts[rows].max()), number[own])
        self._forget()
        return found

    def to_bytes(self) -> bytes:
        """All of it."""
        known = [(*key, *newest) for key, newest in self._newest.items()]
        return np.array(known, dtype=np.int64).tobytes()

    def _follow(
        self, key: tuple[int, int], offset: Integers, ts: int, number: Integers
    ) -> NDArray[np.bool_]:
        """Which of one producer's records at one place, in order, are copies."""
        newest, before_ts = self._newest.get(key, (_NONE, ts))
        firsts = np.flatnonzero(np.diff(offset, prepend=_NONE))
        before = np.maximum.accumulate(np.concatenate([[newest], number[firsts]]))
        self._newest[key] = int(before[-1]), max(ts, before_ts)
        return np.repeat(number[firsts] <= before[:-1], np.diff(firsts, append=len(offset)))

    def _forget(self) -> None:
        last: dict[int, int] = {}
        for (place, _), (_, ts) in self._newest.items():
            # Who catches up is at different times in different partitions.
            last[place] = max(ts, last.get(place, ts))
        known = [(key, newest) for key, newest in self._newest.items() if newest[1] > last[key[0]] - KEPT_MS]
        known.sort(key=lambda one: one[1][1])
        self._newest = dict(known[-PRODUCERS_MAX:])
