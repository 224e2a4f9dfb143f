"""The compiled reader of reports against the contract's parser: what is plain means the same to both."""

from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from property_kit import tries

from streaming.contract.errors import BadEvent
from streaming.contract.usage_events import COUNTS, DIMENSIONS, GroupReport, GroupUsage
from streaming.laws.registry import LAWS
from streaming.laws.shares.report_json import NOT_PLAIN, Scanned, scan_reports

T0 = 1_795_166_700_000


def scan(*values: bytes, ts: int = T0) -> tuple[bytes, Scanned]:
    text = b"".join(values)
    ends = np.cumsum([0, *map(len, values)])
    return text, scan_reports(np.frombuffer(text, np.uint8), ends, np.full(len(values), ts))


def parsed(value: bytes, ts: int = T0) -> GroupUsage | None:
    """What the parser makes of a record; None: a dead letter, or another event."""
    try:
        event = LAWS.parse(value, default_id="id", default_ts=None if ts < 0 else ts)
    except BadEvent:
        return None
    return event if isinstance(event, GroupUsage) else None


def row(text: bytes, scanned: Scanned, i: int) -> tuple[Any, ...]:
    """A row as the fields of `GroupUsage` but its id, which no share depends on."""

    def at(position: Any) -> str:
        return text[position[0] : position[1]].decode()

    entries = range(scanned.first[i], scanned.first[i] + scanned.entries[i])
    usage = []
    for entry in entries:
        name, stretch = at(scanned.name[entry]), at(scanned.stretch[entry])
        assert stretch.startswith(f'"{name}"') and stretch.endswith("}")
        times = tuple(None if time < 0 else time for time in scanned.throttled_ms[entry].tolist())
        report = GroupReport(counts=tuple(scanned.counts[entry].tolist()), throttled_ms=times)
        usage.append((name, report))
    head = int(scanned.ts[i]), int(scanned.at[i]), at(scanned.broker[i]), int(scanned.period_ms[i])
    return (*head, tuple(usage))


def check(value: bytes, ts: int = T0) -> bool:
    """Whether a record is plain; if it is, it must be what the parser says."""
    text, scanned = scan(value, ts=ts)
    if scanned.entries[0] == NOT_PLAIN:
        return False
    event = parsed(value, ts)
    assert event is not None, value
    assert row(text, scanned, 0) == (event.ts, event.at, event.broker, event.period_ms, event.usage)
    begin, end = scanned.usage[0]
    assert list(orjson.loads(b"{%b}" % text[begin:end])) == [group for group, _ in event.usage]
    return True


ENTRY: dict[str, Any] = {
    "publishedMsg": 600, "publishedBytes": 60000, "dispatchedMsg": 0, "dispatchedBytes": 7, "topics": 3,
    "throttledMs": {"publishRateInMsgs": 0, "publishRateInBytes": 120, "dispatchRateInMsgs": 9,
                    "dispatchRateInBytes": 10**18 - 1},
}  # fmt: skip
USUAL: dict[str, Any] = {
    "type": "group_usage", "v": 1, "id": "b1-7", "ts": T0 + 3, "applied_ts": T0 + 5, "broker": "b1",
    "period_ms": 60000, "note": None,
    "usage": {"rg1": ENTRY, "quota/user=alice": {"publishedMsg": 1}, "": ENTRY},
}  # fmt: skip
NUMBERS = st.sampled_from(
    [0, -1, 1, 1.0, True, None, "1", 10**18 - 1, 10**18, 2**63 - 1, 2**63, 253_402_300_799_999,
     253_402_300_800_000]
)  # fmt: skip
ODD = NUMBERS | st.text(max_size=4) | st.sampled_from([{}, [], {"x": 1}, "group_usage", "tick", 1.5, -0.0])
NAMES = st.sampled_from(["rg1", "rg2", "", "a b", "é", 'a"b', "a\\b", "\x7f", "ts", "usage"])


@st.composite
def entries(draw: st.DrawFn) -> Any:
    """What a report says of one group: usual, with keys left out, changed or added, or nonsense."""
    if not draw(st.integers(0, 9)):
        return draw(ODD)
    own = {key: ENTRY[key] for key in draw(st.permutations(list(ENTRY))) if draw(st.integers(0, 3))}
    for key in draw(st.lists(st.sampled_from([*COUNTS, "throttledMs", "ts", "x"]), max_size=1)):
        own[key] = draw(ODD)
    if draw(st.booleans()):
        keys = st.sampled_from([*DIMENSIONS, "x", "publishedMsg"])
        own["throttledMs"] = draw(st.dictionaries(keys, NUMBERS, max_size=3))
    return own


