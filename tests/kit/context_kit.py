"""Decisions as the laws of an enforcer read them."""

from collections.abc import Callable
from typing import Any

from enforcer.core.feeds.complaints import unheard
from enforcer.core.feeds.decisions import decisions_in
from enforcer.laws.enforcement import LAWS

SERVER_NAME = "kafka.test"
"""What clients of rigs ask for by TLS."""
READERS = {law.reads.type: law.reads for law in LAWS}


def read(
    record: Any,
    own: str | None = None,
    unusable: Callable[[str], None] = unheard,
    *,
    now_ms: Callable[[int], int] | None = None,
) -> list[Any]:
    """What the laws read in a record of `weir.decisions`."""
    return [said for _, said in decisions_in(record, READERS, own, unusable, now_ms=now_ms)]
