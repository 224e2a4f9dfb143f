"""One bound for the memory of the process: when it comes near, who holds most goes first."""

import logging
import resource
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from enforcer.core.metrics import Traffic

logger = logging.getLogger(__name__)

_PAGE_BYTES: Final = resource.getpagesize()


class Holder(Protocol):
    """Who keeps bytes: a connection."""

    @property
    def held_bytes(self) -> int:
        """What it keeps: received and not handled, or waiting to be written."""
        ...

    def cut(self, reason: str) -> None:
        """End at once and keep nothing."""
        ...


def resident_bytes() -> int:
    """What the process has in memory now."""
    with open("/proc/self/statm", "rb") as statm:
        return int(statm.read().split()[1]) * _PAGE_BYTES


class MemoryBudget:
    """Half of the bound is for what connections keep; the other half for tables and what Python itself needs.

    Nothing is counted per request. Connections cannot keep more than the process has, so they are only asked
    when that exceeds their half.

    Args:
        limit_bytes: the bound.
        holders: all who may be asked.
        traffic: shows what was found.
        measure: what the process has, bytes.
    """

    def __init__(
        self,
        limit_bytes: int,
        holders: Callable[[], Iterable[Holder]],
        traffic: Traffic,
        measure: Callable[[], int] = resident_bytes,
    ) -> None:
        self._half_bytes = limit_bytes // 2
        self._holders = holders
        self._traffic = traffic
        self._measure = measure

    def look(self) -> None:
        """End those who hold most, until the rest fits."""
        self._traffic.resident = self._measure()
        if self._traffic.resident <= self._half_bytes:
            return
        holdings = [(holder.held_bytes, holder) for holder in self._holders()]
        total = sum(size for size, _ in holdings)
        if total <= self._half_bytes:
            return
        holdings.sort(key=lambda holding: holding[0])
        logger.warning("connections hold %d bytes, the greediest are ended", total)
        while total > self._half_bytes:
            size, holder = holdings.pop()
            total -= size
            holder.cut("memory")
