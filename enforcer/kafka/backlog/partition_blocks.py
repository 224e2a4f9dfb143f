"""Blocks of producers as Kafka's partitions know them, for all connections of a proxy."""

from collections.abc import Callable
from typing import Final

from cachetools import LRUCache

from enforcer.laws.backlog.block import Block
from enforcer.laws.backlog.blocks import Blocks

_ONLY: Final = 0
"""The number of a topic's partition that may be the topic itself, as where there is but one."""


class PartitionBlocks:
    """Finds the block of a partition.

    Attributes:
        blocks: of the proxy; while none is active Produce requests need not be read.
        names: topic id -> name, as far as brokers have said; whoever asks them adds to it.

    Args:
        blocks: see there.
        names: see there.
        full_name: what policies and decisions call a topic, by its Kafka name or, if so said, its id.
    """

    def __init__(
        self, blocks: Blocks, names: LRUCache[bytes, str], full_name: Callable[[bytes, bool], str | None]
    ) -> None:
        self.blocks, self.names, self._full_name = blocks, names, full_name

    def block(self, topic: bytes, number: int, *, by_id: bool) -> Block | None:
        """What stands in the way of a partition's producers; None: nothing, or its name is not known.

        The partitions of a topic that has several are reported as `TOPIC-partition-N`, the only one of
        another as the topic.
        """
        full = self._full_name(topic, by_id)
        if full is None:
            return None
        found = self.blocks.block(f"{full}-partition-{number}")
        whole = self.blocks.block(full) if number == _ONLY else None
        if found is None or (whole is not None and found.holds):
            return whole or found
        return found
