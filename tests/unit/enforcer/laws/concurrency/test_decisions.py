"""Concurrency limits as they are read."""

import pytest
from each_kit import each

from streaming.contract.decisions import LIMIT_TTL_MS, limit_of
from streaming.contract.errors import BadEvent

LIMIT = {
    "type": "limit", "id": "l1", "ts": 1_795_166_700_000, "partition": "broker-1", "algorithm": "vegas",
    "limit": 26, "estimated_limit": 26.5,
}  # fmt: skip


def test_a_limit_is_read() -> None:
    """With a life time, or the usual one."""
    found = limit_of(LIMIT)
    assert (found.partition, found.ts, found.algorithm) == ("broker-1", 1_795_166_700_000, "vegas")
    assert (found.limit, found.estimate, found.ttl_ms) == (26, 26.5, LIMIT_TTL_MS)
    assert limit_of({**LIMIT, "ttl_ms": 5}).ttl_ms == 5


@each("wrong", [{"limit": -1}, {"limit": "26"}, {"limit": 2**31}, {"partition": 1}, {"ts": None}])
def test_nonsense_is_none(wrong: dict[str, object]) -> None:
    """Anyone with access to the cluster could write it."""
    with pytest.raises(BadEvent):
        limit_of({**LIMIT, **wrong})
