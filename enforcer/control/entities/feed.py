"""Records of Weir's topics as the view over all laws takes them, cut down where they are read."""

import time
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Final, NamedTuple

from confluent_kafka import Message

from enforcer.control.dispatch.table import dispatch_of
from enforcer.core.feeds.decisions import Readers, decisions_in
from enforcer.core.feeds.rows import events_of
from enforcer.core.law import DecisionReader
from streaming.contract.backlog.decisions import backlog_decision
from streaming.contract.broker_events import latency
from streaming.contract.decisions import admission_of, limit_of, share_of
from streaming.contract.errors import BadEvent
from streaming.contract.fields import Fields, flag, integer, shown, text
from streaming.contract.usage_events import group_usage

Told = tuple[Any, Fields, int]
"""A decision or an event, its JSON object, and when it was written, ms since the epoch."""
EventReaders = Mapping[str, Callable[[Fields, str, int], Any]]


class Flight(NamedTuple):
    """What was measured of requests in flight.

    Attributes:
        partition: where they were.
        inflight: the most of them at once, of all enforcers by the one that measured.
        rtt_ms: how long the last of them took.
        dropped: how many were given up.
    """

    partition: str
    inflight: int
    rtt_ms: int
    dropped: int


class Asked(NamedTuple):
    """A request for partition mutations, dry runs left out."""

    id: str
    subject: str
    proxy: str
    mutations: int


class Sign(NamedTuple):
    """A part lives: a proxy, or the job by the tick that it writes each round; or it has left."""

    part: str
    name: str
    leaving: bool


def flight(fields: Fields, name: str, ts: int) -> Flight:
    """A `latency` event, its samples taken together; raises BadEvent: it is none."""
    said = latency(fields, name, ts)
    samples = [each for each in said.samples if each is not None]
    return Flight(
        partition=said.partition,
        inflight=max((sample.inflight for sample in samples), default=0),
        rtt_ms=max(1, samples[-1].rtt_ns // 1_000_000) if samples else 1,
        dropped=sum(sample.did_drop for sample in samples),
    )


def asked(fields: Fields, name: str, _ts: int) -> Asked:
    """A `request`; a dry run asks for nothing; raises BadEvent: it is none."""
    items: Any = fields.get("items")
    if type(items) is not list or not all(type(item) is dict for item in items):
        raise BadEvent(f"items: {shown(items)}; a list of {{name, mutations}} was expected")
    dry = flag(fields, "validate_only", False)
    return Asked(
        id=name,
        subject=text(fields, "subject", ""),
        proxy=text(fields, "proxy", ""),
        mutations=0 if dry else sum(integer(item, "mutations", None) for item in items),
    )


def alive(fields: Fields, _name: str, _ts: int) -> Sign:
    """An `alive`: a proxy lives, or leaves; raises BadEvent: it is none."""
    return Sign("proxy", text(fields, "proxy", None), flag(fields, "leaving", False))


def tick(_fields: Fields, _name: str, _ts: int) -> Sign:
    """A `tick`, which the job writes each round."""
    return Sign("round", "", False)


def told(reader: DecisionReader) -> DecisionReader:
    """One that gives the JSON object beside what it makes of it, as the log has it."""

    def parse(fields: Fields) -> tuple[Any, Fields]:
        return reader.parse(fields), fields

    return DecisionReader(type=reader.type, parse=parse, at=lambda pair: reader.at(pair[0]))


DECISIONS: Final[Readers] = {
    reader.type: told(reader)
    for reader in (
        DecisionReader(type="admission", parse=admission_of, at=attrgetter("at")),
        DecisionReader(type="share", parse=share_of),
        DecisionReader(type="dispatch", parse=dispatch_of, at=attrgetter("at")),
        DecisionReader(type="limit", parse=limit_of, at=attrgetter("ts")),
        DecisionReader(type="backlog", parse=backlog_decision),
    )
}
REPORTS: Final[EventReaders] = {
    "group_usage": group_usage,
    "latency": flight,
    "alive": alive,
    "tick": tick,
}
"""Of `weir.usage`; to the job an event on another topic than its own is none."""
REQUESTS: Final[EventReaders] = {"request": asked}
"""Of `weir.requests`."""


def decisions_of(
    message: Message,
    readers: Readers = DECISIONS,
    wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
) -> list[Told]:
    """What was decided in a record, also by candidates: a repeated decision stands anew.

    Without what is far ahead, which would stand until then, whatever comes; by the later of the record's time
    and ours, since a job whose host is behind the brokers decides by their clock and stamps by its own.
    """
    ts = message.timestamp()[1]
    found = decisions_in(message, readers, now_ms=lambda _: max(ts, wall_ms()), tried=True)
    return [(*pair, ts) for _, pair in found]


def reports_of(message: Message, readers: EventReaders) -> list[Told]:
    """The events of a record that stands on the topic of these readers."""
    ts = message.timestamp()[1]
    return [(report, fields, ts) for report, fields in events_of(message, readers)]
