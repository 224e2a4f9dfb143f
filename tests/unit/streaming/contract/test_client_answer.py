"""What a proxy says that it has decided: it must fit its request, and its time counts within bounds."""

from typing import Any

import orjson
import pytest

from streaming.contract.errors import BadEvent
from streaming.contract.events import MAX_AHEAD_MS, OWN_AHEAD_MS, Alive, Event, Request
from streaming.laws.registry import LAWS

T0 = 1_795_166_700_000
ALLOWED = {"outcome": "allow", "rejected": [], "throttle_time_ms": 0, "tokens": 420.0}
REJECTED = {"outcome": "reject", "rejected": ["b"], "throttle_time_ms": 5, "tokens": -0.5}
THROTTLED = {"outcome": "throttle", "rejected": [], "throttle_time_ms": 5, "tokens": -0.5}


def read(record_ts: int | None = T0, **fields: Any) -> Event:
    event = {"type": "request", "items": [{"name": name, "mutations": 1} for name in "ab"], **fields}
    return LAWS.parse(orjson.dumps(event), default_id="x", default_ts=record_ts, max_ahead_ms=MAX_AHEAD_MS)


@pytest.mark.parametrize(
    ("fields", "rejected"),
    [
        ({"decided": ALLOWED}, (False, False)),
        ({"decided": REJECTED}, (False, True)),
        ({"decided": REJECTED | {"rejected": ["b", "a"]}}, (True, True)),
        ({"decided": THROTTLED, "strict": False}, (False, False)),
        ({"decided": REJECTED | {"rejected": ["a", "b"]}, "validate_only": True}, (True, True)),
        ({"decided": {k: ALLOWED[k] for k in ("outcome", "rejected", "throttle_time_ms")}}, (False, False)),
    ],
)
def test_what_fits_is_taken(fields: dict[str, Any], rejected: tuple[bool, ...]) -> None:
    """Outcome, time, and of each item whether it was rejected."""
    event = read(**fields)
    assert isinstance(event, Request) and event.decided is not None
    assert event.decided.rejected == rejected
    assert event.decided.outcome == fields["decided"]["outcome"]
    assert event.decided.throttle_time_ms == fields["decided"]["throttle_time_ms"]


def test_of_items_with_one_name_the_last_are_rejected() -> None:
    """A strict request goes on until the balance is gone."""
    items = [{"name": "a", "mutations": 1}] * 3
    event = read(items=items, decided=REJECTED | {"rejected": ["a", "a"]})
    assert isinstance(event, Request) and event.decided is not None
    assert event.decided.rejected == (False, True, True)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"decided": None}, "decided: null; an object"),
        ({"decided": {}}, "decided.outcome: "),
        ({"decided": ALLOWED | {"outcome": "deny"}}, 'decided.outcome: "deny"'),
        ({"decided": ALLOWED | {"rejected": None}}, "decided.rejected: null; a list of names"),
        ({"decided": ALLOWED | {"rejected": [1]}}, "decided.rejected: "),
        ({"decided": REJECTED | {"rejected": ["c"]}}, 'decided.rejected: "c"; names of the request'),
        ({"decided": REJECTED | {"rejected": ["b", "b"]}}, 'decided.rejected: "b"; names of the request'),
        ({"decided": ALLOWED | {"throttle_time_ms": -1}}, "decided.throttle_time_ms: -1"),
        ({"decided": ALLOWED | {"throttle_time_ms": 1}}, "decided.throttle_time_ms: 1 beside"),
        ({"decided": REJECTED | {"throttle_time_ms": 0}}, "decided.throttle_time_ms: 0 beside"),
        ({"decided": ALLOWED | {"tokens": "many"}}, "decided.tokens: "),
        ({"decided": ALLOWED | {"rejected": ["a"]}}, "decided.rejected: 1 names beside the outcome allow"),
        ({"decided": REJECTED | {"rejected": []}}, "decided.rejected: 0 names beside the outcome reject"),
        ({"decided": THROTTLED}, "decided.outcome: throttle; allow or reject"),
        ({"decided": REJECTED, "strict": False}, "decided.outcome: reject; allow or throttle"),
        ({"decided": REJECTED, "validate_only": True}, "decided.rejected: some items of a dry run"),
        ({"decided": ALLOWED, "answered": "not_before"}, "decided: beside answered or late"),
        ({"decided": ALLOWED, "late": True}, "decided: beside answered or late"),
        ({"decided": REJECTED, "items": []}, 'decided.rejected: "b"; names'),
    ],
)
def test_what_does_not_fit_is_refused(fields: dict[str, Any], reason: str) -> None:
    """With the field, what it says and what was expected."""
    with pytest.raises(BadEvent) as refused:
        read(**fields)
    assert refused.value.reason.startswith(reason)


REFUND = {"type": "refund", "of": "a"}


@pytest.mark.parametrize("fields", [{"decided": ALLOWED}, REFUND])
def test_what_has_happened_is_applied_at_its_records_time_at_the_latest(fields: dict[str, Any]) -> None:
    """A clock that is ahead must not end debts early, and what a client was told cannot be refused."""
    for ahead in (OWN_AHEAD_MS, -10 * MAX_AHEAD_MS):
        assert read(**fields, ts=T0 + ahead).at == T0 + ahead
    for ahead in (OWN_AHEAD_MS + 1, 10 * MAX_AHEAD_MS):
        event = read(**fields, ts=T0 + ahead)
        assert (event.ts, event.at) == (T0 + ahead, T0)
    assert read(None, **fields, ts=T0).at == T0


@pytest.mark.parametrize("fields", [{"decided": ALLOWED}, {}, REFUND])
def test_a_dump_says_when_it_was_applied(fields: dict[str, Any]) -> None:
    """Later than its own time; what a clock that was ahead had said of its own, earlier too."""
    for applied in (T0 - 70_000, T0 + 500):
        event = read(None, **fields, ts=T0, applied_ts=applied)
        assert (event.ts, event.at) == (T0, applied if fields else max(T0, applied))


def test_what_is_asked_must_not_be_far_ahead() -> None:
    """As before."""
    with pytest.raises(BadEvent, match=r"ts: .* ms after the time of its record"):
        read(T0 - MAX_AHEAD_MS - 1, ts=T0)


def test_a_proxy_says_that_it_lives() -> None:
    """And whether it leaves; whose life it is must be said."""
    alive = {"type": "alive", "proxy": "p1"}
    event = LAWS.parse(orjson.dumps(alive), default_id="a", default_ts=T0)
    assert event == Alive(id="a", ts=T0, at=T0, proxy="p1", leaving=False)
    event = LAWS.parse(orjson.dumps(alive | {"leaving": True}), default_id="a", default_ts=T0)
    assert isinstance(event, Alive) and event.leaving
    for wrong in ({"type": "alive"}, alive | {"leaving": 1}):
        with pytest.raises(BadEvent, match="was expected"):
            LAWS.parse(orjson.dumps(wrong), default_id="a", default_ts=T0)
