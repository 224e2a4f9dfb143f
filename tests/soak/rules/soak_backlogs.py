"""Backlog quotas: producers beyond one stand still or fail, and go on when it was read."""

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from soak_alerts import OF
from soak_calm import Span, disturbed, joined, proxy_of, within
from soak_history import Entry, History
from soak_schedule import KILLS, PROXIES
from soak_slots import SEEN_MS

POLICY_VIOLATION = 44
LARGEST_BYTES = 600
"""No record takes more on a broker's disk; the value alone is `size`."""
STALE_MS = 60_000
"""A decision is too old then, and producers go on (docs/backlog/producers.md): three checks, and a minute."""
_BREAKS = (*KILLS, "cut", "halve", "reset")
"""What ends connections."""
_DISTURB = (*OF["kafka"], *OF["job"], *OF["collect"], *OF["proxy"])
"""What may keep a check, its decision or a proxy's knowledge of it from being there: until all is back."""


@dataclass(frozen=True, slots=True)
class Lag:
    """A time in which a consumer stood still.

    Attributes:
        quota: what holds.
        since: its consumer had read all by then, ms.
        until: it read again, ms.
        acknowledged: of the records that came meanwhile, in order of that.
        beyond_at: so much was unread by then that the quota was exceeded; None: never.
    """

    quota: Entry
    since: float
    until: float
    acknowledged: list[Entry]
    beyond_at: float | None

    def surely_inside(self, at: float) -> bool:
        """Whether what was unread then was within the quota, as much as each may take."""
        place = bisect_left(self.acknowledged, at, key=lambda one: one["ended"])
        # Those that are written and not acknowledged yet: a client has five batches on its way.
        return bool((place + 1) * LARGEST_BYTES <= self.quota["bytes"] / 2)


def lags(history: History) -> Iterator[Lag]:
    """All of them, by quotas."""
    for quota in history["quota"]:
        stands = [one for one in history["committed"] if one["group"] == quota["group"]]
        sent = [one for one in sent_to(history, quota) if one["offset"] is not None]
        sent.sort(key=lambda one: one["ended"])
        for one, next_one in pairwise(stands):
            until = next_one["begun"]
            # One without a place (-1) may have stood before.
            came = [each for each in sent if each["offset"] >= one["offset"] and each["ended"] <= until]
            unread, beyond_at = 0, None
            for each in came:
                unread += each["size"]
                if unread > quota["bytes"]:
                    beyond_at = each["ended"]
                    break
            yield Lag(quota, one["ended"], until, came, beyond_at)


def sent_to(history: History, quota: Entry) -> list[Entry]:
    """All that was sent to its topic."""
    return [one for one in history["sent"] if one["topic"] == quota["topic"]]


def late_ms(spans: list[Span], quota: Entry, since: float, until: float) -> float:
    """How much longer than it may something took, beside the time of troubles; below 0: not too long."""
    return until - since - 1000 * quota["bound_s"] - within(spans, since, until)


def kept(history: History) -> Iterator[str]:
    """Beyond its quota a topic takes nothing, once that is or has to be known, until it is read.

    What waited, or had no answer, may be taken later: as soon as the decision is too old.
    """
    spans, found = troubles(history), list(lags(history))
    known = {
        (quota["topic"], name): (list(too_old(history, quota, name)), list(blocked(history, quota, name)))
        for quota in history["quota"]
        for name in PROXIES
    }
    for lag in found:
        if lag.beyond_at is None:
            continue
        for one in lag.acknowledged:
            late = late_ms(spans, lag.quota, lag.beyond_at, one["begun"])
            old, shut = known[one["topic"], proxy_of(one)]
            if any(since <= one["ended"] and one["begun"] <= until for since, until in old):
                continue
            if late > 0:
                yield f"{one['value']} was taken {late / 1000:.0f} s after it had to be known to be too much"
                break
            if any(since <= one["begun"] and one["ended"] <= until for since, until in shut):
                yield f"{one['value']} was taken though its proxy knew that it is too much"
                break
    beyond = {lag.quota["topic"] for lag in found if lag.beyond_at is not None}
    topics = [quota["topic"] for quota in history["quota"]]
    yield from (f"{topic} was never beyond its quota" for topic in topics if topic not in beyond)


def too_old(history: History, quota: Entry, proxy: str) -> Iterator[Span]:
    """When the newest decision on a quota's topic that a proxy knew was too old, or it knew none."""
    after_ms = 500 * quota["bound_s"]
    # Who has been away hears of what was decided meanwhile when it is back; who was killed knows nothing.
    yield from disturbed(history, (proxy,), after_ms)
    newest = -math.inf
    for known, one in _heard(history, quota, proxy):
        if known > newest + STALE_MS:
            yield newest + STALE_MS, known
        newest = one["decision"]["ts"]
    yield newest + STALE_MS, math.inf