PIECES = [
    b" ", b"\n\t\r", b",", b'"', b"\\", b"0", b"-", b".0", b"e1", b"[", b"]", b"{", b"}", b":", b"true",
    b"null", b'"id":"z",', b'"ts":1,', b'"usage":{},', b'"rg1":{"publishedMsg":1},', b'"publishedMsg":2,',
    b'"x":{"id":"q"},', b"\x00", b"\x7f", b"\xff", b"NaN", b"\xc3\xa9",
]  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A usual report with keys left out, changed, added, in another order; then maybe bytes changed."""
    event = {key: USUAL[key] for key in draw(st.permutations(list(USUAL))) if draw(st.integers(0, 9))}
    if draw(st.integers(0, 3)):
        event["usage"] = draw(st.dictionaries(NAMES, entries(), max_size=4))
    for key in draw(st.lists(st.sampled_from([*USUAL, "x", "publishedMsg"]), max_size=1)):
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


HEAD = b'{"type":"group_usage","broker":"b","period_ms":1,"usage":'


@given(mutated(), st.sampled_from([T0, 0, -1]))
@tries(1000)
@example(HEAD + b"{}}", T0)
@example(HEAD + b"{}}", -1)
@example(HEAD + b'{"a":{}}}', T0)
@example(HEAD + b'{"a":{"throttledMs":{}}}}', T0)
@example(HEAD + b'{"a":{"publishedMsg":1},"a":{"publishedMsg":2}}}', T0)
@example(HEAD + b'{"a":{"publishedMsg":1,"publishedMsg":2}}}', T0)
@example(HEAD + b'{"a":{"publishedMsg":1,"throttledMs":null}}}', T0)
@example(HEAD + b'{"a":{"publishedMsg":1}},"usage":{}}', T0)
@example(HEAD + b'{"a":{"publishedMsg":007}}}', T0)
@example(HEAD + b'{"a":{"publishedMsg":-0}}}', T0)
@example(HEAD + b'{"a":{"publishedMsg":1},}}', T0)
@example(HEAD + b'{"a":{"publishedMsg":1}}} {}', T0)
@example(HEAD.replace(b"1", b"0") + b"{}}", T0)
@example(b"\xef\xbb\xbf" + HEAD + b"{}}", T0)
def test_what_is_plain_means_the_same_to_the_parser(value: bytes, ts: int) -> None:
    """Field by field; whatever the reader is not sure of is left to the parser."""
    check(value, ts)


@given(st.binary(max_size=60))
def test_rubbish_is_never_plain_by_mistake(value: bytes) -> None:
    """Any bytes."""
    check(value)


@pytest.mark.parametrize("option", [0, orjson.OPT_INDENT_2])
def test_the_usual_report_is_plain(option: int) -> None:
    """Or the reader would be of no use; with white space, in any order, without what may be left out."""
    assert check(orjson.dumps(USUAL, option=option))
    assert check(orjson.dumps(dict(reversed(USUAL.items())), option=option))
    assert check(b' \t{"usage" : { },"period_ms":1 ,"broker":"",\r\n"type":"group_usage"} ')
    for key in ("v", "id", "ts", "applied_ts", "note"):
        assert check(orjson.dumps({name: value for name, value in USUAL.items() if name != key}))
    for key in ENTRY:
        entry = {name: value for name, value in ENTRY.items() if name != key}
        assert check(orjson.dumps(USUAL | {"usage": {"g": entry}}))


@pytest.mark.parametrize(
    "change",
    [
        {"broker": "a\\b"}, {"usage": {"é": ENTRY}}, {"usage": {"a": 7}}, {"usage": {"a": {}}}, {"x": []},
        {"ts": 2**62}, {"v": 2}, {"type": "tick"}, {"period_ms": 0}, {"usage": []},
        {"usage": {"a": {"publishedMsg": 10**18}}}, {"usage": {"a": ENTRY | {"throttledMs": []}}},
    ],
)  # fmt: skip
def test_what_is_not_usual_is_left_to_the_parser(change: dict[str, Any]) -> None:
    """Escapes, other alphabets, nesting, large numbers, what is wrong, other types."""
    assert not check(orjson.dumps(USUAL | change))


def test_a_record_that_is_left_alone_leaves_nothing_behind() -> None:
    """Neither entries nor names: the next record may name the same groups."""
    good = orjson.dumps(USUAL)
    values = [good if i % 3 else good[:-1] for i in range(12)]
    text, scanned = scan(*values)
    assert ((scanned.entries == NOT_PLAIN) == (np.arange(12) % 3 == 0)).all()
    assert scanned.used[0] == 8 * len(USUAL["usage"])
    assert {row(text, scanned, i) for i in range(12) if i % 3} == {row(*scan(good), 0)}


def test_thousands_of_groups_are_told_apart() -> None:
    """In a table without room to spare, and one that comes twice is seen wherever it stands."""
    usage = {f"g{number}": {"publishedMsg": number} for number in range(5000)}
    whole = orjson.dumps(USUAL | {"usage": usage})
    assert check(whole)
    for again in (0, 2500, 4999):
        assert not check(whole[:-2] + b',"g%d":{"publishedMsg":1}}}' % again)
