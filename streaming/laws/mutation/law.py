"""The law of partition mutations: KIP-599 as a pure function of policy, state and events.

Source: KIP-599, "Throttling Algorithm" (revision 15); docs/contract.md 3.1; docs/protocol_notes.md 1.

**token_bucket** (the default). A balance that starts full at the burst B and refills at the rate Q. An item
is admitted while the balance is not negative and is then charged whole, so one item may be of any size and
the balance goes into debt; the wait is -balance / Q. Worked, Q = 5, B = 500: seven items of 80 are admitted
(500 -> -60), the eighth is rejected with 12,000 ms; after 11 s the balance is -5, after 12 s it is 0.

>>> tokens, rejected = 500.0, np.zeros(8, dtype=np.bool_)
>>> tokens = charge_bucket(tokens, np.full(8, 80.0), rejected, STRICT, False)
>>> float(tokens), int(rejected.sum()), bucket_wait_ms(tokens, 5.0)
(-60.0, 1, 12000)

**sampled_rate** (KIP-599's draft). S = B / Q windows of one second; a burst of N adds N / S to each of the
S windows that end now; an item is admitted while the mean over them is below Q. The same example: mean 5.6
after seven items, advice (5.6 - 5) / 5 x 100 s = 12,000 ms.

>>> ring, rejected = np.zeros(100), np.zeros(8, dtype=np.bool_)
>>> rate = charge_samples(ring, 5.0, np.full(8, 80.0), rejected, STRICT, False)
>>> round(float(rate), 9), int(rejected.sum()), sampled_wait_ms(rate, 5.0, 100)
(5.6, 1, 12000)

The draft leaks: spreading a burst backwards writes work into windows that are about to expire, so the mean
memory is (S + 1) / 2 windows and the long-run rate of a client that retries as soon as it may tends to
2QS / (S + 1), about twice Q. Measured with this code (Q = 5, a client that always asks; the table is a test,
tests/unit/streaming/laws/mutation/test_leak.py):

    items of        1       5       80
    S = 100      9.91   10.00    10.68
    S = 11       9.25   10.00    16.00
    bucket       5.00    5.00     5.00

Differences from Kafka 4.1 (docs/protocol_notes.md 1): dry runs are answered but never charged; a wait is at
least 1 ms; balances survive restarts. Beside its bucket every subject keeps the plain rate over 11 windows of
one second that Kafka shows as `mutation-rate`.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streaming.columns.compilable import compilable_lean
from streaming.laws.mutation.rates import (
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
DECIDED: Final = 4
"""Charged as the list of what was rejected says already, whatever the balance."""

ALLOW: Final = 0
REJECT: Final = 1
THROTTLE: Final = 2

PLAIN_WINDOWS: Final = 11
"""`controller.quota.window.num` of Kafka, one second each."""

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


@compilable_lean
def charge_bucket(
    tokens: float, mutations: Doubles | Sequence[float], rejected: Flags | list[bool], mode: int, dry: bool
) -> float:
    """Balance after a request's items, taken in order (docs/contract.md 3.1).

    Args:
        tokens: balance before, refilled.
        mutations: of each item; an array, or, where nothing is compiled, a list.
        rejected: out: which items were rejected; in, if that is DECIDED.
        mode: STRICT, PERMISSIVE, REFUSED or DECIDED.
        dry: validate_only: each item is checked against the balance as it stands.
    """
    for item in range(len(mutations)):
        if mode != DECIDED:
            rejected[item] = mode == REFUSED or (mode == STRICT and tokens < 0.0)
        if not rejected[item] and not dry:
            tokens -= mutations[item]
    return tokens


@compilable_lean
def charge_samples(
    ring: Doubles, limit: float, mutations: Doubles, rejected: Flags, mode: int, dry: bool
) -> float:
    """Sampled rate after a request's items, in order; `ring` is changed in place (docs/contract.md 3.1)."""
    rate = average(ring)
    for item in range(len(mutations)):
        if mode != DECIDED:
            rejected[item] = mode == REFUSED or (mode == STRICT and rate >= limit)
        if not rejected[item] and not dry:
            spread(ring, mutations[item])
            rate = average(ring)
    return rate


