"""How requests come to the law of mutations: as columns, each with its routing key.

Plain ones are read in bulk (plain.py), the others one by one by the contract's parser.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.columns.byte_strings import Integers
from streaming.columns.json_lines import arrow
from streaming.columns.records import Records
from streaming.contract.events import MAX_AHEAD_MS, Event, Refund, Request
from streaming.contract.names import parse_subject
from streaming.laws.column_intake import ordered
from streaming.laws.law import Flags, Intake
from streaming.laws.mutation.limits import quotas_of
from streaming.laws.mutation.plain import SCHEMA, TYPES, plain
from streaming.laws.mutation.requests import STAMPED, RequestRows, Requests, encoded, joined
from streaming.laws.sheet import named
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
class OrderedRequests:
    """Requests and refunds on their way through the law.

    Attributes:
        requests: as columns; a row an event.
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
        self._parts: list[Requests] = []
        self._rows = RequestRows()

    def scan(self) -> Flags:
        """Read the plain ones; a row that is none of them may still be put."""
        taken: Flags = np.zeros(len(self._records), dtype=np.bool_)
        for part in self._plain():
            if len(part.source):
                taken[part.source] = True
                self.newest = max(self.newest, int(part.at.max()))
                self._parts.append(part._replace(id=named(part.id, part.source, self._records)))
        return taken

    def scanned(self) -> Iterator[tuple[Integers, Integers]]:
        """Of the plain ones: their records, and when each is applied, ms."""
        return ((part.source, part.at) for part in self._parts)

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

    def events(self, timeline: PolicyTimeline, *, replay: bool) -> OrderedRequests | None:
        """All of them, each with its quota entity."""
        parts = [*self._parts, self._rows.finish()] if len(self._rows) else self._parts
        if not parts:
            return None
        requests = joined(parts)
        # All at once: the same names come in every pack, and each is found again faster than put in anew.
        requests = requests._replace(subject=encoded(requests.subject))
        order = ordered(requests.at, requests.source, self._records)
        own = routing_keys(requests, order, timeline, stamped=not replay)
        return OrderedRequests(requests=requests, order=order, routing_keys=own)

    def _plain(self) -> Iterator[Requests]:
        """Those that can be read in bulk, some of them at a time."""
        times, elsewhere = self._records.times(), self._records.no_requests()
        for type, source, rows in self._of_types():
            own = ~elsewhere[source]
            if not own.all():
                # One that came by the wrong topic, which the slow path says.
                source, rows = source[own], rows.filter(pa.array(own))
            yield plain(rows, type, source, times[source], self._max_ahead_ms)

    def _of_types(self) -> Iterator[tuple[str, Integers, pa.RecordBatch]]:
        """Rows of one of TYPES, and the index of each one's record: of JSON, then of packed records."""
        for numbers, rows in arrow.read(self._records.value, SCHEMA):
            for type in TYPES if "type" in rows.schema.names else ():
                which = pc.equal(rows["type"], type).fill_null(False)
                source = numbers[which.to_numpy(zero_copy_only=False)]
                if len(source):
                    yield type, source, rows if len(source) == len(rows) else rows.filter(which)
        for pack in self._records.packs:
            if pack.type in TYPES:
                yield pack.type, np.arange(pack.first, pack.first + len(pack)), pack.rows


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
        return _numbered(requests.subject, rows)
    told, asked = rows[said], rows[~said]
    user, client_id = (texts.take(pa.array(asked)) for texts in (requests.user, requests.client_id))
    found = resolved(user, client_id, requests.at[asked], timeline)
    parts = [requests.subject.take(pa.array(told)), encoded(found)]
    place = np.empty(len(rows), dtype=np.int64)
    place[np.flatnonzero(said)] = np.arange(len(told))
    place[np.flatnonzero(~said)] = np.arange(len(told), len(rows))
    return _numbered(pa.chunked_array(parts).unify_dictionaries().combine_chunks(), place)


def _numbered(subjects: pa.Array, rows: Integers) -> RoutingKeys:
    """The routing keys of some rows; whatever stands in the dictionary, each once and only those in use."""
    of = subjects.indices.to_numpy()[rows].astype(np.int64)
    once = subjects.dictionary.dictionary_encode()
    names = once.dictionary
    if len(names) < len(subjects.dictionary):
        of = once.indices.to_numpy()[of].astype(np.int64)
    used = np.zeros(len(names), dtype=np.bool_)
    used[of] = True
    if not used.all():
        of, names = (np.cumsum(used) - 1)[of], names.filter(pa.array(used))
    return RoutingKeys(names=names, of=of)


def resolved(user: pa.Array, client_id: pa.Array, times: Integers, timeline: PolicyTimeline) -> pa.Array:
    """The subject of each who asks by the policies of its time, ms (docs/contract.md 2)."""
    user, client = encoded(user), encoded(client_id)
    # One number for who asks: there are far fewer of these than requests.
    number = user.indices.to_numpy().astype(np.int64) * len(client.dictionary) + client.indices.to_numpy()
    subjects, place = list[pa.Array](), np.empty(len(times), dtype=np.int64)
    for here, at in stretches(times, timeline):
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
