"""What the records on `weir.policies` mean, without a broker."""

import time
from typing import Any

import orjson
import pytest

from streaming.kafka_io import policy_topic
from streaming.kafka_io.policy_topic import PolicyLog, Update, differences

FILE_ORIGINS = ("file", "apply")
A, B = "quotas[user=a]", "quotas[user=b]"


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
        b"{",
        b"[]",
        b'{"type":"request"}',
        b'{"type":"policy","value":{}}',
        b'{"type":"policy","path":"broker"}',
        b'{"type":"policy","path":"broker","value":{},"v":2}',
        b'{"type":"refund","of":"x","of_ts":1,"items":[],"subject":"user=a"}',
        b'{"type":"policy","path":"quotas[user=a]","value":{"controller_mutation_rate":0}}',
        b'{"type":"policy","path":"nothing","value":{}}',
        b'{"type":"policy","path":"broker","value":{},"version":"3"}',
        b'{"type":"policy","path":"broker","value":{},"version":true}',
        b'{"type":"policy","path":"broker","value":{},"ts":1.5}',
        b'{"type":"policy","path":"broker","value":{},"origin":5}',
        b'{"type":"policy","path":"broker","value":{},"ts":9223372036854775808}',
    ],
)
def test_a_record_that_cannot_be_used_is_counted_with_its_reason(record: bytes) -> None:
    """It changes nothing."""
    log = log_of({"path": A, "value": rate(1)}, record)
    assert (log.records, log.bad_records) == (2, 1)
    assert len(log.bad) == 1
    assert dict(log.entries) == {A: rate(1)}


def test_a_record_is_known_by_its_bytes() -> None:
    """Whoever does not know whether a record was written sees it come, even one that cannot be used."""
    log = log_of()
    for wanted in (b"broken", orjson.dumps({"type": "policy", "id": "mine", "path": A, "value": rate(1)})):
        log.await_record(wanted)
        log.take(orjson.dumps({"type": "policy", "id": "theirs", "path": A, "value": rate(1)}), 50)
        log.take(None, 50)
        assert not log.arrived
        log.take(wanted, 50)
        log.take(b"", 50)
        assert log.arrived


def test_reasons_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """All bad records are counted, only the first reasons are kept."""
    monkeypatch.setattr(policy_topic, "MAX_REASONS", 3)
    log = log_of(*[b"{"] * 10)
    assert (log.bad_records, len(log.bad)) == (10, 3)


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


def test_a_file_changes_adds_removes_and_takes_over() -> None:
    """Equal entries of a file stay; those of the cluster become the file's even if equal."""
    wanted = {A: rate(1), B: rate(2), "quotas[user=c]": rate(3)}
    assert differences(held(), wanted, FILE_ORIGINS, override=True) == [
        Update(path=B, value=rate(2)),
        Update(path="quotas[user=c]", value=rate(3)),
        Update(path="broker", value=None),
    ]


def test_a_file_leaves_what_the_cluster_set_alone() -> None:
    """Unless it names the same entity."""
    updates = differences(held(), {A: rate(9)}, FILE_ORIGINS, override=True)
    assert [(update.path, update.value) for update in updates] == [(A, rate(9)), ("broker", None)]


def test_the_collector_touches_only_its_own() -> None:
    """A file wins over quotas read from the cluster."""
    wanted = {A: rate(7), "quotas[user=c]": rate(3)}
    assert differences(held(), wanted, ("kafka",), override=False) == [
        Update(path="quotas[user=c]", value=rate(3)),
        Update(path=B, value=None),
    ]


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
        {"path": "quotas[user=c]", "value": rate(3), "origin": "admin"},
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
