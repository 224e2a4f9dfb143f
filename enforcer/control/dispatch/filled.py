"""In front of a Pulsar: its own answers, with what Weir knows of dispatch filled in."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from enforcer.control.dispatch.broker import NAMES, values
from enforcer.control.dispatch.routes import NAMES_PATH
from enforcer.control.dispatch.stats import topic_stats
from enforcer.control.parts import Parts
from streaming.policy.policy_set import PolicySet

Fill = Callable[[Mapping[str, str], Any, str], Any]
"""Names in the path, what the broker says, what the client calls us -> what the client is told."""

_PULSARS: Final = frozenset(("msgRateOut", "msgThroughputOut", "msgOutCounter", "bytesOutCounter"))
"""What both count: the broker knows what it delivered."""


def fills(parts: Parts) -> dict[str, Fill]:
    """By path of a GET: what fills its answer in."""
    return {
        NAMES_PATH: lambda _, value, __: filled_names(value),
        f"{NAMES_PATH}/values": lambda _, value, __: filled_values(parts, value),
    }


def filled_stats(parts: Parts, names: Mapping[str, str], value: Any) -> Any:
    """The stats of a topic as its broker tells them, and what limits its dispatch now."""
    topic = f"persistent://{names['tenant']}/{names['namespace']}/{names['topic']}"
    now_ms = time.time_ns() // 1_000_000
    known = topic_stats(parts.deliveries, topic, PolicySet(parts.store.entries), now_ms)
    if known is None or not isinstance(value, dict):
        return value
    told = value.get("subscriptions", {})
    subscriptions = {
        name: _filled(of_pulsar, known["subscriptions"].get(name, {})) for name, of_pulsar in told.items()
    }
    return {**_filled(value, known), "subscriptions": subscriptions}


def filled_names(value: Any) -> Any:
    """Names of settings: the broker's and ours."""
    return sorted({*value, *NAMES}) if isinstance(value, list) else value


def filled_values(parts: Parts, value: Any) -> Any:
    """Settings that are set; where a name is ours it is Weir's that is in force."""
    if not isinstance(value, dict):
        return value
    others = {name: text for name, text in value.items() if name not in NAMES}
    return {**others, **values(parts.store.entries)}


def _filled(value: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    ours = {name: item for name, item in known.items() if name not in _PULSARS and name != "subscriptions"}
    return {**value, **ours}
