"""Decisions in: all that a proxy acts on, and parsing that never raises."""

import orjson
import pytest

from enforcer.core.feeds.decisions import Decision, parse_decision

GOOD = {
    "type": "admission", "id": "p1-1", "ts": 5, "proxy": "p1", "subject": "user=a", "outcome": "reject",
    "throttle_time_ms": 7, "rejected": ["x"], "tokens": -1.5, "limit": 2.0, "shadow": False, "late": True,
}  # fmt: skip


def test_a_decision_is_read() -> None:
    """All that the proxy acts on."""
    found = parse_decision(orjson.dumps(GOOD))
    assert isinstance(found, Decision)
    assert (found.id, found.throttle_time_ms, found.rejected, found.late) == ("p1-1", 7, frozenset("x"), True)
    assert (found.tokens, found.limit, found.rate) == (-1.5, 2.0, None)


@pytest.mark.parametrize(
    "value",
    [
        None, b"", b"garbage", b"[]", b"7", b"null", b"\xff", b'{"type":"share"}', b'{"type":"admission"}',
        orjson.dumps({**GOOD, "rejected": 5}), orjson.dumps({**GOOD, "ts": "soon"}),
        orjson.dumps({**GOOD, "tokens": []}), orjson.dumps({**GOOD, "throttle_time_ms": None}),
    ],
)  # fmt: skip
def test_what_is_no_decision_is_skipped(value: bytes | None) -> None:
    """Other types and garbage give None and never raise."""
    assert parse_decision(value) is None
