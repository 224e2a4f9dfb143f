"""The guard of partition mutations of a proxy without a cluster."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from enforcer.core.feeds.policies import Policies
from enforcer.core.law import Clock, Context, Sender
from enforcer.core.membership import Membership
from enforcer.core.metrics import Metrics
from enforcer.core.reports import Acknowledged
from enforcer.core.settings import ProxySettings
from enforcer.laws.mutation.coordinator import QuotaCoordinator
from streaming.contract.events import PolicyChange
from streaming.contract.topics import Topics


class Nowhere:
    """Takes events; what it costs to send one is no part of a check."""

    def send(self, event: Mapping[str, Any], key: str, *, acked: Acknowledged | None = None) -> bool:
        """Drop it."""
        return True

    def room(self) -> bool:
        """Always."""
        return True


def lone_coordinator(
    policies: Mapping[str, Any], soon: Callable[[Callable[[], None]], object]
) -> QuotaCoordinator:
    """A proxy's guard with its policies in force.

    Args:
        policies: path -> value.
        soon: called with what is put off.
    """
    coordinator = QuotaCoordinator(_context(Nowhere(), soon))
    in_force = coordinator.clock.wall_ms() - 1_000
    coordinator.policies.apply(
        [
            PolicyChange(id=path, ts=in_force, at=in_force, path=path, value=value, version=None)
            for path, value in policies.items()
        ]
    )
    return coordinator


def _context(requests: Sender, soon: Callable[[Callable[[], None]], object]) -> Context:
    """With the machine's clocks; events of requests go to `requests`, others nowhere."""
    clock = Clock(steady_ms=lambda: time.monotonic() * 1_000, wall_ms=lambda: time.time_ns() // 1_000_000)
    settings = ProxySettings()

    def at_once(_when: float, function: Callable[[], None]) -> None:
        function()

    return Context(
        proxy_id="bench", settings=settings, metrics=Metrics(settings.metric_subjects_max), topics=Topics(),
        connection={}, clock=clock, brokers_ms=clock.wall_ms, policies=Policies(clock.wall_ms),
        membership=Membership("bench", "kafka", clock.wall_ms, lambda: None), requests=requests,
        send_usage=requests.send, send_usage_pack=lambda _value, _key: True, send_action=requests.send,
        soon=soon, call_later=at_once, call_at=at_once, in_loop=lambda function: function(),
        ask_for_a_sign=lambda: None,
    )  # fmt: skip
