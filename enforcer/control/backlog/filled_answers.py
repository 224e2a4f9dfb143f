"""In front of a Pulsar: its own answers, with what Weir knows of dispatch and of backlogs filled in.

Quotas are Weir's there, so their limits are too. What else Pulsar says it has counted itself, and stays. An
age of -1 without a name is no saying: 4.0.7 leaves it so while the ledger is open, whatever the backlog.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from enforcer.control.backlog.stats import OLDEST, limits_of, partitioned_backlog, topic_backlog
from enforcer.control.dispatch.broker import NAMES, values
from enforcer.control.dispatch.routes import NAMES_PATH
from enforcer.control.dispatch.stats import topic_stats
from enforcer.control.parts import TOPIC, Parts, topic_holder
from streaming.contract.errors import BadEvent
from streaming.policy.policy_set import UNLIMITED, PolicySet

Fill = Callable[[Mapping[str, str], Any, str], Any]
"""Names in the path, what the broker says, what the client calls us -> what the client is told."""
_PULSARS: Final = frozenset(("msgRateOut", "msgThroughputOut", "msgOutCounter", "bytesOutCounter"))
"""What both count: the broker knows what it delivered."""
_NOT_KNOWN: Final = -1
"""An age that Pulsar does not say, or that there is none."""


def fills(parts: Parts) -> dict[str, Fill]:
    """By path of a GET: what fills its answer in."""
    return {
        NAMES_PATH: lambda _, value, __: sorted({*value, *NAMES}) if isinstance(value, list) else value,
        f"{NAMES_PATH}/values": lambda _, value, __: _filled_values(parts, value),
        f"{TOPIC}/stats": lambda names, value, _: _filled(parts, names, value, partitioned=False),
        f"{TOPIC}/partitioned-stats": lambda names, value, _: _filled(parts, names, value, partitioned=True),
    }


def _filled(parts: Parts, names: Mapping[str, str], value: Any, *, partitioned: bool) -> Any:
    if not isinstance(value, dict):
        return value
    topic = topic_holder(names["tenant"], names["namespace"], names["topic"]).name
    policies, now_ms = parts.in_force()
    delivered = topic_stats(parts.deliveries, topic, policies, now_ms) or {}
    known = (partitioned_backlog if partitioned else topic_backlog)(parts.backlogs, topic, policies, now_ms)
    whole, told = _one(value, known or {}, delivered, policies, topic), value.get("partitions")
    if not partitioned or not isinstance(told, dict):
        return whole
    held = (known or {}).get("partitions", {})
    each = {name: _one(one, held.get(name, {}), {}, policies, name) for name, one in told.items()}
    return {**whole, "partitions": each}


def _one(
    value: Any, known: Mapping[str, Any], delivered: Mapping[str, Any], policies: PolicySet, topic: str
) -> Any:
    """A topic's or partition's stats as Pulsar tells them, and what is known of it here.

    Backlogs fill in what is not told; what limits its dispatch now stands in place of what is.
    """
    if not isinstance(value, dict):
        return value
    shown = _without(known, "subscriptions")
    age, oldest = OLDEST
    if age in value and (value[age] != _NOT_KNOWN or oldest in value):
        # It has looked: both are its own. It leaves the name out where nobody is behind.
        shown = _without(shown, oldest)
    elif shown.get(oldest) is not None:
        # It has not.
        value = _without(value, age)
    answer = {**shown, **value, **_without(delivered, "subscriptions", *_PULSARS), **_limits(policies, topic)}
    if isinstance(told := answer.get("subscriptions"), dict):
        behind, limited = (stats.get("subscriptions", {}) for stats in (known, delivered))
        answer["subscriptions"] = {
            name: {**behind.get(name, {}), **one, **_without(limited.get(name, {}), *_PULSARS)}
            if isinstance(one, dict)
            else one
            for name, one in told.items()
        }
    return answer


def _without(stats: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: item for name, item in stats.items() if name not in names}


def _limits(policies: PolicySet, topic: str) -> dict[str, int]:
    """Those of Weir's quotas; where there is none Pulsar's stay."""
    try:
        limits = limits_of(policies, topic)
    except BadEvent:
        return {}  # nothing is kept under a name that is none
    return {name: limit for name, limit in limits.items() if limit != UNLIMITED}


def _filled_values(parts: Parts, value: Any) -> Any:
    """Settings that are set; where a name is ours it is Weir's that is in force."""
    if not isinstance(value, dict):
        return value
    others = {name: text for name, text in value.items() if name not in NAMES}
    return {**others, **values(parts.store.entries)}
