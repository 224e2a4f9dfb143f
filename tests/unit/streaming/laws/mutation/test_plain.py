"""What is read in bulk against the contract's parser: what is plain means the same to both."""

from dataclasses import asdict
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pack_kit import records_with, stream_of
from property_kit import tries

from streaming.columns.byte_strings import bytes_of, is_canonical
from streaming.columns.json_columns import Unlike, columns_of
from streaming.columns.json_lines.arrow import LINES_MIN
from streaming.columns.records import Records
from streaming.contract.errors import BadEvent
from streaming.contract.events import MAX_AHEAD_MS, Refund, Request
from streaming.contract.names import parse_subject
from streaming.laws.mutation import requests as columns
from streaming.laws.mutation.intake import RequestIntake
from streaming.laws.mutation.requests import OUTCOMES, Requests
from streaming.laws.registry import LAWS

T0 = 1_795_166_700_000


def records_of(*values: bytes, ts: int | None = T0) -> Records:
    count = len(values)
    return Records(
        topic=["t"] * count, partition=[0] * count, offset=list(range(count)), ts=[ts] * count, value=values
    )


def read(records: Records) -> dict[int, dict[str, Any]]:
    """What is plain, as the fields of its event by the index of its record."""
    intake = RequestIntake(records)
    taken = intake.scan()
    rows = {int(part.source[i]): row(part, i) for part in intake._parts for i in range(len(part.source))}
    assert sorted(rows) == [i for i, plain in enumerate(taken) if plain]
    return rows


def row(requests: Requests, i: int) -> dict[str, Any]:
    """A row as the fields of `Request` or `Refund`."""
    flags = int(requests.flags[i])
    items = slice(int(requests.first[i]), int(requests.first[i] + requests.items[i]))
    own: dict[str, Any] = {
        name: getattr(requests, name)[i].as_py() for name in ("id", "user", "client_id", "subject")
    } | {"ts": int(requests.ts[i]), "at": int(requests.at[i])}
    if not flags & columns.STAMPED:
        assert own["subject"] == ""
        own["subject"] = None
    if flags & columns.REFUND:
        return own | {"of_ts": int(requests.of_ts[i]), "mutations": int(requests.mutations[items].sum())}
    gone = tuple(requests.gone[items].tolist())
    decided = {
        "outcome": OUTCOMES[int(requests.outcome[i])], "throttle_time_ms": int(requests.wait_ms[i]),
        "rejected": gone,
    }  # fmt: skip
    return own | {
        "proxy": requests.proxy[i].as_py(),
        "strict": bool(flags & columns.STRICT),
        "validate_only": bool(flags & columns.DRY),
        "late": bool(flags & columns.LATE),
        "reject_late": bool(flags & columns.REJECT_LATE),
        "answered": bool(flags & columns.ANSWERED),
        "deadline_ms": None if requests.deadline_ms[i] < 0 else int(requests.deadline_ms[i]),
        "names": tuple(requests.names[items].to_pylist()),
        "mutations": tuple(requests.mutations[items].tolist()),
        "decided": decided if flags & columns.DECIDED else None,
    }


def parsed(records: Records, i: int) -> dict[str, Any] | None:
    """What the contract's parser makes of a record; None: a dead letter, or no request."""
    try:
        event = LAWS.parse(
            records.value_of(i), default_id=records.name_of(i), default_ts=records.ts_of(i),
            max_ahead_ms=MAX_AHEAD_MS,
        )  # fmt: skip
        if not isinstance(event, Request | Refund):
            return None
        if event.subject:
            parse_subject(event.subject)
    except BadEvent:
        return None
    return asdict(event)


def check(records: Records) -> dict[int, dict[str, Any]]:
    """What is plain; it must be what the parser says."""
    found = read(records)
    for i, fields in found.items():
        assert fields == parsed(records, i), records.value_of(i)
    return found


def is_plain(value: bytes, ts: int | None = T0) -> bool:
    """Whether a record is plain, as JSON among as many of its kind as are read at once."""
    return 0 in check(records_of(*[value] * LINES_MIN, ts=ts))


