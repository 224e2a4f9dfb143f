"""Events: what a record may say (docs/contract.md 1 to 3), requests and policies in particular.

One parser for every engine, so that the live job, a replay and a test refuse the same records for the
same reasons. Spark's own JSON reader is not used: it lets single quotes, trailing garbage, NaN and numbers
for text pass.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import orjson

from streaming.contract.client_answer import ClientAnswer, decided_of
from streaming.contract.errors import BadEvent
from streaming.contract.fields import TS_MAX_MS, Fields, applied_ts, choice, flag, integer, shown, text

Item = TypeVar("Item")
CONTRACT_VERSION: Final = 1
MAX_AHEAD_MS: Final = 60_000
"""How far the time of an event may lie after its record's own time, unless a job is told otherwise."""
OWN_AHEAD_MS: Final = 1000
"""The same for what a proxy has decided or gives back by its own clock: beyond, the record's time counts. It
has happened already, so it cannot be refused."""
VERSION_MAX: Final = 2**48
"""Of a policy's stated version. Versions count up from 1, so no honest one comes near; one that jumps to the
end of all numbers would leave none for whoever writes next."""
REASON_MAX: Final = 1024
"""Characters of the reason that a writer of policies may give."""
DEPTH_MAX: Final = 254
"""Objects and lists within each other: what is nested deeper can be read and not be written again."""
ANONYMOUS: Final = "ANONYMOUS"
"""Kafka's principal of an unauthenticated client (docs/protocol_notes.md 1.5)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What laws decide, each of its own; ticks and policies are for all.

    Attributes:
        id: name of the event, repeated in its decision.
        ts: event time, ms since the epoch.
        at: the time at which it is applied; differs from `ts` in dumps, where the log's clock went back, and
            where the proxy's own clock is ahead.
    """

    id: str
    ts: int
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Event):
    """A request for partition mutations (docs/contract.md 3.1).

    Attributes:
        proxy: who asks.
        user: Kafka principal.
        client_id: Kafka client id, may be empty.
        subject: quota entity as the proxy stamped it, None if it did not.
        strict: whether items can be rejected (KIP-599 strict mode).
        validate_only: a dry run: checked and answered, never charged.
        names: item names, in order.
        mutations: partition mutations of each item, same order.
        deadline_ms: how long after `ts` the proxy waited yet, None if it did not.
        reject_late: what the proxy answered when that time passed: True reject, False allow.
        late: it came too late to be waited for, or the log says that it was decided too late (in dumps).
        answered: the proxy refused it by itself: counted, not charged.
        decided: what the proxy has answered by itself, by the law; None: it asks.
    """

    proxy: str
    user: str
    client_id: str
    subject: str | None
    strict: bool
    validate_only: bool
    names: tuple[str, ...]
    mutations: tuple[int, ...]
    deadline_ms: int | None
    reject_late: bool
    late: bool
    answered: bool
    decided: ClientAnswer | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refund(Event):
    """Mutations that the cluster refused after they had been admitted (docs/contract.md 3.1).

    Attributes:
        of_ts: when the original request was charged, ms since the epoch.
        mutations: how many to give back, summed over the items.
    """

    of_ts: int
    user: str
    client_id: str
    subject: str | None
    mutations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChange(Event):
    """One policy entry set or removed (docs/contract.md 2), in force from `ts` on.

    Attributes:
        path: the entry, such as `quotas[user=alice]`.
        value: the new value, None removes the entry.
        version: the version that this change makes, None: one more than the newest.
    """

    path: str
    value: Any
    version: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick(Event):
    """Time has passed: closes the rounds of every group up to it (docs/contract.md 3.2).

    Attributes:
        brokers_ahead_ms: the brokers' clock less that of the job's host, which wrote it; None: not known.
    """

    brokers_ahead_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Alive(Event):
    """A proxy that decides requests lives, or leaves: for other proxies alone (docs/contract.md 3.1).

    Attributes:
        proxy: who lives.
        leaving: it ends now.
    """

    proxy: str
    leaving: bool


Reader = Callable[[Fields, str, int], Event]
"""(fields, id, ts) -> event; raises BadEvent with the reason for the dead letter."""
NO_READERS: Final[Mapping[str, Reader]] = {}


