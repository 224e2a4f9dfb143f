"""A month of traffic in event time, and whether what is left of it stays flat.

Whoever comes on a day goes with it: principals, namespaces and their policies, topics, subscriptions, groups,
brokers, and proxies that come back under new names. A few stay all the month.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from event_kit import backlog, delivery, ledger, quotas, report, sample, subscription, tick
from law_kit import Event, policy, quota, refund, request

DAYS: Final = 28
DAY_MS: Final = 24 * 3_600_000
WEEK: Final = 7
GROWTH_MAX: Final = 1.1
"""What the last two weeks may have more than the second one, and one: no two days are quite alike."""
STAYING: Final = 3
_APART_MS: Final = 1_000
POLICIES: Final[dict[str, Any]] = {
    "quotas[user=<default>]": quota(0.5, 20),
    "backpressure.partitions.*": {"algorithm": "vegas"},
    "resourcegroups.stays": {"publishRateInMsgs": 60},
    "broker": {"resourceUsagePublishIntervalInSecs": 60},
    "namespaces.acme/stays": {"dispatchRate": {"dispatchThrottlingRateInMsg": 1}, **quotas(size=5000)},
}
"""In force all the month."""
_OF_A_NAMESPACE: Final = {
    "subscriptionDispatchRate": {"dispatchThrottlingRateInMsg": 5}, **quotas(size=4000),
}  # fmt: skip


class Readings:
    """Figures by name, the greatest of each day."""

    def __init__(self) -> None:
        self._days: dict[str, list[float]] = {}

    def note(self, day: int, figures: Mapping[str, float]) -> None:
        """What was read at a time of a day."""
        for name, figure in figures.items():
            # What comes later was not there before.
            days = self._days.setdefault(name, [0.0] * DAYS)
            days[day] = max(days[day], figure)

    def grown(self) -> dict[str, tuple[float, float]]:
        """What is not flat: its most in the second week, and in the last two.

        >>> readings = Readings()
        >>> for day in range(DAYS):
        ...     readings.note(day, {"flat": 9.0, "leak": day})
        >>> readings.grown()
        {'leak': (13, 27)}
        """
        weeks = {
            name: (max(days[WEEK : 2 * WEEK]), max(days[2 * WEEK :])) for name, days in self._days.items()
        }
        return {name: week for name, week in weeks.items() if week[1] > GROWTH_MAX * week[0] + 1}

    def __getitem__(self, name: str) -> list[float]:
        return self._days[name]


def policies_of(day: int, comers: int) -> dict[str, Any]:
    """What changes on a day: its comers have limits of their own, those of the day before no more."""
    changes: dict[str, Any] = {"quotas[user=s0]": quota(1 + day % 2, 20)}
    for since, comes in ((day - 1, False), (day, True)):
        for comer in range(comers if since >= 0 else 0):
            limits = {
                f"quotas[user={since}-{comer}]": quota(0.01 + comer, 30, producer_byte_rate=1_000),
                f"resourcegroups.{since}-{comer}": {"publishRateInMsgs": 90},
                f"namespaces.d{since}/n{comer}": _OF_A_NAMESPACE,
            }
            changes |= limits if comes else dict.fromkeys(limits)
    return changes


class Month:
    """The events of a month, in batches.

    Args:
        batches: a day.
        comers: of each kind that come a day.
    """

    def __init__(self, batches: int = 4, comers: int = 6) -> None:
        self._batches, self._comers = batches, comers

    def __iter__(self) -> Iterator[tuple[int, list[Event]]]:
        """Day and events of each batch, in order of time."""
        for day in range(DAYS):
            for number in range(self._batches):
                yield day, list(self._batch(day, number))

    def _batch(self, day: int, number: int) -> Iterator[Event]:
        at = day * DAY_MS + number * DAY_MS // self._batches
        yield tick(at)
        if not number:
            yield from (policy(at, path, value) for path, value in policies_of(day, self._comers).items())
        for comer in range(self._comers):
            yield from self._of(f"{day}-{comer}", f"d{day}/n{comer}", f"p{day}", at + _APART_MS * comer)
        at += _APART_MS * self._comers
        for stays in range(STAYING):
            yield from self._of(f"s{stays}", "acme/stays", "p", at + _APART_MS * stays, "stays")
        yield tick(at + 90_000)

    def _of(self, name: str, namespace: str, proxy: str, at: int, group: str = "") -> Iterator[Event]:
        """What one of them does in a batch, once for each law, and more than it may."""
        topic, own = f"persistent://{namespace}/t{name}", f"{name}@{at}"
        subject = {"user": name, "subject": f"user={name}"}
        yield request(f"r{own}", at, 9, 30, proxy=proxy, **subject)
        yield refund(at + 10, at, 2, name=f"f{own}") | subject
        used = {group or name: {"publishedMsg": 9_000}}
        yield report(at, proxy, used, 60_000) | {"id": f"g{own}"}
        place = {"broker": f"b{proxy}", "topic": topic, "subscription": f"sub{name}", "proxy": proxy}
        yield delivery(at, 4_000, 40_000) | place | {"id": f"d{own}"}
        yield sample(f"l{own}", at, 30, 12, partition=f"broker-{proxy}")
        behind = subscription(f"sub{name}", 1, 0, 60_000)
        yield backlog([ledger(1, 90, 9_000)], behind, topic=topic, at_ms=at) | {"id": f"k{own}"}
