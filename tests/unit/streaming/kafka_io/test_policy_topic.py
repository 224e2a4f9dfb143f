"""What the records on `weir.policies` mean, without a broker."""

import time
import tracemalloc
from typing import Any

import orjson
import pytest

from streaming.kafka_io import policy_topic, policy_turn
from streaming.kafka_io.policy_topic import (
    EARLIER_MAX,
    EARLIER_MAX_BYTES,
    Author,
    PolicyLog,
    Update,
    differences,
    newest_rows,
    rows,
)
from streaming.kafka_io.policy_turn import Attempt, changes_of, records
from weir.logs.policy_log import line

FILE_ORIGINS = ("file", "apply")
A, B, C = "quotas[user=a]", "quotas[user=b]", "quotas[user=c]"


def rate(value: float) -> dict[str, float]:
    """A quota's value."""
    return {"controller_mutation_rate": value}


def log_of(*events: dict[str, Any] | bytes) -> PolicyLog:
    """A log of these records, each with record timestamp 50."""
    log = PolicyLog()
    for event in events:
        log.take(event if isinstance(event, bytes) else orjson.dumps({"type": "policy", **event}), 50)
    return log


def test_the_log_holds_entries_origins_and_versions() -> None:
    """The last record of an entry counts, a removal removes it."""
    log = log_of(
        {"path": A, "value": rate(1), "effective_ts": 100, "version": 2, "origin": "file"},
        {"path": B, "value": rate(2), "effective_ts": 100, "version": 3, "origin": "kafka"},
        {"path": A, "value": rate(5), "effective_ts": 200, "version": 4, "origin": "apply"},
        {"path": B, "value": None, "effective_ts": 300, "version": 5, "origin": "kafka"},
    )
    assert dict(log.entries) == {A: rate(5)}
    assert log.origins == {A: "apply"}
    assert log.effective == {A: 200, B: 300}
    assert (log.newest_version, log.records, log.bad_records) == (5, 4, 0)
    assert dict(log.timeline.at(150).entries) == {A: rate(1), B: rate(2)}


def test_records_written_by_hand_count_too() -> None:
    """Without version, origin or time: the next version, no origin, the record's time."""
    log = log_of({"path": A, "value": rate(1)}, {"path": B, "value": rate(2), "ts": 40})
    assert dict(log.entries) == {A: rate(1), B: rate(2)}
    assert log.effective == {A: 50, B: 40}
    assert log.newest_version == 3
    assert log.origins == {A: "", B: ""}


@pytest.mark.parametrize(
    "record",
    [
        b"",
        b"[]",
        b'{"type":"request"}',
        b'{"type":"refund","of":"x","of_ts":1,"items":[],"subject":"user=a"}',
        b'{"type":"policy","path":"quotas[user=a]","value":{"controller_mutation_rate":0}}',
        b'{"type":"policy","path":"nothing","value":{}}',
        b'{"type":"policy","path":"broker","value":{},"version":"3"}',
    ],
)
def test_a_record_that_cannot_be_used_is_counted_with_its_reason(record: bytes) -> None:
    """It changes nothing."""
    log = log_of({"path": A, "value": rate(1)}, record)
    assert (log.records, log.bad_records) == (2, 1) and log.last_bad
    assert dict(log.entries) == {A: rate(1)}


def test_a_record_is_known_by_its_bytes() -> None:
    """Whoever does not know whether a record was written sees it come, even one that cannot be used."""
    log = log_of()
    for wanted in (b"broken", orjson.dumps({"type": "policy", "id": "mine", "path": A, "value": rate(1)})):
        log.await_record(wanted)
        log.take(orjson.dumps({"type": "policy", "id": "theirs", "path": A, "value": rate(1)}), 50)
        log.take(None, 50)
        assert not log.arrived
        # Its topic may be made again meanwhile.
        again = log.anew()
        for each in (log, again):
            each.take(wanted, 50)
            each.take(b"", 50)
            assert each.arrived
        assert again.records == 2


def test_an_empty_log_is_version_one() -> None:
    """Nobody has set anything."""
    assert (dict(PolicyLog().entries), PolicyLog().newest_version) == ({}, 1)


def held() -> PolicyLog:
    """One entry of each origin."""
    return log_of(
        {"path": A, "value": rate(1), "origin": "file"},
        {"path": B, "value": rate(2), "origin": "kafka"},
        {"path": "broker", "value": {"preciseBacklogSize": True}, "origin": "apply"},
    )


