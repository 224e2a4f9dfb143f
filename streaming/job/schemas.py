"""Columns of every frame of the job, in one place.

The state schema is frozen for ever: Spark refuses a checkpoint whose state has other columns, so what changes
lives inside `body`, which carries its own version (docs/decisions.md, "State").

Few and mostly numeric columns: each row crosses a shuffle, a sort and Arrow.
"""

from typing import Final

STATE: Final = "version int, body binary"
RECORD_COLUMNS: Final = ("grouping_key", "origin", "partition", "offset", "ts", "sent", "value")
"""What the stateful operator takes. `grouping_key` numbers the laws' shards (grouping_keys): Spark sorts one
number in linear time, but not a name and a number. `origin` is one of those below; live, `partition`,
`offset` and `ts` (ms) are the Kafka record's; in a replay `partition` is the number of the file, `offset`
that of the line. `sent` is a record's header of that name (columns.sent)."""
EVENT: Final = 0
"""A record of `weir.requests`, or in a replay any record for one routing key."""
POLICY: Final = 1
"""A record of `weir.policies`, or in a replay any record for all shards that it concerns."""
USAGE: Final = 2
"""A record of `weir.usage` for one routing key."""
TICK: Final = 3
"""A record of `weir.usage` for all shards of the laws whose decisions stand."""
PACKED_EVENT: Final = 4
"""A packed record of `weir.requests`."""
PACKED_USAGE: Final = 5
"""A packed record of `weir.usage`."""
CUT_EVENT: Final = 6
"""What a router cut out of a packed record of `weir.requests` for one shard (laws.pack_routing)."""
CUT_USAGE: Final = 7
"""The same of `weir.usage`."""
PACKED: Final = frozenset({PACKED_EVENT, PACKED_USAGE})
CUT: Final = {PACKED_EVENT: CUT_EVENT, PACKED_USAGE: CUT_USAGE}
"""What parts of packed records are, by what these were."""
BROADCAST: Final = frozenset({POLICY, TICK})
OUTPUT: Final = (
    "topic string, key binary, value binary, partition int, headers array<struct<key:string,value:binary>>"
)
"""Decisions of the live job, or a dead letter, as Spark's Kafka sink takes them: columns of any other form
would be copied once more, row by row. Packed ones name their partition and have a header."""
REPLAY_OUTPUT: Final = "dead boolean, value binary, ts bigint, type string, id string, file int, line bigint"
"""The same in a replay, with what it is sorted by: `Outputs.replayed`; `ts` in ms."""
STAGED: Final = "file int, line bigint, value binary"
"""One line of a replay's input."""
ROUTED: Final = (
    "grouping_key int, origin int, partition int, offset bigint, ts bigint, sent binary, value binary"
)
"""RECORD_COLUMNS with their types: what the stateless step in Python gives."""
