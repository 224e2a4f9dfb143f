"""Records of policies as a writer makes them, at a time that a test chooses."""

from collections.abc import Sequence

from streaming.kafka_io.policy_topic import Author, PolicyLog, Update
from streaming.kafka_io.policy_turn import _dated, _said


def records(
    log: PolicyLog, updates: Sequence[Update], effective_ts: int, author: Author
) -> list[tuple[str, bytes]]:
    """Updates as records (key, value), in force from `effective_ts` on."""
    said = [(update, _said(log, update, author, len(updates))) for update in updates]
    return _dated(log, said, effective_ts, author)