def load_object(value: bytes) -> dict[str, Any]:
    """The JSON object in a record's bytes.

    Raises:
        BadEvent: not UTF-8, not JSON, or JSON but no object, or one that is nested too deeply.
    """
    try:
        loaded = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise BadEvent(f"not JSON: {error}; a JSON object was expected") from error
    if type(loaded) is not dict:
        raise BadEvent("not a JSON object; a JSON object was expected")
    if value.count(b"[") + value.count(b"{") > DEPTH_MAX:
        try:
            orjson.dumps(loaded)
        except orjson.JSONEncodeError as error:
            raise BadEvent(f"nested too deeply; at most {DEPTH_MAX} levels were expected") from error
    return loaded


def parse(
    value: bytes, *, default_id: str, default_ts: int | None, readers: Mapping[str, Reader] = NO_READERS,
    max_ahead_ms: int | None = None,
) -> Event:
    """Read one record.

    Args:
        value: the record's bytes.
        default_id: `<topic>-<partition>-<offset>`, or `<file>:<line>` in a replay.
        default_ts: the record's timestamp in ms; None for a line of a file, which must have its own.
        readers: of the laws' own events, by `type`; policies and ticks are read besides.
        max_ahead_ms: how far an event's time may lie after that timestamp: one wrong clock must not end
            everybody's debts. Of a line without one it may be any, and of a policy, which is in force when
            it says. None: any.

    Raises:
        BadEvent: with the reason for the dead letter.
    """
    fields = load_object(value)
    kind = fields.get("type")
    reader = (readers.get(kind) or _FOR_ALL.get(kind)) if isinstance(kind, str) else None
    if reader is None:
        raise BadEvent(_unknown_type(fields, (*readers, *_FOR_ALL)))
    version = integer(fields, "v", CONTRACT_VERSION, minimum=1)
    if version > CONTRACT_VERSION:
        raise BadEvent(
            f"v: contract version {version} is newer than this program; {CONTRACT_VERSION} was expected"
        )
    name = text(fields, "id", default_id)
    ts = integer(fields, "ts", default_ts, maximum=TS_MAX_MS)
    event = reader(fields, name, ts)
    if max_ahead_ms is None or default_ts is None or isinstance(event, PolicyChange):
        return event
    if isinstance(event, Refund) or (isinstance(event, Request) and event.decided is not None):
        return replace(event, at=own_at(event.at, default_ts))
    _check_ahead(event, default_ts, max_ahead_ms)
    return event


def own_at(at: int, record_ts: int) -> int:
    """When it is applied what a proxy has decided or gives back, ms; see OWN_AHEAD_MS.

    Args:
        at: when by its own clock, ms.
        record_ts: time of its record, ms.
    """
    return record_ts if at - record_ts > OWN_AHEAD_MS else at


def _check_ahead(event: Event, record_ts: int, max_ahead_ms: int) -> None:
    for key, time in (("ts", event.ts), ("applied_ts", event.at)):
        if time - record_ts > max_ahead_ms:
            raise BadEvent(
                f"{key}: {time} is {time - record_ts} ms after the time of its record, {record_ts}; at most"
                f" {max_ahead_ms} ms (job.max_ahead_ms) was expected"
            )


def _unknown_type(fields: Fields, known: Iterable[str]) -> str:
    if "type" not in fields:
        return f"type: missing; one of {', '.join(known)} was expected"
    return f"type: unknown {shown(fields['type'])}; one of {', '.join(known)} was expected"


