"""What `weir demo` shows and hears of its clients, and where it says to go on."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streaming.contract.topics import Cluster, Topics
from weir.demo import story
from weir.foreground import StopSignal
from weir.logs.topic_reader import Record


class FakeStack:
    """A stack that runs, before a cluster that wants a login."""

    cluster = Cluster("k:2", Topics("mine."), {"sasl.username": "weir"})

    def addresses(self) -> dict[str, Any]:
        """See Stack."""
        return {"proxy": "h:1", "kafka": "k:2", "admin": "http://h:3"}

    def look(self) -> bool:
        """All is well."""
        return False


class FakeReader:
    """Notes what is read, and with which login."""

    asked: tuple[Any, ...] = ()

    def __init__(self, bootstrap: str, client: Any) -> None:
        self._given = bootstrap, dict(client)

    def spans(self, topic: str, *between: Any) -> list[Any]:
        """None."""
        FakeReader.asked = (*self._given, topic)
        return []

    def follow(self, spans: list[Any]) -> Iterator[list[Any]]:
        """Nothing comes."""
        while True:
            yield []

    def close(self) -> None:
        """Nothing is open."""


def test_a_library_that_fails_is_a_client_that_failed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--once` ends with status 1 by it; decisions are read where the settings say."""

    def run_library(scene: story.Scene) -> None:
        raise TimeoutError("no answer")

    monkeypatch.setattr(story, "CLIENTS", (run_library,))
    monkeypatch.setattr(story, "_LAST_DECISIONS_S", 0.2)
    monkeypatch.setattr(story, "TopicReader", FakeReader)
    stack: Any = FakeStack()
    assert story.play(stack, StopSignal(), tmp_path, "p.yaml") == ["TimeoutError('no answer')"]
    assert "library           FAILED: TimeoutError('no answer')" in capsys.readouterr().out
    assert FakeReader.asked == ("k:2", {"sasl.username": "weir"}, "mine.decisions")


def test_what_is_no_decision_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Anybody may write there: those that follow are shown."""
    said = b'{"type":"admission","id":"r1","ts":0,"subject":"user=ANONYMOUS,client-id=demo-java"}'
    values = b"", b"[1]", b'{"subject": []}', b'{"type": [], "subject": {}}', said

    class Written(FakeReader):
        def follow(self, spans: list[Any]) -> Iterator[list[Any]]:
            """All of it, then nothing."""
            yield [Record("mine.decisions", 0, 0, 0, value) for value in values]
            yield from super().follow(spans)

    monkeypatch.setattr(story, "CLIENTS", ())
    monkeypatch.setattr(story, "_LAST_DECISIONS_S", 0.2)
    monkeypatch.setattr(story, "TopicReader", Written)
    stack: Any = FakeStack()
    assert story.play(stack, StopSignal(), tmp_path, "p.yaml") == []
    assert "demo-java" in capsys.readouterr().out


def test_commands_to_go_on_with_log_in(capsys: pytest.CaptureFixture[str]) -> None:
    """As those of `weir up`."""
    stack: Any = FakeStack()
    story.how_to_go_on(stack, "p.yaml", "a b.yaml")
    said = capsys.readouterr().out
    for command in ("top", "tail", "policy apply p.yaml", "dump"):
        assert f"weir {command} --kafka k:2 --settings 'a b.yaml'" in said
    story.how_to_go_on(stack, "my p.yaml", None)
    said = capsys.readouterr().out
    assert "weir policy apply 'my p.yaml' --kafka k:2" in said and "replay --policies 'my p.yaml'" in said
