"""When something was disturbed, and when all was well."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import inf

import numpy as np
from soak_alerts import OF
from soak_history import Entry, History
from soak_schedule import KILLS, LIMITING, PROXIES

Span = tuple[float, float]
"""Begin and end, ms."""
SOON_MS = 60_000
"""What a proxy wants to write may wait for so long: Kafka is away for that after a kill."""
START_MS, MORE_MS, READ_MS = 10_000, 60_000, 15_000
"""One that starts waits for the policies for `proxy.start_timeout_ms`, Kafka's, whose clients need Kafka too,
a minute more, then it is open (docs/failures.md) until it has read them, so soon after Kafka is back."""
NO_POLICIES = 1
"""The greatest version of none: before they are read, and of who goes on without."""


def disturbed(history: History, targets: Iterable[str], after_ms: float) -> list[Span]:
    """When one of these was befallen, until it was back and a while after that: in order, none overlaps.

    Args:
        history: what was seen.
        targets: of faults.
        after_ms: for so long what a fault did may be felt.
    """
    those = set(targets)
    found = [(one["begun"], one["ended"]) for one in history["fault"] if one["target"] in those]
    found += [back(one) for one in history["back"] if one["target"] in those]
    # A broker or the job may end by itself, too: that is a fault nobody planned.
    found += [(one["at"], one["at"]) for one in history["ended"] if one["part"].partition("-")[0] in those]
    return list(joined((begun, ended + after_ms) for begun, ended in found))


def back(one: Entry) -> Span:
    """How long a part took to be back; one that never came breaks another rule (`away`)."""
    return one["at"] - 1000 * (one["took_s"] or 0), one["at"]


def within(spans: Iterable[Span], since: float, until: float) -> float:
    """How much of them, none of which overlap, lies in a time, ms."""
    return sum(max(0.0, min(until, ended) - max(since, begun)) for begun, ended in spans)


def without_kafka(history: History) -> list[Span]:
    """When all brokers fell, until they were back."""
    fell = [one for one in history["fault"] if one["target"] == "cluster" and one["what"] in KILLS]
    spans = [(one["begun"], one["ended"]) for one in fell]
    return list(joined(spans + [back(one) for one in history["back"] if one["target"] == "cluster"]))


def outages(history: History) -> Iterator[Entry]:
    """When Kafka was away, or not whole, for longer than events wait, whether that was meant or not."""
    yield from (one for one in history["fault"] if (one["what"], one["target"]) == ("down", "cluster"))
    for one in history["back"]:
        took_ms = 1000 * (one["took_s"] or 0)
        if one["target"] in OF["kafka"] and took_ms > SOON_MS:
            yield {**one, "begun": one["at"] - took_ms, "ended": one["at"]}


def requests(history: History) -> Iterator[Entry]:
    """Their events, each as often as it stands on its topic."""
    return (one["event"] for one in history["event"] if one["event"]["type"] == "request")


def written_again(history: History) -> dict[str, int]:
    """How often an event stands on its topic that librdkafka wrote again, since brokers had fallen.

    All of them, or one after the other: they forget what they had not on disk, so it begins anew
    (docs/failures.md).
    """
    fell = without_kafka(history) + [(one["begun"], one["ended"]) for one in outages(history)]
    spans = [(begun - SOON_MS, ended + SOON_MS) for begun, ended in fell]
    asked = Counter(event["id"] for event in requests(history))
    # An event has the time at which it was written, which its decision says.
    return {
        one["decision"]["id"]: asked[one["decision"]["id"]]
        for one in history["decision"]
        if one["decision"]["type"] == "admission"
        and asked[one["decision"]["id"]] > 1
        and any(begun <= one["decision"]["ts"] <= ended for begun, ended in spans)
    }


def opened(history: History) -> Iterator[tuple[str, Span]]:
    """When which proxy said that it has no policies, since Kafka was not whole as it started."""
    away = without_kafka(history) + [(one["begun"], one["ended"]) for one in outages(history)]
    away = list(joined((begun, ended + READ_MS) for begun, ended in away))
    for one in history["policies"]:
        part, pid, at = one["part"], one["pid"], one["at"]
        kills = [kill for kill in history["fault"] if kill["what"] in KILLS and kill["target"] == part]
        began = max((kill["ended"] for kill in kills if kill["ended"] <= at), default=at)
        waits_ms = START_MS + MORE_MS * (part in PROXIES)
        if one["version"] <= NO_POLICIES and within(away, began, began + waits_ms):
            ends = [other["at"] for other in history["policies"] if other["pid"] == pid and other["at"] > at]
            ends += [kill["ended"] for kill in kills if kill["pid"] == pid]
            yield part, (began, min(ends, default=inf))


def limited(history: History, asked: Iterable[Entry]) -> list[Entry]:
    """Those of what clients asked that no proxy let pass since it had no policies."""
    every = list(opened(history))
    return [
        one
        for one in asked
        if not any(
            proxy == proxy_of(one) and since <= one.get("ended", one.get("at")) <= until
            for proxy, (since, until) in every
        )
    ]


def proxy_of(one: Entry) -> str:
    """By which one a client goes."""
    who = str(one["who"])
    return next((name for name in LIMITING if who.endswith(f"-{name}")), who.rpartition("-")[2])


def joined(spans: Iterable[Span]) -> Iterator[Span]:
    """Times that overlap, as one."""
    newest: Span | None = None
    for begun, ended in sorted(spans):
        if newest is not None and begun <= newest[1]:
            newest = newest[0], max(newest[1], ended)
            continue
        if newest is not None:
            yield newest
        newest = begun, ended
    if newest is not None:
        yield newest


def slowed(at: Sequence[int], spans: Iterable[Span]) -> list[float]:
    """Times, ms, by a clock that goes twice as fast in some spans: there twice as much may come to pass."""
    every = np.asarray(at, dtype=np.float64)
    shown: list[float] = sum((np.clip(every, *span) - span[0] for span in spans), every).tolist()
    return shown
