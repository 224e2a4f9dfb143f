"""Lines of `weir tail`."""

from typing import Any

import orjson
import pytest
from admin_backlog_kit import block, eviction
from admin_backlog_kit import decision as backlogged
from event_kit import EVICT

from streaming.contract.backlog import actions
from streaming.laws.registry import LAWS
from weir.commands.tail import TYPES
from weir.logs.tail_lines import describe, render

ADMISSION = {
    "type": "admission", "id": "p1-42", "ts": 1_795_166_668_375, "subject": "user=alice", "outcome": "reject",
    "throttle_time_ms": 4000, "rejected": ["t4"], "tokens": -4.0, "limit": 1.0,
}  # fmt: skip
SHARE = {
    "type": "share",
    "id": "rg1/b1@7",
    "ts": 0,
    "group": "rg1",
    "broker": "b1",
    "round": 7,
    "usage": {"publishRateInMsgs": 10.0, "dispatchRateInBytes": 5.0, "dispatchRateInMsgs": 0.0},
    "limits": {"publishRateInMsgs": 11.1111, "dispatchRateInBytes": 50.0},
    "shadow": True,
}
DISPATCH = {
    "type": "dispatch",
    "id": "d1",
    "ts": 0,
    "broker": "b1",
    "topic": "persistent://a/n/t",
    "subscription": "s",
    "available": {"msgs": 0, "bytes": 70},
    "throttle_time_ms": 900,
    "limited_by": {"level": "subscription", "dimension": "msgs"},
    "entries_to_read": 0,
}
FREE = {"throttle_time_ms": 0, "limited_by": None}
LIMIT = {
    "type": "limit", "id": "l1", "ts": 0, "partition": "orders-3", "algorithm": "vegas", "limit": 26,
    "estimated_limit": 26.4,
}  # fmt: skip
TOPIC = "persistent://a/n/t"
BACKLOG = backlogged(
    TOPIC, ("size", EVICT), ("time", "producer_exception"), ts=0, backlogSize=103900.0,
    backlogQuotaLimitSize=100000, backlogQuotaLimitTime=60, oldestBacklogMessageAgeSeconds=100,
    exceeded=["destination_storage", "message_age"],
    evict=[
        {"subscription": "slow", "ledger": 1, "entry": 99, "entries": 100},
        {"subscription": "slow", "before_publish_time": 40_000},
    ],
)  # fmt: skip
ACTION = eviction(
    "slow", ts=0, topic=TOPIC, limit=100000, actor="collect-kafka", since={"ledger": 1, "entry": -1},
    upto={"ledger": 1, "entry": 99}, messages=100, bytes=103600,
)  # fmt: skip
BLOCK = block(
    "p1", ts=0, topic=TOPIC, quota_type="time", policy="producer_exception", limit=60, how="refuse"
)
EMPTY = {"oldestBacklogMessageSubscriptionName": None, "exceeded": [], "actions": [], "evict": []}


def line(decision: Any, **filters: Any) -> str | None:
    """Rendered with the filters given."""
    return render(orjson.dumps(decision), **({"as_json": False, "subject": None, "kind": None} | filters))


def test_admission_tells_who_what_and_why() -> None:
    """Time, outcome, subject, balance, wait, what was rejected, id; flags only where they are set."""
    shown = describe(ADMISSION)
    words = ["09:24:28.375", "reject", "user=alice", "-4.0", "1/s", "4000", "t4", "[p1-42]"]
    assert [word for word in words if word not in shown] == []
    assert "late" not in shown and "late" in describe(ADMISSION | {"late": True})
    assert "candidate" not in shown
    assert "candidate stricter" in describe(ADMISSION | {"candidate": "stricter"})
    assert "rate       5.60 of 5/s" in describe(
        {key: value for key, value in ADMISSION.items() if key != "tokens"} | {"rate": 5.6, "limit": 5.0}
    )
    assert "(no quota)" in describe(ADMISSION | {"subject": "", "limit": None})


