"""How far limits were exceeded, and what faults explain of it."""

from collections.abc import Iterator, Sequence

import numpy as np
from soak_calm import disturbed, limited, requests, slowed
from soak_history import Entry, History
from soak_schedule import KILLS
from soak_slots import AFTER_MS, DISTURB, in_flight

STARTS_MAX = 20_000


def above(history: History) -> Iterator[str]:
    """No limit is exceeded beyond its bound in any stretch of time: by decisions, by answers, at brokers."""
    for subject, (most, bound) in most_above(history).items():
        if most > bound:
            yield f"{subject}: {most:.2f} above its limit, {bound:.2f} at most"


def most_above(history: History) -> dict[str, tuple[float, float]]:
    """How far each limit was exceeded at most, and its bound."""
    found = {}
    spans = disturbed(history, DISTURB, AFTER_MS)
    for limit in history["limit"]:
        subject, rate, burst = limit["subject"], limit["rate"], limit["burst"]
        if limit["law"] == "mutation":
            asked = [one for one in history["made"] if one["subject"] == subject]
            told = limited(history, asked)
            passed = {one["name"] for one in asked} - {one["name"] for one in told}
            # A topic is made once, however often it was charged.
            charged = {name: ts for name, ts, whose, _ in admitted(history) if whose == subject}
            every = [ts for name, ts in charged.items() if name not in passed]
            by_decisions = beyond(every, every, rate, burst)
            told = [one for one in told if one["code"] == 0]
            by_answers = beyond([one["begun"] for one in told], [one["ended"] for one in told], rate, burst)
            found[subject] = (max(by_decisions, by_answers), limit["bound"])
        elif limit["law"] == "shares":
            told = [one for one in limited(history, history["sent"]) if one["topic"] in limit["topics"]]
            told = [one for one in told if one["offset"] is not None]
            # While a fault lasts, shares that were taken away may be used besides.
            times = (slowed([one[end] for one in told], spans) for end in ("begun", "ended"))
            found[subject] = (beyond(*times, rate, burst, [one["size"] for one in told]), limit["bound"])
        elif limit["law"] == "dispatch":
            came = [one["at"] for one in limited(history, history["read"]) if one["group"] == subject]
            # What was let through may have been held back on its way, by two faults.
            held = [one["ended"] - one["begun"] for one in history["fault"] if holds_back(one)]
            late_ms = 2 * max(held, default=0)
            found[subject] = (beyond([at - late_ms for at in came], came, rate, burst), limit["bound"])
    return found | in_flight(history)


def holds_back(fault: Entry) -> bool:
    """Whether what is on its way to a consumer waits behind it, and goes on."""
    return fault["what"] not in KILLS and fault["target"] not in ("jvm", "worker", "checkpoint", "job-broker")


def beyond(
    begun: Sequence[float], ended: Sequence[float], rate: float, burst: float, sizes: Sequence[int] = ()
) -> float:
    """The most that was let through above rate x time + burst, over any stretch of time.

    What happened at some time from `begun` to `ended` counts for the stretches that hold all of that.

    Args:
        begun: ms, of each.
        ended: ms, of each.
        rate: per second.
        burst: besides.
        sizes: of each; left out: 1.
    """
    if not begun:
        return 0.0
    # A start takes 1 ms where there are 80,000, as in an hour: beyond STARTS_MAX each k-th is tried.
    order = np.argsort(np.asarray(ended, dtype=np.int64), kind="stable")
    since, until = np.asarray(begun, dtype=np.int64)[order], np.asarray(ended, dtype=np.int64)[order]
    weights = np.asarray(sizes or [1] * len(begun), dtype=np.int64)[order]
    most = 0.0
    starts = np.unique(since)
    for start in starts[:: 1 + len(starts) // STARTS_MAX]:
        within = np.cumsum(weights * (since >= start))
        after = until >= start
        over = within[after] - rate * (until[after] - start) / 1000 - burst
        most = max(most, float(over.max()))
    return most


def admitted(history: History) -> Iterator[tuple[str, int, str, int]]:
    """Of each mutation that was charged and not given back: name, time, subject, when that was written."""
    events = {event["id"]: event for event in requests(history)}
    back = {one["event"]["of"] for one in history["event"] if one["event"]["type"] == "refund"}
    for one in history["decision"]:
        decision = one["decision"]
        if decision["type"] != "admission" or decision["id"] in back or not decision["mutations"]:
            continue
        for item in events.get(decision["id"], {"items": ()})["items"]:
            if item["name"] not in decision["rejected"]:
                yield item["name"], decision["ts"], decision["subject"], one["at"]
