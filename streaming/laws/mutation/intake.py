"""How requests come to the law of mutations: as columns, each with its routing key.

Plain ones are read in bulk (request_json), the others one by one by the contract's parser.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.columns.byte_strings import Integers, cut
from streaming.columns.records import Records
from streaming.contract.events import MAX_AHEAD_MS, Event, Refund, Request
from streaming.contract.names import parse_subject
from streaming.laws.law import Flags, Intake
from streaming.laws.mutation.limits import quotas_of
from streaming.laws.mutation.request_json import scanned
from streaming.laws.mutation.requests import (
    CLIENT_ID,
    ID,
    STAMPED,
    SUBJECT,
    USER,
    Requests,
    Rows,
    ordered,
)
from streaming.policy.derived import stretches
from streaming.policy.timeline import PolicyTimeline


class RoutingKeys(NamedTuple):
    """Quota entities of requests.

    Attributes:
        names: subjects that differ from each other, Arrow text; empty: not limited.
        of: number of each request's subject.
    """

    names: pa.Array
    of: Integers


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Requests and refunds on their way through the law.

    Attributes:
        requests: as columns; a row a record.
        order: the rows to take, in the order of docs/contract.md 1.
        routing_keys: the quota entity of each of `order`.
    """

    requests: Requests
    order: Integers
    routing_keys: RoutingKeys


class RequestIntake(Intake):
    """Requests and refunds of one batch."""

    def __init__(self, records: Records, max_ahead_ms: int = MAX_AHEAD_MS) -> None:
        self.newest = -1
        self._records, self._max_ahead_ms = records, max_ahead_ms

    def scan(self) -> Flags:
        """Read the plain ones; a row that is none of them may still be put."""
        records, requests = self._records, scanned(self._records, self._max_ahead_ms)
        self._rows = Rows(requests)
        taken: Flags = requests.flags != 0
        for i in np.flatnonzero(taken & (requests.length[:, ID] < 0)).tolist():
            self._rows.name(i, records.name_of(i))
        if taken.any():
            self.newest = int(requests.at[taken].max())
        return taken

    def put(self, i: int, event: Event) -> None:
        """Take a request or refund.

        Raises:
            BadEvent: its subject is none.
        """
        assert isinstance(event, Request | Refund)
        if event.subject:
            parse_subject(event.subject)
        self.newest = max(self.newest, event.at)
        self._rows.put(i, event)

    def events(self, timeline: PolicyTimeline, *, replay: bool) -> Asked | None:
        """All of them, each with its quota entity."""
        requests = self._rows.finish()
        order = ordered(requests, self._records)
        if not len(order):
            return None
        own = routing_keys(requests, order, timeline, stamped=not replay)
        return Asked(requests=requests, order=order, routing_keys=own)


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
    """The subject of each of these requests by the policies of its own time (docs/contract.md 2)."""
    users, clients = (
        cut(requests.kept, requests.start[rows, column], requests.length[rows, column])
        for column in (USER, CLIENT_ID)
    )
    user, client = users.dictionary_encode(), clients.dictionary_encode()
    # One number for who asks: there are far fewer of these than requests.
    number = user.indices.to_numpy().astype(np.int64) * len(client.dictionary) + client.indices.to_numpy()
    subjects, place = list[pa.Array](), np.empty(len(rows), dtype=np.int64)
    for here, at in stretches(requests.at[rows], timeline):
        _, chosen, same = np.unique(number[here], return_index=True, return_inverse=True)
        first = pa.array(here[chosen])
        names = [_encoded(part.dictionary).take(part.indices.take(first)) for part in (user, client)]
        asking = pc.binary_join_element_wise(
            pc.binary_join_element_wise("user=", names[0], ""), names[1], ",client-id="
        )
        place[here] = same + sum(map(len, subjects))
        subjects.append(quotas_of(timeline.at(at)).charged(asking))
    return pa.concat_arrays(subjects).take(pa.array(place))


def _encoded(names: pa.Array) -> pa.Array:
    """Names as subjects hold them; as `encode_name`."""
    for sign, code in (("%", "%25"), (",", "%2C"), ("=", "%3D"), ("<", "%3C")):
        names = pc.replace_substring(names, sign, code)
    return names
