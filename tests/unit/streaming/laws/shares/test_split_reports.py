"""Reports cut up by shard, by copying bytes: together they say what the report says."""

import zlib
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from property_kit import tries

from streaming.contract.usage_events import split_group_usage
from streaming.laws.routing import shard_of
from streaming.laws.shares.split_reports import crc32, split_reports

HEAD = {"type": "group_usage", "broker": "b1", "period_ms": 60000}
NAMES = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=5)
ENTRIES = st.fixed_dictionaries(
    {"publishedMsg": st.integers(0, 10**12)},
    optional={"topics": st.integers(0, 9), "throttledMs": st.just({"publishRateInMsgs": 5})},
)


def cut(values: list[bytes], shards: int, ts: int = 5) -> tuple[list[tuple[int, int, bytes]], list[int]]:
    """(record, shard, bytes) of the pieces, and the records left."""
    found = split_reports(pa.array(values, pa.binary()), np.full(len(values), ts), shards)
    rows = zip(found.record.tolist(), found.shard.tolist(), found.values.to_pylist(), strict=True)
    return list(rows), found.left.tolist()


@given(
    st.lists(st.tuples(st.dictionaries(NAMES, ENTRIES, max_size=12), st.booleans()), max_size=4),
    st.integers(1, 9),
    st.sampled_from([0, orjson.OPT_INDENT_2]),
)
@tries(300)
def test_pieces_are_what_the_parser_would_cut(
    reports: list[tuple[dict[str, Any], bool]], shards: int, option: int
) -> None:
    """Shard by shard, groups in order, with the same head; keys after the entries too."""
    events = [HEAD | {"usage": usage} | ({"ts": 9, "note": "}"} if late else {}) for usage, late in reports]
    values = [orjson.dumps(event, option=option) for event in events]
    found, left = cut(values, shards)
    assert found == sorted(found, key=lambda row: row[:2])
    written = {(record, shard): orjson.loads(value) for record, shard, value in found}
    assert len(written) == len(found)
    plain = {}
    for record, value in enumerate(values):
        if record not in left:
            parts = split_group_usage(value, lambda group: shard_of(group, shards))
            plain |= {(record, shard): orjson.loads(part) for shard, part in parts}
    assert written == plain
    for key, event in written.items():
        assert list(event["usage"]) == list(plain[key]["usage"])
    # Only names with quotes and backslashes are not plain.
    odd = [i for i, (usage, _) in enumerate(reports) if any(set(name) & set('"\\') for name in usage)]
    assert left == odd


def test_bytes_are_copied_as_they_stand() -> None:
    """White space, number forms and unknown keys of the head and of each entry; only commas are new."""
    value = b' {"usage" : { "a" : {"publishedMsg" : 1 } ,\n"d":{"x":"y","publishedMsg":2}},"period_ms":1,' + (
        b'"type":"group_usage","broker":"b"} '
    )
    assert {shard_of(name, 2) for name in ("a", "d")} == {0, 1}
    found, left = cut([value], 2)
    expected = {
        shard_of("a", 2): value.replace(b' "a"', b'"a"').replace(b' ,\n"d":{"x":"y","publishedMsg":2}', b""),
        shard_of("d", 2): value.replace(b' "a" : {"publishedMsg" : 1 } ,\n', b""),
    }
    assert ({shard: piece for _, shard, piece in found}, left) == (expected, [])


def test_what_is_no_plain_report_is_left() -> None:
    """Other events, rubbish, and a report with one wrong group among good ones: as a whole."""
    good = orjson.dumps(HEAD | {"usage": {"a": {"publishedMsg": 1}}})
    wrong = orjson.dumps(HEAD | {"usage": {"a": {"publishedMsg": 1}, "b": {"publishedMsg": -1}}})
    nothing = orjson.dumps(HEAD | {"usage": {}})
    found, left = cut([b"", wrong, good, b'{"type":"tick"}', nothing, good], 4)
    assert left == [0, 1, 3]
    assert [(record, value) for record, _, value in found] == [(2, good), (5, good)]
    assert cut([good], 4, ts=-1) == ([], [0])
    for ahead_ms, left in ((60_000, []), (60_001, [0])):
        assert cut([good.replace(b"{", b'{"ts":%d,' % (5 + ahead_ms), 1)], 4)[1] == left
    assert cut([], 4) == ([], [])


@given(st.binary(max_size=40))
def test_the_sum_is_zlibs(value: bytes) -> None:
    """Or groups would change their shard, and with it lose their state."""
    assert crc32(np.frombuffer(value, np.uint8), 0, len(value)) == zlib.crc32(value)