@pytest.mark.parametrize(
    ("decision", "expected"),
    [
        (
            SHARE,
            "share, rg1/b1, 11.11 publish msgs/s, used 10.00, 50.00 dispatch bytes/s, used 5.00, round 7, "
            "shadow",
        ),
        (SHARE | {"limits": None, "removed": "idle"}, "removed, rg1/b1, idle, round 7, shadow"),
        (
            DISPATCH,
            "pause, persistent://a/n/t/s, 0 msgs, 70 bytes left, wait 900 ms, "
            "limited by subscription msgs, at b1",
        ),
        (
            DISPATCH | FREE | {"available": {"msgs": 9, "bytes": None}, "entries_to_read": 9},
            "deliver, persistent://a/n/t/s, 9 msgs left, read 9 entries",
        ),
        (
            DISPATCH | FREE | {"available": {"msgs": None, "bytes": None}, "entries_to_read": None},
            "deliver, persistent://a/n/t/s, not limited",
        ),
        (LIMIT, "limit, orders-3, 26 in flight, vegas, estimate 26.40"),
        (LIMIT | {"estimated_limit": 26.0, "repeat": True}, "limit, orders-3, 26 in flight, vegas, repeat"),
        (
            BACKLOG,
            "exceeded, persistent://a/n/t, 103900 bytes behind, oldest slow, 100 s old, "
            "over 100000 bytes: consumer_backlog_eviction, over 60 s: producer_exception, "
            "evict slow up to 1:99, 100 entries, evict slow before 00:00:40.000",
        ),
        (
            BACKLOG
            | EMPTY
            | {"oldestBacklogMessageSubscriptionName": "x", "oldestBacklogMessageAgeSeconds": -1},
            "within, persistent://a/n/t, 103900 bytes behind, oldest x, age not known",
        ),
        (BACKLOG | EMPTY | {"backlogSize": 0.0}, "empty, persistent://a/n/t, 0 bytes"),
        (
            ACTION,
            "evicted, persistent://a/n/t, 100 messages, slow from 1:-1 to 1:99 (offsets), 103600 bytes, "
            "over 100000 bytes: consumer_backlog_eviction, by collect-kafka",
        ),
        (
            ACTION | {"step": "failed", "how": "", "since": None, "reason": "slow has a member"},
            "failed, persistent://a/n/t, 100 messages, slow to 1:99, 103600 bytes, "
            "over 100000 bytes: consumer_backlog_eviction, by collect-kafka, slow has a member",
        ),
        (BLOCK, "refusing, persistent://a/n/t, producers, over 60 s: producer_exception, by p1"),
        (
            BLOCK | {"step": "ended", "actor": "", "reason": "inside"},
            "lifted, persistent://a/n/t, producers, over 60 s: producer_exception, inside",
        ),
        (
            BLOCK | {"how": "hold", "policy": "producer_request_hold"},
            "holding, persistent://a/n/t, producers, over 60 s: producer_request_hold, by p1",
        ),
        (
            BLOCK | {"how": "other", "step": "failed"},
            "failed, persistent://a/n/t, producers, over 60 s: producer_exception, by p1",
        ),
    ],
)
def test_every_form_tells_whom_what_and_why(decision: dict[str, Any], expected: str) -> None:
    """Between the time and the id; one line each."""
    # Its parts stand two blanks apart.
    time, *words, name = filter(None, map(str.strip, describe(decision).split("  ")))
    assert (time, ", ".join(words), name) == ("00:00:00.000", expected, f"[{decision['id']}]")
    assert "\n" not in describe(decision)


def test_lines_are_aligned() -> None:
    """Outcome, subject, numbers and reasons start in the same columns for all short subjects."""
    other = ADMISSION | {"outcome": "throttle", "subject": "client-id=x", "tokens": -123.5}
    assert describe(ADMISSION).index("user=") == describe(other).index("client-id=")
    assert describe(ADMISSION).index("tokens") == describe(other).index("tokens")
    assert describe(ADMISSION).index("wait") == describe(LIMIT).index("vegas")
    assert (
        describe(SHARE).index("rg1/") == describe(LIMIT).index("orders-3") == describe(other).index("client")
    )


def test_filters_leave_out_the_rest() -> None:
    """By subject, however its type says it, and by type; no filter shows all."""
    assert line(ADMISSION, subject="user=alice", kind="admission")
    assert line(ADMISSION, subject="user=bob") is None
    assert line(ADMISSION, kind="share") is None
    found = [line(SHARE, subject="rg1/b1"), line(DISPATCH, subject="persistent://a/n/t/s")]
    assert None not in found
    assert line(LIMIT, subject="orders-4") is None
    assert line(ACTION, subject=TOPIC, kind="backlog_action") == describe(ACTION)
    assert line(BACKLOG, subject=TOPIC) and line(BACKLOG, subject=TOPIC, kind="backlog_action") is None
    assert line(ACTION, subject=f"{TOPIC}/slow") is None
    assert line(ACTION | {"topic": 7}, subject=TOPIC) is None


