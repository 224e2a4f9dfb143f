"""`weir replay --against`: its files, its words and its exit status."""

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import orjson
import pytest
from event_kit import delivery, sample
from law_kit import request
from plan_kit import dispatched, file_of, policies_of, quotas_of

from weir.cli import main

ASKED = [
    *(request(f"a{n}", n * 100, 6) for n in range(4)), *(delivery(n * 1000, msgs=30) for n in range(3)),
    sample("s", 0, 10), request("b", 0, 6, user="bob <&>"),
]  # fmt: skip


class World:
    """A log, the policies of before and after, and the command."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.before = policies_of(folder, "before.yaml", **quotas_of(alice=100), **dispatched(100))
        self.after = policies_of(folder, "after.yaml", **quotas_of(alice=1), **dispatched(10))
        self.log = file_of(folder, "log.jsonl", *ASKED)
        self.out = folder / "out.jsonl"

    def replay(self, *words: str) -> int:
        """The exit status."""
        own = ["--policies", self.before, "--events", self.log, "--out", str(self.out)]
        return main(["replay", *own, *words])

    def summary(self, *words: str) -> dict[str, Any]:
        """What --summary writes."""
        file = self.folder / "summary.json"
        assert self.replay("--summary", str(file), *words) == 0
        told: dict[str, Any] = orjson.loads(file.read_bytes())
        return told


@pytest.fixture
def world(tmp_path: Path) -> World:
    """One for each test."""
    return World(tmp_path)


def test_the_decisions_are_those_of_any_replay(world: World) -> None:
    """--out has the same bytes, whatever else is tried."""
    assert world.replay() == 0
    alone = world.out.read_bytes()
    assert world.replay("--against", world.after) == 0
    assert world.out.read_bytes() == alone and alone


def test_the_summary_has_both_sides_of_each_subject(world: World) -> None:
    """Each as a replay under these policies has it, with its delays; flips of each and of all."""
    own = world.summary()["subjects"]
    told = world.summary("--against", world.after)
    world.before = world.after
    other = world.summary()["subjects"]
    for name, sides in told["subjects"].items():
        for side, alone in (("policies", own), ("against", other)):
            delays = sides[side].pop("delay_ms")
            assert sides[side] == alone[name] and list(delays) == ["p50", "p99", "max"]
    alice = told["subjects"]["user=alice"]
    assert alice["flips"] == told["flips"] == {"allow_to_refuse": 2, "refuse_to_allow": 0}
    assert told["delay_ms"]["policies"] == {"p50": 0, "p99": 0, "max": 0}
    assert told["delay_ms"]["against"]["max"] == 7000
    assert (told["first_difference"]["whose"], told["proven"]) == ("persistent://acme/orders/t1/sub1", None)
    assert [row["fate"] for row in told["entities"]] == ["hurt", "hurt", "same"]
    assert told["clients_that_wait"]["flips"]["allow_to_refuse"] == 0


def test_several_are_tried_at_once(world: World) -> None:
    """The first is `against`; the others stand under their names beside it."""
    told = world.summary("--against", world.after, world.before)
    alice = told["subjects"]["user=alice"]
    assert [alice[name]["rejected"] for name in ("policies", "against", "before.yaml")] == [0, 2, 0]
    assert list(told["plans"]) == ["after.yaml", "before.yaml"]
    assert told["plans"]["before.yaml"]["flips"]["allow_to_refuse"] == 0


@pytest.mark.parametrize("name", ["policies", "against", "flips"])
def test_a_file_named_as_a_key_of_a_subject_stands_beside_it(
    world: World, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """As a path; it took that key's place."""
    monkeypatch.chdir(world.folder)
    policies_of(world.folder, name)
    alice = world.summary("--against", world.after, name)["subjects"]["user=alice"]
    assert {*alice} == {"policies", "against", "flips", f"./{name}"}


def test_the_table_says_who_is_hurt(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Headline, the first difference, and a line for each, those who are hurt most first."""
    assert world.replay("--against", world.after) == 0
    text = capsys.readouterr().out
    assert "after.yaml: 2 hurt, 0 helped" in text
    assert "Newly refused: 2 as recorded, 0 if clients wait" in text
    assert text.index("user=alice") < text.index("acme/orders/t1/sub1", text.index("user=alice"))
    assert world.replay("--against", world.before) == 0
    assert "Nobody is hurt, and nobody is helped." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--max-new-refused", "1"), "2 newly refused, 1 allowed by --max-new-refused; worst: user=alice"),
        (("--max-added-delay", "6.9"), "7 s of delay added, 6.9 s allowed by --max-added-delay; worst: pers"),
        (("--max-new-refused", "2", "--max-added-delay", "7"), ""),
    ],
)
def test_the_gate_names_who_is_worst_off(
    world: World, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    """Exit status 1 beyond a bound, 0 at it; all files are written first."""
    assert world.replay("--against", world.after, *words) == (1 if said else 0)
    assert said in capsys.readouterr().err and world.out.exists()


@pytest.mark.parametrize("against", [True, False])
def test_a_log_that_differs_from_what_was_recorded_is_not_trusted(
    world: World, capsys: pytest.CaptureFixture[str], against: bool
) -> None:
    """Exit status 1 and nothing written; what was recorded proves it, with or without other policies."""
    assert world.replay() == 0
    right = world.out.rename(world.folder / "recorded.jsonl")
    words = ("--against", world.after) if against else ()
    assert world.replay("--decisions", str(right), *words) == 0
    assert "recorded decisions came out again" in "".join(capsys.readouterr())
    world.out.unlink()
    right.write_bytes(right.read_bytes().replace(b'"mutations":6', b'"mutations":7', 1))
    assert world.replay("--decisions", str(right), *words) == 1
    assert "not trusted" in capsys.readouterr().err and not world.out.exists()


class _Page(HTMLParser):
    """What a page loads, and its tags that are never closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what would be fetched."""
        self.loads += [f"{tag} {name}" for name, _ in attrs if name in ("src", "href", "srcset", "action")]
        assert tag not in ("script", "link", "iframe")

    def handle_data(self, data: str) -> None:
        """Gather what is read."""
        self.words += data


def test_the_page_needs_nothing_from_elsewhere(world: World) -> None:
    """No script, nothing to fetch; names are text, whatever they hold."""
    file = world.folder / "report.html"
    after = policies_of(world.folder, "tried.yaml", **quotas_of(alice=1, **{"bob <&>": 1e-3}))
    assert world.replay("--against", after, world.after, "--report", str(file)) == 0
    text = file.read_text()
    page = _Page(text)
    assert page.loads == [] and "url(" not in text and "@import" not in text
    assert "user=bob %3C&>" in page.words and "What tried.yaml would change" in page.words
    assert "What after.yaml would change" in page.words
