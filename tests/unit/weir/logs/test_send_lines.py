"""Event files as records: topic, key, stamp, time."""

from pathlib import Path
from typing import Any

import orjson
import pytest
from plan_kit import file_of

from streaming.contract.fields import TS_MAX_MS
from streaming.contract.topics import Topics
from streaming.kafka_io.policy_topic import PolicyLog
from weir.logs.send_lines import Addresser, OutgoingRecord, recorded, shift_for, shifted

NOW = 1_795_200_000_000
TOPIC = "persistent://acme/orders/t1"
QUOTA = {
    "type": "policy",
    "ts": NOW - 5000,
    "path": "quotas[user=alice]",
    "value": {"controller_mutation_rate": 1},
}


def addresser(*policies: dict[str, Any], shift_ms: int = 0) -> Addresser:
    """One for an installation with these policies."""
    log = PolicyLog()
    for policy in policies:
        log.take(orjson.dumps(policy), NOW)
    return Addresser(topics=Topics(), log=log, now_ms=NOW, shift_ms=shift_ms)


def sent(folder: Path, to: Addresser, *events: Any) -> list[OutgoingRecord]:
    """Records for a file of these lines."""
    return [to.address(item) for item in recorded([file_of(folder, "e.jsonl", *events)])]


def request(**fields: Any) -> dict[str, Any]:
    return {"type": "request", "ts": 1000, "user": "alice", "items": []} | fields


BACKLOG = {
    "type": "backlog",
    "ts": 1000,
    "topic": TOPIC,
    "ledgers": [{"id": 1, "entries": 1, "size": 1, "closeTime": 500}],
    "subscriptions": [{"name": "s", "ledger": 1, "entry": -1, "oldestPublishTime": None}],
}
GROUP = {"type": "group_usage", "ts": 1000, "broker": "b1", "period_ms": 1, "usage": {}}
DISPATCH = {
    "type": "dispatch_usage", "ts": 1000, "broker": "b2", "topic": TOPIC, "subscription": "s", "msgs": 1,
    "bytes": 1, "entries": 1, "backlog": True,
}  # fmt: skip
LATENCY = {"type": "latency", "ts": 1000, "partition": "orders-3", "rtt_ns": 5, "inflight": 1}


@pytest.mark.parametrize(
    ("event", "topic", "key"),
    [
        (request(subject="user=alice,client-id=x"), "weir.requests", "user=alice,client-id=x"),
        (request(type="refund", subject="user=alice"), "weir.requests", "user=alice"),
        (request(subject=""), "weir.requests", "user=alice"),
        (GROUP, "weir.usage", "b1"),
        (DISPATCH, "weir.usage", "b2"),
        (LATENCY, "weir.usage", "orders-3"),
        (BACKLOG, "weir.usage", TOPIC),
        ({"type": "tick", "ts": 1000}, "weir.usage", ""),
    ],
)
def test_every_type_has_its_topic_and_key(tmp_path: Path, event: Any, topic: str, key: str) -> None:
    """The key is the event's home; nothing is changed in an event that needs no stamp."""
    (record,) = sent(tmp_path, addresser(), event)
    assert (record.topic, record.key.decode(), orjson.loads(record.value)) == (topic, key, event)


def test_a_tick_is_nobodys(tmp_path: Path) -> None:
    """Those of another job would keep a job that starts from deciding; one that runs went by its clock."""
    tick = {"type": "tick", "ts": 1000}
    job = {"query": "a", "host": "h", "pid": 1, "since": 900, "leaving": True, "brokers_ahead_ms": 90_000}
    (record,) = sent(tmp_path, addresser(), tick | job)
    assert orjson.loads(record.value) == tick


def test_signs_of_life_are_nobodys(tmp_path: Path) -> None:
    """Proxies counted the recording's with them, so each had less of its limits; one of such a name, started
    meanwhile, found it taken and ended. What only a reader of ticks looks at may be wrong: it stays here.
    """
    alive: dict[str, Any] = {"type": "alive", "ts": 1000, "id": "a", "proxy": "p1", "instance": "i"}
    readers = alive | {"type": "readers", "members": []}
    signs = alive, alive | {"leaving": True}, alive | {"applied_ts": "x"}, readers
    for record in sent(tmp_path, addresser(shift_ms=7), *signs):
        assert record.topic == "weir.usage"
        assert orjson.loads(record.value) == {"type": "tick", "id": "a", "ts": 1007}


def test_requests_are_stamped_with_the_entity_in_force(tmp_path: Path) -> None:
    """By the policies of now, though the recording is older; who has no quota is keyed by his name."""
    alice, bob = sent(tmp_path, addresser(QUOTA), request(), request(user="bob"))
    assert (alice.key, orjson.loads(alice.value)["subject"]) == (b"user=alice", "user=alice")
    assert (bob.key, orjson.loads(bob.value)["subject"]) == (b"user=bob", "")


