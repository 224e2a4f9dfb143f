"""The adaptive limits themselves, one sample at a time: AIMD, Vegas, Gradient, Gradient2.

Source: Zeebe 8.4, documentation page "Backpressure"; docs/protocol_notes.md 5.2. The arithmetic is that of
the Netflix library that Zeebe 8.4 links; traces/concurrency are its answers, equal in every row.

Every function takes the estimate E (the limit in force is E cut to an integer), what the algorithm remembers
(`memory`, one STATE record, changed in place), the settings `s` (one SETTINGS record) and a sample: its
round-trip time (ns, at least 1), the requests in flight at its admission, whether it was dropped. It returns
the new estimate. All arithmetic is in IEEE doubles in the library's order of operations, so that the limits
are the library's to the last bit.

Where we differ, on purpose:
- No randomness: Vegas' jitter and Gradient's countdown are settings, since the library's generator cannot be
  seeded and two runs over the same samples drift apart (docs/protocol_notes.md 5.5).
- A round-trip time of 0 or less never gets here: Zeebe's "Potential issues" reports such clocks, and in
  the library 0 freezes Gradient at limit 0 for ever (docs/protocol_notes.md 5.4). The event is dead-lettered.
- `maxLimit` is never exceeded: the library's Gradient has a floor of 4 that beats a smaller maximum.
"""

from math import ceil, floor, sqrt
from typing import Any, Final

import numpy as np

from streaming.columns.compilable import compilable

FIXED: Final = 0
AIMD: Final = 1
AIMD_PLAIN: Final = 2
VEGAS: Final = 3
GRADIENT: Final = 4
GRADIENT2: Final = 5
"""Numbers of the algorithms."""

STATE: Final = np.dtype(
    [
        ("estimate", np.float64),
        ("base", np.int64),  # ns: round-trip time without load; 0: not known
        ("count", np.int64),  # Vegas: samples since the probe; Gradient: until it; Gradient2: of the warm-up
        ("mean", np.float64),  # ns: long-term mean of Gradient2
        ("total", np.float64),  # ns: sum of its warm-up
        # The open window; see law.py.
        ("next", np.int64),  # ns on the broker's clock: a sample that ends later closes the window
        ("shortest", np.int64),  # ns, of the window's samples
        ("sum", np.int64),  # ns
        ("most", np.int64),  # in flight
        ("samples", np.int64),
        ("dropped", np.int64),  # 1: one of them was
        # What the table needs to know of a partition.
        ("last", np.int64),  # ms: time of its newest event
        ("settings", np.int64),  # LimitSettings.key that all this was learned under
        ("written", np.int64),  # the limit after its newest batch, the last one written; -1: none
    ]
)
"""What is known of one partition, as one record."""
WARM_UP: Final = 10
"""Samples whose plain mean begins Gradient2's long-term mean (docs/protocol_notes.md 5.2)."""
SHRINK: Final = 0.95
"""What is left of that mean each time when it is more than twice the sample."""


@compilable
def aimd(estimate: float, s: Any, rtt: int, inflight: int, drop: bool, steady: bool) -> float:
    """Additive increase, multiplicative decrease (Zeebe's page, "AIMD"; docs/protocol_notes.md 5.2).

    A bad sample (dropped, or slower than `requestTimeout`) multiplies the limit by `backoffRatio`; a good one
    adds 1 if at least half the limit was in use. `steady` is Zeebe's variant since 8.2, our `aimd`: a bad
    sample of more requests than the limit allows holds it, because those were admitted when it was higher;
    punishing them once more makes plain AIMD swing from the minimum to twice the optimum. Zeebe's page
    still describes the plain one (`aimd-plain`) under the name that Zeebe 8.4 gives to the steady one; the
    traces decide.

    Worked: limit 100, 200 ms, ratio 0.9: 55 in flight in 14 ms -> 101; 300 ms -> 90; with 150 in flight the
    steady one stays at 100.
    """
    limit = floor(estimate)
    if drop or rtt > s["requestTimeout"]:
        if steady and inflight > limit:
            return estimate
        limit = floor(limit * s["backoffRatio"])
    elif inflight >= limit - inflight:  # 2 inflight >= limit, without overflow
        limit += 1
    return float(min(s["maxLimit"], max(s["minLimit"], float(limit))))


@compilable
def log10_root(number: int) -> int:
    """max(1, log10 cut to an integer), by counting digits, since a logarithm may miss 1000 by a bit.

    >>> [log10_root(n) for n in (1, 99, 100, 999, 1000, 99_999)]
    [1, 1, 2, 2, 3, 4]
    """
    root = 0
    while number >= 10:
        number //= 10
        root += 1
    return max(1, root)


