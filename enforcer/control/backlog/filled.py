"""In front of a Pulsar: its own stats of topics, with what it does not say of backlogs filled in.

Quotas are Weir's there, so their limits are too. What else Pulsar says it has counted itself, and stays. An
age of -1 without a name is no saying: 4.0.7 leaves it so while the ledger is open, whatever the backlog.
"""

import time
from collections.abc import Mapping
from typing import Any, Final

from enforcer.control.backlog.stats import OLDEST, limits_of, partitioned_backlog, topic_backlog
from enforcer.control.dispatch.filled import Fill, filled_stats
from enforcer.control.parts import TOPIC, Parts, topic_holder
from streaming.contract.errors import BadEvent
from streaming.policy.policy_set import UNLIMITED, PolicySet

_NOT_KNOWN: Final = -1
"""An age that Pulsar does not say, or that there is none."""


def fills(parts: Parts) -> dict[str, Fill]:
    """By path of a GET: what fills its answer in."""
    return {
        f"{TOPIC}/stats": lambda names, value, _: _filled(parts, names, value, partitioned=False),
        f"{TOPIC}/partitioned-stats": lambda names, value, _: _filled(parts, names, value, partitioned=True),
    }


def _filled(parts: Parts, names: Mapping[str, str], value: Any, *, partitioned: bool) -> Any:
    value = filled_stats(parts, names, value)
    topic = topic_holder(names["tenant"], names["namespace"], names["topic"]).name
    if not isinstance(value, dict):
        return value
    policies, now_ms = PolicySet(parts.store.entries), time.time_ns() // 1_000_000
    known = (partitioned_backlog if partitioned else topic_backlog)(parts.backlogs, topic, policies, now_ms)
    told = value.get("partitions")
    whole = _one(value, known or {}, policies, topic)
    if not partitioned or not isinstance(told, dict):
        return whole
    held = (known or {}).get("partitions", {})
    each = {name: _one(one, held.get(name, {}), policies, name) for name, one in told.items()}
    return {**whole, "partitions": each}


def _one(value: Any, known: Mapping[str, Any], policies: PolicySet, topic: str) -> Any:
    """A topic's or partition's stats as Pulsar tells them, and what is known of it here."""
    if not isinstance(value, dict):
        return value
    shown = {name: item for name, item in known.items() if name != "subscriptions"}
    age, oldest = OLDEST
    if age in value and (value[age] != _NOT_KNOWN or oldest in value):
        # It has looked: both are its own. It leaves the name out where nobody is behind.
        shown = {name: item for name, item in shown.items() if name != oldest}
    elif shown.get(oldest) is not None:
        # It has not.
        value = {name: item for name, item in value.items() if name != age}
    answer = {**shown, **value, **_limits(policies, topic)}
    told, held = value.get("subscriptions"), known.get("subscriptions", {})
    if not isinstance(told, dict):
        return answer
    subscriptions = {
        name: {**held.get(name, {}), **one} if isinstance(one, dict) else one for name, one in told.items()
    }
    return {**answer, "subscriptions": subscriptions}


def _limits(policies: PolicySet, topic: str) -> dict[str, int]:
    """Those of Weir's quotas; where there is none Pulsar's stay."""
    try:
        limits = limits_of(policies, topic)
    except BadEvent:
        return {}  # nothing is kept under a name that is none
    return {name: limit for name, limit in limits.items() if limit != UNLIMITED}
