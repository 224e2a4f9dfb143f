"""Decisions and dead letters as they are written (contract sections 1 and 3).

Every engine writes them with this code: Java and Python print doubles differently, and the bytes must
not depend on who decided.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

DECISIONS: Final = "decisions"
DEADLETTER: Final = "deadletter"


@dataclass(slots=True)
class Outputs:
    """What one step of a law wrote, as parallel lists, one entry a record.

    Attributes:
        sink: DECISIONS or DEADLETTER.
        key: the record key: the decision's subject; empty for a dead letter.
        value: the record's bytes, one JSON object.
        ts: event time in ms; 0 where a dead letter has none.
        type: the decision's `type`, or `dead_letter`.
        id: the decision's `id`; empty for a dead letter.
        source: index of the input record it answers.
    """

    sink: list[str] = field(default_factory=list)
    key: list[str] = field(default_factory=list)
    value: list[bytes] = field(default_factory=list)
    ts: list[int] = field(default_factory=list)
    type: list[str] = field(default_factory=list)
    id: list[str] = field(default_factory=list)
    source: list[int] = field(default_factory=list)

    def add_decision(self, decision: dict[str, Any], *, source: int) -> None:
        """Append a decision; `decision` holds at least type, id, ts and whom it is about."""
        self.sink.append(DECISIONS)
        self.key.append(decided_subject(decision))
        self.value.append(orjson.dumps(decision))
        self.ts.append(decision["ts"])
        self.type.append(decision["type"])
        self.id.append(decision["id"])
        self.source.append(source)

    def add_repeat(self, value: bytes, *, subject: str, type: str, id: str, now: int, source: int) -> None:
        """Append a standing decision said again; it counts as of `now`, not as of its first writing."""
        self.sink.append(DECISIONS)
        self.key.append(subject)
        self.value.append(value)
        self.ts.append(now)
        self.type.append(type)
        self.id.append(id)
        self.source.append(source)

    def add_dead_letter(self, letter: bytes, *, ts: int | None, source: int) -> None:
        """Append a dead letter made by `dead_letter`."""
        self.sink.append(DEADLETTER)
        self.key.append("")
        self.value.append(letter)
        self.ts.append(0 if ts is None else ts)
        self.type.append("dead_letter")
        self.id.append("")
        self.source.append(source)


_SUBJECTS: Final[dict[str, tuple[str, ...]]] = {
    "admission": ("subject",),
    "share": ("group", "broker"),
    "dispatch": ("topic", "subscription"),
    "limit": ("partition",),
    "backlog": ("topic",),
}


def decided_subject(decision: Mapping[str, Any]) -> str:
    """Whom a decision is about: quota entity, group/broker, topic/subscription, partition or topic."""
    return "/".join(decision[name] for name in _SUBJECTS[decision["type"]])


def dead_letter(
    *, reason: str, topic: str, partition: int, offset: int, ts: int | None, value: bytes
) -> bytes:
    """The JSON of a record that could not be used (contract section 1).

    Args:
        reason: what was wrong and what was expected.
        topic: where it came from; the base name of a file in a replay.
        partition: its partition; 0 for a file.
        offset: its offset; the line number, from 1, for a file.
        ts: the record's timestamp in ms, None if it has none.
        value: its bytes, unchanged.
    """
    return orjson.dumps(
        {
            "type": "dead_letter",
            "reason": reason,
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "ts": ts,
            "value_base64": base64.b64encode(value).decode(),
        }
    )


def output_order(ts: Sequence[int], kind: Sequence[str], name: Sequence[str]) -> list[int]:
    """Positions sorted by (ts, type, id) by code point; equal keys keep their order (contract section 4)."""
    return sorted(range(len(ts)), key=lambda i: (ts[i], kind[i], name[i]))
