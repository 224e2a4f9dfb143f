"""Blocks as `weir.decisions` logs them: that one has begun, once it met a request, and that it ended."""

from functools import partial
from typing import Final

from prometheus_client import Counter

from enforcer.core.law import Context
from enforcer.laws.backlog.block import Block
from streaming.contract.backlog.actions import BEGUN, ENDED, BacklogAction

_HOW: Final = {True: "hold", False: "refuse"}


class ActionLog:
    """What one enforcer logs of its blocks. Never waited for: what cannot be written is counted.

    Args:
        context: see there.
        counts: by step and result.
    """

    def __init__(self, context: Context, counts: Counter) -> None:
        self._context = context
        # A block of another process of the same name is another one.
        self._actor = f"{context.proxy_id}-{context.clock.wall_ms()}"
        self._counts = counts
        # Topic -> its block that has begun; no more than there are blocks.
        self._begun: dict[str, Block] = {}

    def begin(self, block: Block) -> None:
        """A request met a block."""
        if block.topic not in self._begun:
            self._begun[block.topic] = block
            self._write(block, BEGUN, "")

    def end(self, block: Block, why: str) -> None:
        """A block has ended; one that met no request is not spoken of."""
        begun = self._begun.pop(block.topic, None)
        if begun is not None:
            self._write(begun, ENDED, why)

    def _write(self, block: Block, step: str, why: str) -> None:
        action = BacklogAction(
            id=f"{block.decision}/{block.quota_type}/{self._actor}",
            ts=self._context.brokers_ms(),
            topic=block.topic,
            quota_type=block.quota_type,
            policy=block.policy,
            limit=block.limit,
            actor=self._actor,
            step=step,
            how=_HOW[block.holds],
            reason=why,
        )
        if not self._context.send_action(action.fields(), block.topic, acked=partial(self._acked, step)):
            self._counts.labels(step, "dropped").inc()

    def _acked(self, step: str, record_ms: int | None) -> None:
        """In a thread."""
        self._counts.labels(step, "failed" if record_ms is None else "written").inc()
