"""The law of partition mutations: KIP-599 as a pure function of policy, state and events.

Source: seed 004 "Throttling Algorithm", contract 3.1, facts/kip599.md sections 1 and 2.

**token_bucket** (the default). A balance that starts full at the burst B and refills at the rate Q. An item
is admitted while the balance is not negative and is then charged whole, so one item may be of any size and
the balance goes into debt; the wait is -balance / Q. Worked, Q = 5, B = 500: seven items of 80 are admitted
(500 -> -60), the eighth is rejected with 12,000 ms; after 11 s the balance is -5, after 12 s it is 0.

>>> tokens, rejected = 500.0, np.zeros(8, dtype=np.bool_)
>>> tokens = charge_bucket(tokens, np.full(8, 80.0), rejected, STRICT, False)
>>> tokens, int(rejected.sum()), bucket_wait_ms(tokens, 5.0)
(-60.0, 1, 12000)

**sampled_rate** (the seed's draft). S = B / Q windows of one second; a burst of N adds N / S to each of the
S windows that end now; an item is admitted while the mean over them is below Q. The same example: mean 5.6
after seven items, advice (5.6 - 5) / 5 x 100 s = 12,000 ms.

>>> ring, rejected = np.zeros(100), np.zeros(8, dtype=np.bool_)
>>> rate = charge_samples(ring, 5.0, np.full(8, 80.0), rejected, STRICT, False)
>>> round(rate, 9), int(rejected.sum()), sampled_wait_ms(rate, 5.0, 100)
(5.6, 1, 12000)

The draft leaks: spreading a burst backwards writes work into windows that are about to expire, so the mean
memory is (S + 1) / 2 windows and the long-run rate of a client that retries as soon as it may tends to
2QS / (S + 1), about twice Q. Measured with this code (Q = 5, a client that always asks; the table is a test,
tests/unit/test_mutation_leak.py):

    items of        1       5       80
    S = 100      9.91   10.00    10.68
    S = 11       9.25   10.00    16.00
    bucket       5.00    5.00     5.00

Differences from Kafka 4.1 (facts/kip599.md 1.1, 1.4): dry runs are answered but never charged; a wait is at
least 1 ms; balances survive restarts. Beside its bucket every subject keeps the plain rate over 11 windows of
one second that Kafka shows as `mutation-rate`.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from streaming.laws.compiled import compiled
from streaming.laws.rates import (
    Doubles,
    average,
    bucket_wait_ms,
    refill,
    roll,
    sampled_wait_ms,
    spread,
    unspread,
    window_of,
)

STRICT: Final = 0
"""Items can be rejected; charged one by one while admitted."""
PERMISSIVE: Final = 1
"""Older protocol versions: everything is charged, the client is throttled afterwards."""
REFUSED: Final = 2
"""The proxy refused the request by itself: nothing is charged, everything counts as rejected."""
REFUND: Final = 3
"""Not a request: gives mutations back; no decision."""

ALLOW: Final = 0
REJECT: Final = 1
THROTTLE: Final = 2

PLAIN_WINDOWS: Final = 11
"""`controller.quota.window.num` of Kafka, one second each."""

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


@compiled
def charge_bucket(tokens: float, mutations: Doubles, rejected: Flags, mode: int, dry: bool) -> float:
    """Balance after a request's items, taken in order (contract 3.1).

    Args:
        tokens: balance before, refilled.
        mutations: of each item.
        rejected: out: which items were rejected.
        mode: STRICT, PERMISSIVE or REFUSED.
        dry: validate_only: each item is checked against the balance as it stands.
    """
    for item in range(len(mutations)):
        rejected[item] = mode == REFUSED or (mode == STRICT and tokens < 0.0)
        if not rejected[item] and not dry:
            tokens -= mutations[item]
    return tokens


@compiled
def charge_samples(
    ring: Doubles, limit: float, mutations: Doubles, rejected: Flags, mode: int, dry: bool
) -> float:
    """Sampled rate after a request's items, taken in order; `ring` is changed in place (contract 3.1)."""
    rate = average(ring)
    for item in range(len(mutations)):
        rejected[item] = mode == REFUSED or (mode == STRICT and rate >= limit)
        if not rejected[item] and not dry:
            spread(ring, mutations[item])
            rate = average(ring)
    return rate


