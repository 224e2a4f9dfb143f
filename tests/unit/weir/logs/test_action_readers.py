"""What is done about backlogs is logged among the decisions: their readers pass over it without a word."""

import orjson
from context_kit import read as read_record
from message_kit import Record

from enforcer.control.entities.feed import decisions_of
from enforcer.control.service import _DECISIONS
from streaming.contract.backlog.actions import BacklogAction
from weir.logs.dump_lines import History

ACTION = BacklogAction(
    id="weir.requests-0-7", ts=5, topic="persistent://a/n/t", quota_type="size",
    policy="consumer_backlog_eviction", limit=100, actor="collect-kafka", step="done", subscription="slow",
    how="offsets", since=(1, -1), upto=(1, 9), messages=10, bytes=1000,
)  # fmt: skip
VALUE = orjson.dumps(ACTION.fields())


def record() -> Record:
    """As it stands on the topic, under the topic's name."""
    return Record(VALUE, key=ACTION.topic.encode())


def test_enforcers_and_the_collector_of_pulsar() -> None:
    """Nothing to act on, and nothing that could not be used; with a name of their own or not."""
    reasons = list[str]()
    for own in (None, "p1"):
        assert read_record(record(), own, reasons.append) == []
    assert reasons == []


def test_the_admin_api() -> None:
    """It shows what was done, and when that was written."""
    ((shown, *_),) = decisions_of(record(), _DECISIONS)  # type: ignore[arg-type]
    assert shown == ACTION


def test_a_dump() -> None:
    """It says of no event how that was applied, whatever its own id and time are."""
    history = History()
    history.read_decisions([VALUE])
    assert (history.late, history.applied, history.turn) == (set(), {}, {})