def _request(fields: Fields, name: str, ts: int) -> Request:
    names, mutations = _items(fields)
    deadline_ms = None if "deadline_ms" not in fields else integer(fields, "deadline_ms", None)
    under_way_ms, late = max(0, ts - integer(fields, "asked_ts", ts, maximum=TS_MAX_MS)), False
    if deadline_ms is not None:
        deadline_ms, late = max(0, deadline_ms - under_way_ms), under_way_ms > deadline_ms
    return Request(
        id=name,
        ts=ts,
        at=_own_applied_ts(fields, ts) if "decided" in fields else applied_ts(fields, ts),
        proxy=text(fields, "proxy", ""),
        user=text(fields, "user", ANONYMOUS),
        client_id=text(fields, "client_id", ""),
        subject=text(fields, "subject", "") if "subject" in fields else None,
        strict=flag(fields, "strict", True),
        validate_only=flag(fields, "validate_only", False),
        names=names,
        mutations=mutations,
        deadline_ms=deadline_ms,
        reject_late=choice(fields, "on_late", "allow", ("allow", "reject")) == "reject",
        late=flag(fields, "late", False) or late,
        answered="answered" in fields and choice(fields, "answered", "", ("not_before",)) == "not_before",
        decided=decided_of(fields, names),
    )


def _refund(fields: Fields, name: str, ts: int) -> Refund:
    _, mutations = _items(fields)
    return Refund(
        id=name,
        ts=ts,
        at=_own_applied_ts(fields, ts),
        of_ts=integer(fields, "of_ts", ts, maximum=TS_MAX_MS),
        user=text(fields, "user", ANONYMOUS),
        client_id=text(fields, "client_id", ""),
        subject=text(fields, "subject", "") if "subject" in fields else None,
        mutations=sum(mutations),
    )


def _own_applied_ts(fields: Fields, ts: int) -> int:
    """When it is applied what a proxy has decided or gives back, ms: earlier than its `ts` where the proxy's
    clock was ahead.
    """
    return integer(fields, "applied_ts", ts, maximum=TS_MAX_MS)


def _policy(fields: Fields, name: str, ts: int) -> PolicyChange:
    path = text(fields, "path", None)
    if "value" not in fields:
        raise BadEvent("value: missing; the entry's object, or null to remove it, was expected")
    version = None
    if "version" in fields:
        version = integer(fields, "version", None, minimum=1, maximum=VERSION_MAX)
    at = integer(fields, "effective_ts", ts, maximum=TS_MAX_MS)
    # Read by who writes policies: what they refuse must be in force nowhere.
    text(fields, "origin", "")
    return PolicyChange(id=name, ts=at, at=at, path=path, value=fields["value"], version=version)


def _tick(fields: Fields, name: str, ts: int) -> Tick:
    ahead_ms = None
    if "brokers_ahead_ms" in fields:
        ahead_ms = integer(fields, "brokers_ahead_ms", None, minimum=-TS_MAX_MS, maximum=TS_MAX_MS)
    return Tick(id=name, ts=ts, at=applied_ts(fields, ts), brokers_ahead_ms=ahead_ms)


def _alive(fields: Fields, name: str, ts: int) -> Alive:
    return Alive(
        id=name,
        ts=ts,
        at=ts,
        proxy=text(fields, "proxy", None),
        leaving=flag(fields, "leaving", False),
    )


_FOR_ALL: Final[Mapping[str, Reader]] = {"policy": _policy, "tick": _tick, "alive": _alive, "readers": _alive}
REQUEST_READERS: Final[Mapping[str, Reader]] = {"request": _request, "refund": _refund}
"""Reader of each `type`."""


def listed(
    fields: Fields, key: str, read: Callable[[Fields], Item], form: str = "objects"
) -> tuple[Item, ...]:
    """What is read of each of a list of objects, which must be there, called `form` where it is none."""
    found = fields.get(key)
    if type(found) is not list:
        problem = shown(found) if key in fields else "missing"
        raise BadEvent(f"{key}: {problem}; a list of {form} was expected")
    items: list[Item] = []
    for number, item in enumerate(found):
        if type(item) is not dict:
            raise BadEvent(f"{key}[{number}]: {shown(item)}; an object was expected")
        try:
            items.append(read(item))
        except BadEvent as error:
            raise BadEvent(f"{key}[{number}].{error.reason}") from error
    return tuple(items)


def _items(fields: Fields) -> tuple[tuple[str, ...], tuple[int, ...]]:
    items = listed(fields, "items", _item, "{name, mutations}")
    return tuple(name for name, _ in items), tuple(mutations for _, mutations in items)


def _item(item: Fields) -> tuple[str, int]:
    return text(item, "name", None), integer(item, "mutations", None)