PROBE = ADMISSION | {
    "id": "p1-1795166668000-1-probe", "subject": "", "limit": None, "mutations": 0, "late": True,
}  # fmt: skip


@pytest.mark.parametrize(("decision", "option"), [(LIMIT | {"repeat": True}, "repeats"), (PROBE, "probes")])
def test_repeats_and_probes_are_shown_when_asked_for(decision: dict[str, Any], option: str) -> None:
    """No news, or what a proxy asks to see whether the job decides; --json leaves nothing out."""
    assert line(decision) is None
    assert line(decision, **{option: True}) == describe(decision)
    assert line(decision, as_json=True) == orjson.dumps(decision).decode()


@pytest.mark.parametrize(
    "more", [{"mutations": 1}, {"mutations": None}, {"id": "p1-42", "client_id": "weir-probe"}, {"id": 7}]
)
def test_what_costs_is_no_probe(more: dict[str, Any]) -> None:
    """Nobody hides what he does by calling himself a probe."""
    assert line(PROBE | more) is not None


HOSTILE = "a\n09:24:28.375  allow     user=b\x1b[2K\r\x9b\u202e"


@pytest.mark.parametrize("decision", [ADMISSION, SHARE, DISPATCH, LIMIT, BACKLOG, ACTION])
def test_names_forge_no_lines(decision: dict[str, Any]) -> None:
    """Whatever field holds them; --json keeps them by its own escapes."""
    for name in (name for name, value in decision.items() if isinstance(value, str)):
        hostile = decision | {name: HOSTILE}
        for shown in (line(hostile), line(hostile, as_json=True)):
            assert shown is not None and shown.isprintable()
        assert orjson.loads(line(hostile, as_json=True) or "") == hostile


def test_garbage_on_the_topic_is_shown_and_does_no_harm() -> None:
    """Whatever anybody writes there; with a filter it has no subject and is left out."""
    forms = b'{"ts":true}', b'{"type":"admission","ts":"x"}', b'{"type":[]}', b'{"ts":%d}' % (2**63 - 1)
    for value in (b"\xff", b"[]", b"", b"\x1b[2K\n", *forms):
        shown = render(value, as_json=False, subject=None, kind=None)
        assert shown is not None and shown.isprintable()
        assert render(value, as_json=False, subject="user=a", kind=None) is None


@pytest.mark.parametrize("decision", [ADMISSION, SHARE, DISPATCH, LIMIT, BACKLOG, ACTION])
def test_a_decision_that_lacks_something_is_shown_field_by_field(decision: dict[str, Any]) -> None:
    """Any field may be missing or of another kind; the line still says what there is."""
    for name in decision:
        for broken in ({k: v for k, v in decision.items() if k != name}, decision | {name: ["odd"]}):
            assert describe(broken)
    assert describe({"type": "share", "ts": 0, "group": "rg1"}) == '00:00:00.000  share     {"group":"rg1"}'


def test_what_is_long_is_cut_for_people_and_whole_as_json() -> None:
    """Lists of names, and what is no decision at all."""
    long = ADMISSION | {"rejected": [f"t{number}" for number in range(1_000)]}
    given: dict[str, Any] = {"subject": None, "kind": None}
    shown = render(orjson.dumps(long), as_json=False, **given)
    assert shown is not None and "rejected t0,t1,t2,t3,t4,t5,t6,t7,t8,t9,and 990 more  [p1-42]" in shown
    many = BACKLOG | {"evict": [{"subscription": "slow", "before_publish_time": 40_000}] * 1_000}
    assert "evict slow before 00:00:40.000  and 990 more  [" in describe(many)
    assert orjson.loads(render(orjson.dumps(long), as_json=True, **given) or "") == long
    for value in (b"x" * 5_000, orjson.dumps({"type": "admission", "x": "y" * 5_000})):
        shown = render(value, as_json=False, **given)
        assert shown is not None and len(shown) < 1_200 and "characters more" in shown


def test_what_is_nested_too_deeply_is_shown_as_it_is() -> None:
    """Whoever writes it ends nobody's tail."""
    value = b'{"type":"limit","x":%s}' % (b"[" * 300 + b"]" * 300)
    assert render(value, as_json=False, subject=None, kind=None) == value.decode()


def test_every_type_may_be_asked_for() -> None:
    """The option names them without loading the laws."""
    assert {*TYPES} == {*LAWS.by_decision, actions.TYPE}
