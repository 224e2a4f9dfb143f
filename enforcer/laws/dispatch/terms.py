"""What the policies in force say of deliveries, looked up once for each name (docs/contract.md 2 and 3.3)."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from streaming.policy.derived import PolicyCache
from streaming.policy.dispatch_limits import NO_LIMIT, Limit, dispatch_rate, limit_of
from streaming.policy.policy_set import UNLIMITED, PolicySet, Section
from streaming.policy.topics import RateKind, limits_some

Names = tuple[str, ...]
"""Whose counters: (broker,), (broker, topic) or (broker, topic, subscription)."""
Place = tuple[str, str, str]
"""Broker, topic and subscription."""
SETS_MAX: Final = 8
"""Sets of policies of which this is remembered."""
NAMES_MAX: Final = 50_000
"""Names whose limit is remembered; of more all are looked up again."""
_NO_GROUPS: Final = ()
_ANY: Final = "*"
"""Stands for each subscription of a topic where none has a rate by its name."""
_RATES: Final = ("dispatchThrottlingRateInMsg", "dispatchThrottlingRateInByte")
_PER_TOPIC: Final = ("dispatchThrottlingRatePerTopicInMsg", "dispatchThrottlingRatePerTopicInByte")
_PER_SUBSCRIPTION: Final = (
    "dispatchThrottlingRatePerSubscriptionInMsg",
    "dispatchThrottlingRatePerSubscriptionInByte",
)


class Terms:
    """One set of policies.

    Attributes:
        by_entry: entries are counted, not messages (dispatchThrottlingOnBatchMessageEnabled).
        all_charged: those without a backlog too (dispatchThrottlingOnNonBacklogConsumerEnabled).
        active: some entry sets a dispatch rate.
        by_subscription: some entry sets one of a subscription.

    Args:
        policies: the set.
    """

    def __init__(self, policies: PolicySet) -> None:
        self._policies = policies
        self._limits: dict[Names, Limit] = {}
        self._shared: dict[Names, Limit] = {}
        self._rates: dict[Names, Limit] = {}
        # What is asked for each delivery, put together once.
        self._limiting: dict[Place, tuple[tuple[int, Names, Limit], ...]] = {}
        self._groups: dict[tuple[str, str], list[tuple[str, str]]] = {}
        self._of_groups: dict[str, bool] = {}
        broker = policies.entries.get(Section.BROKER, {})
        self.by_entry: bool = broker.get("dispatchThrottlingOnBatchMessageEnabled", False)
        self.all_charged: bool = broker.get("dispatchThrottlingOnNonBacklogConsumerEnabled", True)
        attached = [
            value
            for path, value in policies.entries.items()
            if path.startswith((f"{Section.NAMESPACES}.", f"{Section.TOPICS}."))
        ]
        self.by_subscription = _sets(broker, _PER_SUBSCRIPTION) or any(map(_limits_subscriptions, attached))
        self.active = (
            self.by_subscription
            or _sets(broker, _RATES)
            or _sets(broker, _PER_TOPIC)
            or any(_sets(value.get(RateKind.TOPIC), _RATES) for value in attached)
        )
        # Mostly no rate is shared out, and then no group is looked for.
        self._shares = any(map(_is_shared, attached))
        # And none is of one subscription by its name, so that all of a topic have the same.
        self._alike = not self._shares and not any(value.get("subscriptions") for value in attached)

    def limit(self, names: Names) -> Limit:
        """What limits these counters; NO_LIMIT also where a group limits in their place.

        Raises:
            BadEvent: the topic has no full name.
        """
        limit = self._limits.get(names)
        if limit is None:
            if len(self._limits) >= NAMES_MAX:
                self._limits.clear()
            limit = self._limits[names] = self._limit(names)
        return limit

    def shared(self, names: Names) -> Limit:
        """What limits a topic or subscription at all brokers together; without a group: nothing does so."""
        limit = self._shared.get(names)
        if limit is None:
            if len(self._shared) >= NAMES_MAX:
                self._shared.clear()
            found = self._rate(names)
            limit = self._shared[names] = found if found.group else NO_LIMIT
        return limit

    def _limit(self, names: Names) -> Limit:
        if len(names) == 1:
            return limit_of(self._policies, names)
        found = self._rate(names)
        return NO_LIMIT if found.group else found

    def _rate(self, names: Names) -> Limit:
        """What is set for a topic or subscription; the same at all brokers, and looked for by many steps."""
        place = names[1:]
        if self._alike and len(place) > 1 and place[1]:
            place = place[0], _ANY
        found = self._rates.get(place)
        if found is None:
            if len(self._rates) >= NAMES_MAX:
                self._rates.clear()
            topic, *subscription = place
            rate = dispatch_rate(self._policies, topic, subscription[0] if subscription else None)
            found = self._rates[place] = rate or NO_LIMIT
        return found

    def limiting(self, place: Place) -> tuple[tuple[int, Names, Limit], ...]:
        """Level, name and limit of the counters that limit deliveries; groups are none of them.

        Raises:
            BadEvent: the topic has no full name.
        """
        found = self._limiting.get(place)
        if found is None:
            if len(self._limiting) >= NAMES_MAX:
                self._limiting.clear()
            limits = ((level, names, self.limit(names)) for level, names in enumerate(all_names(place)))
            found = self._limiting[place] = tuple(each for each in limits if any(each[2].rate))
        return found

    def groups(self, topic: str, subscription: str) -> Sequence[tuple[str, str]]:
        """Level and name of each group that limits, of the two that may."""
        if not self._shares:
            return _NO_GROUPS
        found = self._groups.get((topic, subscription))
        if found is None:
            if len(self._groups) >= NAMES_MAX:
                self._groups.clear()
            levels = (("topic", ("", topic)), ("subscription", ("", topic, subscription)))
            found = [(level, group) for level, names in levels if (group := self.shared(names).group)]
            self._groups[topic, subscription] = found
        return found

    def may_limit_groups(self, topic: str) -> bool:
        """Whether a rate is set for a subscription of a topic, any or a certain one."""
        found = self._of_groups.get(topic)
        if found is None:
            if len(self._of_groups) >= NAMES_MAX:
                self._of_groups.clear()
            found = self._of_groups[topic] = self.by_subscription and limits_some(self._policies, topic)
        return found

    def limits(self, names: Names) -> bool:
        """Whether anything limits these counters, here or in a group."""
        return any(self.limit(names).rate) or (len(names) > 1 and any(self.shared(names).rate))


def all_names(place: Place) -> tuple[Names, Names, Names]:
    """The names of the counters of all levels."""
    return place[:1], place[:2], place


terms_of: Final = PolicyCache(Terms, SETS_MAX)
"""What a set of policies says."""


def _sets(value: Mapping[str, Any] | None, rates: tuple[str, ...]) -> bool:
    return value is not None and any(value.get(rate, UNLIMITED) != UNLIMITED for rate in rates)


def _is_shared(value: Mapping[str, Any]) -> bool:
    own = (each.get("dispatchRate") for each in value.get("subscriptions", {}).values())
    rates = (value.get(RateKind.TOPIC), value.get(RateKind.SUBSCRIPTION), *own)
    return any(rate is not None and rate.get("across_brokers", False) for rate in rates)


def _limits_subscriptions(value: Mapping[str, Any]) -> bool:
    if _sets(value.get(RateKind.SUBSCRIPTION), _RATES):
        return True
    return any(_sets(own.get("dispatchRate"), _RATES) for own in value.get("subscriptions", {}).values())
