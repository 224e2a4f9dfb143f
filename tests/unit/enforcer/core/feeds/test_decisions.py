"""Decisions in: all that a proxy acts on, parsing that never raises, and what is told of the rest."""

import logging
from dataclasses import replace
from typing import Any

import orjson
import pyarrow as pa
import pytest
from context_kit import READERS
from context_kit import read as read_record
from each_kit import each
from message_kit import Record
from pack_kit import packed

from enforcer.core.feeds.complaints import Complaints
from enforcer.core.feeds.decisions import decisions_in, decisions_tail
from enforcer.laws.mutation.request import Decision
from streaming.columns.packed import pack
from streaming.contract.backlog.decisions import BacklogDecision
from streaming.contract.decisions import LIMIT_TTL_MS, LimitDecision, Share
from streaming.contract.events import MAX_AHEAD_MS

GOOD = {
    "type": "admission", "id": "p1-1", "ts": 5, "proxy": "p1", "subject": "user=a", "outcome": "reject",
    "throttle_time_ms": 7, "rejected": ["x"], "tokens": -1.5, "limit": 2.0, "shadow": False, "late": True,
}  # fmt: skip

SHARE = {
    "type": "share", "group": "g", "broker": "b", "ts": 5, "ttl_ms": 3, "limits": {"publishRateInMsgs": 5},
}  # fmt: skip
LIMIT = {"type": "limit", "partition": "broker-1", "ts": 5, "algorithm": "aimd", "limit": 7, "ttl_ms": 60_000}


def read(value: Any, reasons: list[str] | None = None) -> list[Any]:
    """What stands in a single record."""
    told = list[str]() if reasons is None else reasons
    return read_record(Record(value), unusable=told.append)


def test_a_decision_is_read() -> None:
    """All that the proxy acts on."""
    (found,) = read(GOOD)
    assert isinstance(found, Decision)
    assert (found.id, found.throttle_time_ms, found.rejected, found.late) == ("p1-1", 7, frozenset("x"), True)
    assert (found.tokens, found.limit, found.rate) == (-1.5, 2.0, None)


def test_nobody_goes_by_a_decision_of_policies_that_are_only_tried() -> None:
    """Of any law; that is no mistake that anybody is told of."""
    tried = {"candidate": "stricter", "id": "x", "ts": 5, "ttl_ms": 60_000}
    topic = {"topic": "persistent://a/b/t", "broker": "b"}
    limit = {"type": "limit", "partition": "p", "algorithm": "aimd", "limit": 1, "estimated_limit": 1.0}
    counted = {"acquired": {"topic": {"msgs": 9, "bytes": 9}}, "throttle_time_ms": 9, "proxy": "p1"}
    dispatch = {"type": "dispatch", **topic, "subscription": "s", **counted}
    backlog = {"type": "backlog", **topic, "backlogSize": 9.0}
    for decision in (GOOD, SHARE, limit, dispatch, backlog):
        reasons: list[str] = []
        plain = {name: value for name, value in {**tried, **decision}.items() if name != "candidate"}
        assert len(read(orjson.dumps(plain))) == 1, decision["type"]
        assert read(orjson.dumps({**tried, **decision}), reasons) == [] and reasons == []
    for decision in (GOOD, SHARE):
        (value,) = packed([{**tried, **decision}])
        assert read_record(Record(value, b"another", packed=True), "p1") == []


@each(
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
        orjson.dumps({**LIMIT, "limit": -1}), orjson.dumps({**LIMIT, "limit": "26"}),
        orjson.dumps({**LIMIT, "limit": 2**31}), orjson.dumps({**LIMIT, "partition": 1}),
        orjson.dumps({**LIMIT, "ts": None}),
    ],
)  # fmt: skip
def test_what_is_no_decision_is_skipped(value: bytes | None) -> None:
    """Garbage, and numbers that no law gives, make nothing and a reason, and never raise."""
    reasons = list[str]()
    assert read(value, reasons) == []
    assert len(reasons) == 1 and "a mistake" not in reasons[0]


def test_other_decisions_are_not_for_proxies() -> None:
    """They are skipped without a word."""
    reasons = list[str]()
    assert read(b'{"type":"backlog_action"}', reasons) == []
    assert reasons == []


def test_a_wait_of_ages_is_cut_to_what_an_answer_can_say() -> None:
    """A law's longest throttle time has 63 bits, Kafka's field 31."""
    (found,) = read({**GOOD, "throttle_time_ms": 2**63 - 1})
    assert isinstance(found, Decision) and found.throttle_time_ms == 2**31 - 1


