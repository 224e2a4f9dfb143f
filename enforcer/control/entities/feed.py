"""Records of Weir's topics as the view over all laws takes them."""

import time
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Final

from confluent_kafka import Message

from enforcer.control.dispatch.records import dispatch_of
from enforcer.control.entities import readings
from enforcer.core.feeds.decisions import Readers, decisions_in
from enforcer.core.feeds.rows import events_of
from enforcer.core.law import DecisionReader
from streaming.contract.backlog.decisions import backlog_decision
from streaming.contract.decisions import limit_of, share_of
from streaming.contract.fields import Fields
from streaming.contract.usage_events import group_usage

Told = tuple[Any, Fields, int]
"""A decision or an event, its JSON object, and when it was written, ms since the epoch."""
EventReaders = Mapping[str, Callable[[Fields, str, int], Any]]


def told(reader: DecisionReader) -> DecisionReader:
    """One that gives the JSON object beside what it makes of it, as the log has it."""

    def parse(fields: Fields) -> tuple[Any, Fields]:
        return reader.parse(fields), fields

    return DecisionReader(type=reader.type, parse=parse, at=lambda pair: reader.at(pair[0]))


DECISIONS: Final[Readers] = {
    reader.type: told(reader)
    for reader in (
        DecisionReader(type="admission", parse=readings.admission, at=attrgetter("at")),
        DecisionReader(type="share", parse=share_of),
        DecisionReader(type="dispatch", parse=dispatch_of, at=attrgetter("at")),
        DecisionReader(type="limit", parse=limit_of, at=attrgetter("ts")),
        DecisionReader(type="backlog", parse=backlog_decision),
    )
}
REPORTS: Final[EventReaders] = {
    "group_usage": group_usage,
    "latency": readings.flight,
    "alive": readings.alive,
    "tick": readings.tick,
}
"""Of `weir.usage`; to the job an event on another topic than its own is none."""
REQUESTS: Final[EventReaders] = {"request": readings.asked}
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
