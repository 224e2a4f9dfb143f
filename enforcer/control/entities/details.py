"""What is kept of the few entities that somebody may ask about: decisions, use by proxy, what was asked."""

from array import array
from collections.abc import Mapping
from operator import itemgetter
from typing import Any, Final

import numpy as np
import orjson

from enforcer.control.entities.columns import Columns
from enforcer.control.entities.laws import Entity
from streaming.kafka_io.newest import Newest

ENTITIES_MAX: Final = 2_000
"""Entities that waited, and so many that did not; those silent longest go first."""
DECISIONS_MAX: Final = 10
"""Newest decisions of one of them."""
_DECISIONS_BYTES: Final = 16_384
"""What these may take, and those of candidates again: one may repeat hundreds of names."""
_PROXIES_MAX: Final = 4 * ENTITIES_MAX
"""Pairs of an entity and a proxy whose use is told apart."""
ASKED_SLOT_MS: Final = 10_000
HOUR_MS: Final = 3_600_000
_SLOTS: Final = HOUR_MS // ASKED_SLOT_MS
_USED_SLOT_MS: Final = 10_000
_USED_SLOTS: Final = 6


class Asked:
    """What an entity has asked for in the last hour, by slots of ten seconds, from its first wait on."""

    __slots__ = ("_amounts", "_slot")

    def __init__(self) -> None:
        self._amounts = array("f", bytes(4 * _SLOTS))
        self._slot = 0

    def add(self, ts: int, amount: float) -> None:
        """Count an amount."""
        if (place := self._place(ts)) is not None:
            self._amounts[place] += amount

    def most(self, ts: int, amount: float) -> None:
        """Note what is wanted at a time: of a slot the greatest counts."""
        if (place := self._place(ts)) is not None:
            self._amounts[place] = max(self._amounts[place], amount)

    def slots(self, now_ms: int) -> list[float]:
        """The amounts, the oldest slot first; as of Columns, nothing is begun by being asked for."""
        last = max(self._slot, now_ms // ASKED_SLOT_MS)
        slots = range(last - _SLOTS + 1, last + 1)
        return [self._amounts[slot % _SLOTS] if slot <= self._slot else 0.0 for slot in slots]

    def _place(self, ts: int) -> int | None:
        slot = ts // ASKED_SLOT_MS
        for begun in range(max(self._slot + 1, slot - _SLOTS + 1), slot + 1):
            self._amounts[begun % _SLOTS] = 0.0
        self._slot = max(self._slot, slot)
        return slot % _SLOTS if slot > self._slot - _SLOTS else None


class Detail:
    """Of one entity.

    Attributes:
        decisions: the newest as they stand in the log, the oldest first.
        candidates: by name of candidate policies the newest decision by them.
        asked: None before its first wait.
        waited_ts: when it began to wait last, ms since the epoch.
    """

    __slots__ = ("asked", "candidates", "decisions", "waited_ts")

    def __init__(self) -> None:
        # A list: an empty deque takes ten times as much.
        self.decisions: list[bytes] = []
        self.candidates: dict[str, bytes] = {}
        self.asked: Asked | None = None
        self.waited_ts = 0

    def decided(self, fields: Mapping[str, Any], candidate: str | None) -> None:
        """Keep a decision; one that is very long, as by the names that it rejects, is not worth it."""
        # A copy, since it is kept: what orjson returns has room for much more.
        said = bytes(memoryview(orjson.dumps(fields)))
        if len(said) > _DECISIONS_BYTES:
            return
        if candidate is None:
            self.decisions.append(said)
            while len(self.decisions) > DECISIONS_MAX or sum(map(len, self.decisions)) > _DECISIONS_BYTES:
                del self.decisions[0]
        else:
            self.candidates[candidate] = said
            while sum(map(len, self.candidates.values())) > _DECISIONS_BYTES:
                del self.candidates[next(iter(self.candidates))]


class Details:
    """Those that waited, and some that did not."""

    def __init__(self) -> None:
        self._waited: Newest[Entity, Detail] = Newest(ENTITIES_MAX)
        self._others: Newest[Entity, Detail] = Newest(ENTITIES_MAX)
        self._used: Columns[tuple[Entity, str]] = Columns(
            _PROXIES_MAX, {"since": (np.int64, 0)}, {"used": (np.float64, 0)},
            slot_ms=_USED_SLOT_MS, slots_kept=_USED_SLOTS, group=itemgetter(0),
        )  # fmt: skip

    def get(self, entity: Entity) -> Detail | None:
        """What is kept of one."""
        return self._waited.get(entity) or self._others.get(entity)

    def heard(self, entity: Entity) -> Detail:
        """Of one that is spoken of."""
        if self._waited.get(entity) is not None:
            return self._waited.heard(entity, Detail)
        return self._others.heard(entity, Detail)

    def waits(self, entity: Entity, ts: int) -> Detail:
        """Of one that waits or is refused."""
        known = self._others.get(entity)
        if known is not None:
            self._others.remove(entity)
        detail = self._waited.heard(entity, lambda: known or Detail())
        detail.asked = detail.asked or Asked()
        detail.waited_ts = max(detail.waited_ts, ts)
        return detail

    def used(self, entity: Entity, proxy: str, ts: int, amount: int) -> None:
        """Count what a proxy let through."""
        row, since, place = self._used.row((entity, proxy)), self._used.columns["since"], self._used.place(ts)
        since[row] = since[row] or ts
        if place is not None:
            self._used.slots["used"][place, row] += amount

    def rates(self, entity: Entity, now_ms: int) -> dict[str, float]:
        """What each proxy let through in the last minute, per second."""
        since = self._used.columns["since"]
        return {
            proxy: self._used.rate("used", row, int(since[row]), now_ms)
            for (_, proxy), row in self._used.rows.of_group(entity)
        }
