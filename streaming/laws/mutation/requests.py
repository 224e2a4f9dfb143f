"""Requests and refunds as columns: what the scanner fills, what the mutation law walks and the writer reads.

A dataclass and a dict per event cost 60 us; a row in these columns costs well under one.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from streaming.columns.byte_strings import Bytes, Integers
from streaming.columns.outputs import written
from streaming.columns.records import Records
from streaming.contract.events import ANONYMOUS, Refund, Request
from streaming.contract.fields import INT64_MAX
from streaming.laws.mutation.law import ALLOW, REJECT, THROTTLE, Flags

TAKEN: Final = 1
"""The row holds an event; without it the record was none, or is not read yet."""
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

ID: Final = 0
PROXY: Final = 1
USER: Final = 2
CLIENT_ID: Final = 3
SUBJECT: Final = 4
TEXTS: Final = 5
_OUTCOME_CODES: Final = {"allow": ALLOW, "reject": REJECT, "throttle": THROTTLE}
ITEM_BYTES_MIN: Final = len('{"name":"","mutations":0}')


class Requests(NamedTuple):
    """Columns with one row a record; rows without TAKEN mean nothing.

    Attributes:
        at: when it is applied, ms.
        ts: event time, ms.
        of_ts: of a refund: when the original was charged, ms.
        deadline_ms: how long after `ts` the proxy waited; -1: it did not.
        flags: TAKEN and so on.
        first: number of its first item; a refund has one, the sum of its items.
        items: number of its items.
        start: where its texts begin in `kept`; columns ID, PROXY, USER, CLIENT_ID, SUBJECT.
        length: bytes of its texts; -1: there is none.
        item_start: where each item's name begins in `kept`.
        item_length: bytes of each item's name.
        mutations: of each item.
        kept: all texts. `user`, `client_id` and `subject` are UTF-8; `id`, `proxy` and names of items are as
            they stand between the quotes of a decision.
        outcome: of those with DECIDED: what they were told, as law.ALLOW, REJECT or THROTTLE.
        wait_ms: and to wait how long.
        gone: and of each item, whether it was rejected.
        used: bytes of `kept` and number of items in use.
    """

    at: Integers
    ts: Integers
    of_ts: Integers
    deadline_ms: Integers
    flags: Integers
    first: Integers
    items: Integers
    start: Integers
    length: Integers
    item_start: Integers
    item_length: Integers
    mutations: Integers
    outcome: Integers
    wait_ms: Integers
    gone: Flags
    kept: Bytes
    used: Integers


def empty(count: int, size: int) -> Requests:
    """Rows for `count` records of `size` bytes together.

    Texts and items cannot take more room than the records that they stand in. Memory is not touched here, so
    room that is not used costs nothing.
    """
    most = size // ITEM_BYTES_MIN + 1
    kept = np.empty(size + len(ANONYMOUS), dtype=np.uint8)
    kept[: len(ANONYMOUS)] = np.frombuffer(ANONYMOUS.encode(), dtype=np.uint8)
    number, table = np.int64, (count, TEXTS)
    return Requests(
        at=np.empty(count, number), ts=np.empty(count, number), of_ts=np.empty(count, number),
        deadline_ms=np.empty(count, number), flags=np.zeros(count, number), first=np.empty(count, number),
        items=np.empty(count, number), start=np.empty(table, number), length=np.empty(table, number),
        item_start=np.empty(most, number), item_length=np.empty(most, number),
        mutations=np.empty(most, number), outcome=np.zeros(count, number), wait_ms=np.zeros(count, number),
        gone=np.zeros(most, np.bool_), kept=kept, used=np.array([len(ANONYMOUS), 0], number),
    )  # fmt: skip


class Rows:
    """Puts events that were parsed one by one into columns."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._pieces: list[bytes] = []
        self._end = int(requests.used[0])

    def put(self, i: int, event: Request | Refund) -> None:
        """Write row `i`."""
        requests = self._requests
        requests.at[i], requests.ts[i] = event.at, event.ts
        requests.flags[i] = TAKEN | (0 if event.subject is None else STAMPED)
        if isinstance(event, Request):
            self._put_request(i, event)
        else:
            requests.start[i, ID], requests.length[i, ID] = self._keep(written(event.id))
            requests.flags[i] |= REFUND
            requests.of_ts[i] = event.of_ts
            requests.deadline_ms[i] = -1
            # Items of 64 bits each may add up to more; no bucket holds that.
            self._put_items(i, [""], [min(event.mutations, INT64_MAX)])
        texts = (event.user, event.client_id, event.subject or "")
        for column, text in zip((USER, CLIENT_ID, SUBJECT), texts, strict=True):
            requests.start[i, column], requests.length[i, column] = self._keep(text.encode())

    def name(self, i: int, name: str) -> None:
        """Write the id of row `i`, which has none of its own."""
        self._requests.start[i, ID], self._requests.length[i, ID] = self._keep(written(name))

    def finish(self) -> Requests:
        """The columns with all that was put."""
        requests, pieces = self._requests, np.frombuffer(b"".join(self._pieces), dtype=np.uint8)
        begin, requests.used[0] = requests.used[0], self._end
        if self._end > len(requests.kept):
            # Default ids stand in no record; all else has its room.
            return requests._replace(kept=np.concatenate([requests.kept[:begin], pieces]))
        requests.kept[begin : self._end] = pieces
        return requests

    def _put_request(self, i: int, event: Request) -> None:
        requests = self._requests
        requests.deadline_ms[i] = -1 if event.deadline_ms is None else event.deadline_ms
        requests.flags[i] |= (
            STRICT * event.strict
            | DRY * event.validate_only
            | LATE * event.late
            | REJECT_LATE * event.reject_late
            | ANSWERED * event.answered
        )
        for column, text in ((ID, event.id), (PROXY, event.proxy)):
            requests.start[i, column], requests.length[i, column] = self._keep(written(text))
        self._put_items(i, event.names, event.mutations)
        if event.decided is not None:
            first = int(requests.first[i])
            requests.flags[i] |= DECIDED
            requests.outcome[i] = _OUTCOME_CODES[event.decided.outcome]
            requests.wait_ms[i] = event.decided.throttle_time_ms
            requests.gone[first : first + len(event.names)] = event.decided.rejected

    def _put_items(self, i: int, names: Sequence[str], mutations: Sequence[int]) -> None:
        requests = self._requests
        first = int(requests.used[1])
        requests.first[i], requests.items[i] = first, len(names)
        for number, (name, count) in enumerate(zip(names, mutations, strict=True), start=first):
            requests.item_start[number], requests.item_length[number] = self._keep(written(name))
            requests.mutations[number] = count
        requests.used[1] = first + len(names)

    def _keep(self, text: bytes) -> tuple[int, int]:
        begin, self._end = self._end, self._end + len(text)
        self._pieces.append(text)
        return begin, len(text)


def ordered(requests: Requests, records: Records) -> Integers:
    """The rows that hold an event, in the order of docs/contract.md 1: time, then arrival."""
    rows = np.flatnonzero(requests.flags)
    first, second, third = (column[rows] for column in records.arrivals())
    if records.packs or not _ascends(first, second):
        rows = rows[np.lexsort((third, second, first))]
    at = requests.at[rows]
    # Stable, and quick where the input consists of a few stretches in order, as partitions are.
    return rows if (at[1:] >= at[:-1]).all() else rows[np.argsort(at, kind="stable")]


def _ascends(first: Integers, second: Integers) -> bool:
    later, same = first[1:] > first[:-1], first[1:] == first[:-1]
    return bool((later | (same & (second[1:] >= second[:-1]))).all())
