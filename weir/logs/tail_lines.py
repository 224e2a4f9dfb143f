"""Decisions as lines for people: when, what is allowed, to whom, and why (docs/contract.md 3).

The laws say how theirs are shown; actions on backlogs stand on the topic beside decisions.
"""

from collections.abc import Mapping
from typing import Any, Final

import orjson

from streaming.contract.backlog import actions
from streaming.contract.decisions import CANDIDATE
from streaming.contract.errors import BadEvent
from streaming.contract.events import load_object
from streaming.contract.names import is_probe
from streaming.contract.printable import printable, printable_json
from streaming.contract.times import clock
from streaming.laws.registry import LAWS

OUTCOME_WIDTH: Final = 9
SUBJECT_WIDTH: Final = 34
NUMBERS_WIDTH: Final = 24
TEXT_MAX: Final = 1_000
"""Characters that are shown of what is no decision."""
_FLAGS: Final = ("late", "shadow", "repeat")
_EVICTION: Final = {actions.BEGUN: "evicting", actions.DONE: "evicted"}
_BLOCK: Final = {"hold": "holding", "refuse": "refusing"}


def subject_of(decision: dict[str, Any]) -> str:
    """Whom a decision is about; empty if it does not say as it should.

    >>> subject_of({"type": "share", "group": "rg1", "broker": "b1"}), subject_of({"type": "share"})
    ('rg1/b1', '')
    """
    if decision.get("type") == actions.TYPE:
        topic = decision.get("topic")
        return topic if isinstance(topic, str) else ""
    try:
        return LAWS.subject_of(decision)
    except BadEvent:
        return ""


def describe(decision: dict[str, Any]) -> str:
    """One decision as a line: time, outcome, subject, what is allowed, why, flags, id.

    Anybody can write to the topic, so a decision that lacks what it should hold is shown field by field.
    Names are a client's own choice: what a terminal would obey is escaped (`printable`).
    """
    return printable(_described(decision))


def _described(decision: dict[str, Any]) -> str:
    ts = decision.get("ts")
    when = clock(ts) if isinstance(ts, int) and not isinstance(ts, bool) else "?"
    kind = decision.get("type", "?")
    try:
        line = _action if kind == actions.TYPE else LAWS.by_decision[kind].line
        outcome, numbers, reasons = line(decision)
    except (BadEvent, KeyError, TypeError, ValueError, AttributeError, IndexError):
        rest = {key: value for key, value in decision.items() if key not in ("type", "ts")}
        return f"{when}  {kind!s:<{OUTCOME_WIDTH}} {_cut(orjson.dumps(rest).decode())}"
    parts = [
        f"{when}  {outcome:<{OUTCOME_WIDTH}} {subject_of(decision) or '(no quota)':<{SUBJECT_WIDTH}}",
        f"{numbers:<{NUMBERS_WIDTH}}",
        *reasons,
        *(flag for flag in _FLAGS if decision.get(flag) is True),
        *([f"candidate {decision[CANDIDATE]}"] if CANDIDATE in decision else []),
        f"[{decision.get('id', '?')}]",
    ]
    return "  ".join(part for part in parts if part)


def _action(fields: Mapping[str, Any]) -> tuple[str, str, list[str]]:
    """A word for the outcome, the numbers, and why; as a law's `line` says it of a decision.

    Raises:
        BadEvent: it is no such record.
    """
    action = actions.backlog_action(fields)
    reasons = _eviction(action) if action.subscription else []
    unit = "s" if action.quota_type == "time" else "bytes"
    reasons.append(f"over {action.limit} {unit}: {action.policy}")
    reasons += [f"by {action.actor}"] if action.actor else []
    reasons += [action.reason] if action.reason else []
    numbers = f"{action.messages} messages" if action.subscription else "producers"
    return _word(action), numbers, reasons


def _word(action: actions.BacklogAction) -> str:
    if action.subscription:
        return _EVICTION.get(action.step, action.step)
    if action.step == actions.ENDED:
        return "lifted"
    return _BLOCK.get(action.how, action.step) if action.step == actions.BEGUN else action.step


def _eviction(action: actions.BacklogAction) -> list[str]:
    moved = "".join(
        f" {word} {position[0]}:{position[1]}"
        for word, position in (("from", action.since), ("to", action.upto))
        if position is not None
    )
    how = f" ({action.how})" if action.how else ""
    return [f"{action.subscription}{moved}{how}", f"{action.bytes} bytes"]


def _cut(text: str) -> str:
    left = len(text) - TEXT_MAX
    return text if left <= 0 else f"{text[:TEXT_MAX]} ... and {left} characters more"


def render(
    value: bytes, *, as_json: bool, subject: str | None, kind: str | None, repeats: bool = False,
    probes: bool = False,
) -> str | None:  # fmt: skip
    """One decision as a line; None if the filters leave it out.

    A record that is no JSON object is shown as it is, unless a filter is set: it has no subject. A standing
    decision that is only said again is left out too, unless `repeats` or `as_json` asks for it, and so is
    that of a proxy's probe, unless `probes` or `as_json` does.
    """
    try:
        decision = load_object(value)
    except BadEvent:
        return None if subject or kind else printable(_cut(value.decode("utf-8", "replace")))
    if subject is not None and subject_of(decision) != subject:
        return None
    if kind is not None and decision.get("type") != kind:
        return None
    if as_json:
        return printable_json(value.decode())
    if (decision.get("repeat") is True and not repeats) or (is_probe(decision) and not probes):
        return None
    return describe(decision)
