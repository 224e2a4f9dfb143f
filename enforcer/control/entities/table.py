"""Rows of all entities: 100,000 of them in tens of megabytes, put in order only when asked."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from enforcer.control.entities.columns import Columns, Kind
from enforcer.control.entities.laws import Entity, Law

SLOT_MS: Final = 20_000
"""Of the history."""
SLOTS: Final = 30
"""Kept: ten minutes."""
MINUTE_SLOTS: Final = 3
REFUSED_MS: Final = 60_000
"""For so long a refusal is told, ms."""
PAUSE_MS: Final = 10_000
"""A wait that begins so soon after the one before is one stretch with it, ms."""
IDLE_MS: Final = 3_600_000
"""Who was silent for longer is not listed, ms."""
_TIMES: Final = (
    "limit", "used", "used_until", "level", "level_at", "burst", "until", "refused_until", "since", "heard",
)
_COLUMNS: Final[dict[str, Kind]] = {
    **dict.fromkeys(_TIMES, (np.float64, 0)),
    **dict.fromkeys(("wait", "length"), (np.float32, 0)),
    **dict.fromkeys(("law", "measure"), (np.int8, 0)),
    "shadow": (np.bool_, 0),
    "tenant": (np.int64, 0),
}
_SLOTTED: Final[dict[str, Kind]] = {
    **dict.fromkeys(("amounts", "limits"), (np.float32, np.nan)),
    "refusals": (np.uint16, 0, MINUTE_SLOTS + 1),
}


Nearest = tuple[int, float, float]
"""What is nearest to its limit: its measure (laws.MEASURES), what is used of it and the limit."""
Slot = tuple[int, float | None, float | None]
"""Of the history: when it began (ms since the epoch), what was used and the limit; None: not known."""


class Snapshot(NamedTuple):
    """All rows at one time.

    Attributes:
        now_ms: when, ms since the epoch.
        used, limit, fraction: see docs/admin_api.md.
        waiting_ms: how long each still waits, or waited last, PAUSE_MS ago at most.
        refused: how often each was refused in the last minute.
        since: since when it waits or is refused, ms since the epoch; 0: it does not.
        listed: whether each is to be listed.
        shadow: its policy is a shadow: nobody waits, and waits and refusals are what would have been.
    """

    now_ms: int
    used: NDArray[np.float64]
    limit: NDArray[np.float64]
    fraction: NDArray[np.float64]
    waiting_ms: NDArray[np.float64]
    refused: NDArray[np.int64]
    since: NDArray[np.float64]
    listed: NDArray[np.bool_]
    shadow: NDArray[np.bool_]


class EntityTable(Columns[Entity]):
    """The rows.

    Columns: `law` and `measure`, the numbers of each row's law and of what limits it there (laws.MEASURES);
    `shadow`: its policy is a shadow; `tenant`: the hash of whose topic it is about, 0: nobody's. Times in ms
    since the epoch: `limit`, `used` as last measured until `used_until`; of token buckets `level` at
    `level_at` and `burst`; it waits until `until`, for `wait` ms as was said (NaN: for what is left of that
    time), `length` as long; refusals are told until `refused_until`; since when both.

    Args:
        rows_max: rows kept; beyond it the entity silent longest goes first, and is counted.
    """

    def __init__(self, rows_max: int) -> None:
        super().__init__(rows_max, _COLUMNS, _SLOTTED, slot_ms=SLOT_MS, slots_kept=SLOTS)

    def heard(self, entity: Entity, ts: int, shadow: bool) -> int:
        """The row of an entity that is spoken of at `ts`, made if it has none; `shadow`: so is its policy."""
        row, columns = self.row(entity), self.columns
        if not columns["heard"][row]:
            columns["law"][row], columns["tenant"][row] = entity.law, hash(entity.tenant)
        columns["heard"][row], columns["shadow"][row] = max(columns["heard"][row], ts), shadow
        return row

    def count(self, row: int, ts: int, amount: float) -> None:
        """Add an amount to the slot of a time."""
        place = self.place(ts)
        if place is not None:
            amounts = self.slots["amounts"]
            held = amounts[place, row]
            amounts[place, row] = amount + (0.0 if np.isnan(held) else held)
            self.slots["limits"][place, row] = self.columns["limit"][row]

    def measured(self, row: int, ts: int, nearest: Nearest, until: float) -> None:
        """Note what is used and the limit, known until then; of a slot the nearest to its limit stays."""
        columns = self.columns
        columns["measure"][row], used, limit = nearest
        columns["used"][row], columns["limit"][row], columns["used_until"][row] = used, limit, until
        place = self.place(ts)
        if place is None:
            return
        amounts, limits = self.slots["amounts"], self.slots["limits"]
        if not used * limits[place, row] < amounts[place, row] * limit:
            amounts[place, row], limits[place, row] = used, limit

    def waits(self, row: int, ts: int, until: float, said_ms: float = np.nan) -> None:
        """It waits until a time; one that is not after `ts`: it does not wait any more."""
        if until > ts:
            self._stretch(row, ts)
        columns = self.columns
        columns["until"][row], columns["wait"][row] = until, said_ms
        columns["length"][row] = max(0.0, until - ts)

    def refused(self, row: int, ts: int, times: int) -> None:
        """It was refused so many times."""
        self._stretch(row, ts)
        self.columns["refused_until"][row] = ts + REFUSED_MS
        self.place(ts)
        slot, refusals = ts // SLOT_MS, self.slots["refusals"]
        if slot > self._slot - len(refusals):
            place = slot % len(refusals)
            refusals[place, row] = min(65_535, int(refusals[place, row]) + times)

    def snapshot(self, now_ms: int) -> Snapshot:
        """All rows as they are at a time."""
        count = len(self)
        columns = {name: column[:count] for name, column in self.columns.items()}
        law = columns["law"]
        used = np.where(columns["used_until"] > now_ms, columns["used"], 0.0)
        newest = [slot % SLOTS for slot in self.newest_slots(MINUTE_SLOTS, now_ms)]
        peaks = np.fmax.reduce(self.slots["amounts"][newest, :count], axis=0, initial=np.nan)
        used = np.where(law == Law.DISPATCH, np.nan_to_num(peaks), used)
        buckets = np.flatnonzero(law == Law.MUTATION)
        used[buckets] = self._bucket_use(buckets, now_ms)
        waiting = np.clip(columns["until"] - now_ms, 0, None)
        said = np.where(np.isnan(columns["wait"]), waiting, columns["wait"])
        # A backlog is over its limit until somebody reads: how long that takes nobody knows.
        said = np.where(law == Law.BACKLOG, now_ms - columns["since"], said)
        # Between two waits of one stretch it shows the last: who waits 2 s of 2.1 s is held all the time, and
        # what is read late would else show nobody.
        resting = (columns["until"] > 0) & (columns["until"] + PAUSE_MS > now_ms)
        waiting = np.where(waiting > 0, said, np.where(resting, columns["length"], 0.0))
        refusals = self.slots["refusals"]
        newest = [slot % len(refusals) for slot in self.newest_slots(len(refusals), now_ms)]
        told = columns["refused_until"] > now_ms
        refused = np.where(told, refusals[newest, :count].sum(axis=0, dtype=np.int64), 0)
        limit = columns["limit"].copy()
        with np.errstate(divide="ignore", invalid="ignore"):
            fraction = np.where(limit > 0, used / limit, np.where(used > 0, np.inf, 0.0))
        return Snapshot(
            now_ms=now_ms,
            used=used,
            limit=limit,
            fraction=fraction,
            waiting_ms=waiting,
            refused=refused,
            since=np.where((waiting > 0) | told, columns["since"], 0.0),
            listed=columns["heard"] > now_ms - IDLE_MS,
            shadow=columns["shadow"].copy(),
        )

    def history(self, row: int, now_ms: int) -> list[Slot]:
        """The slots of a row at a time, the oldest first."""
        amounts, limits = self.slots["amounts"], self.slots["limits"]
        summed = self.columns["law"][row] == Law.MUTATION
        found: list[Slot] = []
        used: float | None = None
        limit: float | None = None
        last = self.last(now_ms)
        for slot in range(last - SLOTS + 1, last + 1):
            amount = bound = np.nan
            if slot <= self._slot:
                amount, bound = float(amounts[slot % SLOTS, row]), float(limits[slot % SLOTS, row])
            if summed:
                used = 0.0 if np.isnan(amount) else amount * 1000 / SLOT_MS
            elif not np.isnan(amount):
                used = amount
            # Between two reports nothing else is known than what the last one said.
            limit = limit if np.isnan(bound) else bound
            found.append((slot * SLOT_MS, used, limit))
        return found

    def _bucket_use(self, rows: NDArray[np.int64], now_ms: int) -> NDArray[np.float64]:
        """Of token buckets, per second: the rate times the share of the burst that is gone, or the mean over
        the time that a full bucket lasts, at least a minute, whichever is more.
        """
        names = ("limit", "burst", "level", "level_at")
        rate, burst, level, at = (self.columns[name][rows] for name in names)
        left = np.minimum(burst, level + rate * (now_ms - at) / 1000)
        with np.errstate(divide="ignore", invalid="ignore"):
            gone = np.where(burst > 0, (burst - left) / burst * rate, 0.0)
            slots = np.clip(np.ceil(burst / rate * 1000 / SLOT_MS), MINUTE_SLOTS, SLOTS - 1)
        sums, spans = np.zeros(len(rate)), (slots * SLOT_MS + now_ms % SLOT_MS) / 1000
        for slot in self.newest_slots(SLOTS, now_ms):
            within = slots >= self.last(now_ms) - slot
            sums += np.where(within, np.nan_to_num(self.slots["amounts"][slot % SLOTS, rows]), 0.0)
        used: NDArray[np.float64] = np.maximum(gone, sums / np.maximum(spans, 1.0))
        return used

    def _stretch(self, row: int, ts: int) -> None:
        columns = self.columns
        ended = max(columns["until"][row], columns["refused_until"][row])
        if not columns["since"][row] or ts > ended + PAUSE_MS:
            columns["since"][row] = ts
