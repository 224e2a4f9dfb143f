"""Admissions as columns: what docs/contract.md 3.1 has an admission say, of a whole batch at once."""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from streaming.columns.byte_strings import Integers
from streaming.columns.outputs import DecisionRows
from streaming.contract.fields import INT64_MAX
from streaming.laws.mutation.batch import MutationBatch
from streaming.laws.mutation.law import REFUND, Flags
from streaming.laws.mutation.requests import ANSWERED, DRY, OUTCOMES
from streaming.laws.row_fields import ends_of, places, worded

ADMISSION: Final = "admission"
_LAW: Final = pa.struct([("outcome", pa.string()), ("rejected", pa.list_(pa.string()))])
_ALGORITHMS: Final = pa.array(["token_bucket", "sampled_rate"])


def admissions(walked: MutationBatch) -> DecisionRows:
    """What was decided: one decision a request, none a refund."""
    requests, results, names = walked.asked.requests, walked.results, walked.asked.routing_keys.names
    order = walked.asked.order
    order = order[walked.events.mode[order] != REFUND]
    label, term, items = walked.label, walked.events.term[order], _items(walked, order)
    sampled = label.sampled[term]
    free = sampled < 0
    # The last name is the key of those whom nobody limits.
    keys = pa.concat_arrays([names, pa.array([""], type=pa.string())])
    key = np.where(free, len(names), label.routing_key[term])
    level, plain_rate = results.level[order], results.plain_rate[order]
    columns = {
        "id": _taken(requests.id, order),
        "ts": pa.array(requests.ts[order]),
        "proxy": _taken(requests.proxy, order),
        "subject": worded(key, keys),
        "algorithm": worded(sampled, _ALGORITHMS, free),
        "outcome": worded(results.outcome[order], pa.array(OUTCOMES)),
        "throttle_time_ms": pa.array(results.wait_ms[order]),
        "rejected": _rejected(walked, *items),
        "tokens": pa.array(level, mask=sampled != 0),
        "rate": pa.array(np.where(sampled == 1, level, plain_rate), mask=free),
        "limit": pa.array(label.rate[term], mask=free),
        "mutations": pa.array(_charged(walked, order, *items)),
        "policy_version": pa.array(label.version[term]),
        "shadow": pa.array(label.shadow[term]),
        "late": _where(walked.late[order], True),
        "answered": _where(requests.flags[order] & ANSWERED != 0, "not_before"),
        "refunds": _refunds(walked, order),
        "law": _differences(walked, order),
        "applied_ts": _applied(walked, order),
    }
    said = {name: column for name, column in columns.items() if column is not None}
    return DecisionRows(
        type=ADMISSION, rows=pa.RecordBatch.from_pydict(said), source=requests.source[order], keys=keys,
        key=key,
    )  # fmt: skip


def _taken(texts: pa.Array, order: Integers) -> pa.Array:
    """The texts of some rows; mostly of all, as they came, and then nothing is copied."""
    in_order = len(order) == len(texts) and (order == np.arange(len(order))).all()
    return texts if in_order else texts.take(pa.array(order))


def _where(which: Flags, value: Any) -> pa.Array | None:
    """A column that says the same wherever it says something; None: it does so nowhere."""
    return pa.array([None, value]).take(pa.array(which.astype(np.int64))) if which.any() else None


def _rejected(walked: MutationBatch, item: Integers, ends: Integers) -> pa.Array:
    """The names of the items that were rejected, of each request; see `_items`."""
    gone = walked.results.rejected[item]
    names = walked.asked.requests.names.take(pa.array(item[gone]))
    return pa.LargeListArray.from_arrays(pa.array(ends_of(gone)[ends]), names)


def _refunds(walked: MutationBatch, order: Integers) -> pa.Array | None:
    """The ids of refunds that each admission lists; None: none does."""
    if not walked.refunds:
        return None
    return pa.array([walked.refunds.get(i) for i in order.tolist()], pa.list_(pa.string()))


def _differences(walked: MutationBatch, order: Integers) -> pa.Array | None:
    """What the law would have said where it was decided otherwise; None: nowhere."""
    events, results = walked.events, walked.results
    told = np.flatnonzero(events.decided[order])
    if not len(told):
        return None
    item, ends = _items(walked, order[told])
    before = ends_of(results.own_rejected[item] != results.rejected[item])
    differs = np.diff(before[ends]) > 0
    differs |= results.own_outcome[order[told]] != results.outcome[order[told]]
    if not differs.any():
        return None
    said: list[dict[str, Any] | None] = [None] * len(order)
    names = walked.asked.requests.names
    for number in np.flatnonzero(differs).tolist():
        own = item[ends[number] : ends[number + 1]]
        gone = names.take(pa.array(own[results.own_rejected[own]]))
        outcome = OUTCOMES[results.own_outcome[order[told[number]]]]
        said[told[number]] = {"outcome": outcome, "rejected": gone.to_pylist()}
    return pa.array(said, _LAW)


def _applied(walked: MutationBatch, order: Integers) -> pa.Array | None:
    """When each event was applied, where that is not its own time; None: nowhere."""
    at, ts = walked.events.at[order], walked.asked.requests.ts[order]
    return pa.array(at, mask=at == ts) if (at != ts).any() else None


def _charged(walked: MutationBatch, order: Integers, item: Integers, ends: Integers) -> Integers:
    """Mutations of the items that were admitted, cut at 64 bits."""
    requests = walked.asked.requests
    admitted = np.where(walked.results.rejected[item], 0, requests.mutations[item])
    if admitted.sum(dtype=np.float64) < INT64_MAX / 2:
        charged = np.diff(ends_of(admitted)[ends])
    else:
        each = np.split(admitted, ends[1:-1])
        charged = np.array([min(INT64_MAX, sum(some.tolist())) for some in each], dtype=np.int64)
    charged[requests.flags[order] & DRY != 0] = 0
    return charged


def _items(walked: MutationBatch, order: Integers) -> tuple[Integers, Integers]:
    """The items of some requests one after the other, and where each one's begin and the last one's end."""
    requests = walked.asked.requests
    first, items = requests.first[order], requests.items[order]
    if (items == 1).all():
        return first, np.arange(len(order) + 1)
    return places(first, items), ends_of(items)
