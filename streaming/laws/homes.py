"""The homes of many requests at once: unique names, and which of them each request belongs to."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.contract.policy_timeline import PolicyTimeline
from streaming.laws.requests import CLIENT_ID, STAMPED, SUBJECT, USER, Requests
from streaming.laws.texts import Integers, cut


class Homes(NamedTuple):
    """Quota entities of requests.

    Attributes:
        names: subjects that differ from each other, Arrow text; empty: not limited.
        of: number of each request's subject.
    """

    names: pa.Array
    of: Integers


def homes(requests: Requests, rows: Integers, timeline: PolicyTimeline, *, stamped: bool) -> Homes:
    """The quota entities of some requests.

    Args:
        requests: all.
        rows: those asked for.
        timeline: the policies, by which those are resolved that say nothing.
        stamped: what the proxies stamped is trusted; False: all are resolved.
    """
    said = (requests.flags[rows] & STAMPED != 0) & stamped
    if said.all():
        return _numbered(cut(requests.kept, requests.start[rows, SUBJECT], requests.length[rows, SUBJECT]))
    told, asked = rows[said], rows[~said]
    names = pa.concat_arrays(
        [
            cut(requests.kept, requests.start[told, SUBJECT], requests.length[told, SUBJECT]),
            _resolved(requests, asked, timeline),
        ]
    )
    place = np.empty(len(rows), dtype=np.int64)
    place[np.flatnonzero(said)] = np.arange(len(told))
    place[np.flatnonzero(~said)] = np.arange(len(told), len(rows))
    return _numbered(names.take(pa.array(place)))


def _numbered(names: pa.Array) -> Homes:
    encoded = names.dictionary_encode()
    return Homes(names=encoded.dictionary, of=encoded.indices.to_numpy().astype(np.int64))


def _resolved(requests: Requests, rows: Integers, timeline: PolicyTimeline) -> pa.Array:
    """The subject of each of these requests by the policies of its own time (facts/kip599.md 1.6)."""
    users, clients = (
        cut(requests.kept, requests.start[rows, column], requests.length[rows, column])
        for column in (USER, CLIENT_ID)
    )
    user, client = users.dictionary_encode(), clients.dictionary_encode()
    at = requests.at[rows]
    changes = np.array(timeline.changes(int(at.min()), int(at.max())), dtype=np.int64)
    # One number for who asks and under which policies: there are far fewer of these than requests.
    number = np.searchsorted(changes, at, side="right").astype(np.int64)
    for part in (user, client):
        number = number * len(part.dictionary) + part.indices.to_numpy()
    _, chosen, same = np.unique(number, return_index=True, return_inverse=True)
    pairs = zip(
        users.take(pa.array(chosen)).to_pylist(),
        clients.take(pa.array(chosen)).to_pylist(),
        at[chosen].tolist(),
        strict=True,
    )
    quotas = [timeline.at(ts).mutation_quota(name, client_id) for name, client_id, ts in pairs]
    subjects = pa.array(["" if quota is None else quota.subject for quota in quotas], type=pa.string())
    return pc.take(subjects, pa.array(same))
