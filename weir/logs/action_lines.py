"""What was done about backlogs as lines for people: who did what to whom, and why (docs/contract.md 3.5)."""

from collections.abc import Mapping
from typing import Any, Final

from streaming.contract.backlog.actions import BEGUN, DONE, ENDED, BacklogAction, Position, backlog_action

_EVICTION: Final = {BEGUN: "evicting", DONE: "evicted"}
_BLOCK: Final = {"hold": "holding", "refuse": "refusing"}


def line(fields: Mapping[str, Any]) -> tuple[str, str, list[str]]:
    """A word for the outcome, the numbers, and why; as a law's `line` says it of a decision.

    Raises:
        BadEvent: it is no such record.
    """
    action = backlog_action(fields)
    reasons = _eviction(action) if action.subscription else []
    unit = "s" if action.quota_type == "time" else "bytes"
    reasons.append(f"over {action.limit} {unit}: {action.policy}")
    reasons += [f"by {action.actor}"] if action.actor else []
    reasons += [action.reason] if action.reason else []
    numbers = f"{action.messages} messages" if action.subscription else "producers"
    return _word(action), numbers, reasons


def _word(action: BacklogAction) -> str:
    if action.subscription:
        return _EVICTION.get(action.step, action.step)
    if action.step == ENDED:
        return "lifted"
    return _BLOCK.get(action.how, action.step) if action.step == BEGUN else action.step


def _eviction(action: BacklogAction) -> list[str]:
    moved = "".join(
        f" {word} {_place(position)}"
        for word, position in (("from", action.since), ("to", action.upto))
        if position is not None
    )
    how = f" ({action.how})" if action.how else ""
    return [f"{action.subscription}{moved}{how}", f"{action.bytes} bytes"]


def _place(position: Position) -> str:
    return f"{position[0]}:{position[1]}"