@compiled
def outcome_of(mode: int, over: bool, rejected: Flags) -> int:
    """What a request is told: REJECT if an item was rejected, THROTTLE if a permissive one is over."""
    for item in range(len(rejected)):
        if rejected[item]:
            return REJECT
    if mode == PERMISSIVE and over:
        return THROTTLE
    return ALLOW


@compiled
def record_plain(ring: Doubles, ts: int, mutations: Doubles, rejected: Flags) -> None:
    """Count what was charged in the plain rate's newest window."""
    for item in range(len(mutations)):
        if not rejected[item]:
            ring[window_of(ts) % len(ring)] += mutations[item]


@compiled
def give_back_plain(ring: Doubles, of_ts: int, ts: int, mutations: float) -> None:
    """Take a refund out of the window in which it was counted, if that one is still kept."""
    if window_of(ts) - len(ring) < window_of(of_ts) <= window_of(ts):
        slot = window_of(of_ts) % len(ring)
        ring[slot] = max(0.0, ring[slot] - mutations)


@compiled
def walk(
    order: Integers,
    at: Integers,
    of_ts: Integers,
    mode: Integers,
    dry: Flags,
    first: Integers,
    mutations: Doubles,
    rejected: Flags,
    row: Integers,
    rate: Doubles,
    burst: Doubles,
    samples: Integers,
    ring_first: Integers,
    tokens: Doubles,
    last: Integers,
    plain: Doubles,
    rings: Doubles,
    outcome: Integers,
    wait_ms: Integers,
    level: Doubles,
    plain_rate: Doubles,
) -> None:
    """Take events in order through the state of their subjects; exact sequential arithmetic.

    Event columns (one entry an event): `at` and `of_ts` in ms, `mode`, `dry`, `first` (its items are
    `mutations[first[i]:first[i + 1]]`, and `rejected` likewise), `row` of its subject, and the quota:
    `rate` and `burst`, `samples` (0: token bucket) with `ring_first` (where its windows begin in `rings`).
    `order` holds the events to walk, in order. State columns (one entry a row): `tokens`, `last` (time of the
    last update), `plain` (11 windows). Results (one entry an event): `outcome`, `wait_ms`, `level` (balance,
    or sampled rate), `plain_rate`.
    """
    for i in order:
        r = row[i]
        now = max(at[i], last[r])
        items = mutations[first[i] : first[i + 1]]
        gone = rejected[first[i] : first[i + 1]]
        roll(plain[r], last[r], now)
        if samples[i] == 0:
            balance = refill(tokens[r], rate[i], burst[i], now - last[r])
            if mode[i] == REFUND:
                balance = min(burst[i], balance + items[0])
            else:
                balance = charge_bucket(balance, items, gone, mode[i], dry[i])
                outcome[i] = outcome_of(mode[i], balance < 0.0, gone)
                if balance < 0.0 and outcome[i] != ALLOW:
                    wait_ms[i] = bucket_wait_ms(balance, rate[i])
                level[i] = balance
            # A full bucket is stored as infinity, so that it stays full when a policy raises its burst.
            tokens[r] = np.inf if balance >= burst[i] else balance
        else:
            ring = rings[ring_first[i] : ring_first[i] + samples[i]]
            roll(ring, last[r], now)
            if mode[i] == REFUND:
                unspread(ring, items[0], of_ts[i], now)
            else:
                level[i] = charge_samples(ring, rate[i], items, gone, mode[i], dry[i])
                over = level[i] >= rate[i]
                outcome[i] = outcome_of(mode[i], over, gone)
                if over and outcome[i] != ALLOW:
                    wait_ms[i] = sampled_wait_ms(level[i], rate[i], samples[i])
        if mode[i] == REFUND:
            give_back_plain(plain[r], of_ts[i], now, items[0])
        elif not dry[i]:
            record_plain(plain[r], now, items, gone)
        plain_rate[i] = average(plain[r])
        last[r] = now
