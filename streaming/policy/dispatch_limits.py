"""What limits deliveries to consumers: at one broker, and in a whole cluster (docs/contract.md 2 and 3.3).

A rate that is `across_brokers` is one for all brokers. The law of shares shares it out as a group of a name
of its own, and the counters of single brokers leave it alone:

>>> dispatch_group("persistent://acme/orders/t1"), dispatch_group("persistent://acme/orders/t1", "eu/audit")
('dispatch/persistent://acme/orders/t1', 'dispatch/persistent://acme/orders/t1/eu/audit')

A topic's full name holds four slashes, always, so whatever follows a fifth one is the subscription, and
nothing needs to be encoded:

>>> parse_dispatch_group("dispatch/persistent://acme/orders/t1/eu/audit")
('persistent://acme/orders/t1', 'eu/audit')
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from streaming.contract.fields import INT64_MAX
from streaming.contract.names import DISPATCH_GROUP_PREFIX, TOPIC
from streaming.policy.policy_set import UNLIMITED, PolicySet, Section
from streaming.policy.topics import RATE_KEYS, RateKind, dispatch_candidates

NOT_LIMITED: Final = 0
"""Rate of a counter that does not limit."""
_SLASHES_OF_TOPIC: Final = 4


class Limit(NamedTuple):
    """Two rates that apply together.

    Attributes:
        rate: messages and bytes per period; NOT_LIMITED where there is none.
        period_ms: its length.
        group: shared out between all brokers as the group of this name; empty: of each broker by itself.
    """

    rate: tuple[int, int]
    period_ms: int
    group: str = ""


NO_LIMIT: Final = Limit(rate=(NOT_LIMITED, NOT_LIMITED), period_ms=1000)
"""What limits nothing; a period there must be."""


def limit_of(policies: PolicySet, names: tuple[str, ...]) -> Limit:
    """What limits the counters of one broker; NO_LIMIT also where a group limits in their place.

    Args:
        policies: in force.
        names: whose counters: (broker,), (broker, topic) or (broker, topic, subscription).
    """
    if len(names) == 1:
        return limit_in(policies.entries.get(Section.BROKER, {}))
    found = dispatch_rate(policies, names[1], names[2] if len(names) == 3 else None)
    return NO_LIMIT if found is None or found.group else found


def dispatch_rate(policies: PolicySet, topic: str, subscription: str | None) -> Limit | None:
    """What a topic, or one subscription of it, is limited by, with the group if one shares it out.

    Consumers without a group have the empty subscription, which is not limited as one: they are many.

    Args:
        policies: in force.
        topic: its full name.
        subscription: None: the topic with all its subscriptions.

    Raises:
        BadEvent: not a full topic name.
    """
    if subscription == "":
        return None
    kind = RateKind.TOPIC if subscription is None else RateKind.SUBSCRIPTION
    for place in dispatch_candidates(policies, topic, subscription, kind):
        if place.wins and place.value is not None:
            shared = place.value.get("across_brokers", False)
            return limit_in(place.value, dispatch_group(topic, subscription) if shared else "")
    return None


def dispatch_group(topic: str, subscription: str | None = None) -> str:
    """The group that a rate across brokers is shared out as."""
    name = f"{DISPATCH_GROUP_PREFIX}{topic}"
    return name if subscription is None else f"{name}/{subscription}"


def split_subscription(name: str) -> tuple[str, str]:
    """Topic and subscription, which may be empty, of TOPIC/SUBSCRIPTION."""
    parts = name.split("/", _SLASHES_OF_TOPIC + 1)
    return "/".join(parts[: _SLASHES_OF_TOPIC + 1]), "".join(parts[_SLASHES_OF_TOPIC + 1 :])


def parse_dispatch_group(group: str) -> tuple[str, str | None] | None:
    """The topic and the subscription (None: all of the topic) of a group; None: not such a name."""
    name = group.removeprefix(DISPATCH_GROUP_PREFIX)
    topic, subscription = split_subscription(name)
    if name == group or not TOPIC.fullmatch(topic) or name == f"{topic}/":
        return None
    return topic, subscription or None


def limit_in(value: Mapping[str, Any], group: str = "") -> Limit:
    """What the keys of a dispatch rate say, or those of the broker itself."""
    msgs, size = (
        NOT_LIMITED if value.get(key, UNLIMITED) == UNLIMITED else min(int(value[key]), INT64_MAX)
        for key in RATE_KEYS
    )
    return Limit((msgs, size), int(value.get("ratePeriodInSecond", 1)) * 1000, group)
