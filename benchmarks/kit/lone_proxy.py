"""What laws of a proxy stand in where nothing is sent and no loop runs; its guard of partition mutations."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from enforcer.core.feeds.policies import Policies
from enforcer.core.law import Clock, Context
from enforcer.core.membership import Membership
from enforcer.core.metrics import Metrics
from enforcer.core.reports import Acknowledged
from enforcer.core.settings import ProxySettings
from enforcer.laws.mutation.coordinator import QuotaCoordinator
from streaming.contract.events import PolicyChange
from streaming.contract.topics import Topics


class Nowhere:
    """Takes events, and keeps none."""

    def send(self, event: Mapping[str, Any], key: str, *, acked: Acknowledged | None = None) -> bool:
        """It is gone."""
        return True

    def room(self) -> bool:
        """For any number."""
        return True


def context(clock: Clock, *, proxy_id: str = "p1", **fields: Any) -> Context:
    """A context; what is not given is thrown away, or done at once.

    Args:
        clock: tells the time, the brokers' too.
        proxy_id: as there.
        fields: others.
    """
    brokers_ms = fields.get("brokers_ms", clock.wall_ms)
    default: dict[str, Any] = {
        "settings": ProxySettings(), "metrics": Metrics(10), "topics": Topics(), "connection": {},
        "brokers_ms": brokers_ms, "policies": Policies(brokers_ms),
        "membership": Membership(proxy_id, "kafka", brokers_ms, lambda: None), "requests": Nowhere(),
        "send_usage": Nowhere().send, "send_usage_pack": lambda _value, _key: True,
        "send_action": Nowhere().send, "soon": lambda function: function(), "call_later": _at_once,
        "call_at": _at_once, "in_loop": lambda function: function(), "ask_for_a_sign": lambda: None,
    }  # fmt: skip
    return Context(proxy_id=proxy_id, clock=clock, **{**default, **fields})


def _at_once(_when: float, function: Callable[[], None]) -> None:
    function()


def enforce(policies: Policies, ts: int, entries: Mapping[str, Any]) -> None:
    """These entries are in force from a time on; a value of None removes one."""
    policies.known = lambda: True
    policies.apply(
        [
            PolicyChange(id="x", ts=ts, at=ts, path=path, value=value, version=None)
            for path, value in entries.items()
        ]
    )


def lone_coordinator(
    policies: Mapping[str, Any], soon: Callable[[Callable[[], None]], object]
) -> QuotaCoordinator:
    """A proxy's guard with its policies in force, by the machine's clocks.

    Args:
        policies: path -> value.
        soon: called with what is put off.
    """
    clock = Clock(steady_ms=lambda: time.monotonic() * 1_000, wall_ms=lambda: time.time_ns() // 1_000_000)
    metrics = Metrics(ProxySettings().metric_subjects)
    coordinator = QuotaCoordinator(context(clock, metrics=metrics, soon=soon))
    enforce(coordinator.policies, clock.wall_ms() - 1_000, policies)
    return coordinator
