"""Policies in force at an enforcer that a test makes, and decisions as its laws read them."""

from collections.abc import Callable, Mapping
from typing import Any

from enforcer.core.feeds.complaints import unheard
from enforcer.core.feeds.decisions import decisions_in
from enforcer.core.feeds.policies import Policies
from enforcer.laws.enforcement import LAWS
from streaming.contract.events import PolicyChange

SERVER_NAME = "kafka.test"
"""What clients of rigs ask for by TLS."""
READERS = {law.reads.type: law.reads for law in LAWS}


def enforce(policies: Policies, ts: int, entries: Mapping[str, Any]) -> None:
    """These entries are in force from a time on; a value of None removes one."""
    policies.known = lambda: True
    policies.apply(
        [
            PolicyChange(id="x", ts=ts, at=ts, path=path, value=value, version=None)
            for path, value in entries.items()
        ]
    )


def read(
    record: Any,
    own: str | None = None,
    unusable: Callable[[str], None] = unheard,
    *,
    now_ms: Callable[[int], int] | None = None,
) -> list[Any]:
    """What the laws read in a record of `weir.decisions`."""
    return [said for _, said in decisions_in(record, READERS, own, unusable, now_ms=now_ms)]