def blocked(history: History, quota: Entry, proxy: str) -> Iterator[Span]:
    """When a proxy that was not killed surely knew that a quota's topic is beyond it."""
    every = list(_heard(history, quota, proxy))
    freed_at, found = math.inf, []
    for known, one in reversed(every):
        if not one["decision"]["exceeded"]:
            freed_at = one["at"]
        elif known < (until := min(freed_at, one["decision"]["ts"] + STALE_MS)):
            found.append((known, until))
    yield from joined(found)


def _heard(history: History, quota: Entry, proxy: str) -> Iterator[tuple[float, Entry]]:
    """The decisions on a quota's topic, in order, and when a proxy has heard of each at the latest."""
    after_ms, newest = 500 * quota["bound_s"], -math.inf
    way = disturbed(history, (proxy, f"broker-{proxy}", *OF["kafka"]), after_ms)
    end = "/" + quota["topic"].rpartition(".")[2]
    every = [one for one in history["decision"] if one["decision"]["type"] == "backlog"]
    for one in sorted(every, key=lambda one: one["at"]):
        decision, at = one["decision"], one["at"]
        # An older one is passed over.
        if decision["topic"].endswith(end) and decision["ts"] >= newest:
            newest = decision["ts"]
            yield next((until for since, until in way if since <= at <= until), at + after_ms), one


def freed(history: History) -> Iterator[str]:
    """When a topic was read each of its producers gets something through again."""
    spans = troubles(history)
    ends = max((one["ended"] for one in history["load"]), default=0)
    for quota in history["quota"]:
        stands = [one for one in history["committed"] if one["group"] == quota["group"]]
        sent = sent_to(history, quota)
        for who in sorted({one["who"] for one in sent}):
            through = sorted(one["ended"] for one in sent if one["who"] == who and one["offset"] is not None)
            for at in (one["ended"] for one in stands):
                place = bisect_left(through, at)
                until = min(ends, through[place] if place < len(through) else ends)
                late = late_ms(spans, quota, at, until)
                if late > 0:
                    yield f"{who} got nothing through after the read at {at}, {late / 1000:.0f} s too long"


def outcome(history: History) -> Iterator[str]:
    """Producers are told what the policy says, only beyond the quota, and what was refused is not written."""
    spans = troubles(history)
    there = {(one["topic"], one["value"]) for one in history["record"]}
    there -= {(one["topic"], one["value"]) for one in sent_as_its_way_broke(history)}
    every = list(lags(history))
    for quota in history["quota"]:
        refused = [one for one in sent_to(history, quota) if one["code"] == POLICY_VIOLATION]
        if quota["policy"] == "hold":
            yield from (f"{one['value']} was refused, and not held" for one in refused[:1])
            continue
        written = [one["value"] for one in refused if (one["topic"], one["value"]) in there]
        yield from (f"{value} was refused and is there" for value in written)
        for lag in (lag for lag in every if lag.quota is quota):
            within = [one for one in refused if lag.since <= one["begun"] and one["ended"] <= lag.until]
            for one in within:
                if lag.surely_inside(one["ended"]) and late_ms(spans, quota, lag.since, one["begun"]) > 0:
                    yield f"{one['value']} was refused within the quota"
                    break
            known = lag.beyond_at is not None and late_ms(spans, quota, lag.beyond_at, lag.until) > 0
            if known and not within:
                yield f"nobody was refused at {quota['topic']}, from {lag.beyond_at} to {lag.until}"


def sent_as_its_way_broke(history: History) -> Iterator[Entry]:
    """What was under way as a broker fell, its proxy or a connection between.

    Written without an answer, it may be refused when it is sent again (docs/backlog/producers.md).
    """
    fell = [one for one in history["fault"] if one["what"] in _BREAKS or one["target"] in OF["kafka"]]
    ended = [one["at"] for one in history["ended"] if one["part"].partition("-")[0] in OF["kafka"]]
    unplanned = [(at - SEEN_MS, at) for at in ended]
    spans = {}
    for proxy in PROXIES:
        way = (*OF["kafka"], proxy, f"client-{proxy}", f"broker-{proxy}")
        spans[proxy] = unplanned + [(one["begun"], one["ended"]) for one in fell if one["target"] in way]
    for one in history["sent"]:
        own = spans.get(proxy_of(one), unplanned)
        if any(since <= one["ended"] and one["begun"] <= until for since, until in own):
            yield one


def troubles(history: History) -> list[Span]:
    """When a check may have failed, its decision or the way to a producer: the next check sees to it."""
    after_ms = max((1000 * quota["bound_s"] / 2 for quota in history["quota"]), default=0)
    return disturbed(history, _DISTURB, after_ms)
