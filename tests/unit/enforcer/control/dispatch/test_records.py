"""Decisions on deliveries, read from their JSON objects."""

from typing import Any

import pytest
from delivery_kit import DECISION
from each_kit import each

from enforcer.control.dispatch.records import CUTS, dispatch_of
from streaming.contract.errors import BadEvent
from streaming.laws.dispatch.law import NONE


def test_a_decision_is_read() -> None:
    """Without counters and proxy, as of a reporter that is none, and with them."""
    found = dispatch_of(DECISION)
    assert (found.at, found.throttle_ms, found.proxy, found.repeated) == (1_000, 1_000, "", False)
    assert (found.available, CUTS[found.limited_by]) == ((0, NONE), ("subscription", "msgs"))
    assert found.acquired is None
    more = {"acquired": {"subscription": {"msgs": 11, "bytes": None}, "topic": {"msgs": 3}}}
    found = dispatch_of(DECISION | more | {"proxy": "p1", "applied_ts": 1_500, "repeat": True})
    assert (found.at, found.proxy, found.repeated) == (1_500, "p1", True)
    assert found.acquired == ((NONE, NONE), (3, NONE), (11, NONE))


def test_packed_nulls_are_absent() -> None:
    """What limits nobody."""
    fields = {name: value for name, value in DECISION.items() if name != "limited_by"}
    assert dispatch_of(fields | {"available": {"msgs": None, "bytes": None}}).limited_by == NONE


@each(
    "wrong",
    [
        {"limited_by": {}}, {"limited_by": "x"}, {"limited_by": {"level": "x", "dimension": "msgs"}},
        {"available": []}, {"available": {"msgs": -1}}, {"acquired": {"topic": 5}}, {"ts": None},
        {"throttle_time_ms": 1.5}, {"broker": 5}, {"topic": "t1"}, {"acquired": {"topic": {"msgs": "1"}}},
    ],
)  # fmt: skip
def test_what_is_none_is_refused(wrong: dict[str, Any]) -> None:
    """Anyone with access to the cluster could write to the topic."""
    with pytest.raises(BadEvent):
        dispatch_of(DECISION | wrong)
