"""Actions on backlogs as `weir.decisions` logs them: who did what to whom, and why (docs/contract.md 3.5).

They are statements of what was done, not decisions of a law: nobody acts on them, and a replay has none. What
must survive a crash is said twice, before (`begun`) and after (`done` or `failed`).
"""

from dataclasses import dataclass
from typing import Any, Final

from streaming.contract.fields import TS_MAX_MS, Fields, choice, integer, text

TYPE: Final = "backlog_action"
BEGUN, DONE, FAILED, ENDED = "begun", "done", "failed", "ended"
STEPS: Final = (BEGUN, DONE, FAILED, ENDED)
"""An eviction is begun, then done or failed; a block of producers is begun, then ended."""
QUOTA_TYPES: Final = ("size", "time")
Position = tuple[int, int]
"""Ledger and entry, of the last one that is acknowledged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogAction:
    """One step of one action.

    Attributes:
        id: names the action; all its steps have the same, and in JSON the step behind it, since every
            record has an id of its own. `DECISION/QUOTA_TYPE/SUBSCRIPTION` of an eviction, of a block
            `DECISION/QUOTA_TYPE/ACTOR`.
        ts: of this step, ms since the epoch.
        topic: full name.
        quota_type: `size` or `time`.
        policy: that asks for it.
        limit: bytes or seconds, that was exceeded.
        actor: who acts: a collector or a proxy.
        step: one of STEPS.
        subscription: that loses messages; empty: of a block.
        how: `offsets`, `delete_records`, `expire`; `hold`, `refuse`.
        since: the position before; None: not told.
        upto: the position afterwards; None: not told.
        messages, bytes: what goes with it; of a block 0.
        reason: why it failed, or ended; else empty.
    """

    id: str
    ts: int
    topic: str
    quota_type: str
    policy: str
    limit: int
    actor: str
    step: str
    subscription: str = ""
    how: str = ""
    since: Position | None = None
    upto: Position | None = None
    messages: int = 0
    bytes: int = 0
    reason: str = ""

    def fields(self) -> dict[str, Any]:
        """Its JSON object."""
        said: dict[str, Any] = {"type": TYPE, "id": f"{self.id}/{self.step}"}
        for name in ("ts", "topic", "quota_type", "policy", "limit", "actor", "step", "how"):
            said[name] = getattr(self, name)
        if self.subscription:
            said["subscription"] = self.subscription
        for name in ("since", "upto"):
            position = getattr(self, name)
            if position is not None:
                said[name] = {"ledger": position[0], "entry": position[1]}
        if self.subscription:
            said |= {"messages": self.messages, "bytes": self.bytes}
        if self.reason:
            said["reason"] = self.reason
        return said


def backlog_action(fields: Fields) -> BacklogAction:
    """A step from its JSON object.

    Raises:
        BadEvent: it is none, or a number in it is out of range.
    """
    step = choice(fields, "step", "", STEPS)
    return BacklogAction(
        id=text(fields, "id", None).removesuffix(f"/{step}"),
        ts=integer(fields, "ts", None, maximum=TS_MAX_MS),
        topic=text(fields, "topic", None),
        quota_type=choice(fields, "quota_type", "", QUOTA_TYPES),
        policy=text(fields, "policy", None),
        limit=integer(fields, "limit", None, minimum=-1),
        actor=text(fields, "actor", ""),
        step=step,
        subscription=text(fields, "subscription", ""),
        how=text(fields, "how", ""),
        since=_position(fields, "since"),
        upto=_position(fields, "upto"),
        messages=integer(fields, "messages", 0),
        bytes=integer(fields, "bytes", 0),
        reason=text(fields, "reason", ""),
    )


def _position(fields: Fields, key: str) -> Position | None:
    found = fields.get(key)
    if type(found) is not dict:
        return None
    return integer(found, "ledger", None, minimum=-1), integer(found, "entry", None, minimum=-1)
