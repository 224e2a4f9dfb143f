"""Decisions in: all that a proxy acts on, and parsing that never raises."""

import orjson
import pytest

from enforcer.core.feeds.decisions import Decision, parse_decision
from enforcer.core.feeds.shares import Share

GOOD = {
    "type": "admission", "id": "p1-1", "ts": 5, "proxy": "p1", "subject": "user=a", "outcome": "reject",
    "throttle_time_ms": 7, "rejected": ["x"], "tokens": -1.5, "limit": 2.0, "shadow": False, "late": True,
}  # fmt: skip

SHARE = {
    "type": "share", "group": "g", "broker": "b", "ts": 5, "ttl_ms": 3, "limits": {"publishRateInMsgs": 5},
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
        orjson.dumps({**GOOD, "throttle_time_ms": -1}), orjson.dumps({**GOOD, "throttle_time_ms": 1.7e308}),
        orjson.dumps({**GOOD, "throttle_time_ms": 2**63}), orjson.dumps({**GOOD, "throttle_time_ms": True}),
        orjson.dumps({**GOOD, "ts": 2**62}), orjson.dumps({**GOOD, "late": "yes"}),
        orjson.dumps({**GOOD, "rejected": [7]}), orjson.dumps({**GOOD, "type": []}),
        orjson.dumps({**SHARE, "ttl_ms": -1}), orjson.dumps({**SHARE, "ts": 1.5}),
        orjson.dumps({**SHARE, "limits": {"publishRateInMsgs": -1}}), orjson.dumps({**SHARE, "limits": [1]}),
        orjson.dumps({**SHARE, "usage": {"publishRateInMsgs": None}}), orjson.dumps({**SHARE, "usage": None}),
    ],
)  # fmt: skip
def test_what_is_no_decision_is_skipped(value: bytes | None) -> None:
    """Garbage, and numbers that no law gives, make None and a reason, and never raise."""
    reasons = list[str]()
    assert parse_decision(value, reasons.append) is None
    assert len(reasons) == 1


def test_other_decisions_are_not_for_proxies() -> None:
    """They are skipped without a word."""
    reasons = list[str]()
    assert parse_decision(b'{"type":"limit"}', reasons.append) is None
    assert reasons == []


def test_a_wait_of_ages_is_cut_to_what_an_answer_can_say() -> None:
    """A law's longest throttle time has 63 bits, Kafka's field 31."""
    found = parse_decision(orjson.dumps({**GOOD, "throttle_time_ms": 2**63 - 1}))
    assert isinstance(found, Decision) and found.throttle_time_ms == 2**31 - 1


def test_a_share_is_read() -> None:
    """With limits or without."""
    found = parse_decision(orjson.dumps(SHARE))
    assert isinstance(found, Share) and found.limits == {"publishRateInMsgs": 5.0} and found.usage == {}
    gone = parse_decision(orjson.dumps({**SHARE, "limits": None}))
    assert isinstance(gone, Share) and gone.limits is None
