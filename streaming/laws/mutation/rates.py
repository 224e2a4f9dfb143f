"""The two ways of counting a rate: Kafka's token bucket and sampled windows.

Plain scalar functions; `columns.compiled.machine` compiles them where there are millions of events, and
`NUMBA_DISABLE_JIT=1` gives the same numbers.
Windows are rings of one second each, indexed by `floor(ts / 1000) % length`, so no base is stored: the
last update's time says which slot is the newest.
"""

from math import floor, inf
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streaming.columns.compilable import compilable_lean

THROTTLE_MAX_MS: Final = 2**63 - 1
"""Times beyond 64 bits are cut here: a debt of ages divided by a rate near zero."""
WINDOW_MS: Final = 1000
FULL: Final = inf
"""Stored balance of a full bucket: it stays full when a policy raises the burst (docs/contract.md 3.1)."""
Doubles = NDArray[np.float64]


@compilable_lean
def refill(tokens: float, rate: float, burst: float, elapsed_ms: int) -> float:
    """Balance of a token bucket after `elapsed_ms` (Kafka's TokenBucket, docs/protocol_notes.md 1.1).

    Worked: -60 at 5 per second and burst 500 -> -5 after 11 s, 0 after 12 s.

    >>> refill(-60.0, 5.0, 500.0, 11_000), refill(-60.0, 5.0, 500.0, 12_000)
    (-5.0, 0.0)

    Args:
        tokens: balance before, may be negative (debt) or inf (full, whatever the burst is now).
        rate: mutations per second.
        burst: the most that the bucket holds.
    """
    return min(burst, tokens + rate * (elapsed_ms / 1000.0))


@compilable_lean
def round_ms(time_ms: float) -> int:
    """A throttle time in whole ms: half up, at least 1, since a rejection that says 0 invites a busy loop.

    >>> round_ms(0.0), round_ms(1.5), round_ms(2.4999)
    (1, 2, 2)
    """
    if time_ms >= 9.2e18:
        return THROTTLE_MAX_MS
    return max(1, floor(time_ms + 0.5))


@compilable_lean
def bucket_wait_ms(tokens: float, rate: float) -> int:
    """Time until a bucket in debt is back at 0 (docs/protocol_notes.md 1.1).

    >>> bucket_wait_ms(-60.0, 5.0)
    12000
    """
    return round_ms(-tokens / rate * 1000.0)


@compilable_lean
def window_of(ts: int) -> int:
    """Number of the one-second window that holds `ts` ms."""
    return ts // WINDOW_MS


@compilable_lean
def roll(ring: Doubles, last_ts: int, ts: int) -> None:
    """Empty the windows of `ring` that began after `last_ts` up to `ts` (both ms, `ts` not earlier)."""
    length = len(ring)
    first = max(window_of(last_ts) + 1, window_of(ts) - length + 1)
    for window in range(first, window_of(ts) + 1):
        ring[window % length] = 0.0


@compilable_lean
def average(ring: Doubles) -> float:
    """Mean per second over all windows of `ring`, summed from slot 0 so that the order never varies."""
    total = 0.0
    for slot in range(len(ring)):
        total += ring[slot]
    return float(total / len(ring))


@compilable_lean
def spread(ring: Doubles, mutations: float) -> None:
    """Spread a burst evenly over all windows that end now (KIP-599's draft)."""
    part = mutations / len(ring)
    for slot in range(len(ring)):
        ring[slot] += part


@compilable_lean
def unspread(ring: Doubles, mutations: float, of_ts: int, ts: int) -> None:
    """Take what `spread` added at `of_ts` out of the windows still kept at `ts`, never below 0."""
    length = len(ring)
    part = mutations / length
    for window in range(window_of(ts) - length + 1, window_of(min(of_ts, ts)) + 1):
        ring[window % length] = max(0.0, ring[window % length] - part)


@compilable_lean
def sampled_wait_ms(rate: float, limit: float, samples: int) -> int:
    """The advice of KIP-599's draft: (rate - limit) / limit x samples of one second.

    >>> sampled_wait_ms(5.6, 5.0, 100)
    12000
    """
    return round_ms((rate - limit) / limit * samples * 1000.0)
