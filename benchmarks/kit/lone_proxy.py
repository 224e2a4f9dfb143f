"""What the laws of a proxy without a cluster stand in."""

import time
from collections.abc import Callable

from enforcer.core.clock import Clock
from enforcer.core.feeds.policies import Policies
from enforcer.core.law import Context, Sender
from enforcer.core.membership import Membership
from enforcer.core.metrics import Metrics
from enforcer.core.settings import ProxySettings
from enforcer.laws.enforcement import NoUpstreams
from streaming.contract.topics import Topics


def lone_context(requests: Sender, soon: Callable[[Callable[[], None]], object]) -> Context:
    """A context with the machine's clocks.

    Args:
        requests: takes events of requests; others go nowhere.
        soon: called with what is put off.
    """
    clock = Clock(steady_ms=lambda: time.monotonic() * 1_000, wall_ms=lambda: time.time_ns() // 1_000_000)
    settings = ProxySettings()

    def at_once(_when: float, function: Callable[[], None]) -> None:
        function()

    return Context(
        proxy_id="bench",
        settings=settings,
        metrics=Metrics(settings.metric_subjects_max),
        topics=Topics(),
        connection={},
        clock=clock,
        brokers_ms=clock.wall_ms,
        policies=Policies(clock.wall_ms),
        membership=Membership("bench", "kafka", clock.wall_ms, lambda: None),
        requests=requests,
        send_usage=requests.send,
        send_usage_pack=lambda _value, _key: True,
        send_action=requests.send,
        soon=soon,
        call_later=at_once,
        call_at=at_once,
        in_loop=lambda function: function(),
        ask_for_a_sign=lambda: None,
        upstreams=NoUpstreams(),
        connections=tuple,
    )
