"""Lines of `weir tail`."""

from typing import Any

import orjson

from weir.tail import describe, render

ADMISSION = {
    "type": "admission",
    "id": "p1-42",
    "ts": 1_795_166_668_375,
    "subject": "user=alice",
    "outcome": "reject",
    "throttle_time_ms": 4000,
    "rejected": ["t4"],
    "tokens": -4.0,
    "limit": 1.0,
}


def line(decision: Any, **filters: Any) -> str | None:
    """Rendered with the filters given."""
    return render(orjson.dumps(decision), **({"as_json": False, "subject": None, "kind": None} | filters))


def test_admission_tells_who_what_and_why() -> None:
    """Time, outcome, subject, balance, wait, what was rejected, id; flags only where they are set."""
    shown = describe(ADMISSION)
    words = ["09:24:28.375", "reject", "user=alice", "-4.0", "1/s", "4000", "t4", "[p1-42]"]
    assert [word for word in words if word not in shown] == []
    assert "late" not in shown and "late" in describe(ADMISSION | {"late": True})
    assert "rate       5.60 of 5/s" in describe(
        {key: value for key, value in ADMISSION.items() if key != "tokens"} | {"rate": 5.6, "limit": 5.0}
    )


def test_lines_are_aligned() -> None:
    """Outcome, subject and balance start in the same columns for all decisions with a short subject."""
    other = ADMISSION | {"outcome": "throttle", "subject": "client-id=x", "tokens": -123.5}
    assert describe(ADMISSION).index("user=") == describe(other).index("client-id=")
    assert describe(ADMISSION).index("tokens") == describe(other).index("tokens")


def test_filters_leave_out_the_rest() -> None:
    """By subject and by type; no filter shows all."""
    assert line(ADMISSION, subject="user=alice", kind="admission")
    assert line(ADMISSION, subject="user=bob") is None
    assert line(ADMISSION, kind="share") is None


def test_json_is_the_record_itself() -> None:
    """--json prints what stands on the topic, byte for byte."""
    assert line(ADMISSION, as_json=True) == orjson.dumps(ADMISSION).decode()


def test_decision_without_quota_and_of_other_types() -> None:
    """An unlimited request and a decision of another law are shown too."""
    assert "(no quota)" in describe(ADMISSION | {"subject": "", "limit": None})
    assert "rg1" in describe({"type": "share", "ts": 0, "group": "rg1"})


def test_garbage_on_the_topic_is_shown_and_does_no_harm() -> None:
    """Whatever anybody writes there; with a filter it has no subject and is left out."""
    for value in (b"\xff", b"[]", b"", b'{"ts":true}', b'{"type":"admission","ts":"x"}'):
        assert render(value, as_json=False, subject=None, kind=None) is not None
        assert render(value, as_json=False, subject="user=a", kind=None) is None
