"""What each law does, as the pictures of docs/laws.md show it."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from pictures import Curve, Plot, Points

from streaming.columns.compiled import machine
from streaming.contract.broker_events import Backlog, Ledger, Subscription
from streaming.laws.backlog.law import EVICTION, Quota, Rules, judge
from streaming.laws.concurrency.algorithms import STATE
from streaming.laws.concurrency.law import start, take
from streaming.laws.concurrency.settings import LimitSettings
from streaming.laws.dispatch.law import available, entries_to_read, rolled
from streaming.laws.mutation import law
from streaming.laws.mutation.law import STRICT
from streaming.laws.mutation.rates import refill, roll
from streaming.laws.shares.law import NOT_REPORTED, divide, share_out

_RATE, _BURST, _SAMPLES, _ITEM, _ASKED_S = 5.0, 500.0, 100, 5.0, 400
"""A quota of 5 a second with a burst of 500, asked for by items of 5 mutations."""
_DELIVERED, _IN_ENTRY, _DELIVERED_S = 10, 6, 18
"""Messages a second, messages in an entry."""
_ENTRY: Final = (_IN_ENTRY, 600, 1)
"""Messages, bytes and entries of one entry."""
_AIMDS: Final[dict[str, dict[str, Any]]] = {
    "aimd": {"initialLimit": 20},
    "aimd-plain": {"initialLimit": 20},
}
_OTHERS: Final[dict[str, dict[str, Any]]] = {
    "vegas": {"probeMultiplier": 1_000_000},
    "gradient": {"probeInterval": -1},
    "gradient2": {},
}
"""Probes are off to see the rest."""
_LIMIT_BYTES, _MINUTES = 50_000, 60
"""Each minute brings 3 entries of 1 kB; a ledger closes when it holds 10 or more."""


def mutation() -> Plot:
    """What a client that always asks gets: the rate from the bucket, twice as much from the draft."""
    charge_bucket, charge_samples = machine(law.charge_bucket), machine(law.charge_samples)
    tokens, ring, got = _BURST, np.zeros(_SAMPLES), {"bucket": 0.0, "samples": 0.0}
    curves: dict[str, list[tuple[float, float]]] = {"bucket": [(0, 0)], "samples": [(0, 0)]}
    for second in range(_ASKED_S):
        now = second * 1000
        if second:
            tokens = refill(tokens, _RATE, _BURST, 1000)
            roll(ring, now - 1000, now)
        for _ in range(int(_BURST / _ITEM) + 1):  # no more can be let in within one second
            rejected = np.zeros(1, dtype=np.bool_)
            tokens = charge_bucket(tokens, np.array([_ITEM]), rejected, STRICT, False)
            got["bucket"] += 0.0 if rejected[0] else _ITEM
            rejected = np.zeros(1, dtype=np.bool_)
            charge_samples(ring, _RATE, np.array([_ITEM]), rejected, STRICT, False)
            got["samples"] += 0.0 if rejected[0] else _ITEM
        for name, curve in curves.items():
            if second % 4 == 0:
                curve.append((second + 1, got[name]))
    bound = [(0.0, _BURST), (_ASKED_S, _BURST + _RATE * _ASKED_S)]
    return Plot(
        title="Let in to a client that always asks: 5 per second, burst 500",
        x_label="seconds",
        y_label="partition mutations",
        curves=[
            Curve(name="token_bucket", points=curves["bucket"]),
            Curve(name="sampled_rate (the draft)", points=curves["samples"]),
            Curve(name="burst + rate x time", points=bound, dashed=True),
        ],
    )


def shares() -> Plot:
    """80 and 20 of 100, both hungry: half-way to fair every round; the proportional split never moves."""
    ours, theirs = [np.array([80.0, 20.0])], [np.array([80.0, 20.0])]
    for _ in range(8):
        ours.append(share_out(100.0, ours[-1], np.full(2, NOT_REPORTED, dtype=np.int8), ours[-1]))
        theirs.append(divide(100.0, theirs[-1], np.zeros(2, dtype=np.bool_), theirs[-1]))
    return Plot(
        title="Two members that use all they get, from 80 and 20 of 100",
        x_label="rounds",
        y_label="share, messages per second",
        curves=[
            *_members("ours", ours, dashed=False),
            *_members("proportional (Pulsar)", theirs, dashed=True),
        ],
    )


def _members(name: str, rounds: list[Any], *, dashed: bool) -> list[Curve]:
    return [
        Curve(
            name=f"{name}, {which} member",
            points=[(float(number), float(pair[member])) for number, pair in enumerate(rounds)],
            dashed=dashed,
        )
        for member, which in enumerate(("first", "second"))
    ]


def dispatch() -> Plot:
    """Messages each second with and without preciseDispatcherFlowControl."""
    return Plot(
        title="Delivered each second: 10 allowed, 6 messages in an entry",
        x_label="seconds",
        y_label="messages",
        curves=[
            Curve(name="preciseDispatcherFlowControl", points=_delivered(precise=True)),
            Curve(name="without: 10 entries are read for 10 messages", points=_delivered(precise=False)),
            Curve(name="limit", points=[(0, _DELIVERED), (_DELIVERED_S, _DELIVERED)], dashed=True),
        ],
    )


def _delivered(*, precise: bool) -> Points:
    """Messages delivered in each second, as a staircase; the subscriber takes all it gets."""
    acquired, seen, corners = 0, np.array(_ENTRY, dtype=np.int64), list[tuple[float, float]]()
    for second in range(_DELIVERED_S):
        acquired = rolled(acquired, _DELIVERED, 1000, max(0, second - 1) * 1000, second * 1000)
        entries = entries_to_read(available(acquired, _DELIVERED), -1, 0.0, seen, precise, False)
        acquired += _IN_ENTRY * entries
        seen += np.array(_ENTRY) * entries
        corners += [(second, _IN_ENTRY * entries), (second + 1, _IN_ENTRY * entries)]
    return corners


def concurrency() -> Plot:
    """The two AIMDs when slowness shows late, and those that compare round-trip times with better ones."""
    room = "room for 100, for 25 from 40 s to 80 s"
    others = _limits(f"The others, samples at once: {room}", _OTHERS, late=False)
    return _limits(f"AIMD, samples a second late: {room}", _AIMDS, late=True, below=others)


def _limits(
    title: str, algorithms: Mapping[str, dict[str, Any]], *, late: bool, below: Plot | None = None
) -> Plot:
    return Plot(
        title=title,
        x_label="seconds, 20 samples each",
        y_label="requests in flight",
        curves=[
            Curve(name=name, points=_limit({"algorithm": name, name: own}, late=late))
            for name, own in algorithms.items()
        ],
        below=below,
    )


def _limit(value: dict[str, Any], *, late: bool) -> Points:
    """The limit, second by second, of a partition whose capacity falls to a quarter for a while.

    Every second brings 20 samples of requests that fill the limit of their admission: that of the moment, or
    if `late` that of the second's beginning. Up to `capacity` requests are answered in 100 ms; more wait in
    line for each other.
    """
    settings = LimitSettings.of(value | {"useWindowed": False})
    state = np.zeros(1, dtype=STATE)
    start(state[0], settings.row[0])
    curve = []
    for second in range(120):
        capacity = 25 if 40 <= second < 80 else 100
        inflight = int(state[0]["estimate"])
        curve.append((float(second), float(inflight)))
        for _ in range(20):
            inflight = inflight if late else int(state[0]["estimate"])
            rtt = round(100e6 * max(1.0, inflight / capacity))
            take(state[0], settings.row[0], second * 10**9, rtt, inflight, False)
    return curve


def backlog() -> Plot:
    """Size of a backlog under eviction, whole ledgers against single entries."""
    limit = [(0.0, _LIMIT_BYTES / 1000), (float(_MINUTES), _LIMIT_BYTES / 1000)]
    return Plot(
        title="Backlog of a stopped subscriber, limit 50 kB, checked each minute",
        x_label="minutes, 3 entries of 1 kB each",
        y_label="backlog, kB",
        curves=[
            Curve(name="preciseBacklogSize: the fewest entries", points=_sizes(precise=True)),
            Curve(name="without: ledger by ledger", points=_sizes(precise=False)),
            Curve(name="limit", points=limit, dashed=True),
        ],
    )


def _sizes(*, precise: bool) -> Points:
    """Backlog, minute by minute, of a subscriber that has stopped; each plan is carried out at once."""
    rules = Rules(
        size=Quota(limit=_LIMIT_BYTES, policy=EVICTION),
        age=Quota(limit=-1, policy=EVICTION),
        precise_size=precise,
        precise_age=False,
    )
    counts, position, curve = [0], (0, -1), list[tuple[float, float]]()
    for minute in range(_MINUTES):
        if counts[-1] >= 10:
            counts.append(0)
        counts[-1] += 3
        decision = judge(_report(minute, counts, position), rules)
        curve.append((float(minute), decision["backlogSize"] / 1000))
        for evicted in decision["evict"]:
            position = (evicted["ledger"], evicted["entry"])
            after = judge(_report(minute, counts, position), rules)
            curve.append((float(minute), after["backlogSize"] / 1000))
    return curve


def _report(minute: int, counts: list[int], position: tuple[int, int]) -> Backlog:
    """A topic of ledgers with so many entries, the last one open, and a subscription at this position."""
    ledgers = tuple(
        Ledger(id=id_, entries=count, size=count * 1000, close_time=None if id_ == len(counts) - 1 else 0)
        for id_, count in enumerate(counts)
    )
    ledger, entry = position
    slow = Subscription(name="slow", ledger=ledger, entry=entry, durable=True, oldest_publish_time=None)
    return Backlog(
        id="k", ts=minute, at=minute, broker="", topic="t", ledgers=ledgers, subscriptions=(slow,)
    )


LAWS: Final = {
    "mutation": mutation, "shares": shares, "dispatch": dispatch, "concurrency": concurrency,
    "backlog": backlog,
}  # fmt: skip
"""By their names."""