def test_policies_of_the_file_count_for_what_follows(tmp_path: Path) -> None:
    """A recording brings its own limits along."""
    _, after = sent(tmp_path, addresser(), QUOTA | {"ts": 900}, request())
    assert after.key == b"user=alice"


def test_lines_that_are_no_events_go_out_as_they_are(tmp_path: Path) -> None:
    """Counted, the first one with its place and reason; times are not looked for in them."""
    to = addresser(shift_ms=5)
    wrong = b'{"type":"latency","ts":2000}\n'
    records = sent(tmp_path, to, request(), b"\xff\n", b"\n", wrong)
    assert [record.value for record in records[1:]] == [b"\xff", wrong.rstrip()]
    assert {record.topic for record in records} == {"weir.requests"}
    assert [record.due for record in records] == [1005] * 3
    assert to.invalid == 2
    assert to.first_invalid.startswith("e.jsonl:2: not JSON")


def test_files_are_merged_by_time(tmp_path: Path) -> None:
    """Side by side; a line that goes back in time comes after the one before it; equal times by file."""
    for name, times in (("a", (10, 30, 20)), ("b", (5, 20, 30))):
        file_of(tmp_path, name, *(request(id=f"{name}{ts}", ts=ts) for ts in times))
    names = [orjson.loads(r.line.value)["id"] for r in recorded([str(tmp_path / n) for n in "ab"])]
    assert names == ["b5", "a10", "b20", "a30", "a20", "b30"]


def test_a_shift_keeps_the_place_in_the_round() -> None:
    """A whole number of rounds, never into the past, at most one round ahead."""
    for first in (0, 1, 59_999, NOW - 1, NOW, NOW + 1, NOW + 200_000):
        shift = shift_for(first, NOW, 60_000)
        assert shift % 60_000 == 0
        assert NOW <= first + shift < NOW + 60_000


def test_the_round_is_that_of_the_policies() -> None:
    """A minute if nobody set it."""
    broker = {"type": "policy", "ts": 1, "path": "broker", "value": {"resourceUsagePublishIntervalInSecs": 5}}
    assert (addresser().round_ms, addresser(broker).round_ms) == (60_000, 5_000)


def test_all_times_of_an_event_move_together() -> None:
    """Ages and refunds stay what they were; the broker's own clock moves along; null stays."""
    moved = shifted(orjson.loads(orjson.dumps(BACKLOG)), 7)
    assert (moved["ts"], moved["ledgers"][0]["closeTime"]) == (1007, 507)
    assert moved["subscriptions"][0]["oldestPublishTime"] is None
    refund = request(type="refund", of_ts=900, asked_ts=990, applied_ts=1001)
    shifted(refund, 7)
    assert [refund[name] for name in ("ts", "of_ts", "asked_ts", "applied_ts")] == [1007, 907, 997, 1008]
    assert shifted(LATENCY | {"start_ns": 5}, 7)["start_ns"] == 7_000_005
    assert shifted({"type": "policy", "ts": 1, "effective_ts": 2}, 7)["effective_ts"] == 9


def test_the_end_of_a_raise_moves_along() -> None:
    """With its policy, to the ms, or a recording that is sent a day later raises nothing; others stay."""

    def moved(value: Any) -> Any:
        return shifted(orjson.loads(orjson.dumps(QUOTA | {"value": value})), 1000)["value"]

    raised = {"controller_mutation_rate": 1, "raise": {"until": "2026-11-20T10:24:28.375+01:00"}}
    assert moved(raised) == raised | {"raise": {"until": "2026-11-20T09:24:29.375Z"}}
    for other in (None, "track", [], {"raise": 1}, *({"raise": {"until": end}} for end in (5, "soon"))):
        assert moved(other) == other
    last = {"raise": {"until": "9999-12-31T23:59:59.999Z"}}
    assert moved(last) == last


def test_unknown_fields_and_the_end_of_time_stay() -> None:
    """A field that only another type has may hold anything; a time beyond the calendar is not made."""
    odd = request(of_ts="noon", ledgers="none", effective_ts=True, start_ns=None)
    assert shifted(dict(odd), 7) == odd | {"ts": 1007}
    assert shifted(request(ts=TS_MAX_MS), 7)["ts"] == TS_MAX_MS


def test_who_sends_a_policy_is_its_author(tmp_path: Path) -> None:
    """Whomever and whatever the recording names."""
    forged = {"actor": "ops", "reason": "x", "repeat": True, "earlier": [{"actor": "ops", "value": None}]}
    for event in (QUOTA, QUOTA | forged):
        (record,) = sent(tmp_path, addresser(), event)
        written = orjson.loads(record.value)
        assert (record.topic, record.key.decode()) == ("weir.policies", "quotas[user=alice]")
        assert written.pop("actor").startswith("send:") and written == QUOTA