@pytest.mark.parametrize(
    ("wanted", "origins", "updates"),
    [
        # Equal entries of a file stay; those of the cluster become the file's even if equal.
        ({A: rate(1), B: rate(2), C: rate(3)}, FILE_ORIGINS, {B: rate(2), C: rate(3), "broker": None}),
        # A file leaves alone what the cluster set, unless it names the same entity.
        ({A: rate(9)}, FILE_ORIGINS, {A: rate(9), "broker": None}),
        # The collector touches only its own: a file wins over quotas read from the cluster.
        ({A: rate(7), C: rate(3)}, ("kafka",), {C: rate(3), B: None}),
    ],
)
def test_what_differs_is_set_and_removed(wanted: Any, origins: tuple[str, ...], updates: Any) -> None:
    """In the order of what is wanted; then what is wanted no more."""
    found = differences(held(), wanted, origins, override=origins == FILE_ORIGINS)
    assert found == [Update(path=path, value=value) for path, value in updates.items()]


def test_applying_the_differences_leaves_none() -> None:
    """Publishing them once is enough."""
    log = held()
    wanted = {A: rate(9), B: rate(8)}
    for update in differences(log, wanted, FILE_ORIGINS, override=True):
        event = {"type": "policy", "path": update.path, "value": update.value, "origin": "apply"}
        log.take(orjson.dumps(event), 60)
    assert dict(log.entries) == wanted
    assert differences(log, wanted, FILE_ORIGINS, override=True) == []


def test_an_admins_word_outlives_a_start_with_the_file() -> None:
    """What the admin API set or removed stays; `weir policy apply` takes it over."""
    log = log_of(
        {"path": A, "value": rate(1), "origin": "admin"},
        {"path": B, "value": rate(2), "origin": "file"},
        {"path": B, "value": None, "origin": "admin"},
        {"path": C, "value": rate(3), "origin": "admin"},
    )
    wanted = {A: rate(7), B: rate(8), "quotas[user=d]": rate(9)}
    only_new = [Update(path="quotas[user=d]", value=rate(9))]
    assert differences(log, wanted, FILE_ORIGINS, override=True, respected=("admin",)) == only_new
    all_named = [Update(path=path, value=value) for path, value in wanted.items()]
    assert differences(log, wanted, FILE_ORIGINS, override=True) == all_named


def test_a_change_dated_ahead_waits_for_its_time() -> None:
    """Also when many were read and one is dated later still: `weir send` asks what is in force now."""
    tomorrow = time.time_ns() // 1_000_000 + 86_400_000
    past = [{"path": B, "value": rate(number), "effective_ts": number} for number in range(100)]
    ahead = [
        {"path": A, "value": rate(7), "effective_ts": tomorrow},
        *({"path": B, "value": rate(8), "effective_ts": tomorrow + policy_topic.KEEP_MS} for _ in range(100)),
    ]
    log = log_of(*past, *ahead)
    assert dict(log.timeline.at(tomorrow - 1).entries) == {B: rate(99)}
    assert dict(log.timeline.at(tomorrow).entries) == {A: rate(7), B: rate(99)}


def test_a_reader_that_runs_for_long_keeps_entries_not_changes() -> None:
    """Changes older than the time that is looked back are folded, the newest state is the same."""
    times = range(0, 400 * policy_topic.KEEP_MS, policy_topic.KEEP_MS)
    log = log_of(*({"path": A, "value": rate(number + 1), "ts": ts} for number, ts in enumerate(times)))
    assert (dict(log.entries), log.newest_version) == ({A: rate(400)}, 401)
    assert len(log.timeline.changes(-1, times[-1])) < 100


def change(log: PolicyLog, value: Any, at: int, author: Author, path: str = A) -> bytes:
    """Change an entry as writers do; its last record, which is read."""
    lines = records(log, changes_of(log, [Update(path=path, value=value)], author), 10 * at, author)
    for _, written in lines:
        log.take(written, at)
    return lines[-1][1]


def whole(*lines: bytes, told_max: int = 1_000) -> PolicyLog:
    """A log of records that came at 5000."""
    log = PolicyLog(told_max=told_max)
    for each in lines:
        log.take(each, 5_000)
    return log


OPS, BY_FILE = Author("admin", "ops", "too slow"), Author("apply", "file:ann@host", "")