@compilable_lean
def outcome_of(mode: int, over: bool, rejected: Flags | list[bool]) -> int:
    """What a request is told: REJECT if an item was rejected, THROTTLE if a permissive one is over."""
    for item in range(len(rejected)):
        if rejected[item]:
            return REJECT
    if mode == PERMISSIVE and over:
        return THROTTLE
    return ALLOW


@compilable_lean
def record_plain(ring: Doubles, ts: int, mutations: Doubles, rejected: Flags) -> None:
    """Count what was charged in the plain rate's newest window."""
    for item in range(len(mutations)):
        if not rejected[item]:
            ring[window_of(ts) % len(ring)] += mutations[item]


@compilable_lean
def give_back_plain(ring: Doubles, of_ts: int, ts: int, mutations: float) -> None:
    """Take a refund out of the window in which it was counted, if that one is still kept."""
    if window_of(ts) - len(ring) < window_of(of_ts) <= window_of(ts):
        slot = window_of(of_ts) % len(ring)
        ring[slot] = max(0.0, ring[slot] - mutations)


class Events(NamedTuple):
    """Requests and refunds on their way through the law.

    Attributes:
        at: when each is applied, ms.
        of_ts: of a refund: when the original was charged, ms.
        mode: STRICT, PERMISSIVE, REFUSED or REFUND.
        decided: the proxy has answered: `Results` hold what it said, and the mode is what the law goes by.
        dry: validate_only.
        first: number of its first item.
        items: number of its items; a refund has one, the sum of its items.
        mutations: of each item.
        term: number of the terms by which it is judged.
    """

    at: Integers
    of_ts: Integers
    mode: Integers
    decided: Flags
    dry: Flags
    first: Integers
    items: Integers
    mutations: Doubles
    term: Integers


class Terms(NamedTuple):
    """A subject and its quota for a stretch of time in which no policy changes.

    Attributes:
        row: of its state; -1: not limited.
        rate: mutations per second.
        burst: mutations that may be done at once.
        samples: windows of the sampled rate; 0: token bucket.
        ring_first: where these begin in `State.rings`.
    """

    row: Integers
    rate: Doubles
    burst: Doubles
    samples: Integers
    ring_first: Integers


class State(NamedTuple):
    """What is kept of subjects, changed in place.

    Attributes:
        tokens: balance; inf: full.
        last: time of the last update, ms.
        plain: 11 windows.
        rings: the windows of sampled rates, one after the other.
        spare: room for as many windows as the longest has.
    """

    tokens: Doubles
    last: Integers
    plain: Doubles
    rings: Doubles
    spare: Doubles


class Results(NamedTuple):
    """What the law says; of what was decided elsewhere, what that said.

    Attributes:
        outcome: ALLOW, REJECT or THROTTLE.
        wait_ms: throttle time.
        level: balance, or sampled rate.
        plain_rate: over the 11 windows.
        rejected: of each item.
        own_outcome: of what was decided elsewhere: the outcome by the law, from the same state.
        own_rejected: and of each item.
    """

    outcome: Integers
    wait_ms: Integers
    level: Doubles
    plain_rate: Doubles
    rejected: Flags
    own_outcome: Integers
    own_rejected: Flags


