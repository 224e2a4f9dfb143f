"""Events that brokers send about themselves: round-trip times and backlogs (docs/contract.md 3.4, 3.5)."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple

from streaming.contract.errors import BadEvent
from streaming.contract.events import Event, listed
from streaming.contract.fields import INT64_MAX, Fields, applied_ts, flag, full_topic_in, integer, shown, text

_SAMPLE_FORM: Final = "[start_ns, rtt_ns, inflight, did_drop]"
INT64_MIN: Final = -(2**63)
NOTHING_ACKNOWLEDGED: Final = -1
"""`entry` of a mark-delete position before a ledger's first entry."""


class Sample(NamedTuple):
    """One request of a partition that was answered, or never will be.

    Attributes:
        start_ns: when it was sent, on the steady clock of whoever sent it, of any origin.
        rtt_ns: how long its answer took, at least 1.
        inflight: requests in flight there at its sending, itself included.
        did_drop: it was given up rather than answered.
    """

    start_ns: int
    rtt_ns: int
    inflight: int
    did_drop: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency(Event):
    """Finished requests of a partition, reported at once (docs/contract.md 3.4).

    Attributes:
        partition: whose limit they move.
        samples: in order; None where the clock went back during the request.
        alone: the event is its one sample; else number k, from 0, is called `<id>/<k>`.
        wrong: says that a clock went back, for the dead letter; None: all can be used.
    """

    partition: str
    samples: tuple[Sample | None, ...]
    alone: bool
    wrong: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """A stretch of a topic's log.

    Attributes:
        id: ascends along the topic.
        entries: how many it holds.
        size: bytes.
        close_time: ms since the epoch; None while it is open.
    """

    id: int
    entries: int
    size: int
    close_time: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """How far one subscription has come.

    Attributes:
        name: unique in its topic.
        ledger: of the mark-delete position; need not be listed, since trimmed and empty ledgers are removed.
        entry: of the mark-delete position, -1: nothing of that ledger.
        durable: whether it holds data back; readers do not.
        oldest_publish_time: of its oldest unacknowledged message, ms since the epoch; None: not known.
    """

    name: str
    ledger: int
    entry: int
    durable: bool
    oldest_publish_time: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog(Event):
    """What a topic stores and who has read how far (docs/contract.md 3.5).

    Attributes:
        broker: who reports; empty if it does not say.
        topic: full name, `persistent://TENANT/NAMESPACE/TOPIC`.
        ledgers: oldest first.
        subscriptions: as sent.
    """

    broker: str
    topic: str
    ledgers: tuple[Ledger, ...]
    subscriptions: tuple[Subscription, ...]


def latency(fields: Fields, name: str, ts: int) -> Latency:
    """Read a `latency` event named `name` of time `ts`.

    Raises:
        BadEvent: a field is missing or wrong, or the broker's clock went back during the request: a time of
            0 or less would poison most limits for good (docs/protocol_notes.md 5.4).
    """
    wrong: str | None = None
    samples: tuple[Sample | None, ...]
    if alone := "samples" not in fields:
        rtt_ns = integer(fields, "rtt_ns", None, minimum=INT64_MIN)
        if rtt_ns <= 0:
            raise BadEvent(_went_back(rtt_ns))
    else:
        samples, wrong = _several(fields["samples"], ts)
    at, partition = applied_ts(fields, ts), text(fields, "partition", None)
    if alone:
        samples = (_sample(fields, rtt_ns, ts),)
    return Latency(id=name, ts=ts, at=at, partition=partition, samples=samples, alone=alone, wrong=wrong)


def _several(found: Any, ts: int) -> tuple[tuple[Sample | None, ...], str | None]:
    """What `samples` of an event lists, and what is wrong with the first one whose clock went back."""
    if type(found) is not list:
        raise BadEvent(f"samples: {shown(found)}; a list of {_SAMPLE_FORM} was expected")
    samples, wrong = list[Sample | None](), None
    for number, item in enumerate(found):
        one = _sample_fields(item)
        if one is None:
            raise BadEvent(f"samples[{number}]: {shown(item)}; {_SAMPLE_FORM} was expected")
        try:
            rtt_ns = integer(one, "rtt_ns", None, minimum=INT64_MIN)
            samples.append(_sample(one, rtt_ns, ts) if rtt_ns > 0 else None)
        except BadEvent as error:
            raise BadEvent(f"samples[{number}].{error.reason}") from error
        if rtt_ns <= 0:
            wrong = wrong or f"samples[{number}].{_went_back(rtt_ns)}; the other samples were taken"
    return tuple(samples), wrong


def _sample_fields(item: Any) -> Fields | None:
    """A listed sample as the fields of an event of its own; None: it is none.

    Those of columns may be objects, and have 0 and 1 for flags, since a list there holds integers alone.
    """
    if type(item) is dict:
        return item
    if type(item) is not list or len(item) != len(Sample._fields):
        return None
    start_ns, rtt_ns, inflight, did_drop = item
    if type(did_drop) is int and did_drop in (0, 1):
        did_drop = did_drop == 1
    one = {"rtt_ns": rtt_ns, "inflight": inflight, "did_drop": did_drop}
    return one if start_ns is None else {"start_ns": start_ns, **one}


def _sample(fields: Fields, rtt_ns: int, ts: int) -> Sample:
    return Sample(
        start_ns=integer(fields, "start_ns", min(INT64_MAX, ts * 1_000_000 - rtt_ns), minimum=INT64_MIN),
        rtt_ns=rtt_ns,
        inflight=integer(fields, "inflight", None),
        did_drop=flag(fields, "did_drop", False),
    )


def _went_back(rtt_ns: int) -> str:
    return f"rtt_ns: {rtt_ns}, so the clock went back; more than 0 was expected"


def backlog(fields: Fields, name: str, ts: int) -> Backlog:
    """Read a `backlog` event named `name` of time `ts`.

    Raises:
        BadEvent: a field is missing or wrong, ledgers are not in order, or a subscription comes twice.
    """
    topic = full_topic_in(fields)
    ledgers = listed(fields, "ledgers", _ledger)
    for number, (before, after) in enumerate(pairwise(ledgers), start=1):
        if after.id <= before.id:
            raise BadEvent(f"ledgers[{number}].id: {after.id}; more than {before.id} was expected")
    subscriptions = listed(fields, "subscriptions", _subscription)
    names: set[str] = set()
    for number, subscription in enumerate(subscriptions):
        if subscription.name in names:
            shown_name = shown(subscription.name)
            raise BadEvent(f"subscriptions[{number}].name: {shown_name} again; each once was expected")
        names.add(subscription.name)
    return Backlog(
        id=name,
        ts=ts,
        at=applied_ts(fields, ts),
        broker=text(fields, "broker", ""),
        topic=topic,
        ledgers=ledgers,
        subscriptions=subscriptions,
    )


def _ledger(item: Fields) -> Ledger:
    return Ledger(
        id=integer(item, "id", None),
        entries=integer(item, "entries", None),
        size=integer(item, "size", None),
        close_time=_time(item, "closeTime"),
    )


def _subscription(item: Fields) -> Subscription:
    return Subscription(
        name=text(item, "name", None),
        ledger=integer(item, "ledger", None, minimum=-1),
        entry=integer(item, "entry", None, minimum=NOTHING_ACKNOWLEDGED),
        durable=flag(item, "durable", True),
        oldest_publish_time=_time(item, "oldestPublishTime"),
    )


def _time(item: Fields, key: str) -> int | None:
    """A time in ms; null and absent both mean that there is none."""
    return None if item.get(key) is None else integer(item, key, None, maximum=INT64_MAX)
