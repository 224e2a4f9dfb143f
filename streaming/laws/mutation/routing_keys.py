"""The routing keys of many requests at once: unique names, and which of them each request belongs to."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.columns.byte_strings import Integers, cut
from streaming.laws.mutation.limits import quotas_of
from streaming.laws.mutation.requests import CLIENT_ID, STAMPED, SUBJECT, USER, Requests
from streaming.policy.timeline import PolicyTimeline


class RoutingKeys(NamedTuple):
    """Quota entities of requests.

    Attributes:
        names: subjects that differ from each other, Arrow text; empty: not limited.
        of: number of each request's subject.
    """

    names: pa.Array
    of: Integers


def routing_keys(
    requests: Requests, rows: Integers, timeline: PolicyTimeline, *, stamped: bool
) -> RoutingKeys:
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


def _numbered(names: pa.Array) -> RoutingKeys:
    encoded = names.dictionary_encode()
    return RoutingKeys(names=encoded.dictionary, of=encoded.indices.to_numpy().astype(np.int64))


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
    number = stretch = np.searchsorted(changes, at, side="right").astype(np.int64)
    for part in (user, client):
        number = number * len(part.dictionary) + part.indices.to_numpy()
    _, chosen, same = np.unique(number, return_index=True, return_inverse=True)
    names = [_encoded(part.dictionary).take(part.indices.take(pa.array(chosen))) for part in (user, client)]
    asking = pc.binary_join_element_wise(
        pc.binary_join_element_wise("user=", names[0], ""), names[1], ",client-id="
    )
    # Ascending by stretch first, so that each has its own part.
    first = np.searchsorted(stretch[chosen], np.arange(len(changes) + 2))
    subjects = [
        quotas_of(timeline.at(int(at[chosen[begin]]))).charged(asking[begin:end])
        for begin, end in pairwise(first.tolist())
        if begin < end
    ]
    return pc.take(pa.concat_arrays(subjects), pa.array(same))


def _encoded(names: pa.Array) -> pa.Array:
    """Names as subjects hold them; as `encode_name`."""
    for sign, code in (("%", "%25"), (",", "%2C"), ("=", "%3D"), ("<", "%3C")):
        names = pc.replace_substring(names, sign, code)
    return names
