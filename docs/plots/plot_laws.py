"""Draw docs/plots/*.svg by running the laws: `.venv/bin/python docs/plots/plot_laws.py`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from svg import Line, Plot, Points, draw, steps

from streaming.contract.broker_events import Backlog, Ledger, Subscription
from streaming.laws.backlog.law import EVICTION, Quota, Rules, judge
from streaming.laws.concurrency.algorithms import STATE
from streaming.laws.concurrency.law import start, take
from streaming.laws.concurrency.settings import LimitSettings
from streaming.laws.dispatch.law import available, entries_to_read, rolled
from streaming.laws.mutation.law import STRICT, charge_bucket, charge_samples
from streaming.laws.mutation.rates import refill, roll
from streaming.laws.shares.law import NOT_REPORTED, proportional, share_out

RATE, BURST, SAMPLES, ITEM = 5.0, 500.0, 100, 5.0
SECONDS = 400


def mutation() -> Plot:
    """What a client that always asks gets: the rate from the bucket, twice as much from the draft."""
    tokens, ring, got = BURST, np.zeros(SAMPLES), {"bucket": 0.0, "samples": 0.0}
    curves: dict[str, list[tuple[float, float]]] = {"bucket": [(0, 0)], "samples": [(0, 0)]}
    for second in range(SECONDS):
        now = second * 1000
        if second:
            tokens = refill(tokens, RATE, BURST, 1000)
            roll(ring, now - 1000, now)
        for _ in range(int(BURST / ITEM) + 1):  # no more can be let in within one second
            rejected = np.zeros(1, dtype=np.bool_)
            tokens = charge_bucket(tokens, np.array([ITEM]), rejected, STRICT, False)
            got["bucket"] += 0.0 if rejected[0] else ITEM
            rejected = np.zeros(1, dtype=np.bool_)
            charge_samples(ring, RATE, np.array([ITEM]), rejected, STRICT, False)
            got["samples"] += 0.0 if rejected[0] else ITEM
        for name, curve in curves.items():
            if second % 4 == 0:
                curve.append((second + 1, got[name]))
    return Plot(
        title="Let in to a client that always asks: 5 per second, burst 500",
        x_label="seconds",
        y_label="partition mutations",
        x_ticks=range(0, SECONDS + 1, 50),
        y_ticks=range(0, 5001, 1000),
        lines=[
            Line(name="token_bucket", points=curves["bucket"]),
            Line(name="sampled_rate (the draft)", points=curves["samples"]),
            Line(
                name="burst + rate x time",
                points=[(0, BURST), (SECONDS, BURST + RATE * SECONDS)],
                dashed=True,
            ),
        ],
        legend=(15, 4600),
    )


def shares() -> Plot:
    """80 and 20 of 100, both hungry: half-way to fair every round; the proportional split never moves."""
    ours, theirs = [np.array([80.0, 20.0])], [np.array([80.0, 20.0])]
    for _ in range(8):
        used = ours[-1].reshape(2, 1)
        unknown = np.full((2, 1), NOT_REPORTED, dtype=np.int8)
        ours.append(share_out(np.array([100.0]), used, unknown, used)[:, 0])
        theirs.append(proportional(100.0, theirs[-1]))
    return Plot(
        title="Two members that use all they get, from 80 and 20 of 100",
        x_label="rounds",
        y_label="share, messages per second",
        x_ticks=range(9),
        y_ticks=range(0, 101, 20),
        lines=[
            Line(name="ours, first member", points=[(n, pair[0]) for n, pair in enumerate(ours)]),
            Line(name="ours, second member", points=[(n, pair[1]) for n, pair in enumerate(ours)]),
            Line(
                name="proportional (Pulsar), first",
                points=[(n, pair[0]) for n, pair in enumerate(theirs)],
                dashed=True,
            ),
            Line(
                name="proportional (Pulsar), second",
                points=[(n, pair[1]) for n, pair in enumerate(theirs)],
                dashed=True,
            ),
        ],
        legend=(4.2, 77),
    )


def _delivered(precise: bool) -> list[float]:
    """Messages delivered in each second: 10 allowed, entries of 6, a subscriber that takes all it gets."""
    acquired, seen, delivered = 0, np.array([6, 600, 1], dtype=np.int64), []
    for second in range(18):
        acquired = rolled(acquired, 10, 1000, max(0, second - 1) * 1000, second * 1000)
        entries = entries_to_read(available(acquired, 10), -1, 0.0, seen, precise, False)
        acquired += 6 * entries
        seen += np.array([6, 600, 1]) * entries
        delivered.append(6.0 * entries)
    return delivered


def dispatch() -> Plot:
    """Messages each second with and without preciseDispatcherFlowControl."""
    return Plot(
        title="Delivered each second: 10 allowed, 6 messages in an entry",
        x_label="seconds",
        y_label="messages",
        x_ticks=range(0, 19, 2),
        y_ticks=range(0, 91, 10),
        lines=[
            Line(name="preciseDispatcherFlowControl", points=steps(_delivered(True))),
            Line(name="without: 10 entries are read for 10 messages", points=steps(_delivered(False))),
            Line(name="limit", points=[(0, 10), (18, 10)], dashed=True),
        ],
        legend=(7.2, 84),
    )


def _limits(value: dict[str, Any], *, late: bool) -> Points:
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


def concurrency() -> Plot:
    """The two AIMDs when a request's slowness shows a second after it was let in."""
    return _of_limits(
        "AIMD, samples a second late: room for 100, for 25 from 40 s to 80 s",
        [
            Line(name=name, points=_limits({"algorithm": name, name: {"initialLimit": 20}}, late=True))
            for name in ("aimd", "aimd-plain")
        ],
    )


