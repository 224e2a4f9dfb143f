"""What laws of an enforcer stand in, where nothing is sent and no loop runs."""

from collections.abc import Callable, Mapping
from typing import Any

from enforcer.core.feeds.complaints import unheard
from enforcer.core.feeds.decisions import decisions_in
from enforcer.core.feeds.policies import Policies
from enforcer.core.law import Clock, Context
from enforcer.core.membership import Membership
from enforcer.core.metrics import Metrics
from enforcer.core.settings import ProxySettings
from enforcer.laws.enforcement import LAWS
from streaming.contract.events import PolicyChange
from streaming.contract.topics import Topics

SERVER_NAME = "kafka.test"
"""What clients of rigs ask for by TLS."""
READERS = {law.reads.type: law.reads for law in LAWS}


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
        "send_action": Nowhere().send, "soon": lambda function: function(), "call_later": at_once,
        "call_at": at_once, "in_loop": lambda function: function(), "ask_for_a_sign": lambda: None,
    }  # fmt: skip
    return Context(proxy_id=proxy_id, clock=clock, **{**default, **fields})


def at_once(_when: float, function: Callable[[], None]) -> None:
    """No time passes."""
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


class Nowhere:
    """Takes events, and keeps none."""

    def send(self, _event: Mapping[str, Any], _key: str, *, acked: Any = None) -> bool:
        """It is gone."""
        return True

    def room(self) -> bool:
        """For any number."""
        return True


def read(
    record: Any,
    own: str | None = None,
    unusable: Callable[[str], None] = unheard,
    *,
    now_ms: Callable[[int], int] | None = None,
) -> list[Any]:
    """What the laws read in a record of `weir.decisions`."""
    return [said for _, said in decisions_in(record, READERS, own, unusable, now_ms=now_ms)]
