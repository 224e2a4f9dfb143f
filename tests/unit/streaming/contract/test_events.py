"""Reading events: what is taken, what is refused and why."""

from contextlib import nullcontext

import orjson
import pytest

from streaming.contract.errors import BadEvent
from streaming.contract.events import DEPTH_MAX, PolicyChange, Refund, Request
from streaming.laws.registry import LAWS

REQUEST = {
    "type": "request",
    "ts": 1_795_166_668_375,
    "proxy": "p1",
    "items": [{"name": "orders", "mutations": 80}],
}


def changed(**fields: object) -> bytes:
    return orjson.dumps(REQUEST | fields)


def without(key: str) -> bytes:
    return orjson.dumps({name: value for name, value in REQUEST.items() if name != key})


def test_a_request_takes_the_defaults_of_the_contract() -> None:
    """User ANONYMOUS, empty client-id, strict, no dry run, id from the position, no deadline."""
    event = LAWS.parse(changed(), default_id="weir.requests-0-7", default_ts=None)
    assert isinstance(event, Request)
    assert (event.id, event.user, event.client_id, event.subject) == (
        "weir.requests-0-7",
        "ANONYMOUS",
        "",
        None,
    )
    assert (event.strict, event.validate_only, event.deadline_ms, event.reject_late) == (
        True,
        False,
        None,
        False,
    )
    assert (event.names, event.mutations, event.at) == (("orders",), (80,), event.ts)


def test_a_record_from_kafka_takes_its_timestamp() -> None:
    """A record without `ts` is as old as Kafka says."""
    event = LAWS.parse(without("ts"), default_id="x", default_ts=17)
    assert event.ts == 17


def test_a_refund_sums_its_items() -> None:
    """What is given back is one number."""
    raw = {"type": "refund", "ts": 5, "of": "a", "of_ts": 3, "items": [{"name": "a", "mutations": 2}] * 2}
    event = LAWS.parse(orjson.dumps(raw), default_id="x", default_ts=None)
    assert isinstance(event, Refund)
    assert (event.mutations, event.of_ts) == (4, 3)


def test_a_policy_is_in_force_from_its_effective_ts() -> None:
    """`effective_ts` counts where a record has both."""
    raw = {"type": "policy", "ts": 5, "effective_ts": 2005, "path": "broker", "value": None, "version": 3}
    event = LAWS.parse(orjson.dumps(raw), default_id="x", default_ts=None)
    assert event == PolicyChange(id="x", ts=2005, at=2005, path="broker", value=None, version=3)


@pytest.mark.parametrize(("version", "fits"), [(1, True), (2**48, True), (0, False), (2**48 + 1, False)])
def test_a_version_that_jumps_to_the_end_is_refused(version: int, fits: bool) -> None:
    """By the record alone, so that all who read it agree."""
    raw = {"type": "policy", "ts": 5, "path": "broker", "value": None, "version": version}
    with nullcontext() if fits else pytest.raises(BadEvent, match=r"^version: .* out of range"):
        LAWS.parse(orjson.dumps(raw), default_id="x", default_ts=None)


def test_unknown_fields_are_ignored() -> None:
    """A newer writer may add fields."""
    raw = changed(colour="red")[:-1] + b',"size":1000000000000000000000000}'
    assert LAWS.parse(raw, default_id="x", default_ts=None).id == "x"


