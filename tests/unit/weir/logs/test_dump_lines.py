"""What a dump writes about each event."""

from typing import Any

import orjson
import pytest

from streaming.contract.errors import WeirError
from weir.logs import dump_lines
from weir.logs.dump_lines import Annotator, DumpSummary, History, Line
from weir.logs.topic_reader import Record


def record(offset: int, event: Any, ts: int = 1000, topic: str = "weir.requests") -> Record:
    """A record of partition 0."""
    value = event if isinstance(event, bytes) else orjson.dumps(event)
    return Record(topic, 0, offset, ts, value)


def request(**fields: Any) -> dict[str, Any]:
    """A request event with a subject."""
    return {"type": "request", "subject": "user=a", **fields}


def decision(name: str, ts: int, **fields: Any) -> bytes:
    """A decision's bytes."""
    return orjson.dumps({"type": "admission", "id": name, "ts": ts, "subject": "user=a", **fields})


def written(line: Line | None) -> dict[str, Any]:
    """The event in a line."""
    assert line is not None
    return dict(orjson.loads(line.text))


@pytest.mark.parametrize(
    "event",
    [
        request(), request(ts=5, id="p1-1"),
        {"ts": True}, {"ts": "x", "id": 5}, {}, {"id": None}, {"ts": 1.5},
    ],
)  # fmt: skip
def test_time_and_name_come_from_the_record_where_the_event_has_none(event: dict[str, Any]) -> None:
    """`ts` is the record's timestamp, `id` is <topic>-<partition>-<offset>; wrong ones are the replay's."""
    own = written(Annotator(History(), DumpSummary()).line(record(7, event, ts=1234)))
    assert own == {"ts": 1234, "id": "weir.requests-0-7", **event}


def test_what_the_job_buried_as_too_far_ahead_is_left_out() -> None:
    """In a file its time would count. To the job nothing was older than it; no policy is too far ahead."""
    history, counts = History(max_ahead_ms=500), DumpSummary()
    far = [record(0, request(id="a", ts=1501)), record(1, request(id="b", applied_ts=1501))]
    near = record(2, request(id="c", ts=1500))
    assert [Annotator(history, counts).line(each) is None for each in (*far, near)] == [True, True, False]
    assert (counts.ahead, counts.events) == (2, 1)
    assert Annotator(history, counts, is_policy=True).line(record(3, {"type": "policy", "ts": 9_000}))


def test_a_policy_among_events_is_left_out() -> None:
    """The job buries it, whoever wrote it there; a replay would go by it."""
    stray = {"type": "policy", "ts": 1000, "path": "broker", "value": None}
    assert Annotator(History(), DumpSummary()).line(record(0, stray, topic="weir.usage")) is None
    assert Annotator(History(), DumpSummary(), is_policy=True).line(record(0, stray, topic="weir.policies"))


def test_an_event_on_another_topic_than_its_own_is_left_out() -> None:
    """In a file it would stand among its own kind: the job has buried it."""
    sample = {"type": "latency", "ts": 1000, "partition": "p", "rtt_ns": 1, "inflight": 1}
    for event, topic in ((sample, "x.requests"), ({"type": "tick"}, "x.requests"), (request(), "x.usage")):
        counts, other = DumpSummary(), {"x.requests": "x.usage", "x.usage": "x.requests"}[topic]
        annotator = Annotator(History(requests="x.requests"), counts)
        assert annotator.line(record(0, event, topic=topic)) is None and counts.ahead == 1
        assert annotator.line(record(0, event, topic=other))
    assert Annotator(History(), DumpSummary()).line(record(0, {"type": ["x"]}))


@pytest.fixture
def history() -> History:
    """Nothing has happened."""
    return History()


@pytest.mark.parametrize("refunds", [None, 5, [["r"]], [{}]])
def test_a_decision_that_lists_no_refunds_as_it_should_is_passed_over(history: History, refunds: Any) -> None:
    """Others may write to the topic: the dump goes on."""
    history.read_decisions([decision("a", 1, refunds=refunds, late=True)])
    assert history.late == {("a", 1)}


def test_late_decisions_mark_their_requests(history: History) -> None:
    """Only those whose decision says so, and text in other fields does not confuse."""
    history.read_decisions(
        [decision("a", 1, late=True), decision("b", 2), decision("c", 3, note='"late":true')]
    )
    annotator = Annotator(history, counts := DumpSummary())
    events = [written(annotator.line(record(n, request(id=name), n + 1))) for n, name in enumerate("abc")]
    assert [event.get("late") for event in events] == [True, None, None]
    assert counts.late == 1


def test_of_a_request_that_stands_twice_the_one_that_was_late_is_marked(history: History) -> None:
    """Its proxy wrote it again after all brokers had gone (docs/failures.md): in time at first, then late."""
    history.read_decisions([decision("a", 1), decision("a", 2, late=True)])
    annotator = Annotator(history, DumpSummary())
    both = [written(annotator.line(record(n, request(id="a"), n))) for n in (1, 2)]
    assert [event.get("late") for event in both] == [None, True]


def test_decisions_say_when_their_events_were_applied(history: History) -> None:
    """Where it was not their own time; a repetition says nothing new, nor do policies that are only tried."""
    history.read_decisions([
        decision("a", 1000), decision("b", 500, applied_ts=1000), decision("c", 1000), decision("d", 1001),
        decision("e", 1000, subject="user=b"), decision("b", 500, applied_ts=2000, repeat=True),
        decision("b", 500, applied_ts=3000, candidate="stricter"),
    ])  # fmt: skip
    assert history.applied == {"b": 1000}
    # What came to the same time later has its turn, whatever came first.
    assert history.turn == {"b": 1, "c": 2}


