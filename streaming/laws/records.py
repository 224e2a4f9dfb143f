"""What goes into a shard's step: records, and what must be known beside them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from streaming.contract.errors import BadEvent


@dataclass(slots=True)
class Records:
    """Records of one shard, in any order, as parallel lists.

    Attributes:
        topic: topic, or base name of a file.
        partition: partition; 0 for a file.
        offset: offset, or line number from 1.
        ts: record timestamp in ms; None for a line of a file.
        value: the bytes.
        name: default id of the event, None for `<topic>-<partition>-<offset>`.
        order: what sorts events of one time: (partition, offset) live, (file, line) in a replay.
        broadcast: whether every shard got this record, as policies and ticks must and nothing else may;
            None: there is one shard only.
    """

    topic: list[str] = field(default_factory=list)
    partition: list[int] = field(default_factory=list)
    offset: list[int] = field(default_factory=list)
    ts: list[int | None] = field(default_factory=list)
    value: list[bytes] = field(default_factory=list)
    name: list[str] | None = None
    order: list[tuple[int, int]] | None = None
    broadcast: list[bool] | None = None

    def name_of(self, i: int) -> str:
        """Id of a record that names none itself (contract section 1)."""
        if self.name is not None:
            return self.name[i]
        return f"{self.topic[i]}-{self.partition[i]}-{self.offset[i]}"

    def check_channel(self, i: int, for_all: bool) -> None:
        """A policy or tick that one shard alone saw, or an event that all saw, would be decided wrongly.

        Raises:
            BadEvent: it came by the wrong topic.
        """
        if self.broadcast is not None and self.broadcast[i] != for_all:
            raise BadEvent(f"type: {'for all shards' if for_all else 'for one shard'}; this topic is not")

    def order_of(self, i: int) -> tuple[int, int]:
        """Arrival of a record."""
        return self.order[i] if self.order is not None else (self.partition[i], self.offset[i])


@dataclass(frozen=True, slots=True, kw_only=True)
class StepContext:
    """What a step needs to know beside its records.

    Attributes:
        initial: policies in force before every event, as version 1 (replay's `--policies`).
        processed_ts: wall time of the micro-batch in ms, None in a replay.
        fail_fast: a code error in a law stops the query instead of making dead letters.
        replay: subjects are resolved against the policies, not taken from the event.
    """

    initial: Mapping[str, Any] = field(default_factory=dict)
    processed_ts: int | None = None
    fail_fast: bool = False
    replay: bool = False