@compilable
def vegas(estimate: float, memory: Any, s: Any, rtt: int, inflight: int, drop: bool) -> float:
    """TCP Vegas (Zeebe's page, "Vegas"; docs/protocol_notes.md 5.2).

    The smallest round-trip time seen is taken for that without load; from it follows how many of the E
    requests wait in a queue. Few of them raise the limit, many lower it. A probe now and then takes the next
    time as the base, even a greater one.

    Worked, E = 20, base 10 ms: 12 ms makes a queue of ceil(20 x (1 - 10 / 12)) = 4, between alpha 3 and beta
    6: no change; 11 ms -> 2, between threshold and alpha: 21; 10.1 ms -> 1: 20 + 6 = 26; 20 ms -> 10: 19.
    """
    memory["count"] += 1
    if s["probeJitter"] * s["probeMultiplier"] * estimate <= memory["count"]:
        memory["count"] = 0
        memory["base"] = rtt
        return estimate
    if memory["base"] == 0 or rtt < memory["base"]:
        memory["base"] = rtt
        return estimate
    limit = floor(estimate)
    root = log10_root(limit)
    queue = ceil(estimate * (1.0 - float(memory["base"]) / float(rtt)))
    wanted = estimate
    if drop:
        wanted = estimate - root
    elif 2.0 * inflight < estimate:
        return estimate
    elif queue <= s["threshold"] + s["threshold_root"] * root:
        wanted = estimate + (s["beta"] + s["beta_root"] * root)
    elif queue < s["alpha"] + s["alpha_root"] * root:
        wanted = estimate + root
    elif queue > s["beta"] + s["beta_root"] * root:
        wanted = estimate - root
    else:
        return estimate
    wanted = max(1.0, min(s["maxLimit"], wanted))
    return float((1.0 - s["smoothing"]) * estimate + s["smoothing"] * wanted)


@compilable
def gradient(estimate: float, memory: Any, s: Any, rtt: int, inflight: int, drop: bool) -> float:
    """Gradient (Zeebe's page, "Gradient"; docs/protocol_notes.md 5.2).

    The limit is multiplied by base / round-trip time (times `rttTolerance`, within 0.5 and 1) and gets room
    for a queue of max(4, root of E). Every `probeInterval` samples the limit collapses to its floor and the
    base is forgotten, so that a base from better days does not keep the limit down.

    Worked, E = 20, base 10 ms, tolerance 2: 20 ms or less -> 20 + 4 = 24; 40 ms -> gradient 0.5, 14, smoothed
    0.8 x 20 + 0.2 x 14 = 18.8.
    """
    queue = max(4.0, float(floor(sqrt(float(floor(estimate))))))
    if s["probeInterval"] != -1:
        if memory["count"] <= 0:
            memory["count"] = s["probeInterval"]
            memory["base"] = 0
            return float(min(s["maxLimit"], max(s["minLimit"], queue)))
        memory["count"] -= 1
    if memory["base"] == 0 or rtt < memory["base"]:
        memory["base"] = rtt
    slope = max(0.5, min(1.0, s["rttTolerance"] * float(memory["base"]) / float(rtt)))
    wanted = estimate
    if drop:
        wanted = estimate * s["backoffRatio"]
    elif inflight < estimate / 2.0:
        return estimate
    else:
        wanted = estimate * slope + queue
    if wanted < estimate:
        wanted = max(s["minLimit"], estimate * (1.0 - s["smoothing"]) + s["smoothing"] * wanted)
    return float(min(s["maxLimit"], max(queue, min(s["maxLimit"], wanted))))


@compilable
def gradient2(estimate: float, memory: Any, s: Any, rtt: int, inflight: int) -> float:
    """Gradient2 (Zeebe's page; docs/protocol_notes.md 5.2); drops do not count.

    Like Gradient against a long exponential mean instead of a minimum, without probes: a long overload
    becomes the new normal, which is inherent in the algorithm.

    Worked: ten samples of 10 ms fill the mean; from E = 20 with 10 in flight each adds 0.2 x 4 = 0.8.
    """
    if memory["count"] < WARM_UP:
        memory["count"] += 1
        memory["total"] += float(rtt)
        memory["mean"] = memory["total"] / memory["count"]
    else:
        share = 2.0 / (s["longWindow"] + 1.0)
        memory["mean"] = memory["mean"] * (1.0 - share) + float(rtt) * share
    mean = memory["mean"]
    if mean / float(rtt) > 2.0:
        memory["mean"] = mean * SHRINK
    if inflight < estimate / 2.0:
        return estimate
    slope = max(0.5, min(1.0, s["rttTolerance"] * mean / float(rtt)))
    wanted = estimate * slope + s["queueSize"]
    wanted = estimate * (1.0 - s["smoothing"]) + wanted * s["smoothing"]
    return float(max(s["minLimit"], min(s["maxLimit"], wanted)))