def test_deliveries_are_applied_by_the_clock_of_their_broker(history: History) -> None:
    """Whatever their topic: all that a broker delivers goes through its own counters."""
    dispatched = {"type": "dispatch", "topic": "t", "subscription": "s"}
    history.read_decisions([
        decision("a", 1000, **dispatched, broker="b1"),
        decision("b", 900, **dispatched, broker="b1", applied_ts=1000),
        decision("c", 1000, **dispatched | {"topic": "u"}, broker="b1"),
        decision("d", 1000, **dispatched, broker="b2"),
    ])  # fmt: skip
    assert history.applied == {"b": 1000}
    assert history.turn == {"b": 1, "c": 2}


def test_a_refund_stands_before_the_admission_that_lists_it(history: History) -> None:
    """Applied at its own time, if its subject had not seen a later one; after the admission before."""
    own = [{"type": "refund", "id": name, "ts": ts} for name, ts in (("r1", 1500), ("r2", 1200), ("r3", 900))]
    history.look_for_own([record(n, event, ts=1600) for n, event in enumerate(own)])
    batch = [decision("a", 1000), decision("b", 1500, refunds=["r3", "r1", "r2", "unknown"])]
    history.read_decisions(batch + batch)
    assert history.applied == {"r3": 1000, "r2": 1500}
    assert sorted(history.turn, key=history.turn.__getitem__)[:4] == ["r3", "r1", "r2", "b"]


def test_what_a_proxy_did_by_a_wrong_clock_counts_at_its_records_time() -> None:
    """It is no dead letter; a decision tells better."""
    history, counts = History(), DumpSummary()
    ahead = record(0, request(id="a", ts=900_000, decided={}), ts=1000)
    history.look_for_own([ahead, record(1, {"type": "refund", "id": "r", "ts": 2001}, ts=1000)])
    event = written(Annotator(history, counts).line(ahead))
    assert (event["ts"], event["applied_ts"]) == (900_000, 1000)
    assert history.applied == {"a": 1000, "r": 1000}
    history.read_decisions([decision("a", 900_000)])
    assert history.applied == {"r": 1000}


def test_a_row_of_a_packed_record_is_named_after_it() -> None:
    """And stands behind the rows before it."""
    annotator = Annotator(History(), DumpSummary())
    value = b'{"type":"request"}'
    lines = [annotator.line(Record("weir.requests", 0, 7, 5, value, row)) for row in (1, 0)]
    assert [written(line)["id"] for line in sorted(filter(None, lines))] == [
        "weir.requests-0-7/0", "weir.requests-0-7/1",
    ]  # fmt: skip


def test_lines_sort_by_time_then_policies_first_then_arrival() -> None:
    """The order in which they were applied; a policy counts from its own ts, not from when it was written."""
    counts = DumpSummary()
    policy = {"type": "policy", "ts": 1000, "path": "broker", "value": None}
    requests, policies = Annotator(History(), counts), Annotator(History(), counts, is_policy=True)
    lines = [
        requests.line(record(0, request(), ts=999)),
        requests.line(record(1, request(), ts=1000)),
        policies.line(record(0, policy, ts=1, topic="weir.policies")),
    ]
    assert [(line.at, line.rank) for line in sorted(line for line in lines if line)] == [
        (999, 1),
        (1000, 0),
        (1000, 1),
    ]
    assert (counts.events, counts.policies) == (2, 1)


@pytest.mark.parametrize(
    "value", [b"{'not': json}", b'{"type":"request","note":%s}' % (b"[" * 300 + b"]" * 300)]
)
def test_what_is_no_json_stays_as_it_is_if_it_is_one_line(value: bytes) -> None:
    """So a replay has the same dead letters; what cannot stand on a line is counted."""
    counts = DumpSummary()
    annotator = Annotator(History(), counts)
    line = annotator.line(record(0, value))
    assert line is not None and line.text == value
    assert annotator.line(record(1, b"two\nlines")) is None
    assert annotator.line(record(2, b"")) is None
    assert (counts.not_json, counts.left_out) == (1, 2)


def test_memory_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """More late decisions than fit ask for a shorter dump."""
    monkeypatch.setattr(dump_lines, "IDS_MAX", 2)
    with pytest.raises(WeirError, match="shorter"):
        History().read_decisions([decision(str(n), n, late=True) for n in range(3)])


def test_what_was_applied_after_the_stretch_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour of last week was refused for what was late this week: no shorter one would do."""
    monkeypatch.setattr(dump_lines, "IDS_MAX", 1)
    history = History(max_ahead_ms=500, to_ms=10_000)
    after = [decision(f"after-{n}", 11_000 + n, applied_ts=12_000, late=True) for n in range(3)]
    history.read_decisions([decision("in", 5_000, applied_ts=9_000, late=True), *after])
    assert (history.applied, history.turn) == ({"in": 9_000}, {"in": 1}) and history.late == {("in", 5_000)}


def test_a_report_on_a_backlog_that_came_late_is_placed_by_its_topic(history: History) -> None:
    """Judged by the policies of its topic's newest time; other topics are not moved on by that."""
    own = {"type": "backlog", "topic": "persistent://a/n/t"}
    told = [
        own | {"id": "new", "ts": 1000},
        own | {"id": "other", "ts": 500, "topic": "persistent://a/n/u"},
        own | {"id": "late", "ts": 400, "applied_ts": 1000},
    ]
    history.read_decisions([orjson.dumps(decision) for decision in told])
    assert history.applied == {"late": 1000}
    late = record(0, {"type": "backlog", "id": "late", "ts": 400}, topic="weir.usage")
    line = Annotator(history, DumpSummary()).line(late)
    assert (line is not None and line.at, written(line)["applied_ts"]) == (1000, 1000)
