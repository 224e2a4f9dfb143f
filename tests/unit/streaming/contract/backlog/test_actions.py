"""Actions on backlogs: what a record of one says, and what is refused with which reason."""

from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.contract.backlog.actions import QUOTA_TYPES, STEPS, BacklogAction, backlog_action
from streaming.contract.errors import BadEvent
from streaming.contract.fields import TS_MAX_MS

EVICTION = BacklogAction(
    id="k1/size/slow", ts=7, topic="persistent://a/n/t", quota_type="size",
    policy="consumer_backlog_eviction",
    limit=100, actor="collect-kafka", step="begun", subscription="slow", how="offsets", since=(1, -1),
    upto=(1, 99), messages=100, bytes=103_600,
)  # fmt: skip
BLOCK = BacklogAction(
    id="k1/time/p1", ts=7, topic="persistent://a/n/t", quota_type="time", policy="producer_exception",
    limit=60, actor="p1", step="ended", how="refuse", reason="inside",
)  # fmt: skip
NAMES = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
NUMBERS = st.integers(0, 2**63 - 1)
POSITIONS = st.none() | st.tuples(st.integers(-1, 2**63 - 1), st.integers(-1, 2**63 - 1))


@st.composite
def actions(draw: st.DrawFn) -> BacklogAction:
    """Any step that may be logged."""
    own = BacklogAction(
        id=draw(NAMES), ts=draw(st.integers(0, TS_MAX_MS)), topic=draw(NAMES),
        quota_type=draw(st.sampled_from(QUOTA_TYPES)), policy=draw(NAMES), limit=draw(NUMBERS | st.just(-1)),
        actor=draw(NAMES), step=draw(st.sampled_from(STEPS)), how=draw(NAMES), reason=draw(NAMES),
        since=draw(POSITIONS), upto=draw(POSITIONS),
    )  # fmt: skip
    if not draw(st.booleans()):
        return own
    name = draw(NAMES.filter(bool))
    return replace(own, subscription=name, messages=draw(NUMBERS), bytes=draw(NUMBERS))


@given(actions())
def test_a_step_is_read_as_it_was_written(action: BacklogAction) -> None:
    """Through JSON, whatever the names are."""
    assert backlog_action(orjson.loads(orjson.dumps(action.fields()))) == action


def test_a_block_says_nothing_of_messages() -> None:
    """Nobody loses any: zeros would count as an eviction of nothing."""
    assert "messages" not in BLOCK.fields() and "subscription" not in BLOCK.fields()
    assert EVICTION.fields()["messages"] == 100
    assert "reason" not in EVICTION.fields()


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"id": None}, "id: missing; text was expected"),
        ({"id": 7}, "id: 7; text was expected"),
        ({"ts": "now"}, 'ts: "now"; an integer was expected'),
        ({"ts": TS_MAX_MS + 1}, f"ts: {TS_MAX_MS + 1} is out of range; 0 to {TS_MAX_MS} was expected"),
        ({"topic": None}, "topic: missing; text was expected"),
        ({"quota_type": "bytes"}, 'quota_type: "bytes"; one of size, time was expected'),
        ({"quota_type": None}, 'quota_type: ""; one of size, time was expected'),
        ({"policy": ["x"]}, 'policy: ["x"]; text was expected'),
        ({"limit": -2}, f"limit: -2 is out of range; -1 to {2**63 - 1} was expected"),
        ({"limit": True}, "limit: true; an integer was expected"),
        ({"actor": {}}, "actor: {}; text was expected"),
        ({"step": "half"}, 'step: "half"; one of begun, done, failed, ended was expected'),
        ({"since": {"ledger": 1}}, "entry: missing; an integer was expected"),
        ({"upto": {"ledger": -2, "entry": 0}}, f"ledger: -2 is out of range; -1 to {2**63 - 1} was expected"),
        ({"messages": -1}, f"messages: -1 is out of range; 0 to {2**63 - 1} was expected"),
        ({"bytes": 1.5}, "bytes: 1.5; an integer was expected"),
        ({"reason": 0}, "reason: 0; text was expected"),
    ],
)
def test_what_is_no_step_is_refused(more: dict[str, Any], reason: str) -> None:
    """Anybody can write to the topic; None takes a field away."""
    fields = {key: value for key, value in (EVICTION.fields() | more).items() if value is not None}
    with pytest.raises(BadEvent) as refused:
        backlog_action(fields)
    assert refused.value.reason == reason