def test_a_share_is_read() -> None:
    """With limits or without."""
    (found,) = read(SHARE)
    assert isinstance(found, Share) and found.limits == {"publishRateInMsgs": 5.0} and found.usage == {}
    (gone,) = read({**SHARE, "limits": None})
    assert isinstance(gone, Share) and gone.limits is None


def test_a_limit_is_read() -> None:
    """With a life time, or the usual one."""
    said = {**LIMIT, "estimated_limit": 7.5, "ttl_ms": 9}
    limit = LimitDecision(partition="broker-1", ts=5, algorithm="aimd", limit=7, estimate=7.5, ttl_ms=9)
    assert read(said) == [limit]
    del said["ttl_ms"]
    assert read(said) == [replace(limit, ttl_ms=LIMIT_TTL_MS)]


WEEK_MS = 7 * 86_400_000


@pytest.mark.parametrize("said", [SHARE, SHARE | {"ttl_ms": 180_000}, SHARE | {"limits": None}, LIMIT])
def test_a_share_or_limit_of_another_time_is_left_out(said: dict[str, Any]) -> None:
    """What a job that begins anew would write of days ago, or a wrong clock of days to come.

    One that is said again is as old as it is: it stands since then.
    """
    lasts_ms = max(said["ttl_ms"], 60_000)
    # Of what comes too late its job has told; a clock that is wrong is told of here.
    cases = ((5 + lasts_ms, 1, 0), (6 + lasts_ms, 0, 0), (5 - MAX_AHEAD_MS, 1, 0), (4 - MAX_AHEAD_MS, 0, 1))
    for now, taken, told in cases:
        reasons = list[str]()
        # A record has the clock of the job, which does not count where it is ahead of the brokers'.
        record = Record(said, ts=now + WEEK_MS)
        found = read_record(record, None, reasons.append, now_ms=lambda ms: ms - WEEK_MS)
        assert (len(found), len(reasons)) == (taken, told)
    # What is read back was written in time.
    assert read_record(Record(said, ts=6), now_ms=lambda ms: ms + WEEK_MS)
    assert read_record(Record({**said, "repeat": True}, ts=WEEK_MS))


BACKLOG = {
    "type": "backlog", "id": "k1", "ts": 5, "topic": "persistent://acme/orders/t1", "backlogSize": 103900.0,
    "backlogQuotaLimitSize": 100000, "backlogQuotaLimitTime": -1, "oldestBacklogMessageAgeSeconds": 100,
    "oldestBacklogMessageSubscriptionName": "slow", "exceeded": ["destination_storage"],
    "actions": [{"quota_type": "size", "policy": "producer_exception"}],
    "evict": [{"subscription": "slow", "ledger": 1, "entry": 99, "entries": 100}], "ttl_ms": 60000,
}  # fmt: skip


def test_what_stands_has_lived_by_the_brokers_clock() -> None:
    """Whatever our own says; what has ended is left out."""
    share = {"type": "share", "group": "rg", "broker": "p1", "ts": 1, "ttl_ms": 1_000, "limits": {}}
    for passed_ms, left in ((400, [600]), (1_000, [])):

        def now_ms(record_ms: int, passed_ms: int = passed_ms) -> int:
            return record_ms + passed_ms

        tail = decisions_tail(
            {}, "weir.decisions", READERS, lambda _found: None, own="p1", now_ms=now_ms, standing=True
        )
        found = tail._parse(Record(share))  # type: ignore[arg-type]
        assert [said.ttl_ms for _, said in found] == left


def test_backlogs_are_read() -> None:
    """Single and packed; of packed ones nothing is read of what must go."""
    (single,) = read(orjson.dumps({**BACKLOG, "repeat": True}))
    assert isinstance(single, BacklogDecision)
    assert (single.size, single.age, single.ttl_ms, single.repeated) == (103_900, 100, 60_000, True)
    (value,) = packed([BACKLOG, {**BACKLOG, "topic": "t1"}])
    reasons: list[str] = []
    found = read_record(Record(value, packed=True), "p1", reasons.append)
    assert found == [replace(single, evict=(), repeated=False)]
    assert len(reasons) == 1 and "t1" in reasons[0]


def test_a_backlog_far_ahead_is_left_out() -> None:
    """Later ones would be older than it until then."""
    record, now_ms = Record(orjson.dumps(BACKLOG)), 5 - MAX_AHEAD_MS
    assert read_record(record, now_ms=lambda _ms: now_ms)
    assert read_record(record, now_ms=lambda _ms: now_ms - 1) == []


