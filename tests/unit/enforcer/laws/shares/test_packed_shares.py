"""Packed shares in: one's own one by one, of others nothing but which groups they are of."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from context_kit import read as read_record
from each_kit import each
from message_kit import Record
from pack_kit import packed, stream_of

from enforcer.laws.shares.decisions import SLOTS, OthersShares, Share, slots_of
from streaming.columns.packed import pack, unpack


def record(value: bytes) -> Record:
    """A packed record of p1."""
    return Record(value, b"p1", packed=True)


def share(group: str, ttl_ms: int = 3_000, limits: dict[str, float] | None = None) -> dict[str, Any]:
    """A share of p1."""
    return {
        "type": "share", "id": f"{group}/p1@1", "ts": 5, "group": group, "broker": "p1", "round": 1,
        "usage": {"publishRateInMsgs": 1.5}, "limits": limits, "shadow": False, "ttl_ms": ttl_ms,
    }  # fmt: skip


GROUPS = ["g1", "é", "g1", ""]
LIMITS = {"publishRateInMsgs": 2.5}
SHARES = [share(group, ttl_ms, LIMITS) for group, ttl_ms in zip(GROUPS, (1, 9, 5, 3), strict=True)]


@pytest.mark.parametrize("small", [False, True])
def test_own_shares_and_those_of_others(small: bool) -> None:
    """Whichever way they are compressed; a group that leaves has null limits; who wants all names nobody."""
    told = [*SHARES, share("gone") | {"removed": "idle"}]
    (value,) = packed(told)
    (value,) = pack("share", unpack(value)[1], small=small)
    found = read_record(record(value), "p1")
    assert found == read_record(record(value)) == [one for each in told for one in read_record(Record(each))]
    assert [one.group for one in found if isinstance(one, Share)] == [*GROUPS, "gone"]
    assert [one.limits for one in found if isinstance(one, Share)] == [LIMITS] * 4 + [None]
    (other,) = read_record(record(value), "p2")
    assert isinstance(other, OthersShares) and other.ttl_ms == 3_000
    assert other.slots.tolist() == slots_of(GROUPS).tolist(), "who leaves a group has no share of it"
    assert (other.slots < SLOTS).all()


@pytest.mark.parametrize(("repeat", "stands"), [({}, ["new"]), ({"repeat": True}, ["old", "new"])])
def test_shares_of_others_that_were_too_late_do_not_stand(repeat: dict[str, Any], stands: list[str]) -> None:
    """A share of days ago is no share of now, unless it is said again."""
    rows = [share("old", limits=LIMITS), share("new", limits=LIMITS) | {"ts": 6}]
    (value,) = packed([row | repeat for row in rows])
    (other,) = read_record(Record(value, b"p1", 60_006, packed=True), "p2")
    assert isinstance(other, OthersShares) and other.slots.tolist() == slots_of(stands).tolist()


NUMBERS = pa.array([1], pa.int64())
HUGE = pa.array([2**64 - 1], pa.uint64())


@each(
    "value",
    [
        b"", b"rubbish", packed(SHARES)[0][:-40], stream_of(pa.record_batch({"group": ["g"]}), "share"),
        stream_of(pa.record_batch({"group": NUMBERS, "ttl_ms": NUMBERS}), "share"),
        stream_of(pa.record_batch({"group": ["g"], "ttl_ms": ["x"]}), "share"),
        stream_of(pa.record_batch({"group": ["g"], "ttl_ms": NUMBERS}), "limit"),
        stream_of(pa.record_batch({"group": ["g"], "ttl_ms": NUMBERS}), None),
        stream_of(pa.record_batch({"group": ["g"], "ttl_ms": NUMBERS, "ts": HUGE}), "share"),
    ],
)  # fmt: skip
def test_what_is_no_pack_of_shares_is_told(value: bytes) -> None:
    """And nothing is taken from it."""
    told: list[str] = []
    assert read_record(record(value), "p2", told.append) == []
    assert len(told) == 1


def test_times_out_of_range_are_brought_into_it() -> None:
    """Anybody may write to the topic; nulls say nothing."""
    lives = pa.array([None, 2**63 - 1], pa.int64())
    rows = pa.record_batch({"group": pa.array(["g", None]).dictionary_encode(), "ttl_ms": lives})
    (found,) = read_record(record(stream_of(rows, "share")), "p2")
    assert isinstance(found, OthersShares) and 0 < found.ttl_ms < 2**53
    assert np.array_equal(found.slots, slots_of(["g"]))
