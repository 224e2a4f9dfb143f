"""The law of concurrency: how many requests a partition may have in flight, learned from round-trip times.

Source: Zeebe 8.4's documentation, "Backpressure"; docs/contract.md 3.4; docs/protocol_notes.md 5. The
algorithms are in algorithms.py; here are the window that gathers samples and the way of a batch through them.

**Window** (docs/protocol_notes.md 5.3; on by default, as in Zeebe, although its own template advises
against it for AIMD). Samples faster than `minRttThreshold` are dropped. The others join the open window until
one *ends* (start + round trip, on the broker's clock) after the window's time is up; then the algorithm gets
one sample: the mean round trip, the greatest in-flight, whether any was dropped; but a window of less than
`windowSize` samples is thrown away. The next one lasts twice its shortest round trip, within `minWindow` and
`maxWindow`. The very first sample closes a window of its own, which is thrown away.

Worked, windows of 1 s with at least 10 samples, AIMD at 100: ten requests that end within a second after the
first one's, and one that ends later, of 300 ms each on average with 55 in flight: the limit falls to 90; the
same eleven at 14 ms raise it to 101. So a limit moves once a second at most, and below about ten requests a
second it never moves.

>>> from streaming.laws.concurrency.settings import LimitSettings
>>> from streaming.laws.concurrency.algorithms import STATE
>>> def limit_after(settings, samples):
...     state = np.zeros(1, dtype=STATE)
...     start(state[0], settings.row[0])
...     for number, (rtt_ms, inflight) in enumerate(samples):
...         end_ns = 10**12 + number * 100_000_000
...         take(state[0], settings.row[0], end_ns - rtt_ms * 1_000_000, rtt_ms * 1_000_000, inflight, False)
...     return int(state[0]["estimate"])
>>> aimd = LimitSettings.of({"algorithm": "aimd", "useWindowed": False})
>>> limit_after(aimd, [(14, 55)]), limit_after(aimd, [(300, 55)]), limit_after(aimd, [(300, 150)])
(101, 90, 100)
>>> windowed = LimitSettings.of({})
>>> limit_after(windowed, [(14, 55)] * 12), limit_after(windowed, [(300, 55)] * 12)
(101, 90)

Where Zeebe differs: it feeds samples as they finish, in whatever order its threads have; we take them in the
order of the log, so that a replay is exact. Its limits are lost at a restart; ours are state. A forward jump
of a broker's clock stops its partition's window until the clock has caught up, as in the library, because the
traces of the library are what this law is held to; without `start_ns` the event's own time is used.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streaming.columns.compilable import compilable
from streaming.laws.concurrency.algorithms import (
    AIMD,
    FIXED,
    GRADIENT,
    GRADIENT2,
    VEGAS,
    aimd,
    gradient,
    gradient2,
    vegas,
)

LONGEST_NS: Final = 2**63 - 1
"""Sums of ns stop here: a round trip of centuries must not turn into a negative one."""
FORGET_MS: Final = 7 * 24 * 3_600_000
"""A partition that was idle for so long starts afresh: as long as Weir's topics remember. Brokers come and go
under new names, and what is kept of each is carried through every batch."""
NOT_LIMITED: Final = -1
"""Row of an event whose partition no policy matches."""
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
Doubles = NDArray[np.float64]


@compilable
def start(state: Any, s: Any) -> None:
    """Make a STATE record that of a partition never seen; `last` is left alone."""
    state["estimate"] = s["initialLimit"]
    state["base"] = 0
    # Only Gradient counts down; to the others a countdown of 0 means that nothing was counted yet.
    state["count"] = s["probeInterval"]
    state["mean"] = 0.0
    state["total"] = 0.0
    state["next"] = 0
    state["written"] = -1
    open_window(state)


@compilable
def open_window(state: Any) -> None:
    """Begin a window without samples."""
    state["shortest"] = 0
    state["sum"] = 0
    state["most"] = 0
    state["samples"] = 0
    state["dropped"] = 0


@compilable
def plus_ns(left: int, right: int) -> int:
    """The sum of a time and a length of 0 or more, LONGEST_NS at most."""
    return left + right if left <= LONGEST_NS - right else LONGEST_NS


@compilable
def close_window(state: Any, s: Any, end_ns: int) -> None:
    """Hand the window to the algorithm if it holds enough, and open the next one at `end_ns`."""
    shortest = state["shortest"]
    # Twice the shortest round trip, within bounds, without overflow.
    length = s["maxWindow"] if shortest >= s["maxWindow"] - shortest else 2 * shortest
    state["next"] = plus_ns(end_ns, max(s["minWindow"], length))
    samples = state["samples"]
    mean, most, dropped = state["sum"] // samples, state["most"], state["dropped"] == 1
    open_window(state)
    if samples >= s["windowSize"]:
        decide(state, s, mean, most, dropped)


@compilable
def decide(state: Any, s: Any, rtt: int, inflight: int, drop: bool) -> None:
    """One sample, maybe of a whole window, through the algorithm."""
    algorithm = s["algorithm"]
    estimate = state["estimate"]
    if algorithm == VEGAS:
        state["estimate"] = vegas(estimate, state, s, rtt, inflight, drop)
    elif algorithm == GRADIENT:
        state["estimate"] = gradient(estimate, state, s, rtt, inflight, drop)
    elif algorithm == GRADIENT2:
        state["estimate"] = gradient2(estimate, state, s, rtt, inflight)
    elif algorithm != FIXED:
        state["estimate"] = aimd(estimate, s, rtt, inflight, drop, algorithm == AIMD)


@compilable
def take(state: Any, s: Any, start_ns: int, rtt: int, inflight: int, drop: bool) -> None:
    """One sample through the window, if there is one, and the algorithm; `state` is changed in place."""
    if s["windowed"] == 0:
        decide(state, s, rtt, inflight, drop)
        return
    if rtt < s["minRttThreshold"]:
        return
    if state["samples"] == 0 or rtt < state["shortest"]:
        state["shortest"] = rtt
    state["sum"] = plus_ns(state["sum"], rtt)
    state["most"] = max(state["most"], inflight)
    state["samples"] += 1
    if drop:
        state["dropped"] = 1
    end_ns = plus_ns(start_ns, rtt)
    if end_ns > state["next"]:
        close_window(state, s, end_ns)


@compilable
def walk(
    order: Integers,
    at: Integers,
    row: Integers,
    start_ns: Integers,
    rtt: Integers,
    inflight: Integers,
    drop: Flags,
    settings: NDArray[Any],
    setting: Integers,
    state: NDArray[Any],
    limit: Integers,
    estimate: Doubles,
) -> None:
    """Take events in order through the state of their partitions.

    Event columns (one entry an event): `at` in ms, `row` of its partition (NOT_LIMITED: no policy matches
    it), then the sample, and which of `settings` it goes by; `order` holds the events to walk. Results (one
    entry an event): `limit`, `estimate`.
    """
    for i in order:
        r = row[i]
        if r == NOT_LIMITED:
            continue
        if at[i] - state[r]["last"] >= FORGET_MS:
            start(state[r], settings[setting[i]])
        state[r]["last"] = max(state[r]["last"], at[i])
        take(state[r], settings[setting[i]], start_ns[i], rtt[i], inflight[i], drop[i])
        estimate[i] = state[r]["estimate"]
        limit[i] = int(estimate[i])