def test_packed_admissions_are_read_row_by_row() -> None:
    """A row means what its object would; one that cannot be used is left out alone."""
    last = {**GOOD, "id": "p1-3", "late": None, "refunds": ["r"], "applied_ts": 9}
    (value,) = packed([GOOD, {**GOOD, "id": "p1-2", "ts": -1}, last])
    reasons: list[str] = []
    found = read_record(Record(value, packed=True), "p1", reasons.append)
    assert found[:1] == read(GOOD)
    assert found[1:] == read({k: v for k, v in last.items() if v is not None})
    assert isinstance(found[1], Decision) and (found[1].at, found[1].refunds) == (9, ("r",))
    assert len(reasons) == 1


COUNTS = pa.struct([("msgs", pa.int64()), ("bytes", pa.int64())])
TOPIC = {"topic": "persistent://a/b/t", "subscription": "s"}


@pytest.mark.parametrize(
    ("kind", "name", "fields", "column"),
    [
        (
            "share", "limits", SHARE,
            pa.array([[("publishRateInMsgs", 5.0)] * 2], pa.map_(pa.string(), pa.float64())),
        ),
        (
            "share", "limits", SHARE,
            pa.StructArray.from_arrays([pa.array([5.0])] * 2, ["publishRateInMsgs"] * 2),
        ),
        (
            "dispatch", "acquired", {"id": "d", "ts": 5, "broker": "b", **TOPIC},
            pa.array([[("topic", {"msgs": 1, "bytes": 1})] * 2], pa.map_(pa.string(), COUNTS)),
        ),
        (
            "dispatch", "acquired", {"id": "d", "ts": 5, "broker": "b", **TOPIC},
            pa.array([[(7, {"msgs": 1, "bytes": 1})]], pa.map_(pa.int64(), COUNTS)),
        ),
    ],
)  # fmt: skip
def test_packed_objects_that_are_none_in_json_end_no_reader(
    kind: str, name: str, fields: dict[str, Any], column: pa.Array
) -> None:
    """A key twice, or one that is no text: the record is told of, and the next one is read."""
    batch = pa.RecordBatch.from_pylist([
        {each: value for each, value in fields.items() if each not in ("type", name)}
    ])  # fmt: skip
    reasons = list[str]()
    (value,) = pack(kind, batch.append_column(name, column))
    assert read_record(Record(value, b"b", packed=True), "b", reasons.append, now_ms=int) == []
    assert len(reasons) == 1 and "a mistake" not in reasons[0]


def test_a_mistake_in_a_reader_of_whole_records_ends_no_reader() -> None:
    """It is told as that of one row's is."""

    def broken(_value: bytes) -> list[Any]:
        raise ZeroDivisionError

    reader = replace(READERS["admission"], all_of=broken)
    (value,) = packed([{"type": "admission", "id": "x"}])
    reasons = list[str]()
    record: Any = Record(value, packed=True)
    assert decisions_in(record, {"admission": reader}, None, reasons.append) == []
    assert reasons == ["a mistake in its reader: ZeroDivisionError()"]


def test_an_admission_far_ahead_is_left_out() -> None:
    """Later than its record by more than a clock may be wrong: what comes would be older than it for ever."""
    latest = 1_000 + MAX_AHEAD_MS
    rows = [{**GOOD, "ts": latest}, {**GOOD, "ts": latest + 1}, {**GOOD, "ts": 2**45, "applied_ts": latest}]
    rows.append({**GOOD, "applied_ts": latest + 1})
    (value,) = packed(rows)
    reasons: list[str] = []
    found = read_record(Record(value, ts=1_000, packed=True), "p1", reasons.append, now_ms=int)
    assert [one.at for one in found if isinstance(one, Decision)] == [latest, latest]
    assert len(reasons) == 2 and all("too far ahead" in reason for reason in reasons)


def test_one_a_minute_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """With how many there were since; what a terminal would obey is escaped."""
    now, counted = 0.0, list[int]()
    complain = Complaints("weir.decisions", lambda: counted.append(1), lambda: now)
    with caplog.at_level(logging.WARNING):
        for _ in range(1_000):
            complain("ts: \x1b[2J")
        now = 61.0
        complain("the last")
    assert len(counted) == 1_001
    first, second = (record.getMessage() for record in caplog.records)
    assert first == "weir.decisions: records that are not used: 1, such as ts: \\x1b[2J"
    assert second == "weir.decisions: records that are not used: 1000, such as the last"
