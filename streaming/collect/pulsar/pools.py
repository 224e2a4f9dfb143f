"""What is shared out by shares, and which traffic counts in it: resource groups and rates across brokers."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from streaming.collect.pulsar.counters import NOTHING, Counts, Passage, Place, added
from streaming.contract.names import DISPATCH_GROUP_PREFIX, namespace_of, partitioned_topic_of
from streaming.contract.usage_events import COUNTS
from streaming.policy.dispatch_limits import dispatch_rate
from streaming.policy.groups import DISPATCH_DIMENSIONS, GroupLimits, group_limits
from streaming.policy.policy_set import PolicySet
from streaming.policy.topics import namespace_group

SecondRates = tuple[float, float, float, float]
"""Per second, in the order of the four dimensions."""


class Target(NamedTuple):
    """What a limit is set for: a topic with all its partitions, or a subscription of it (else empty)."""

    topic: str
    subscription: str = ""


@dataclass(slots=True)
class Pool:
    """One limit that is shared out.

    Attributes:
        name: of the group.
        limits: in force.
        uses: broker -> target -> rates of its partitions there.
        counts: broker -> what passed there.
    """

    name: str
    limits: GroupLimits
    uses: dict[str, dict[Target, list[SecondRates]]] = field(default_factory=dict)
    counts: dict[str, Counts] = field(default_factory=dict)

    def add(self, broker: str, target: Target, rates: SecondRates, counts: Counts) -> None:
        """Traffic of one partition."""
        self.uses.setdefault(broker, {}).setdefault(target, []).append(rates)
        self.counts[broker] = added(self.counts.get(broker, NOTHING), counts)


def pools_of(policies: PolicySet, passed: Passage) -> dict[str, Pool]:
    """The pools that traffic counts in, by name."""
    pools: dict[str, Pool] = {}
    limits: dict[str, GroupLimits | None] = {}
    for place, counts in _topics(passed):
        period_s = passed.period_ms[place.broker] / 1000
        rates = tuple(count / period_s for count in counts)
        target = Target(partitioned_topic_of(place.topic) or place.topic, place.subscription)
        for name in groups_of(policies, target):
            if name not in limits:
                limits[name] = group_limits(policies, name)
            known = limits[name]
            if known is not None:
                pool = pools.setdefault(name, Pool(name, known))
                pool.add(place.broker, target, rates, counts)  # type: ignore[arg-type]
    return pools


def groups_of(policies: PolicySet, target: Target) -> Iterator[str]:
    """The groups that traffic of a topic, or the deliveries of a subscription, count in."""
    if not target.subscription:
        group = namespace_group(policies, namespace_of(target.topic))
        if group is not None:
            yield group[0]
    rate = dispatch_rate(policies, target.topic, target.subscription or None)
    if rate is not None and rate.group:
        yield rate.group


def counts_in(name: str) -> tuple[int, ...]:
    """The dimensions that a group of this name can limit."""
    return DISPATCH_DIMENSIONS if name.startswith(DISPATCH_GROUP_PREFIX) else (0, 1, 2, 3)


def _topics(passed: Passage) -> Iterator[tuple[Place, Counts]]:
    """Each subscription by itself, and each topic with what all of its subscriptions were given."""
    whole: dict[Place, Counts] = {}
    for place, counts in passed.counts.items():
        topic = place._replace(subscription="")
        whole[topic] = added(whole.get(topic, NOTHING), counts)
        if place.subscription:
            yield place, counts
    yield from whole.items()


def usage_events(
    pools: Mapping[str, Pool],
    before: Mapping[str, set[str]],
    periods_ms: Mapping[str, int],
    held_back: Mapping[tuple[str, str], Mapping[str, int]],
) -> Iterator[tuple[str, dict[str, object]]]:
    """What each broker used of each group, as `group_usage` (docs/contract.md 3.2).

    A group that was used in the last report and is not any more is told once, with nothing.

    Args:
        pools: what passed.
        before: broker -> groups that its last report named as used.
        periods_ms: of the brokers that were read.
        held_back: (group, broker) -> dimension -> ms, where limits are in force.
    """
    for broker, period_ms in periods_ms.items():
        usage: dict[str, object] = {}
        for pool in pools.values():
            counts = pool.counts.get(broker, NOTHING)
            if any(counts) or pool.name in before.get(broker, ()):
                usage[pool.name] = _entry(counts, held_back.get((pool.name, broker)))
        for name in before.get(broker, set()) - set(usage):
            usage[name] = _entry(NOTHING, None)
        yield broker, {"type": "group_usage", "broker": broker, "period_ms": period_ms, "usage": usage}


def _entry(counts: Counts, held_back: Mapping[str, int] | None) -> dict[str, object]:
    entry: dict[str, object] = dict(zip(COUNTS, counts, strict=True))
    return entry if not held_back else {**entry, "throttledMs": dict(held_back)}
