"""What Pulsar says of a topic's log: positions in it, and answers in another form."""

from typing import Any

import pytest
from pulsar_backlog_kit import NOW_MS, FakeTopic

from streaming.collect.pulsar_backlog.readings import Stretch, TopicLog, earliest, topic_log
from streaming.contract.errors import BadEvent

TOPIC = "persistent://acme/orders/t1"


def log_of(**topic: Any) -> TopicLog:
    """Of a topic in memory."""
    return topic_log(TOPIC, FakeTopic(**topic).internal_stats())


def test_the_open_ledger_counts_what_is_in_it() -> None:
    """It is listed as empty; names are decoded, and cursors of Pulsar's own left out."""
    log = log_of(ledgers={6: 10, 9: 5}, positions={"b/%x y": (6, -1)})
    assert log.ledgers == (Stretch(6, 10, 1000), Stretch(9, 5, 500))
    assert (log.closed, log.created) == (1, NOW_MS - 5_000)
    assert {name: cursor.position for name, cursor in log.cursors.items()} == {"b/%x y": (6, -1)}


def test_a_closed_last_ledger_counts_once() -> None:
    """Until the next one is created Pulsar still tells the numbers of the open one."""
    log = log_of(ledgers={6: 10, 9: 5}, is_open=False)
    assert log.ledgers == (Stretch(6, 10, 1000), Stretch(9, 5, 500))
    assert (log.closed, log.created) == (2, None)


def test_a_new_ledger_has_not_the_numbers_of_the_one_before() -> None:
    """What is told together was not read at one moment."""
    answer = FakeTopic({6: 10, 9: 10}).internal_stats()
    assert topic_log(TOPIC, {**answer, "lastConfirmedEntry": "6:9"}).ledgers[-1] == Stretch(9, 0, 0)
    assert topic_log(TOPIC, {**answer, "lastConfirmedEntry": "9:3"}).ledgers[-1] == Stretch(9, 4, 400)


def test_neighbours_in_the_log() -> None:
    """Across ledgers that are closed, empty or trimmed."""
    log = log_of(ledgers={6: 2, 8: 0, 9: 3})
    assert [log.next_of(one) for one in ((5, 7), (6, -1), (6, 0), (6, 1), (7, 3), (9, 1), (9, 2))] == [
        (6, 0), (6, 0), (6, 1), (9, 0), (9, 0), (9, 2), None,
    ]  # fmt: skip
    assert [log.before(one) for one in ((6, 0), (6, 1), (8, 0), (9, 0), (9, 2), (9, 99), (12, 0))] == [
        None, (6, 0), (6, 1), (6, 1), (9, 1), (9, 2), (9, 2),
    ]  # fmt: skip
    spans = [(one.id, first, end) for one, first, end in log.between((6, 0), (9, 1))]
    assert spans == [(6, 1, 2), (9, 0, 2)]
    assert list(log.between((9, 1), (9, 1))) == []


@pytest.mark.parametrize(
    "broken",
    [
        None,
        [],
        {"ledgers": None},
        {"ledgers": [{"ledgerId": 1, "entries": "10", "size": 5}]},
        {"ledgers": [{"ledgerId": 7, "entries": 1, "size": 5}, {"ledgerId": 6, "entries": 1, "size": 5}]},
        {"cursors": {"a": {"markDeletePosition": "here"}}},
        {"cursors": {"a": {"markDeletePosition": "1:-2"}}},
        {"cursors": {"a": None}},
        {"currentLedgerSize": -1},
        {"lastConfirmedEntry": 3},
    ],
)
def test_another_form_is_told(broken: Any) -> None:
    """With the topic's name; it never ends a round."""
    good = FakeTopic({6: 10, 9: 5}, {"a": (6, -1)}).internal_stats()
    answer = {**good, **broken} if isinstance(broken, dict) else broken
    with pytest.raises(BadEvent, match=f"internalStats of {TOPIC}"):
        topic_log(TOPIC, answer)


@pytest.mark.parametrize(("said", "expected"), [(5, 5), (0, None), (-1, None), (None, None), (10**18, None)])
def test_publish_times_that_are_none(said: Any, expected: int | None) -> None:
    """0 and -1 are Pulsar's for none."""
    stats = {"subscriptions": {"a": {"earliestMsgPublishTimeInBacklog": said}}}
    assert earliest(stats, "a") == expected
    assert earliest(stats, "b") is None
