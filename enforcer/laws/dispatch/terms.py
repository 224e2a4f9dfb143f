"""What the policies in force say of deliveries, looked up once for each name (docs/contract.md 2 and 3.3)."""

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, Final

from streaming.policy.derived import PolicyCache
from streaming.policy.dispatch_limits import NO_LIMIT, Limit, dispatch_rate, limit_of
from streaming.policy.policy_set import PolicySet, Section
from streaming.policy.topics import BROKER_RATES, RateKind, limits_some, sets_rate

Names = tuple[str, ...]
"""Whose counters: (broker,), (broker, topic) or (broker, topic, subscription)."""
Place = tuple[str, str, str]
"""Broker, topic and subscription."""
Limiting = tuple[tuple[int, Names, Limit], ...]
"""Level, name and limit of counters."""
Groups = tuple[tuple[str, str], ...]
"""Level and name of groups."""
NAMES_MAX: Final = 50_000
"""Names whose limit is remembered; of more the one asked for longest ago is looked up again."""
_ANY: Final = "*"
"""Stands for each subscription of a topic where none has a rate by its name."""


class Terms:
    """One set of policies.

    Attributes:
        by_entry: entries are counted, not messages (dispatchThrottlingOnBatchMessageEnabled).
        all_charged: those without a backlog too (dispatchThrottlingOnNonBacklogConsumerEnabled).
        active: some entry sets a dispatch rate.
        by_subscription: some entry sets one of a subscription.
        limit: what limits counters, by their names; NO_LIMIT also where a group limits in their place. As the
            next ones it raises BadEvent if the topic has no full name.
        shared: what limits a topic or subscription at all brokers together; without a group: nothing does so.
        limiting: of the counters that limit deliveries at a place; groups are none of them.
    """

    def __init__(self, policies: PolicySet) -> None:
        broker = policies.entries.get(Section.BROKER, {})
        self.by_entry: bool = broker.get("dispatchThrottlingOnBatchMessageEnabled", False)
        self.all_charged: bool = broker.get("dispatchThrottlingOnNonBacklogConsumerEnabled", True)
        attached = [
            value
            for path, value in policies.entries.items()
            if path.startswith((f"{Section.NAMESPACES}.", f"{Section.TOPICS}."))
        ]
        self.by_subscription = sets_rate(broker, BROKER_RATES[RateKind.SUBSCRIPTION]) or any(
            sets_rate(rate) for value in attached for rate in _of_subscriptions(value)
        )
        self.active = (
            self.by_subscription
            or sets_rate(broker)
            or sets_rate(broker, BROKER_RATES[RateKind.TOPIC])
            or any(sets_rate(value.get(RateKind.TOPIC)) for value in attached)
        )
        # Mostly no rate is shared out, and then no group is looked for.
        self._shares = any(map(_is_shared, attached))
        # And none is of one subscription by its name, so that all of a topic have the same.
        alike = not self._shares and not any(value.get("subscriptions") for value in attached)
        # None of these holds the terms themselves: a circle of so many names would outlive its policies.
        rate = partial(_rate, lru_cache(NAMES_MAX)(partial(dispatch_rate, policies)), alike)
        self.limit = lru_cache(NAMES_MAX)(partial(_limit, policies, rate))
        self.shared = lru_cache(NAMES_MAX)(partial(_shared, rate))
        self.limiting = lru_cache(NAMES_MAX)(partial(_limiting, self.limit))
        self._groups = lru_cache(NAMES_MAX)(partial(_groups, self.shared))
        self._limits_some = lru_cache(NAMES_MAX)(partial(limits_some, policies))

    def groups(self, topic: str, subscription: str) -> Groups:
        """Level and name of each group that limits, of the two that may."""
        return self._groups(topic, subscription) if self._shares else ()

    def may_limit_groups(self, topic: str) -> bool:
        """Whether a rate is set for a subscription of a topic, any or a certain one."""
        return self.by_subscription and self._limits_some(topic)

    def limits(self, names: Names) -> bool:
        """Whether anything limits these counters, here or in a group."""
        return any(self.limit(names).rate) or (len(names) > 1 and any(self.shared(names).rate))


def all_names(place: Place) -> tuple[Names, Names, Names]:
    """The names of the counters of all levels."""
    return place[:1], place[:2], place


terms_of: Final = PolicyCache(Terms)
"""What a set of policies says."""


def _rate(rates: Callable[[str, str | None], Limit | None], alike: bool, names: Names) -> Limit:
    """What is set for a topic or subscription; the same at all brokers, and looked for by many steps."""
    subscription = names[2] if len(names) > 2 else None
    return rates(names[1], _ANY if alike and subscription else subscription) or NO_LIMIT


def _limit(policies: PolicySet, rate: Callable[[Names], Limit], names: Names) -> Limit:
    if len(names) == 1:
        return limit_of(policies, names)
    found = rate(names)
    return NO_LIMIT if found.group else found


def _shared(rate: Callable[[Names], Limit], names: Names) -> Limit:
    found = rate(names)
    return found if found.group else NO_LIMIT


def _limiting(limit: Callable[[Names], Limit], place: Place) -> Limiting:
    limits = ((level, names, limit(names)) for level, names in enumerate(all_names(place)))
    return tuple(each for each in limits if any(each[2].rate))


def _groups(shared: Callable[[Names], Limit], topic: str, subscription: str) -> Groups:
    levels = (("topic", ("", topic)), ("subscription", ("", topic, subscription)))
    return tuple((level, group) for level, names in levels if (group := shared(names).group))


def _is_shared(value: Mapping[str, Any]) -> bool:
    rates = (value.get(RateKind.TOPIC), *_of_subscriptions(value))
    return any(rate is not None and rate.get("across_brokers", False) for rate in rates)


def _of_subscriptions(value: Mapping[str, Any]) -> list[Any]:
    own = (each.get("dispatchRate") for each in value.get("subscriptions", {}).values())
    return [value.get(RateKind.SUBSCRIPTION), *own]
