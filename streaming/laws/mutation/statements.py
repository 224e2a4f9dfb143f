"""What an admission says beside its own request, so that proxies can go on from it (docs/contract.md 3.1):
which refunds its balance holds already, that the law would have decided otherwise, and, for subjects in debt,
all of it once more every REPEAT_MS.
"""

from typing import Any, Final, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from streaming.columns.byte_strings import Integers
from streaming.columns.json_rows import objects
from streaming.columns.outputs import DecisionRows
from streaming.laws.mutation.batch import MutationBatch
from streaming.laws.mutation.law import REFUND, Flags

LISTED_MS: Final = 3_600_000
"""A refund that no admission followed for so long is listed by none: whoever sent it has long read the
subject's balance anew. It bounds how long a row without debts is kept for it."""
LISTED_MAX: Final = 1000
LISTED_BYTES: Final = 65_536
"""As many refunds, and bytes of their ids, wait for a subject's next admission; beyond, the oldest are not
listed, and who sent them gives them to that subject twice until it is full."""
REPEAT_MS: Final = 30_000
SAID_BYTES: Final = 2048
"""A longer admission is repeated without its names of items and refunds: nobody waits for those any more."""
_LISTS: Final = ("rejected", "refunds", "law")


class OrphanRefund(NamedTuple):
    """A refund that no admission has listed: when it was applied, ms, and its id."""

    at: int
    name: str


Waiting = dict[int, list[OrphanRefund]]
"""By row, in the order applied."""


def list_refunds(walked: MutationBatch, rows: Integers, waiting: Waiting) -> dict[int, list[str]]:
    """The ids that each admission lists, by its row in `Requests`.

    Args:
        walked: the batch.
        rows: of all its routing keys.
        waiting: refunds of the batches before; changed in place: what no admission followed stays.
    """
    requests, order = walked.asked.requests, walked.asked.order
    of, at = walked.asked.routing_keys.of, walked.events.at
    given = walked.events.mode[order] == REFUND
    concerned = np.isin(rows, list(waiting))
    concerned[of[given]] = True
    if not concerned.any():
        return {}
    limited = walked.label.sampled[walked.events.term[order]] >= 0
    listed: dict[int, list[str]] = {}
    for place in np.flatnonzero(concerned[of] & limited).tolist():
        i, row = int(order[place]), int(rows[of[place]])
        if given[place]:
            waiting.setdefault(row, []).append(OrphanRefund(int(at[i]), requests.id[i].as_py()))
        elif row in waiting:
            _bound(waiting[row])
            names = [refund.name for refund in waiting.pop(row) if refund.at + LISTED_MS >= at[i]]
            if names:
                listed[i] = names
    for row in waiting.keys() & rows[of[given]].tolist():
        _bound(waiting[row])
    return listed


def _bound(refunds: list[OrphanRefund]) -> None:
    # Together: each that is taken out alone moves all that are left.
    del refunds[:-LISTED_MAX]
    size = sum(len(refund.name.encode()) for refund in refunds)
    while size > LISTED_BYTES:
        size -= len(refunds.pop(0).name.encode())


def waiting_column(waiting: Waiting, rows: int) -> pa.Array:
    """Refunds by row as Arrow binary, null where there is none."""
    column: list[bytes | None] = [None] * rows
    for row, refunds in waiting.items():
        column[row] = orjson.dumps([list(refund) for refund in refunds])
    return pa.array(column, pa.binary())


def waiting_of(column: pa.Array) -> Waiting:
    """What `waiting_column` wrote."""
    rows = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
    values = zip(rows.tolist(), column.take(pa.array(rows)).to_pylist(), strict=True)
    return {row: [OrphanRefund(*one) for one in orjson.loads(value)] for row, value in values}


def waits(column: pa.Array, horizon: int) -> Flags:
    """The rows with a refund that an admission at `horizon` (ms) or later may still list."""
    found: Flags = np.zeros(len(column), dtype=np.bool_)
    for row, refunds in waiting_of(column).items():
        # One with a name beyond LISTED_BYTES leaves none.
        found[row] = bool(refunds) and refunds[-1].at + LISTED_MS >= horizon
    return found


def said_last(decided: DecisionRows, rows: Integers) -> tuple[Integers, pa.Array]:
    """Of each row that some decisions are about: its number, and the bytes of the last one if that states a
    debt, else null.

    Args:
        decided: of one batch, in the order decided.
        rows: of each decision; -1: of none.
    """
    limited = np.flatnonzero(rows >= 0)
    newest = np.full(int(rows.max(initial=-1)) + 1, -1, dtype=np.int64)
    # Of several values for one place numpy keeps the last.
    newest[rows[limited]] = limited
    about = np.flatnonzero(newest >= 0)
    place = newest[about]
    tokens = decided.rows["tokens"].take(pa.array(place))
    debt = pc.less(tokens, 0.0).fill_null(False)
    chosen = decided.rows.take(pa.array(place).filter(debt))
    texts = objects(decided.type, chosen).cast(pa.binary())
    long = pc.greater(pc.binary_length(texts), SAID_BYTES)
    if pc.any(long).as_py():
        shorter = [_short(text) for text in texts.filter(long).to_pylist()]
        texts = pc.replace_with_mask(texts, long, pa.array(shorter, pa.binary()))
    owed = debt.to_numpy(zero_copy_only=False)
    return about, texts.take(pa.array(np.cumsum(owed) - 1, mask=~owed))


def _short(text: bytes) -> bytes:
    admission = {name: value for name, value in orjson.loads(text).items() if name not in _LISTS[1:]}
    return orjson.dumps(admission | {"rejected": []})


def again(text: bytes, now: int) -> dict[str, Any] | None:
    """An admission as it is repeated; None: by its own account the debt is paid at `now` (ms)."""
    admission: dict[str, Any] = orjson.loads(text)
    passed_ms = now - admission.get("applied_ts", admission["ts"])
    if admission["tokens"] + admission["limit"] * (passed_ms / 1000.0) >= 0.0:
        return None
    return admission | {"repeat": True}


def due(said: pa.Array, said_at: Integers, now: int) -> Flags:
    """The rows whose admission was last said REPEAT_MS before `now` (ms) or earlier."""
    stands: Flags = said.is_valid().to_numpy(zero_copy_only=False)
    return stands & (said_at + REPEAT_MS <= now)