def test_the_log_of_changes_tells_who_what_and_why() -> None:
    """From what to what, in order; what the cluster says is by kafka, a removal leads to nothing."""
    log = PolicyLog()
    change(log, rate(1), 100, Author("kafka"))
    change(log, rate(2), 200, OPS)
    change(log, rate(9), 250, BY_FILE, B)
    change(log, None, 300, BY_FILE)
    first = {"at": 100, "actor": "kafka", "entry": A, "old": None, "new": rate(1), "reason": "", "version": 2}
    second = {**first, "at": 200, "actor": "ops", "old": rate(1), "new": rate(2), "reason": "too slow"}
    last = {**first, "at": 300, "actor": "file:ann@host", "old": rate(2), "new": None}
    told = [first, {**second, "version": 3}, {**last, "version": 5}]
    assert rows(log, A, 0) == told
    assert [row["entry"] for row in rows(log, None, 200)] == [A, B, A]
    assert rows(log, None, 301) == []
    one, two = (f'{{"controller_mutation_rate":{value}}}' for value in (1, 2))
    assert line(told[1], "10:00") == f"10:00 version 3 ops {A} {one} -> {two}: too slow"


def test_the_last_record_of_an_entry_tells_of_those_that_compaction_takes() -> None:
    """The ten before it, each with its time; of the oldest it is not known what was before."""
    log = PolicyLog()
    few = [change(log, rate(number), 100 * number, OPS) for number in (1, 2, 3)]
    expected = rows(whole(*few), A, 0)
    assert [(row["old"], row["new"], "old_known" in row) for row in expected] == [
        (None, rate(1), False), (rate(1), rate(2), False), (rate(2), rate(3), False),
    ]  # fmt: skip
    compacted = rows(whole(few[-1]), A, 0)
    assert [row["at"] for row in compacted] == [100, 200, 5_000]
    assert [{**row, "at": 0} for row in compacted] == [{**row, "at": 0} for row in expected]

    last = [change(log, rate(number), 100 * number, OPS) for number in range(4, 40)][-1]
    kept = rows(whole(last), A, 0)
    assert len(kept) == EARLIER_MAX + 1
    assert kept[0]["old_known"] is False and kept[0]["new"] == rate(29)
    assert all(row["old"] == rate(row["new"]["controller_mutation_rate"] - 1) for row in kept[1:])
    # Nor does a reader keep more, or a record grow.
    assert len(log.told[A]) == EARLIER_MAX and len(last) < 2_000
    assert line(kept[0], "x").startswith(f"x version 30 ops {A} ? -> ")


def test_what_a_record_tells_of_earlier_ones_is_bounded() -> None:
    """In bytes too; that none fits is not that none was."""
    log = PolicyLog()
    path = "topics.persistent://a/b/c"
    large = {
        "subscriptions": {
            f"{number}": {"dispatchRate": {"dispatchThrottlingRateInMsg": 5}} for number in range(1_000)
        }
    }
    change(log, large, 100, OPS, path)
    second = change(log, large, 200, OPS, path)
    assert b'"earlier"' not in second
    assert rows(whole(second), path, 0)[0]["old_known"] is False
    log = PolicyLog()
    reason = "x" * 1024
    long = [change(log, rate(number + 1), number, Author("admin", "ops", reason)) for number in range(30)]
    assert len(long[-1]) < EARLIER_MAX_BYTES + 2_000


def test_a_change_that_must_be_said_twice_is_one_row() -> None:
    """A change dated ahead is overruled at its time too."""
    log = log_of({"path": A, "value": rate(1), "effective_ts": 5_000})
    said = changes_of(log, [Update(path=A, value=rate(2))], OPS)
    assert len(records(log, said, 3_000, OPS)) == 2
    change(log, rate(2), 300, OPS)
    assert [(row["old"], row["new"]) for row in rows(log, A, 0)] == [(None, rate(1)), (rate(1), rate(2))]


def test_what_others_write_tells_what_it_can() -> None:
    """Records of older releases and other producers; fields of another kind count as absent."""
    log = log_of(
        {"path": A, "value": rate(1), "origin": "admin"},
        {"path": A, "value": rate(2), "actor": 5, "reason": [], "earlier": "x"},
        {"path": B, "value": rate(3), "earlier": [5, {"at": 10**17, "value": rate(2)}]},
    )
    assert [(row["actor"], row["old"], row["new"], row["reason"]) for row in rows(log, A, 0)] == [
        ("admin", None, rate(1), ""), ("", rate(1), rate(2), ""),
    ]  # fmt: skip
    assert rows(log, A, 0)[0]["old_known"] is False
    assert [(row["at"], row["old"], row["new"]) for row in rows(log, B, 0)] == [
        (0, None, rate(2)), (50, rate(2), rate(3)),
    ]  # fmt: skip


