"""Concurrency limits: how much was in flight at the brokers, and whether all slots are free in the end."""

from bisect import bisect_right
from collections.abc import Iterator

from soak_alerts import OF
from soak_calm import Span, disturbed, opened, within
from soak_history import Entry, History
from soak_schedule import LIMITING, LINKS, PROXIES

CLOSING_MS = 1_000
"""A relay may see so much later than the proxy that a connection is over."""
AFTER_MS = 15_000
"""A proxy that was cut off goes by what it knew for so long at most (docs/laws.md)."""
DEADLINE_MS, SEEN_MS = 30_000, 5_000
"""A proxy gives a slot back by itself then, which hides one that was forgotten; it is seen so late."""
_HOLD_BACK = (*OF["kafka"], *PROXIES, *(link for link in LINKS if link.startswith("broker")))
"""What may keep a broker's answer back."""
DISTURB = (*OF["job"], *OF["pulsar"], *_HOLD_BACK)
"""What may keep proxies from hearing of their parts."""


def in_flight(history: History) -> dict[str, tuple[float, float]]:
    """How far above a broker's limit requests were in flight, and the bound: in calm times, and else.

    But what was there while a proxy had no policies.
    """
    found = {}
    spans = disturbed(history, DISTURB, AFTER_MS)
    passed = [span for name, span in opened(history) if name in PROXIES]
    flights = [
        one
        for one in history["flight"]
        if not any(since <= one["ended"] and one["begun"] <= until for since, until in passed)
    ]
    for limit in (one for one in history["limit"] if one["law"] == "concurrency"):
        broker, whole = limit["subject"], limit["burst"]
        calm, else_ = most([one for one in flights if one["broker"] == broker], spans)
        found[f"in flight at {broker}"] = (float(max(0, calm - whole)), limit["bound"])
        # Who is cut off goes on by its part, while others have it too.
        found[f"in flight at {broker}, disturbed"] = (float(max(0, else_ - whole)), limit["bound"] + whole)
    return found


def full(history: History) -> bool:
    """Whether some broker had as many as it may: else nobody can say that its limit holds."""
    return any(
        most([one for one in history["flight"] if one["broker"] == limit["subject"]], [])[0] >= limit["burst"]
        for limit in history["limit"]
        if limit["law"] == "concurrency"
    )


def most(flights: list[Entry], spans: list[Span]) -> tuple[int, int]:
    """The greatest number at a time, outside of these times and within them."""
    changes: list[tuple[float, int]] = []
    for one in flights:
        ended = max(one["begun"], one["ended"] - CLOSING_MS * one["over"])
        # At the same ms one that ends makes room for one that begins.
        changes += [(one["begun"], 1), (ended, -1)] if ended > one["begun"] else []
    begins = [begun for begun, _ in spans]
    now = 0
    found = [0, 0]
    for at, change in sorted(changes):
        now += change
        place = bisect_right(begins, at) - 1
        within = place >= 0 and at <= spans[place][1]
        found[within] = max(found[within], now)
    return found[0], found[1]


def leaked(history: History) -> Iterator[str]:
    """In the end no slot is taken, and nobody waits for one; none had to be given back by its deadline.

    But where faults kept answers back for much of that time.
    """
    seen = {one["part"] for one in history["slots"]}
    yield from (f"nobody looked at the slots of {name}" for name in LIMITING if name not in seen)
    for one in history["slots"]:
        if one["taken"] or one["waiting"]:
            yield f"{one['part']}: {one['taken']:.0f} slots are taken, {one['waiting']:.0f} clients wait"
    spans = disturbed(history, _HOLD_BACK, 0)
    for one in history["expired"]:
        if within(spans, one["at"] - DEADLINE_MS - SEEN_MS, one["at"]) < DEADLINE_MS / 2:
            yield f"{one['part']}: {one['count']} slots were given back by their deadline at {one['at']}"
