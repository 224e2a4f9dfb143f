"""What a block of a topic means to its producers on Pulsar, for all connections of a proxy."""

from math import inf
from typing import Final

from enforcer.laws.backlog.block import Block
from enforcer.laws.backlog.blocks import Blocks
from enforcer.wire.pulsar.commands import ServerError

REFUSED, CLOSED = "refused", "closed"
"""What became of a producer: not made, and closed."""
CLOSES_MAX: Final = 1_000
"""Producers closed in one look at all connections, about a second; the others in the next ones."""
_CODES: Final = {
    True: ServerError.PRODUCER_BLOCKED_QUOTA_EXCEEDED_ERROR,
    False: ServerError.PRODUCER_BLOCKED_QUOTA_EXCEEDED_EXCEPTION,
}
"""Whether it holds -> what tells the client's library so: whose waiting messages stay, and fail at once."""


class Closer:
    """What all connections of a proxy share of it.

    Attributes:
        blocks: of the proxy.

    Args:
        blocks: see there.
        closes_max: see CLOSES_MAX.
    """

    def __init__(self, blocks: Blocks, closes_max: int = CLOSES_MAX) -> None:
        self.blocks = blocks
        self._closes_max = closes_max
        self._look_ms = -inf
        self._left = 0

    def refusal(self, topic: str) -> tuple[int, str] | None:
        """With which code and text a producer of a topic is refused; None: it is not."""
        if not self.blocks.active:
            return None
        block = self.blocks.block(topic)
        if block is None:
            return None
        self.count(block, REFUSED)
        return _CODES[block.holds], block.message

    def may_close(self, now_ms: float) -> bool:
        """Whether one more may be closed in the look of this time."""
        if now_ms != self._look_ms:
            self._look_ms, self._left = now_ms, self._closes_max
        self._left -= 1
        return self._left >= 0

    def count(self, block: Block, outcome: str) -> None:
        """A producer met a block."""
        self.blocks.began(block)
        self.blocks.metrics.requests.labels(*block.kind, outcome).inc()
