"""Reading the events that shares and dispatch are decided from."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_kit import tries

from streaming.contract.errors import BadEvent
from streaming.contract.usage_events import dispatch_usage, group_usage, split_group_usage
from streaming.laws.registry import LAWS

COUNTS = {"publishedMsg": 600, "publishedBytes": 60000, "dispatchedMsg": 0, "dispatchedBytes": 0}
USAGE = {
    "type": "group_usage",
    "broker": "b1",
    "period_ms": 60000,
    "usage": {"rg1": {**COUNTS, "topics": 3, "throttledMs": {"publishRateInMsgs": 120}}},
}
DISPATCH = {
    "type": "dispatch_usage", "broker": "b1", "topic": "persistent://acme/orders/t1", "subscription": "sub1",
    "msgs": 11, "bytes": 1100, "entries": 11, "backlog": True, "avg_publish_entry_bytes": 100,
}  # fmt: skip


def test_contract_example_of_group_usage() -> None:
    """A report is read with its counts in the order of the limits and what was throttled."""
    event = group_usage(USAGE, "b1-7", 5)
    ((group, report),) = event.usage
    assert (event.id, event.ts, event.at, event.broker, event.period_ms, group) == (
        ("b1-7", 5, 5, "b1", 60000, "rg1")
    )
    assert report.counts == (600, 60000, 0, 0)
    assert report.throttled_ms == (120, None, None, None)


def test_seeds_report_has_no_dispatch_counts() -> None:
    """PIP-82's own update says nothing of dispatch: counts left out are 0."""
    seed = {"topics": 1, "publishedMsg": 100, "publishedBytes": 100000}
    event = group_usage({**USAGE, "usage": {"resource-group-1": seed}}, "x", 5)
    assert event.usage[0][1].counts == (100, 100000, 0, 0)


def test_contract_example_of_dispatch_usage() -> None:
    """A delivery is read whole; the mean size of published entries may be left out or unknown."""
    event = dispatch_usage(DISPATCH, "d1", 5)
    assert (event.msgs, event.bytes, event.entries, event.backlog) == (11, 1100, 11, True)
    assert event.avg_publish_entry_bytes == 100.0
    assert dispatch_usage({**DISPATCH, "avg_publish_entry_bytes": 0}, "d1", 5).avg_publish_entry_bytes is None
    shorter = {key: value for key, value in DISPATCH.items() if key != "avg_publish_entry_bytes"}
    assert dispatch_usage(shorter, "d1", 5).avg_publish_entry_bytes is None


def test_applied_ts_moves_an_event_forward_only() -> None:
    """A dump says when an event was applied; that is never before it happened."""
    assert LAWS.parse(b'{"type":"tick","applied_ts":9}', default_id="t", default_ts=5).at == 9
    assert LAWS.parse(b'{"type":"tick","applied_ts":3}', default_id="t", default_ts=5).at == 5


def with_report(**fields: Any) -> dict[str, Any]:
    return {**USAGE, "usage": {"rg0": COUNTS, "rg1": {**COUNTS, **fields}}}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({**USAGE, "broker": 1}, "broker: 1; text was expected"),
        ({**USAGE, "period_ms": 0}, "period_ms: 0 is out of range; 1 to 9223372036854775807 was expected"),
        ({**USAGE, "period_ms": 60000.0}, "period_ms: 60000.0; an integer was expected"),
        ({**USAGE, "usage": []}, "usage: []; an object of reports by group was expected"),
        ({**USAGE, "usage": {"rg1": None}}, "usage.rg1: null; an object was expected"),
        (
            {**USAGE, "usage": {"rg1": {"publishedMsgs": 1}}},
            "usage.rg1: no counts; some of publishedMsg, publishedBytes, dispatchedMsg, dispatchedBytes "
            "were expected",
        ),
        (
            with_report(publishedMsg=-1),
            "usage.rg1.publishedMsg: -1 is out of range; 0 to 9223372036854775807 was expected",
        ),
        (with_report(publishedMsg=True), "usage.rg1.publishedMsg: true; an integer was expected"),
        (with_report(dispatchedBytes=None), "usage.rg1.dispatchedBytes: null; an integer was expected"),
        (with_report(dispatchedMsg=float("nan")), "usage.rg1.dispatchedMsg: null; an integer was expected"),
        (with_report(throttledMs=7), "usage.rg1.throttledMs: 7; an object was expected"),
        (
            with_report(throttledMs={"publishRateInMsgs": False}),
            "usage.rg1.throttledMs.publishRateInMsgs: false; an integer was expected",
        ),
        ({**USAGE, "applied_ts": -1}, "applied_ts: -1 is out of range; 0 to 253402300799999 was expected"),
        (
            {**DISPATCH, "topic": "orders"},
            'topic: "orders"; a full name such as persistent://TENANT/NAMESPACE/TOPIC was expected',
        ),
        ({**DISPATCH, "topic": None}, "topic: null; text was expected"),
        ({**DISPATCH, "subscription": 1}, "subscription: 1; text was expected"),
        ({**DISPATCH, "msgs": -1}, "msgs: -1 is out of range; 0 to 9223372036854775807 was expected"),
        ({**DISPATCH, "bytes": "1"}, 'bytes: "1"; an integer was expected'),
        ({**DISPATCH, "entries": 1.5}, "entries: 1.5; an integer was expected"),
        ({**DISPATCH, "backlog": 1}, "backlog: 1; true or false was expected"),
        ({**DISPATCH, "avg_publish_entry_bytes": True}, "avg_publish_entry_bytes: true; a number was "),
        ({**DISPATCH, "avg_publish_entry_bytes": float("inf")}, "avg_publish_entry_bytes: null; a number "),
        ({**DISPATCH, "avg_publish_entry_bytes": -0.5}, "avg_publish_entry_bytes: -0.5 is out of range; "),
    ],
)
def test_bad_fields_are_named(fields: dict[str, Any], reason: str) -> None:
    """A record that cannot be used says which field, what it held and what was expected."""
    with pytest.raises(BadEvent) as error:
        LAWS.readers[fields["type"]](fields, "x", 5)
    assert error.value.reason.startswith(reason)


@pytest.mark.parametrize("example", [USAGE, DISPATCH])
def test_required_fields(example: dict[str, Any]) -> None:
    """Every field that the contract does not call optional is missed."""
    for key in example.keys() - {"type", "avg_publish_entry_bytes"}:
        left = {name: value for name, value in example.items() if name != key}
        with pytest.raises(BadEvent, match=f"^{key}: missing; "):
            LAWS.readers[example["type"]](left, "x", 5)


@tries(50)
@given(st.dictionaries(st.text(max_size=4), st.just(COUNTS), max_size=5))
def test_split_says_what_the_whole_says(usage: dict[str, Any]) -> None:
    """The reports of the parts are the report; each holds the groups of its part, in order."""
    whole = {**USAGE, "id": "b1-7", "usage": usage}
    parts = split_group_usage(orjson.dumps(whole), len)
    assert [part for part, _ in parts] == list(dict.fromkeys(map(len, usage)))
    read = [group_usage(orjson.loads(value), "b1-7", 5) for _, value in parts]
    for (part, _), event in zip(parts, read, strict=True):
        assert [group for group, _ in event.usage] == [group for group in usage if len(group) == part]
    told = {group: report for event in read for group, report in event.usage}
    assert told == dict(group_usage(whole, "b1-7", 5).usage)
    assert {event.broker for event in read} <= {"b1"}
