"""An explanation as it is printed: for people at 3 a.m., or as JSON."""

from collections.abc import Iterator
from typing import Any, Final

import orjson

from enforcer.control.answers.shown import iso
from streaming.contract.printable import printable, printable_json
from streaming.contract.times import clock
from streaming.policy.yaml.text import rendered
from weir.explain.finding import Explanation, proxys_decision
from weir.explain.sources import Told
from weir.logs.tail_lines import describe, subject_of
from weir.logs.times import moment

_HIDDEN: Final = frozenset({
    "type", "id", "ts", "proxy", "v", "samples", "ledgers", "subscriptions", "decided",
})  # fmt: skip
_FIELDS_MAX: Final = 300
_SHOWN_SAMPLES: Final = 3
_PATH_WIDTH: Final = 48
_WHY: Final = {
    "admission": "tokens are what may be changed at once; below 0 nothing is let in until they are paid off",
    "share": "a limit is divided each round by what its members use (docs/laws.md)",
    "dispatch": "what was delivered beyond the rate is paid off by the periods that follow",
    "limit": "the limit follows what answers take; nothing has to be set",
    "backlog": "by the size or age of what the slowest subscription has not read",
}
"""What the balance of each law means."""


def as_json(found: Explanation) -> str:
    """The object of docs/contract.md 4."""
    policy = {"path": found.path, "version": found.version, "value": found.value}
    said = {
        "decision": found.said,
        "event": None if found.event is None else _object(found.event),
        "policy": policy,
        "before": found.balances[0],
        "after": found.balances[1],
        "events": [_object(event) for event in found.events],
    }
    return printable_json(orjson.dumps(said).decode())


def lines(found: Explanation) -> list[str]:
    """What happened, why, by which policy, and what led to it."""
    return [printable(line) for line in _lines(found)]


def _lines(found: Explanation) -> Iterator[str]:
    said = found.said
    kind = str(said.get("type"))
    yield _headline(said)
    yield f"  {describe(said)}"
    yield f"  Decided {_where(found)}."
    yield from _outcomes(said)
    yield ""
    before, after = ("not known" if each is None else orjson.dumps(each).decode() for each in found.balances)
    yield f"Balance: {before} before, {after} after; {_WHY.get(kind, '')}."
    yield ""
    if found.path is None:
        yield f"Policy: none in the log limits it at version {found.version}."
    else:
        yield f"Policy: {found.path}, version {found.version}: {rendered(found.value)}"
    if found.levels:
        yield "It is looked for level by level, the first that sets the limit wins:"
        for level in found.levels:
            limit = "-" if level.limit is None else f"{level.limit:g}"
            won = "  <- in force" if level.won else ""
            yield f"  {level.level:<12} {level.entry:<{_PATH_WIDTH}} {limit}{won}"
    yield ""
    yield "What led to it, the newest last:" if found.events else "No event that led to it is in the log."
    yield from (f"  {_event(event)}" for event in found.events)


def _headline(said: dict[str, Any]) -> str:
    when = iso(said.get("applied_ts", said.get("ts", 0)))
    return f"{subject_of(said) or '(nobody limits it)'} at {when} [{said.get('id')}]"


def _where(found: Explanation) -> str:
    said, event = found.said, found.event
    decided = None if event is None else event.fields.get("decided")
    if isinstance(decided, dict) and event is not None:
        proxy = event.fields.get("proxy", "")
        where = f"at once by the proxy {proxy}, by its part of the balance"
        if found.decision is None:
            return f"{where}; the job has not confirmed it"
        law = said.get("law")
        if isinstance(law, dict):
            return f"{where}; the law would have said {law.get('outcome')}, the job has charged what was done"
        return f"{where}; the job has confirmed it"
    if said.get("answered"):
        return "by the proxy: its subject had to wait still; counted, not charged"
    return "by the job"


def _outcomes(said: dict[str, Any]) -> Iterator[str]:
    wait_ms = said.get("throttle_time_ms")
    if wait_ms:
        at = said.get("applied_ts", said["ts"])
        yield f"  It has to wait {wait_ms} ms, until {moment(at + wait_ms)}."
    if said.get("late"):
        yield "  It was decided too late: the proxy had answered without."
    if said.get("shadow"):
        yield "  Its policy is a shadow: nobody was held back."
    if said.get("removed"):
        yield f"  It is no member any more: {said['removed']}."


def _event(event: Told) -> str:
    fields = event.fields
    shown = {name: value for name, value in fields.items() if name not in _HIDDEN}
    samples = fields.get("samples")
    if isinstance(samples, list):
        shown["samples"] = [*samples[:_SHOWN_SAMPLES], *(["..."] if len(samples) > _SHOWN_SAMPLES else [])]
    text = orjson.dumps(shown).decode()
    text = text if len(text) <= _FIELDS_MAX else f"{text[:_FIELDS_MAX]}..."
    by = f" by {fields['proxy']}" if fields.get("proxy") else ""
    line = f"{clock(event.ts)}  {fields.get('type')}{by} [{event.name}] {text}"
    if isinstance(fields.get("decided"), dict):
        line += f" -> {proxys_decision(event)['outcome']}"
    return line


def _object(event: Told) -> dict[str, Any]:
    return {**event.fields, "id": event.name, "ts": event.ts}
