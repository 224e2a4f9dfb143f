"""Decisions and dead letters as they are written (contract sections 1 and 3).

Every engine writes them with this code: Java and Python print doubles differently, and the bytes must
not depend on who decided.
"""

import base64
from collections.abc import Mapping
from typing import Any, Final

import orjson

DECISIONS: Final = "decisions"
DEADLETTER: Final = "deadletter"


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