def test_a_version_is_the_one_that_a_change_made() -> None:
    """Whatever it states, and where it is filed; the log is in that order."""
    log = log_of(
        {"path": A, "value": rate(1), "ts": 1_000, "version": 50},
        {"path": A, "value": rate(2), "ts": 2_000, "version": 7},
        {"path": A, "value": rate(3), "ts": 3_000},
        {"path": B, "value": rate(4), "ts": 500},
    )
    told = [(row["entry"], row["version"]) for row in rows(log, None, 0)]
    assert told == [(B, 2), (A, 50), (A, 51), (A, 52)]


def test_the_newest_changes_are_told_without_reading_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor making those before a page: a log may hold ten changes each of 100,000."""
    read: list[str] = []
    of_entry = policy_topic._of_entry

    def counted(path: str, told: list[bytes]) -> Any:
        read.append(path)
        return of_entry(path, told)

    monkeypatch.setattr(policy_topic, "_of_entry", counted)
    users = [f"quotas[user=u{number % 40}]" for number in range(120)]
    log = log_of(*({"path": path, "value": rate(at), "ts": at} for at, path in enumerate(users, 1)))
    newest, further = newest_rows(log.told, 0, 5), newest_rows(log.told, 20, 5)
    assert len(read) == 10
    whole = rows(log, None, 0)[::-1]
    assert (newest, further) == (whole[:5], whole[20:25]) and [row["at"] for row in newest] == [50] * 5


@pytest.mark.parametrize("wrong", ["[" * 240 + "]" * 240, '{"controller_mutation_rate":0}', '"x"'])
def test_what_others_tell_of_earlier_changes_locks_no_entry(wrong: str) -> None:
    """What is no value of the entry ends what is told of it, and can be neither shown nor written."""
    told = f'[{{"value":{wrong}}},{{"value":null}},{{"value":{{"controller_mutation_rate":2}}}}]'
    log = log_of(f'{{"type":"policy","path":"{A}","value":null,"earlier":{told}}}'.encode())
    assert [row["new"] for row in rows(log, A, 0)] == [None, rate(2), None]
    assert rows(log, A, 0)[0]["old_known"] is False
    ((_, written),) = Attempt.of(log, [Update(path=A, value=rate(3))], OPS).lines
    assert [each["value"] for each in orjson.loads(written)["earlier"]] == [None, rate(2), None]


def test_a_change_takes_effect_two_seconds_after_it_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it takes to say what it is."""
    log, now, said = log_of({"path": A, "value": rate(1)}), [10_000], policy_turn._said

    def slow(*given: Any) -> bytes:
        now[0] += 5_000
        return said(*given)

    monkeypatch.setattr(policy_turn, "_now_ms", lambda: now[0])
    monkeypatch.setattr(policy_turn, "_said", slow)
    assert Attempt.of(log, [Update(path=A, value=rate(2))], OPS).effective_ts == 17_000


def test_what_one_transaction_tells_of_earlier_changes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each entry the newest."""
    log = PolicyLog()
    paths = [f"quotas[user=u{number}]" for number in range(10)]
    for at in range(1, 9):
        for path in paths:
            change(log, rate(at), at, OPS, path)
    monkeypatch.setattr(policy_turn, "ALL_EARLIER_MAX_BYTES", 3_000)
    said = changes_of(log, [Update(path=path, value=None) for path in paths], OPS)
    lines = records(log, said, 1_000, OPS)
    earlier = [orjson.loads(written)["earlier"] for _, written in lines]
    assert 1_000 < len(orjson.dumps(earlier)) <= 3_000
    assert all(each[-1]["value"] == rate(8) for each in earlier)


def test_what_is_kept_of_changes_is_as_large_as_it_says() -> None:
    """And not what room was made to write it down."""
    line = orjson.dumps({"type": "policy", "path": A, "value": rate(1)})
    tracemalloc.start()
    logs = [whole(line) for _ in range(100)]
    with_told = tracemalloc.get_traced_memory()[0]
    for log in logs:
        log.told.clear()
    freed = with_told - tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert freed < 100 * 1_000


def test_who_never_writes_keeps_no_log_of_changes() -> None:
    """It is as large as the policies."""
    log = whole(orjson.dumps({"type": "policy", "path": A, "value": rate(1)}), told_max=0)
    assert (log.told, dict(log.entries)) == ({}, {A: rate(1)})