USUAL: dict[str, Any] = {
    "type": "request", "v": 1, "id": "p1-42", "ts": T0, "applied_ts": T0 + 5, "proxy": "p1", "user": "alice",
    "client_id": "terraform", "api": "CreateTopics", "api_version": 7, "strict": True, "validate_only": False,
    "items": [{"name": "orders", "mutations": 80}, {"mutations": 0, "name": ""}], "subject": "user=alice",
    "deadline_ms": 2000, "asked_ts": T0 - 300, "on_late": "reject", "late": False, "answered": "not_before",
}  # fmt: skip
LOCAL: dict[str, Any] = {name: USUAL[name] for name in USUAL if name not in ("answered", "late")} | {
    "decided": {"outcome": "reject", "rejected": ["orders", ""], "throttle_time_ms": 12, "tokens": -2.5}
}
REFUND: dict[str, Any] = {
    "type": "refund", "id": "p1-43", "of": "p1-42", "of_ts": T0 - 9, "ts": T0, "user": "alice",
    "items": [{"name": "orders", "mutations": 80}], "subject": "user=alice",
}  # fmt: skip
DECIDED = st.fixed_dictionaries(
    {"outcome": st.sampled_from([*OUTCOMES, "no"])},
    optional={
        "rejected": st.lists(st.sampled_from(["orders", "", "x"]), max_size=3),
        "throttle_time_ms": st.integers(-1, 3), "tokens": st.floats() | st.integers(-3, 3) | st.text(),
    },
)  # fmt: skip
ODD = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 3), st.integers(), st.floats(), st.text(max_size=8), DECIDED,
    st.sampled_from(
        ["request", "refund", "allow", "reject", "not_before", "user=a,client-id=b", "user=%2C", "user=a,",
         "x=1", "é", 2**63 - 1, 2**63, 253_402_300_799_999, 253_402_300_800_000, 1.0, -0.0, {}, [],
         T0 + 1000, T0 + 1001, T0 + MAX_AHEAD_MS, T0 + MAX_AHEAD_MS + 1]
    ),
    st.lists(st.fixed_dictionaries({"name": st.text(max_size=3), "mutations": st.integers(0, 2**64)})),
    st.lists(st.dictionaries(st.sampled_from(["name", "mutations", "x"]), st.integers(-1, 9) | st.text())),
)  # fmt: skip
PIECES = [
    b" ", b"\n\t\r", b",", b'"', b"\\", b"\\u0041", b"0", b"-", b".0", b"e1", b"[", b"]", b"{", b"}", b":",
    b"true", b"null", b'"id":"z",', b'"ts":1,', b'"items":[],', b'"x":{"id":"q"},', b'"x":[1],', b"\xc3\xa9",
    b"\x00", b"\x7f", b"\xff", b"/**/", b"NaN",
]  # fmt: skip


@st.composite
def changed(draw: st.DrawFn) -> dict[str, Any]:
    """A usual event with keys left out, changed, added, in another order."""
    usual = draw(st.sampled_from([USUAL, LOCAL, REFUND]))
    event = {key: usual[key] for key in draw(st.permutations(list(usual))) if draw(st.integers(0, 5))}
    for key in draw(st.lists(st.sampled_from([*USUAL, "decided", "of_ts", "x", "", "ID"]), max_size=2)):
        event[key] = draw(ODD)
    return event


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """Such an event as JSON; then maybe bytes changed."""
    event = draw(changed())
    try:
        raw = orjson.dumps(event, option=draw(st.sampled_from([0, orjson.OPT_INDENT_2])))
    except TypeError:  # an integer beyond 64 bits, which only other writers write
        raw = repr(event).replace("'", '"').encode()
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        at = draw(st.integers(0, len(raw)))
        gone = draw(st.integers(0, 2))
        raw = raw[:at] + draw(st.sampled_from(PIECES) | st.binary(max_size=2)) + raw[at + gone :]
    return raw


@given(mutated(), st.sampled_from([T0, 0, None]))
@tries(1000)
@example(b'{"type":"request","items":[]}', T0)
@example(b'{"type":"request","items":[]}', None)
@example(b'{"type":"request","items":[],"ts":-0}', T0)
@example(b'{"type":"request","items":[],"ts":007}', T0)
@example(b'{"type":"request","items":[],"v":2}', T0)
@example(b'{"type":"request","items":[],"items":[]}', T0)
@example(b'{"type":"request","items":[],"deadline_ms":-1}', T0)
@example(b'{"type":"request","items":[],"x":1e999}', T0)
@example(b'{"type":"request","items":[{"name":"a","mutations":1,"name":"b"}]}', T0)
@example(b'{"type":"request","items":[],}', T0)
@example(b'{"type":"request","items":[]} {}', T0)
@example(b'{"type":"request","items":[],"ts":60001}', 0)
@example(b'{"type":"request","items":[],"ts":1,"applied_ts":60001}', 0)
@example(b'{"type":"request","items":[],"ts":60001,"applied_ts":1}', 0)
@example(b'{"type":"request","items":[],"ts":60000,"applied_ts":1}', 0)
@example(b'\xef\xbb\xbf{"type":"request","items":[]}', T0)
def test_what_is_plain_means_the_same_to_the_parser(value: bytes, ts: int | None) -> None:
    """Field by field; whatever the reader is not sure of is left to the parser."""
    is_plain(value, ts)


