"""Finds a decision, what it was for, what stood before it, and the events that led to it."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from enforcer.control.answers.ladder import Level, ladder
from enforcer.control.entities.feed import DECISIONS
from enforcer.control.entities.laws import Entity
from enforcer.control.entities.view import EntityView, entity_of
from enforcer.laws.dispatch.terms import Terms, terms_of
from streaming.contract.errors import BadEvent, WeirError
from streaming.contract.events import ANONYMOUS
from streaming.contract.fields import INT64_MAX
from streaming.policy.policy_set import PolicySet
from streaming.policy.schema import sampled_windows
from weir.explain.sources import Source, Told
from weir.logs.tail_lines import subject_of

EVENTS_MAX: Final = 20
"""The newest events that are told."""
_BACK_MS: Final = {
    "admission": 600_000, "share": 180_000, "dispatch": 60_000, "limit": 10_000, "backlog": 180_000,
}  # fmt: skip
"""How long before a decision the events are that led to it."""
_ASKED: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "admission": ("request", ("subject",)), "limit": ("latency", ("partition",)),
    "dispatch": ("dispatch_usage", ("broker", "topic", "subscription")), "backlog": ("backlog", ("topic",)),
}  # fmt: skip
"""What each decision answers, and which fields both have."""
_KEPT: Final = {"share": "limits", "limit": "limit"}
_BEFORE_MS: Final = 600_000
_PLACE: Final = re.compile(r"(-\d+-\d+(/\d+)?|:\d+)\Z")
_LATE_MS: Final = 60_000
"""A decision is written so much after its event, at most, to be found beside it."""


@dataclass(slots=True, kw_only=True)
class Explanation:
    """What was found.

    Attributes:
        decision: None: only a proxy has decided, and the job has not confirmed it.
        event: that it is for; None: it is for none, or that is not there any more.
        before: the decision of the subject before it; None: there is none nearby.
        path, version, value: the policy; path None: nothing limits.
        levels: the ladder that found it.
        balances: before and after.
        terms: how deliveries were counted; None: it is not known.
        events: that led to it, oldest first.
    """

    decision: dict[str, Any] | None
    event: Told | None
    before: dict[str, Any] | None = None
    path: str | None = None
    version: int = 1
    value: Any = None
    levels: list[Level] = field(default_factory=list)
    balances: tuple[Any, Any] = (None, None)
    terms: Terms | None = None
    events: list[Told] = field(default_factory=list)

    @property
    def said(self) -> dict[str, Any]:
        """The decision, or what the proxy has decided by itself."""
        if self.decision is not None:
            return self.decision
        assert self.event is not None
        return proxys_decision(self.event)


def find(source: Source, name: str | None, wanted: str | None, at: int) -> Explanation:
    """All of it: of the decision of this id, or without one of the newest of a subject.

    Args:
        source: where it is looked for.
        name: the id.
        wanted: the subject.
        at: ms since the epoch; before it is the decision of a subject.

    Raises:
        WeirError: there is no such decision, or it cannot be read.
    """
    decision, event = _decision(source, name, wanted, at)
    found = Explanation(decision=None if decision is None else decision.fields, event=event)
    at = _at(found.said)
    if event is None and decision is not None:
        # An id names an event among those of its type.
        asked, _ = _ASKED.get(str(decision.fields.get("type")), ("", ()))
        named = _named(source.events, at - _LATE_MS, at + _LATE_MS, decision.name)
        found.event = next((told for told in named if told.fields.get("type") == asked), None)
    subject = wanted or subject_of(found.said)
    found.before, answered = _before(source, found.said, subject, at)
    _find_policy(source, found, at)
    found.events = _events(source, found, at, answered)
    found.balances = _balances(found)
    return found


def proxys_decision(event: Told) -> dict[str, Any]:
    """What a proxy has decided, in the form of an admission."""
    fields = event.fields
    return {
        "type": "admission", "id": event.name, "ts": event.ts, "proxy": fields.get("proxy", ""),
        "subject": fields.get("subject", ""), "limit": None, **fields["decided"],
    }  # fmt: skip


def _decision(
    source: Source, name: str | None, subject: str | None, at: int
) -> tuple[Told | None, Told | None]:
    until = at if name is None else INT64_MAX
    for from_ms in source.windows(at):
        newest: Told | None = None
        if name is not None:
            newest = next(_named(source.decisions, from_ms, until, name), None)
        else:
            for told in source.decisions(from_ms, until + _LATE_MS, _text(str(subject))):
                known = newest is None or told.at >= newest.at
                if known and told.at <= at and subject_of(told.fields) == subject:
                    newest = told if told.fields.get("repeat") is not True else newest
        if newest is not None:
            return newest, None
        if name is not None:
            for event in _named(source.events, from_ms, until, name):
                if isinstance(event.fields.get("decided"), dict):
                    return None, event
    what = f"on {subject} before that time" if name is None else f"with the id {name}"
    raise WeirError(f"no decision {what} is in the log; it keeps them for the retention of its topic")


def _named(read: Any, from_ms: int, to_ms: int, name: str) -> Iterator[Told]:
    """What has an id, repetitions left out."""
    # An event that names none has that of its place, which it does not hold.
    holding = b"" if _PLACE.search(name) else _text(name)
    for told in read(max(0, from_ms), to_ms, holding):
        if told.name == name and told.fields.get("repeat") is not True:
            yield told


def _before(
    source: Source, said: dict[str, Any], subject: str, at: int
) -> tuple[dict[str, Any] | None, set[str]]:
    """The newest decision of a subject before one, and the ids of all that are nearby."""
    found: Told | None = None
    names = set[str]()
    for told in source.decisions(max(0, at - _BEFORE_MS), at + _LATE_MS, _text(_part(said, subject))):
        fields = told.fields
        if fields.get("type") != said["type"] or told.name == said.get("id") or told.at > at:
            continue
        if fields.get("broker") == said.get("broker") and subject_of(fields) == subject:
            names.add(told.name)
            if found is None or told.at >= found.at:
                found = told
    return None if found is None else found.fields, names


def _find_policy(source: Source, found: Explanation, at: int) -> None:
    said, timeline = found.said, source.policies()
    policies: PolicySet = timeline.at(at)
    found.version, found.terms = policies.version, terms_of(policies)
    if type(said.get("policy_version")) is int:
        found.version = said["policy_version"]
    located = _located(said, policies)
    if located is None:
        return
    found.levels = ladder(policies, *located)
    won = next((level for level in found.levels if level.won), None)
    if won is not None:
        found.path = won.entry
        # A level names a key within an entry, or all of one.
        whole = max((path for path in policies.entries if won.entry.startswith(path)), key=len, default="")
        found.value = policies.entries.get(whole)


def _located(said: dict[str, Any], policies: PolicySet) -> tuple[Entity, int] | None:
    """Whose limit it is, and which of its measures: as the view over all laws has it."""
    reader = DECISIONS.get(str(said.get("type")))
    if reader is None:
        return None
    view = EntityView(lambda: policies, rows_max=1)
    try:
        told = reader.parse({"rejected": [], "rate": 0.0, **said})
    except BadEvent:
        return None
    if told is not None:
        view.take_decisions([(*told, _at(said))])
    if not view.table.names:
        entity = entity_of(told[0]) if told is not None else None
        return None if entity is None else (entity, 0)
    return view.table.names[0], int(view.table.columns["measure"][0])


def _events(source: Source, found: Explanation, at: int, answered: set[str]) -> list[Told]:
    said = found.said
    kind = str(said.get("type"))
    name = _part(said, subject_of(said))
    holding = _text(name)
    if kind == "admission":
        # An event need name no subject, but whoever asks.
        first = name.partition(",")[0].partition("=")[2]
        holding = b"" if "%" in first or first == ANONYMOUS else _text(first)
    newest: list[Told] = []
    begin = max(0, at - _BACK_MS.get(kind, 0))
    for told in source.events(begin, at + _LATE_MS, holding) if name else ():
        if told.at <= at and _led_to(said, told, answered):
            newest.append(told)
            if len(newest) > 4 * EVENTS_MAX:
                newest = _newest(newest)
    if found.event is not None and found.event not in newest:
        # Its own decision is not among those before it.
        newest.append(found.event)
    return _newest(newest)


def _newest(events: list[Told]) -> list[Told]:
    return sorted(events, key=lambda told: told.at)[-EVENTS_MAX:]


def _led_to(said: Mapping[str, Any], told: Told, answered: set[str]) -> bool:
    """Whether an event is of those that a decision goes by; `answered`: ids of decisions of its subject."""
    event = told.fields
    kind, of = said.get("type"), event.get("type")
    if kind == "admission" and of == "request" and event.get("subject") is None:
        return told.name in answered
    if kind == "share":
        usage = event.get("usage")
        return of == "group_usage" and isinstance(usage, dict) and said.get("group") in usage
    asked, names = _ASKED.get(str(kind), _ASKED["backlog"])
    told_so = of == asked or (kind == "admission" and of == "refund")
    return told_so and all(event.get(name) == said.get(name) for name in names)


def _balances(found: Explanation) -> tuple[Any, Any]:
    """What there was before, and after it: of a bucket tokens, else what the law keeps."""
    said, before = found.said, found.before
    kind = said.get("type")
    if kind == "admission":
        return _bucket(said, found)
    if kind == "dispatch":
        return _acquired_before(found), said.get("acquired", said.get("available"))
    if kind in _KEPT:
        return (before or {}).get(_KEPT[kind]), said.get(_KEPT[kind])
    return (None if before is None else _backlog(before)), _backlog(said)


def _backlog(said: Mapping[str, Any]) -> dict[str, Any]:
    return {name: said.get(name) for name in ("backlogSize", "oldestBacklogMessageAgeSeconds", "exceeded")}


def _bucket(said: Mapping[str, Any], found: Explanation) -> tuple[Any, Any]:
    """What was charged is what it was less: refills and refunds are in both."""
    tokens, charged = said.get("tokens"), said.get("mutations")
    if tokens is not None:
        if charged is None and found.event is not None:
            left_out = said.get("rejected", [])
            items = found.event.fields.get("items", [])
            charged = sum(item["mutations"] for item in items if item["name"] not in left_out)
        return {"tokens": tokens + (charged or 0)}, {"tokens": tokens}
    rate = said.get("rate")
    if rate is None or said.get("limit") is None:
        return None, None
    if found.value is None:
        # Over how many windows it is spread stands in the policy, which is not in the log.
        return None, {"rate": rate}
    limit = float(said["limit"])
    samples = sampled_windows(limit, float(found.value.get("controller_mutation_burst", 11 * limit)))
    return {"rate": rate - (charged or 0) / samples}, {"rate": rate}


def _acquired_before(found: Explanation) -> Any:
    acquired, terms = found.said.get("acquired"), found.terms
    if not isinstance(acquired, dict) or found.event is None or terms is None:
        return None
    counts, charged = found.event.fields, dict[str, int]()
    if counts["backlog"] or terms.all_charged:
        charged = {"msgs": counts["entries" if terms.by_entry else "msgs"], "bytes": counts["bytes"]}
    return {
        level: {
            name: None if held is None else max(0, held - charged.get(name, 0)) for name, held in of.items()
        }
        for level, of in acquired.items()
    }


def _part(said: Mapping[str, Any], subject: str) -> str:
    """What stands as text in all that is about the same: of several names the one that events have too."""
    for name in ("group", "topic", "partition"):
        if isinstance(said.get(name), str):
            return str(said[name])
    return subject


def _text(name: str) -> bytes:
    """Bytes that a record about a name holds; a name that JSON may write in several ways is in any."""
    plain = name.isascii() and not set(name) & set('"\\/') and name.isprintable()
    return name.encode() if plain else b""


def _at(fields: Mapping[str, Any]) -> int:
    """When it was applied, ms since the epoch."""
    applied, ts = fields.get("applied_ts"), fields.get("ts")
    return applied if type(applied) is int else ts if type(ts) is int else 0
