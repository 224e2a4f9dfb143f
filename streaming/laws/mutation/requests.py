"""Requests and refunds as columns: what the readers fill, what the mutation law walks and decisions repeat.

A dataclass and a dict per event cost 60 us; a row in these columns costs well under one.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from streaming.columns.byte_strings import Integers
from streaming.contract.events import Refund, Request
from streaming.contract.fields import INT64_MAX
from streaming.laws.mutation.law import Flags
from streaming.laws.row_fields import WORDS

STRICT: Final = 2
DRY: Final = 4
LATE: Final = 8
REJECT_LATE: Final = 16
ANSWERED: Final = 32
REFUND: Final = 64
STAMPED: Final = 128
"""The proxy said which quota entity applies."""
DECIDED: Final = 256
"""The proxy has answered by itself; see `Requests.outcome`."""

OUTCOMES: Final = ("allow", "reject", "throttle")
"""By the numbers of law.ALLOW, REJECT and THROTTLE."""


class Requests(NamedTuple):
    """Columns with one row an event.

    Attributes:
        source: index of its record.
        at: when it is applied, ms.
        ts: event time, ms.
        of_ts: of a refund: when the original was charged, ms.
        deadline_ms: how long after `ts` the proxy waited; -1: it did not.
        flags: STRICT and so on.
        first: number of its first item; a refund has one, the sum of its items.
        items: number of its items.
        outcome: of those with DECIDED: what they were told, as law.ALLOW, REJECT or THROTTLE.
        wait_ms: and to wait how long.
        mutations: of each item.
        gone: of each item of those with DECIDED: whether it was rejected.
        names: of each item, Arrow large_string.
        id: Arrow string.
        proxy: who asks, WORDS.
        user, client_id, subject: Arrow string or WORDS; an empty subject where it is not STAMPED.
    """

    source: Integers
    at: Integers
    ts: Integers
    of_ts: Integers
    deadline_ms: Integers
    flags: Integers
    first: Integers
    items: Integers
    outcome: Integers
    wait_ms: Integers
    mutations: Integers
    gone: Flags
    names: pa.Array
    id: pa.Array
    proxy: pa.Array
    user: pa.Array
    client_id: pa.Array
    subject: pa.Array


OF_ITEMS: Final = frozenset({"mutations", "gone", "names"})
"""Columns with one row an item."""


def encoded(texts: pa.Array) -> pa.Array:
    """Arrow text as WORDS."""
    return texts if pa.types.is_dictionary(texts.type) else texts.dictionary_encode()


def joined(parts: Sequence[Requests]) -> Requests:
    """All rows of some columns, of which there is one at least, in order."""
    if len(parts) == 1:
        return parts[0]
    before = np.cumsum([0, *(len(part.mutations) for part in parts[:-1])])
    moved = [
        part._replace(first=part.first + count) for part, count in zip(parts, before.tolist(), strict=True)
    ]
    return Requests(*map(_concatenated, zip(*moved, strict=True)))


def _concatenated(columns: Sequence[Any]) -> Any:
    if isinstance(columns[0], np.ndarray):
        return np.concatenate(columns)
    if any(column.type == WORDS for column in columns):
        return pa.chunked_array(list(map(encoded, columns))).unify_dictionaries().combine_chunks()
    return pa.concat_arrays(columns)


class RequestRows:
    """Puts events that were parsed one by one into columns."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, ...]] = []
        self._texts: list[tuple[str, ...]] = []
        self._names: list[str] = []
        self._mutations: list[int] = []
        self._gone: list[bool] = []

    def __len__(self) -> int:
        return len(self._rows)

    def put(self, source: int, event: Request | Refund) -> None:
        """Append the event of a record."""
        flags = 0 if event.subject is None else STAMPED
        of_ts, deadline_ms, outcome, wait_ms, first = 0, None, 0, 0, len(self._mutations)
        proxy = ""
        if isinstance(event, Request):
            proxy, deadline_ms = event.proxy, event.deadline_ms
            flags |= (
                STRICT * event.strict
                | DRY * event.validate_only
                | LATE * event.late
                | REJECT_LATE * event.reject_late
                | ANSWERED * event.answered
            )
            self._put_items(event.names, event.mutations)
            if event.decided is not None:
                flags |= DECIDED
                outcome, wait_ms = OUTCOMES.index(event.decided.outcome), event.decided.throttle_time_ms
                self._gone[first:] = event.decided.rejected
        else:
            flags |= REFUND
            of_ts = event.of_ts
            # Items of 64 bits each may add up to more; no bucket holds that.
            self._put_items([""], [min(event.mutations, INT64_MAX)])
        waited, items = -1 if deadline_ms is None else deadline_ms, len(self._mutations) - first
        row = (source, event.at, event.ts, of_ts, waited, flags, first, items, outcome, wait_ms)
        self._rows.append(row)
        self._texts.append((event.id, proxy, event.user, event.client_id, event.subject or ""))

    def finish(self) -> Requests:
        """The columns of all that was put, of which there is one at least."""
        numbers = np.array(self._rows, dtype=np.int64).T
        name, proxy, user, client_id, subject = (
            pa.array(column, pa.string()) for column in zip(*self._texts, strict=True)
        )
        source, at, ts, of_ts, deadline_ms, flags, first, items, outcome, wait_ms = map(
            np.ascontiguousarray, numbers
        )
        return Requests(
            source=source, at=at, ts=ts, of_ts=of_ts, deadline_ms=deadline_ms, flags=flags, first=first,
            items=items, outcome=outcome, wait_ms=wait_ms,
            mutations=np.array(self._mutations, dtype=np.int64), gone=np.array(self._gone, dtype=np.bool_),
            names=pa.array(self._names, pa.large_string()), id=name, proxy=encoded(proxy), user=user,
            client_id=client_id, subject=encoded(subject),
        )  # fmt: skip

    def _put_items(self, names: Sequence[str], mutations: Sequence[int]) -> None:
        self._names += names
        self._mutations += mutations
        self._gone += [False] * len(names)
