"""What a recorded log wants of each law, as far as a simulation looks at it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from streaming.contract.broker_events import Backlog, Latency
from streaming.contract.errors import BadEvent, WeirError
from streaming.contract.events import PolicyChange, Request
from streaming.contract.names import INFLIGHT_GROUP_PREFIX
from streaming.contract.usage_events import DispatchUsage, GroupUsage
from streaming.laws.registry import LAWS
from streaming.log.reading import read_lines
from streaming.policy.files import check_entry

EVENTS_MAX: Final = 5_000_000
"""Of a log, all laws together: about 5 GB of memory."""
SIMULATED_MAX: Final = 50_000
"""Events of a law that are simulated in each scenario, unless one name alone has more: minutes."""
GROUPS_MAX: Final = 100
"""Groups of which traffic is."""
BIN_MS: Final = 600_000
"""The worst time of a log is looked for at multiples of it."""
_MINUTE_MS: Final = 60_000


@dataclass(slots=True)
class Demand:
    """A log.

    Attributes:
        of: law -> its events, in order of time.
        changes: of the policies, in order.
        unusable: lines that are no events.
    """

    of: dict[str, list[Any]] = field(default_factory=lambda: {law: [] for law in OF_LAWS})
    changes: list[PolicyChange] = field(default_factory=list)
    unusable: int = 0

    @classmethod
    def read(cls, files: Sequence[str]) -> "Demand":
        """Read event files.

        Raises:
            WeirError: a file cannot be read, or the log is too long.
        """
        demand = cls()
        count = 0
        for line in read_lines(files):
            try:
                count += demand.take(line.value, line.name)
            except BadEvent:
                demand.unusable += 1
            if count > EVENTS_MAX:
                raise WeirError(
                    f"{line.base}: the log has more than {EVENTS_MAX} events; expected a day or an hour of it"
                )
        for events in (*demand.of.values(), demand.changes):
            events.sort(key=lambda event: event.ts)
        return demand

    def take(self, value: bytes, name: str) -> int:
        """Keep what a client or a broker did, or a change of policy; returns how many events that are.

        Args:
            value: a line.
            name: id of an event that names none.

        Raises:
            BadEvent: it cannot be used.
        """
        event = LAWS.parse(value, default_id=name, default_ts=None)
        match event:
            case PolicyChange():
                check_entry(event.path, event.value)
                self.changes.append(event)
            case Request(validate_only=False, names=names) if names:
                self.of["mutation"].append(event)
            case GroupUsage():
                # Parts of what may be in flight are no traffic: samples tell of it.
                usage = tuple(one for one in event.usage if not one[0].startswith(INFLIGHT_GROUP_PREFIX))
                self.of["shares"].append(replace(event, usage=usage))
            case DispatchUsage():
                self.of["dispatch"].append(event)
            case Latency():
                own = [replace(event, samples=(one,)) for one in event.samples if one is not None]
                self.of["concurrency"] += own
                return len(own)
            case Backlog():
                self.of["backlog"].append(event)
            case _:
                return 0
        return 1

    def worst_ms(self, law: str, span_ms: int) -> int:
        """When the stretch of a length begins in which most is wanted of a law: at the minute of its first
        event, which may come later in its ten minutes than a simulation lasts. 0: nothing is.
        """
        (_, weight), bins = OF_LAWS[law], dict[int, float]()
        for event in self.of[law]:
            place = event.ts // BIN_MS
            bins[place] = bins.get(place, 0.0) + weight(event)
        width = max(1, span_ms // BIN_MS)
        sums = {begin: sum(bins.get(begin + n, 0.0) for n in range(width)) for begin in bins}
        worst = max(sums, key=lambda begin: (sums[begin], -begin), default=0) * BIN_MS
        first = next((event.ts for event in self.of[law] if event.ts >= worst), 0)
        return int(first // _MINUTE_MS * _MINUTE_MS)

    def between(self, law: str, begin: int, end: int) -> tuple[list[Any], int]:
        """Its events from a time to before another, and how many of them were left out.

        Where they are many, those who want most are looked at, as many as have SIMULATED_MAX events together.
        """
        events = [event for event in self.of[law] if begin <= event.ts < end]
        if law == "shares":
            events = _busiest_groups(events)
        if len(events) <= SIMULATED_MAX:
            return events, 0
        name, weight = OF_LAWS[law]
        wanted: dict[Any, list[float]] = {}
        for event in events:
            own = wanted.setdefault(name(event), [0.0, 0.0])
            own[0] += weight(event)
            own[1] += 1
        kept, room = set[Any](), float(SIMULATED_MAX)
        for who, (_, count) in sorted(wanted.items(), key=lambda one: (-one[1][0], one[0])):
            if not kept or count <= room:
                kept.add(who)
                room -= count
        some = [event for event in events if name(event) in kept]
        return some, len(events) - len(some)


def _busiest_groups(reports: list[GroupUsage]) -> list[GroupUsage]:
    """Reports with the groups alone that use most: each of them is looked at in each step."""
    used: dict[str, int] = {}
    for report in reports:
        for group, own in report.usage:
            used[group] = used.get(group, 0) + sum(own.counts)
    if len(used) <= GROUPS_MAX:
        return reports
    kept = set(sorted(used, key=lambda group: (-used[group], group))[:GROUPS_MAX])
    return [replace(report, usage=tuple(one for one in report.usage if one[0] in kept)) for report in reports]


OF_LAWS: Final[dict[str, tuple[Callable[[Any], Any], Callable[[Any], float]]]] = {
    "mutation": (lambda event: (event.user, event.client_id), lambda event: sum(event.mutations)),
    "shares": (
        lambda event: event.broker, lambda event: sum(sum(report.counts) for _, report in event.usage)
    ),
    "dispatch": (lambda event: (event.broker, event.topic), lambda event: event.msgs),
    "concurrency": (lambda event: event.partition, lambda event: event.samples[0].inflight),
    "backlog": (lambda event: event.topic, lambda event: sum(ledger.size for ledger in event.ledgers)),
}  # fmt: skip
"""Of each law: whose an event is, and how much it wants of the law."""
