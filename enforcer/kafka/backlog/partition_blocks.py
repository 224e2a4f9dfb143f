"""Blocks of producers as Kafka's partitions know them, for all connections of a proxy."""

from typing import Final

from cachetools import LRUCache

from enforcer.core import bounds
from enforcer.core.settings import ProxySettings
from enforcer.laws.backlog.block import Block
from enforcer.laws.backlog.blocks import Blocks
from enforcer.wire.kafka.frames import TOPIC_NAME_MAX
from streaming.contract.namespaces import Namespaces

_ONLY: Final = 0
"""The number of a topic's partition that may be the topic itself, as where there is but one."""


class PartitionBlocks:
    """Finds the block of a partition.

    Attributes:
        blocks: of the proxy; while none is active Produce requests need not be read.
        names: topic id -> name, as far as brokers have said; whoever asks them adds to it.

    Args:
        blocks: see there.
        settings: how names are made up.
        names: see there.
    """

    def __init__(self, blocks: Blocks, settings: ProxySettings, names: LRUCache[bytes, str]) -> None:
        self.blocks = blocks
        self.names = names
        self._namespaces = Namespaces(settings.namespace_pattern)
        # What a topic is called in policies and decisions.
        self._full: LRUCache[str, str] = LRUCache(bounds.TOPICS_MAX)

    def block(self, topic: bytes, number: int, *, by_id: bool) -> Block | None:
        """What stands in the way of a partition's producers; None: nothing, or its name is not known.

        The partitions of a topic that has several are reported as `TOPIC-partition-N`, the only one of
        another as the topic.
        """
        name = self.names.get(topic) if by_id else topic.decode("utf-8", "replace")
        if name is None or len(name) > TOPIC_NAME_MAX:
            return None
        full = self._full.get(name)
        if full is None:
            full = self._full[name] = self._namespaces.full_name(name)
        found = self.blocks.block(f"{full}-partition-{number}")
        whole = self.blocks.block(full) if number == _ONLY else None
        if found is None or (whole is not None and found.holds):
            return whole or found
        return found