def concurrency_others() -> Plot:
    """The algorithms that compare round-trip times with better ones; probes are off to see the rest."""
    settings: dict[str, dict[str, Any]] = {
        "vegas": {"probeMultiplier": 1_000_000},
        "gradient": {"probeInterval": -1},
        "gradient2": {},
    }
    return _of_limits(
        "The others, samples at once: room for 100, for 25 from 40 s to 80 s",
        [
            Line(name=name, points=_limits({"algorithm": name, name: own}, late=False))
            for name, own in settings.items()
        ],
    )


def _of_limits(title: str, lines: list[Line]) -> Plot:
    return Plot(
        title=title,
        x_label="seconds, 20 samples each",
        y_label="requests in flight",
        x_ticks=range(0, 121, 20),
        y_ticks=range(0, 301, 50),
        lines=lines,
        legend=(46, 285),
    )


def _backlog_curve(precise: bool) -> Points:
    """Backlog, minute by minute, of a subscriber that has stopped; each plan is carried out at once."""
    rules = Rules(
        size=Quota(limit=50_000, policy=EVICTION),
        age=Quota(limit=-1, policy=EVICTION),
        precise_size=precise,
        precise_age=False,
    )
    counts, position, curve = [0], (0, -1), []
    for minute in range(60):
        if counts[-1] >= 10:  # a ledger closes when it holds 10 entries or more
            counts.append(0)
        counts[-1] += 3
        ledgers = tuple(
            Ledger(id=n, entries=c, size=c * 1000, close_time=None if n == len(counts) - 1 else 0)
            for n, c in enumerate(counts)
        )
        slow = Subscription(
            name="slow", ledger=position[0], entry=position[1], durable=True, oldest_publish_time=None
        )
        event = Backlog(
            id="k", ts=minute, at=minute, broker="", topic="t", ledgers=ledgers, subscriptions=(slow,)
        )
        decision = judge(event, rules)
        curve.append((float(minute), decision["backlogSize"] / 1000))
        for line in decision["evict"]:
            position = (line["ledger"], line["entry"])
            after = Subscription(
                name="slow", ledger=position[0], entry=position[1], durable=True, oldest_publish_time=None
            )
            event = Backlog(
                id="k", ts=minute, at=minute, broker="", topic="t", ledgers=ledgers, subscriptions=(after,)
            )
            curve.append((float(minute), judge(event, rules)["backlogSize"] / 1000))
    return curve


def backlog() -> Plot:
    """Size of a backlog under eviction, whole ledgers against single entries."""
    return Plot(
        title="Backlog of a stopped subscriber, limit 50 kB, checked each minute",
        x_label="minutes, 3 entries of 1 kB each",
        y_label="backlog, kB",
        x_ticks=range(0, 61, 10),
        y_ticks=range(0, 61, 10),
        lines=[
            Line(name="preciseBacklogSize: the fewest entries", points=_backlog_curve(True)),
            Line(name="without: ledger by ledger", points=_backlog_curve(False)),
            Line(name="limit", points=[(0, 50), (60, 50)], dashed=True),
        ],
        legend=(26, 20),
    )


PLOTS: dict[str, Callable[[], Plot]] = {
    "mutation": mutation,
    "shares": shares,
    "dispatch": dispatch,
    "concurrency": concurrency,
    "concurrency-others": concurrency_others,
    "backlog": backlog,
}


def main() -> None:
    """Write every plot beside this file."""
    for name, plot in PLOTS.items():
        (Path(__file__).parent / f"{name}.svg").write_text(draw(plot()))


if __name__ == "__main__":
    main()
