"""What `weir backlog` prints, with a cluster that is made up: tests/kafka/backlog has the real one."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import orjson
import pytest
from turns_kit import Turns

from streaming.contract.errors import WeirError
from streaming.contract.topics import Cluster, Topics
from streaming.kafka_io.policy_topic import PolicyLog
from weir.backlog import view
from weir.backlog.decisions import Decisions
from weir.backlog.view import TopicUnreported, View, show, watch
from weir.cli import main

CLUSTER = Cluster(bootstrap="127.0.0.1:1", topics=Topics("w."), client={})
T1, T2 = "persistent://public/default/t1", "persistent://public/default/t2"


class FakePolicies(AbstractContextManager[Any]):
    """Policies that say nothing."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __exit__(self, *_: Any) -> None:
        pass

    def read(self, timeout_s: float) -> PolicyLog:
        """Nothing."""
        return PolicyLog()


class FakeStanding:
    """Decisions that are there; an error comes in its turn."""

    turns: Iterator[Decisions | WeirError]

    def __init__(self, *_: Any) -> None:
        self.newest = Decisions()

    def read(self, interval_s: int) -> Decisions:
        """The next turn."""
        found = next(self.turns)
        if isinstance(found, WeirError):
            raise found
        self.newest = found
        return found


def said(*topics: str, bad: int = 0, beyond: int = 0) -> Decisions:
    """A decision a topic, the first one the largest."""
    newest = Decisions()
    for number, topic in enumerate(topics):
        fields = {"type": "backlog", "id": topic, "ts": 5, "topic": topic, "backlogSize": 100.0 - number}
        newest.take(orjson.dumps(fields), 2**62)
    newest.bad, newest.of_topic.dropped, newest.last_bad = bad, beyond, "so\nbad" if bad else ""
    return newest


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> type[FakeStanding]:
    """What is found, turn by turn."""
    monkeypatch.setattr(view, "PolicyReader", FakePolicies)
    monkeypatch.setattr(view, "BacklogReader", FakeStanding)
    return FakeStanding


def test_json_is_an_array_of_the_records(
    turns: type[FakeStanding], capsys: pytest.CaptureFixture[str]
) -> None:
    """In the order of the table; all of them but with --limit."""
    turns.turns = iter([said(T1, T2), said(T1, T2), said()])
    for asked, count in ((None, 2), (1, 1), (None, 0)):
        show(View(CLUSTER, limit=asked, as_json=True))
        found = orjson.loads(capsys.readouterr().out)
        assert [one["topic"] for one in found] == [T1, T2][:count]


def test_an_unknown_topic_is_an_error_that_says_what_to_do(turns: type[FakeStanding]) -> None:
    """It may be that nobody reports; a partition of it is enough."""
    turns.turns = iter([said(T1), said(f"{T2}-partition-0", T1)])
    with pytest.raises(
        TopicUnreported, match=r"backlog of persistent://public/default/t2 in the last 2m5s .*weir collect"
    ):
        show(View(CLUSTER, T2))
    own = View(CLUSTER, T2)
    assert len(own.lines()) == 2
    own.close()


def test_a_cluster_of_which_nothing_is_said(
    turns: type[FakeStanding], capsys: pytest.CaptureFixture[str]
) -> None:
    """No error: there may be no topics; but what to look after is said."""
    turns.turns = iter([said()])
    show(View(CLUSTER))
    assert "weir collect kafka" in capsys.readouterr().out


def test_what_could_not_be_used_is_said_on_stderr(
    turns: type[FakeStanding], capsys: pytest.CaptureFixture[str]
) -> None:
    """With one reason; names forge no lines."""
    turns.turns = iter([said(T1, bad=2, beyond=3)])
    show(View(CLUSTER))
    out, err = capsys.readouterr()
    assert err.splitlines() == [
        "weir: 2 records could not be used, such as: so\\nbad",
        "weir: 3 decisions were on topics for which there was no room",
    ]
    assert T1 in out


def test_watch_goes_on_whatever_a_turn_brings(
    turns: type[FakeStanding], capsys: pytest.CaptureFixture[str]
) -> None:
    """A topic that is not there yet, a cluster that does not answer; a remark is made once."""
    turns.turns = iter([said(), WeirError("away\nlong"), said(T2, bad=1), said(T2, bad=1)])
    stop = Turns(4)
    watch(View(CLUSTER, T2), 7.5, stop)
    out, err = capsys.readouterr()
    assert err.splitlines() == [
        "weir: away", "  long", "weir: 1 records could not be used, such as: so\\nbad",
    ]  # fmt: skip
    assert out.startswith(f"nothing was decided on the backlog of {T2}")
    assert out.count(T2) == 3 and "\x1b" not in out
    assert stop.waited == [7.5] * 4


def test_watch_in_json_writes_an_array_each_time(
    turns: type[FakeStanding], capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty one while the topic is not there."""
    turns.turns = iter([said(), said(T1)])
    watch(View(CLUSTER, T1, as_json=True), 1, Turns(2))
    first, second = capsys.readouterr().out.splitlines()
    assert orjson.loads(first) == [] and len(orjson.loads(second)) == 1


def test_a_terminal_is_drawn_anew(
    turns: type[FakeStanding], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From its first line on."""
    turns.turns = iter([said(T1)])
    monkeypatch.setattr(view.sys.stdout, "isatty", lambda: True)
    watch(View(CLUSTER), 1, Turns(1))
    assert capsys.readouterr().out.startswith("\x1b[H\x1b[2J")


def test_topics_may_be_named_in_short(turns: type[FakeStanding], capsys: pytest.CaptureFixture[str]) -> None:
    """A Kafka topic without tenant and namespace is Pulsar's in public/default; unknown: status 1."""
    turns.turns = iter([said(T1, T2), said()])
    assert main(["backlog", "--topic", "t2", "--json"]) == 0
    assert [one["topic"] for one in orjson.loads(capsys.readouterr().out)] == [T2]
    assert main(["backlog", "--topic", "t2"]) == 1
    assert capsys.readouterr().err.startswith(f"weir: nothing was decided on the backlog of {T2}")
