"""Decisions and dead letters as they are written (docs/contract.md 1 and 3).

Every engine writes them with this code: Java and Python print doubles differently, and the bytes must
not depend on who decided.
"""

import base64
from typing import Final

import orjson

DECISIONS: Final = "decisions"
DEADLETTER: Final = "deadletter"
LATE_MS: Final = 60_000
"""A share or a limit is not too late to be written for so long, however short its life time: a job that lags
behind rounds of a second is of more use than one that says nothing."""


def dead_letter(
    *, reason: str, topic: str, partition: int, offset: int, ts: int | None, value: bytes,
    row: int | None = None,
) -> bytes:  # fmt: skip
    """The JSON of a record that could not be used (docs/contract.md 1).

    Args:
        reason: what was wrong and what was expected.
        topic: where it came from; the base name of a file in a replay.
        partition: its partition; 0 for a file.
        offset: its offset; the line number, from 1, for a file.
        ts: the record's timestamp in ms, None if it has none.
        value: its bytes, unchanged; of a row of a packed record its JSON object.
        row: number of that row, from 0; None: it is none.
    """
    return orjson.dumps(
        {
            "type": "dead_letter",
            "reason": reason,
            "topic": topic,
            "partition": partition,
            "offset": offset,
            **({} if row is None else {"row": row}),
            "ts": ts,
            "value_base64": base64.b64encode(value).decode(),
        }
    )
