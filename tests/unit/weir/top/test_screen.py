"""`weir top` as it is printed: a table for people, JSON, and again and again."""

import json
import re
import time
from typing import Any, cast

import pytest
from entity_kit import admission, backlog, decided, view
from rich.console import Console
from turns_kit import Turns

from enforcer.control.entities.view import EntityView
from streaming.contract.errors import WeirError
from weir.top import screen
from weir.top.screen import RecentPast

NOW = time.time_ns() // 1_000_000


class Past:
    """What was read of a cluster."""

    bootstrap = "127.0.0.1:9092"

    def __init__(self, made: EntityView) -> None:
        self.view = made
        self.failures = 0

    def read(self) -> int:
        """Nothing new; or it fails."""
        if self.failures:
            self.failures -= 1
            raise WeirError("the cluster does not answer")
        return NOW + 1_000


def past() -> RecentPast:
    """Alice is refused, a backlog is half full."""
    made = view()
    decided(made, admission(NOW, tokens=-60.0, throttle_time_ms=12_000, rejected=["t9"]), backlog(NOW, 500))
    decided(made, admission(NOW, tokens=1.0, subject="user=e\x1bvil", shadow=True))
    return cast(RecentPast, Past(made))


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")


def test_a_line_for_each_entity(capsys: pytest.CaptureFixture[str]) -> None:
    """What is used beside the limit, waits, refusals and the entry; names cannot move the cursor."""
    screen.show(past(), {"by": "wait"}, as_json=False)
    said = capsys.readouterr().out
    alice = next(line for line in said.splitlines() if "user=alice" in line)
    for part in ("mutation", "5 mutations/s", "11.0 s", " 1 ", "quotas[user=alice]", "██████████"):
        assert part in alice, part
    assert r"user=e\x1bvil" in said and "\x1b" not in said and "(shadow)" in said
    assert "1 wait, for 1s at most; 1 were refused in the last minute; 3 entities" in said


@pytest.mark.parametrize(("size", "told"), [(999_499, "999k"), (999_500, "1M"), (5 * 10**15, "5P")])
def test_numbers_are_short_at_their_borders(size: int, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`1e+03k` and `5e+06G` were numbers of nobody's."""
    made = view()
    decided(made, backlog(NOW, size))
    screen.show(cast(RecentPast, Past(made)), {"by": "used"}, as_json=False)
    assert capsys.readouterr().out.splitlines()[2].split()[:2] == ["backlog", told]


@pytest.mark.parametrize("width", [40, 75, 76, 90, 110])
def test_whoever_waits_is_named_in_a_narrow_terminal(width: int) -> None:
    """Of 40 columns none was left for names, nor for numbers."""
    console = Console(width=width)
    with console.capture() as said:
        console.print(screen.shown(past(), {"by": "wait"}, NOW, width))
    assert re.search(r"112 +12\.0 s +1 .*user=alice", said.get())


def test_rows_that_are_left_out_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    """With --limit."""
    screen.show(past(), {"by": "used", "limit": 1}, as_json=False)
    assert "3 entities, the first 1 shown" in capsys.readouterr().out


def test_a_name_is_searched_for(capsys: pytest.CaptureFixture[str]) -> None:
    """Those that have it in them; where none has, it is no cluster without decisions."""
    screen.show(past(), {"by": "used", "name": "=ali"}, as_json=False)
    said = capsys.readouterr().out
    assert "1 entities" in said and "user=alice" in said and "vil" not in said
    screen.show(past(), {"by": "used", "name": "nobody"}, as_json=False)
    assert "0 entities" in capsys.readouterr().out


def test_json_is_the_list_of_the_api(capsys: pytest.CaptureFixture[str]) -> None:
    """An array, in order."""
    screen.show(past(), {"by": "wait", "limit": 2}, as_json=True)
    first, _ = json.loads(capsys.readouterr().out)
    assert (first["entity"], first["waiting_ms"], first["refused"]) == ("user=alice", 11_000, 1)


def test_nothing_is_said_with_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    """An empty table would tell nothing."""
    screen.show(cast(RecentPast, Past(view())), {"by": "used"}, as_json=False)
    assert "nothing was decided in the last 10m on 127.0.0.1:9092" in capsys.readouterr().out


def test_it_is_shown_again_after_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    """What cannot be read once is tried again, until a signal."""
    again = past()
    cast(Any, again).failures = 1
    screen.watch(again, {"by": "used"}, 0.1, Turns(2), as_json=False)
    said = capsys.readouterr()
    assert "does not answer" in said.err and said.out.count("quotas[user=alice]") == 1