BROKEN = {
    "no JSON at all": (b"{", "not JSON"),
    "single quotes": (b"{'type':'request'}", "not JSON"),
    "trailing garbage": (changed() + b" x", "not JSON"),
    "two objects": (changed() * 2, "not JSON"),
    "a list": (b"[]", "not a JSON object"),
    "a number": (b"7", "not a JSON object"),
    "NaN": (b'{"type":"request","ts":NaN,"items":[]}', "not JSON"),
    "Infinity": (b'{"type":"request","ts":1e999,"items":[]}', "not JSON"),
    "not UTF-8": (b'{"type":"request","user":"\xff"}', "not JSON"),
    "half a surrogate pair": (b'{"type":"request","ts":1,"items":[],"user":"\\ud800"}', "not JSON"),
    "no type": (without("type"), "type: missing"),
    "unknown type": (changed(type="quux"), 'type: unknown "quux"'),
    "type a number": (changed(type=7), "type: unknown 7"),
    "a newer contract": (changed(v=2), "v: contract version 2"),
    "v text": (changed(v="1"), "v: "),
    "v zero": (changed(v=0), "v: 0 is out of range"),
    "ts missing in a file": (without("ts"), "ts: missing"),
    "ts text": (changed(ts="1795166668375"), "ts: "),
    "ts fraction": (changed(ts=1.5), "ts: 1.5"),
    "ts true": (changed(ts=True), "ts: true"),
    "ts negative": (changed(ts=-1), "ts: -1 is out of range"),
    "ts in microseconds": (changed(ts=1_795_166_668_375_000), "out of range"),
    "ts beyond 64 bits": (changed(ts=2**64 - 1), "out of range"),
    "id a number": (changed(id=5), "id: 5"),
    "id null": (changed(id=None), "id: null"),
    "user a number": (changed(user=5), "user: 5"),
    "user null": (changed(user=None), "user: null"),
    "client id a list": (changed(client_id=[]), "client_id: []"),
    "subject a number": (changed(subject=1), "subject: 1"),
    "strict text": (changed(strict="true"), "strict: "),
    "strict one": (changed(strict=1), "strict: 1"),
    "dry run null": (changed(validate_only=None), "validate_only: null"),
    "items missing": (without("items"), "items: missing"),
    "items an object": (changed(items={}), "items: {}"),
    "an item a number": (changed(items=[5]), "items[0]: 5"),
    "an item without a name": (changed(items=[{"mutations": 1}]), "items[0].name: missing"),
    "an item without mutations": (changed(items=[{"name": "a"}]), "items[0].mutations: missing"),
    "mutations negative": (changed(items=[{"name": "a", "mutations": -1}]), "items[0].mutations: -1"),
    "mutations true": (changed(items=[{"name": "a", "mutations": True}]), "items[0].mutations: true"),
    "mutations fraction": (changed(items=[{"name": "a", "mutations": 1.0}]), "items[0].mutations: 1.0"),
    "mutations text": (changed(items=[{"name": "a", "mutations": "1"}]), "items[0].mutations"),
    "mutations beyond 64 bits": (changed(items=[{"name": "a", "mutations": 2**63}]), "items[0].mutations"),
    "on_late unknown": (changed(on_late="maybe"), "on_late"),
    "deadline negative": (changed(deadline_ms=-5), "deadline_ms"),
    "answered unknown": (changed(answered="yes"), "answered"),
    "a policy without a path": (b'{"type":"policy","ts":1,"value":null}', "path: missing"),
    "a policy without a value": (b'{"type":"policy","ts":1,"path":"broker"}', "value: missing"),
    "a policy of an origin that is no text": (
        b'{"type":"policy","ts":1,"path":"broker","value":null,"origin":5}', "origin: 5"
    ),
    "a refund without items": (b'{"type":"refund","ts":1}', "items: missing"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_event_is_refused_with_its_reason(name: str) -> None:
    """Every reason names the field, what it held and what was expected."""
    raw, reason = BROKEN[name]
    with pytest.raises(BadEvent) as refused:
        LAWS.parse(raw, default_id="x", default_ts=None)
    assert reason in refused.value.reason


@pytest.mark.parametrize(("more", "fits"), [(DEPTH_MAX - 1, True), (DEPTH_MAX, False)])
def test_what_is_nested_too_deeply_is_refused(more: int, fits: bool) -> None:
    """Whatever nobody asks for, too; what is taken can be written again."""
    value = b'{"type":"request","ts":1,"items":[],"note":%s}' % (b"[" * more + b"]" * more)
    with nullcontext() if fits else pytest.raises(BadEvent, match="nested too deeply"):
        LAWS.parse(value, default_id="x", default_ts=None)
        orjson.dumps(orjson.loads(value))