@given(st.lists(changed(), min_size=1, max_size=4), st.integers(0, 3))
@tries(600)
def test_rows_of_columns_mean_the_same_to_the_parser(events: list[dict[str, Any]], dictionaries: int) -> None:
    """Packed, whichever the types of the columns; texts as dictionaries or not, stretches of larger ones."""
    for type in ("request", "refund"):
        own = [{key: value for key, value in one.items() if key != "type"} for one in events]
        try:
            rows = columns_of([*own, {}])
        except (Unlike, TypeError):
            return
        if not rows.num_columns:
            return
        if dictionaries:
            rows = pa.RecordBatch.from_arrays(
                [
                    column.dictionary_encode() if pa.types.is_string(column.type) else column
                    for column in rows.columns
                ],
                rows.schema.names,
            )
        check(records_with([stream_of(rows.slice(dictionaries // 2), type)], [True], ts=T0))


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=LINES_MIN))
def test_rubbish_is_never_plain_by_mistake(values: list[bytes]) -> None:
    """Any bytes, among good ones."""
    good = orjson.dumps(USUAL)
    check(records_of(*values, *[good] * LINES_MIN))


@pytest.mark.parametrize("usual", [USUAL, LOCAL, REFUND], ids=["request", "decided", "refund"])
def test_the_usual_event_is_plain(usual: dict[str, Any]) -> None:
    """Or the reader would be of no use: as JSON, packed, and without anything that may be left out."""
    assert is_plain(orjson.dumps(usual, option=orjson.OPT_INDENT_2))
    needed = {"type", "items"}
    for gone in ["x", *(key for key in usual if key not in needed)]:
        event = {name: value for name, value in usual.items() if name != gone}
        assert is_plain(orjson.dumps(event))
        rows = columns_of([event] * 3).drop_columns("type")
        assert len(check(records_with([stream_of(rows, usual["type"])], [True], ts=T0))) == 3


@pytest.mark.parametrize(
    "change",
    [{"user": "a\\b"}, {"user": "é"}, {"items": [{"name": 'a"', "mutations": 1}]}, {"x": {}}, {"x": 1.5}],
)
def test_odd_texts_and_fields_that_nobody_knows_are_plain_too(change: dict[str, Any]) -> None:
    assert is_plain(orjson.dumps(USUAL | change))


@pytest.mark.parametrize(
    "change",
    [{"ts": 2**62}, {"subject": "nobody"}, {"v": 2}, {"type": "tick"}, {"x": None}, {"deadline_ms": -1},
     {"late": 0}, {"id": 5}, {"items": [{"name": "a"}]}, {"answered": "no"}],
)  # fmt: skip
def test_what_is_not_usual_is_left_to_the_parser(change: dict[str, Any]) -> None:
    """Large numbers, what is wrong, other types, null."""
    assert not is_plain(orjson.dumps(USUAL | change))


def test_some_items_rejected_is_left_to_the_parser() -> None:
    """Which of several of one name were rejected is its own rule; all or none are plain."""
    told = LOCAL["decided"]
    assert is_plain(orjson.dumps(LOCAL | {"decided": told | {"rejected": ["orders", ""]}}))
    for rejected in (["orders"], ["", "orders"], ["orders", "x"]):
        assert not is_plain(orjson.dumps(LOCAL | {"decided": told | {"rejected": rejected}}))
    allowed = {"outcome": "allow", "rejected": [], "throttle_time_ms": 0}
    assert is_plain(orjson.dumps(LOCAL | {"decided": allowed}))


def test_tokens_that_no_double_holds_are_plain_too() -> None:
    """In a column of integers: what reads it must not fail, with it all of its batch would."""
    event = LOCAL | {"decided": LOCAL["decided"] | {"tokens": 2**53 + 1}}
    rows = columns_of([event]).drop_columns("type")
    assert pa.types.is_int64(rows["decided"].type.field("tokens").type)
    assert len(check(records_with([stream_of(rows)], [True], ts=T0))) == 1


def test_what_is_too_far_ahead_is_left_to_the_parser() -> None:
    """Which says by how much; by `applied_ts` too, which is when an event counts."""
    assert not is_plain(orjson.dumps(USUAL), T0 + 4 - MAX_AHEAD_MS)
    assert is_plain(orjson.dumps(USUAL), T0 + 5 - MAX_AHEAD_MS)


def test_what_a_proxy_says_of_its_own_is_moved_to_the_time_of_its_record() -> None:
    """Beyond a second."""
    values = [orjson.dumps(LOCAL), orjson.dumps(REFUND)] * LINES_MIN
    assert {row["at"] for row in check(records_of(*values, ts=0)).values()} == {0}
    assert {row["at"] for row in check(records_of(*values, ts=T0 - 1000)).values()} == {T0, T0 - 1000}


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
