"""Columns of every frame of the job, in one place.

The state schema is frozen for ever: Spark refuses a checkpoint whose state has other columns, so what changes
lives inside `body`, which carries its own version (facts/style.md section 4).
"""

from typing import Final

STATE: Final = "version int, body binary"
OUTPUT: Final = (
    "sink string, key string, value binary, ts bigint, type string, id string, file int, line bigint"
)
"""A decision or dead letter; `file` and `line` are partition and offset of the record that it answers."""
STAGED: Final = "file int, line bigint, value binary"
"""One line of a replay's input."""
ROUTED: Final = (
    "law string, home string, broadcast boolean, topic string, partition int, offset bigint, ts bigint,"
    " value binary, subject string"
)
"""A replay's line after its stateless step."""
RECORD_COLUMNS: Final = (
    "law", "shard", "broadcast", "topic", "partition", "offset", "ts", "value", "subject",
)  # fmt: skip
"""What the stateful operator takes. In a replay `partition` and `offset` are numbers of file and line."""