@compilable_lean
def walk(order: Integers, events: Events, terms: Terms, base: int, state: State, results: Results) -> None:
    """Take events in order through the state of their subjects; exact sequential arithmetic.

    Args:
        order: the events to take.
        events: a row an event.
        terms: of these events, the first of which is number `base`.
        base: see there.
        state: changed in place.
        results: out; a row an event.
    """
    for i in order:
        term = events.term[i] - base
        row = terms.row[term]
        if row < 0:
            _through_nothing(i, events, results)
            continue
        now = max(events.at[i], state.last[row])
        roll(state.plain[row], state.last[row], now)
        if terms.samples[term] == 0:
            _through_bucket(i, term, now, events, terms, state, results)
        else:
            _through_samples(i, term, now, events, terms, state, results)
        first, end = events.first[i], events.first[i] + events.items[i]
        if events.mode[i] == REFUND:
            give_back_plain(state.plain[row], events.of_ts[i], now, events.mutations[first])
        elif not events.dry[i]:
            record_plain(state.plain[row], now, events.mutations[first:end], results.rejected[first:end])
        results.plain_rate[i] = average(state.plain[row])
        state.last[row] = now


@compilable_lean
def _through_nothing(i: int, events: Events, results: Results) -> None:
    """An event of a subject that no quota limits."""
    first, end = events.first[i], events.first[i] + events.items[i]
    own = results.own_rejected[first:end] if events.decided[i] else results.rejected[first:end]
    own[:] = events.mode[i] == REFUSED
    outcome = outcome_of(events.mode[i], False, own)
    if events.decided[i]:
        results.own_outcome[i] = outcome
    else:
        results.outcome[i] = outcome
        results.wait_ms[i] = 0


@compilable_lean
def _through_bucket(
    i: int, term: int, now: int, events: Events, terms: Terms, state: State, results: Results
) -> None:
    row, rate, burst, mode = terms.row[term], terms.rate[term], terms.burst[term], events.mode[i]
    first, end = events.first[i], events.first[i] + events.items[i]
    balance = refill(state.tokens[row], rate, burst, now - state.last[row])
    if mode == REFUND:
        balance = min(burst, balance + events.mutations[first])
    elif events.decided[i]:
        own = results.own_rejected[first:end]
        after = charge_bucket(balance, events.mutations[first:end], own, mode, events.dry[i])
        results.own_outcome[i] = outcome_of(mode, after < 0.0, own)
        told = results.rejected[first:end]
        balance = charge_bucket(balance, events.mutations[first:end], told, DECIDED, events.dry[i])
        results.level[i] = balance
    else:
        gone = results.rejected[first:end]
        balance = charge_bucket(balance, events.mutations[first:end], gone, mode, events.dry[i])
        outcome = outcome_of(mode, balance < 0.0, gone)
        results.outcome[i] = outcome
        results.wait_ms[i] = 0 if outcome == ALLOW else bucket_wait_ms(balance, rate)
        results.level[i] = balance
    # A full bucket is stored as infinity, so that it stays full when a policy raises its burst.
    state.tokens[row] = np.inf if balance >= burst else balance


@compilable_lean
def _through_samples(
    i: int, term: int, now: int, events: Events, terms: Terms, state: State, results: Results
) -> None:
    rate, samples, mode = terms.rate[term], terms.samples[term], events.mode[i]
    first, end = events.first[i], events.first[i] + events.items[i]
    ring = state.rings[terms.ring_first[term] : terms.ring_first[term] + samples]
    roll(ring, state.last[terms.row[term]], now)
    if mode == REFUND:
        unspread(ring, events.mutations[first], events.of_ts[i], now)
    elif events.decided[i]:
        spare, own = state.spare[:samples], results.own_rejected[first:end]
        for slot in range(samples):
            spare[slot] = ring[slot]
        after = charge_samples(spare, rate, events.mutations[first:end], own, mode, events.dry[i])
        results.own_outcome[i] = outcome_of(mode, after >= rate, own)
        told = results.rejected[first:end]
        results.level[i] = charge_samples(
            ring, rate, events.mutations[first:end], told, DECIDED, events.dry[i]
        )
    else:
        gone = results.rejected[first:end]
        level = charge_samples(ring, rate, events.mutations[first:end], gone, mode, events.dry[i])
        outcome = outcome_of(mode, level >= rate, gone)
        results.outcome[i] = outcome
        results.wait_ms[i] = 0 if outcome == ALLOW else sampled_wait_ms(level, rate, samples)
        results.level[i] = level
