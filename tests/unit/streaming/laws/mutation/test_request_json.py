"""The compiled scanner against the contract's parser: what is plain means the same to both."""

from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from property_kit import tries

from streaming.columns.byte_strings import bytes_of, is_canonical
from streaming.columns.records import CHUNK, Records
from streaming.contract.errors import BadEvent
from streaming.contract.events import MAX_AHEAD_MS, Event, Request
from streaming.contract.names import parse_subject
from streaming.laws.mutation import requests as columns
from streaming.laws.mutation.request_json import scanned
from streaming.laws.mutation.requests import Requests
from streaming.laws.registry import LAWS

T0 = 1_795_166_700_000
NAMES = ("id", "proxy", "user", "client_id", "subject")


def records_of(*values: bytes, ts: int | None = T0) -> Records:
    count = len(values)
    return Records(
        topic=["t"] * count, partition=[0] * count, offset=list(range(count)), ts=[ts] * count, value=values
    )


def parsed(value: bytes, ts: int | None = T0) -> Event | None:
    """What the slow path makes of a record; None: a dead letter, or a policy."""
    try:
        event = LAWS.parse(value, default_id="t-0-0", default_ts=ts, max_ahead_ms=MAX_AHEAD_MS)
        if isinstance(event, Request) and event.subject:
            parse_subject(event.subject)
    except BadEvent:
        return None
    return event if isinstance(event, Request) else None


def row(requests: Requests, i: int) -> dict[str, Any]:
    """A row as the fields of `Request`."""

    def text(start: int, length: int) -> str:
        return requests.kept[start : start + length].tobytes().decode()

    flags, own = int(requests.flags[i]), {}
    for number, name in enumerate(NAMES):
        start, length = int(requests.start[i, number]), int(requests.length[i, number])
        own[name] = text(start, length) if length >= 0 else "t-0-0"
    items = range(int(requests.first[i]), int(requests.first[i] + requests.items[i]))
    return own | {
        "subject": own["subject"] if flags & columns.STAMPED else None,
        "ts": int(requests.ts[i]),
        "at": int(requests.at[i]),
        "strict": bool(flags & columns.STRICT),
        "validate_only": bool(flags & columns.DRY),
        "late": bool(flags & columns.LATE),
        "reject_late": bool(flags & columns.REJECT_LATE),
        "answered": bool(flags & columns.ANSWERED),
        "deadline_ms": None if requests.deadline_ms[i] < 0 else int(requests.deadline_ms[i]),
        "names": tuple(text(int(requests.item_start[n]), int(requests.item_length[n])) for n in items),
        "mutations": tuple(int(requests.mutations[n]) for n in items),
        "decided": None,
    }


def fields(event: Event) -> dict[str, Any]:
    return {name: getattr(event, name) for name in Request.__slots__}


def check(value: bytes, ts: int | None = T0) -> bool:
    """Whether a record is plain; if it is, it must be what the parser says."""
    requests = scanned(records_of(value, ts=ts))
    if not requests.flags[0]:
        return False
    event = parsed(value, ts)
    assert event is not None, value
    assert row(requests, 0) == fields(event)
    return True


USUAL: dict[str, Any] = {
    "type": "request", "v": 1, "id": "p1-42", "ts": T0, "applied_ts": T0 + 5, "proxy": "p1", "user": "alice",
    "client_id": "terraform", "api": "CreateTopics", "api_version": 7, "strict": True, "validate_only": False,
    "items": [{"name": "orders", "mutations": 80}, {"mutations": 0, "name": ""}], "subject": "user=alice",
    "deadline_ms": 2000, "on_late": "reject", "late": False, "answered": "not_before",
}  # fmt: skip
ODD = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 3), st.integers(), st.floats(), st.text(max_size=8),
    st.sampled_from(
        ["request", "allow", "reject", "not_before", "user=a,client-id=b", "user=%2C", "user=a,", "x=1", "é",
         10**18, 10**18 - 1, 2**63 - 1, 2**63, 253_402_300_799_999, 253_402_300_800_000, 1.0, -0.0, {}, []]
    ),
    st.lists(st.fixed_dictionaries({"name": st.text(max_size=3), "mutations": st.integers(0, 2**64)})),
    st.lists(st.dictionaries(st.sampled_from(["name", "mutations", "x"]), st.integers(-1, 9) | st.text())),
)  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A usual request with keys left out, changed, added, in another order; then maybe bytes changed."""
    event = {key: USUAL[key] for key in draw(st.permutations(list(USUAL))) if draw(st.integers(0, 5))}
    for key in draw(st.lists(st.sampled_from([*USUAL, "x", "", "ID", "decided"]), max_size=2)):
        event[key] = draw(ODD)
    try:
        raw = orjson.dumps(event, option=draw(st.sampled_from([0, orjson.OPT_INDENT_2])))
    except TypeError:  # an integer beyond 64 bits, which only other writers write
        raw = repr(event).replace("'", '"').encode()
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        at = draw(st.integers(0, len(raw)))
        gone = draw(st.integers(0, 2))
        raw = raw[:at] + draw(st.sampled_from(PIECES) | st.binary(max_size=2)) + raw[at + gone :]
    return raw


PIECES = [
    b" ", b"\n\t\r", b",", b'"', b"\\", b"\\u0041", b"0", b"-", b".0", b"e1", b"[", b"]", b"{", b"}", b":",
    b"true", b"null", b'"id":"z",', b'"ts":1,', b'"items":[],', b'"x":{"id":"q"},', b'"x":[1],', b"\xc3\xa9",
    b"\x00", b"\x7f", b"\xff", b"/**/", b"NaN",
]  # fmt: skip


@given(mutated(), st.sampled_from([T0, 0, None]))
@tries(1000)
@example(b'{"type":"request","items":[]}', T0)
@example(b'{"type":"request","items":[]}', None)
@example(b'{"type":"request","items":[],"ts":-0}', T0)
@example(b'{"type":"request","items":[],"ts":007}', T0)
@example(b'{"type":"request","items":[],"v":2}', T0)
@example(b'{"type":"request","items":[],"items":[]}', T0)
@example(b'{"type":"request","items":[],"x":1e999}', T0)
@example(b'{"type":"request","items":[],"x":tru}', T0)
@example(b'{"type":"request","items":[{"name":"a","mutations":1,"name":"b"}]}', T0)
@example(b'{"type":"request","items":[{"name":"a","mutations":1},]}', T0)
@example(b'{"type":"request","items":[],}', T0)
@example(b'{"type":"request","items":[]} {}', T0)
@example(b'{"type":"request","items":[],"ts":60001}', 0)
@example(b'{"type":"request","items":[],"ts":1,"applied_ts":60001}', 0)
@example(b'\xef\xbb\xbf{"type":"request","items":[]}', T0)
def test_what_is_plain_means_the_same_to_the_parser(value: bytes, ts: int | None) -> None:
    """Field by field; whatever the scanner is not sure of is left to the parser."""
    check(value, ts)


@given(st.binary(max_size=60))
def test_rubbish_is_never_plain_by_mistake(value: bytes) -> None:
    """Any bytes."""
    check(value)


@pytest.mark.parametrize("option", [0, orjson.OPT_INDENT_2])
def test_the_usual_request_is_plain(option: int) -> None:
    """Or the scanner would be of no use; with white space too, and without anything that may be left out."""
    assert check(orjson.dumps(USUAL, option=option))
    assert check(b' \t{"type" : "request",\r\n"items":[ ] } ')
    for key in USUAL:
        if key not in ("type", "items"):
            assert check(orjson.dumps({name: value for name, value in USUAL.items() if name != key}))
    for ts in (T0 + 5 - MAX_AHEAD_MS, None):
        assert check(orjson.dumps(USUAL), ts)


@pytest.mark.parametrize(
    "change",
    [
        {"user": "a\\b"}, {"user": "é"}, {"items": [{"name": 'a"', "mutations": 1}]}, {"x": {}}, {"x": 1.5},
        {"ts": 2**62}, {"subject": "nobody"}, {"v": 2}, {"type": "refund"}, {"user": "\x7f"},
    ],
)  # fmt: skip
def test_what_is_not_usual_is_left_to_the_parser(change: dict[str, Any]) -> None:
    """Escapes, other alphabets, nesting, fractions, large numbers, what is wrong, other types."""
    assert not check(orjson.dumps(USUAL | change))


def test_what_is_too_far_ahead_is_left_to_the_parser() -> None:
    """Which says by how much; by `applied_ts` too, which is when an event counts."""
    assert not check(orjson.dumps(USUAL), T0 + 4 - MAX_AHEAD_MS)


def test_a_record_that_is_left_alone_leaves_nothing_behind() -> None:
    """Rows before and after it keep their own texts and items, over many chunks."""
    good = orjson.dumps(USUAL)
    values = [good if i % 3 else good[:-1] for i in range(2 * CHUNK + 6)]
    requests = scanned(records_of(*values))
    assert np.array_equal(requests.flags != 0, np.arange(len(values)) % 3 != 0)
    whole = fields(LAWS.parse(good, default_id="", default_ts=0))
    assert row(requests, 1) == row(requests, len(values) - 1) == whole
    assert int(requests.used[1]) == 2 * np.count_nonzero(requests.flags)


@given(
    st.lists(
        st.sampled_from(["user=", "client-id=", ",", "=", "%", "%25", "%2C", "%2c", "%3D", "%3C", "%41", "<",
                         "<default>", "a", "é", " "]), max_size=6,
    )
)  # fmt: skip
@tries(600)
def test_a_subject_is_canonical_when_its_parser_takes_it(pieces: list[str]) -> None:
    """The rule of `parse_subject`, on bytes."""
    subject = "".join(pieces)
    try:
        parse_subject(subject)
        taken = True
    except BadEvent:
        taken = False
    text = bytes_of(subject)
    assert is_canonical(text, 0, len(text)) == taken
