"""docs/contract.md says what the code does: its policies, events, decisions and dead letters are tried here.

A block is named by the bold line above it, such as **Events:**. Events are replayed under the last policies
above them; decisions, dead letters and totals belong to the last events above them.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson
import pytest
from each_kit import each

from streaming.contract.backlog.actions import STEPS, TYPE, backlog_action
from streaming.contract.errors import ConfigError
from streaming.policy.files import load_policies
from streaming.replay import ReplayResult, replay_local, summarise
from weir.cli import COMMANDS, build_parser
from weir.settings_file import SECTIONS

ROOT: Final = Path(__file__).resolve().parents[2]
DOC: Final = ROOT / "docs" / "contract.md"
_BLOCK: Final = re.compile(r"^\*\*([A-Z][a-z ]+):\*\*\n\n```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FENCE: Final = re.compile(r"^```(\w*)\n", re.MULTILINE)
_SETTING: Final = re.compile(rf"`({'|'.join(name for name, _ in SECTIONS)})\.(\w+)(?:: \w+)?`")
_COMMAND: Final = re.compile(r"`(weir(?: [a-z][a-z-]*)+)((?: [^`]*)?)`")
_CITED: Final = re.compile(r"docs/(\w+\.md) (\d(?:\.\d)?)")
_TYPES: Final = (
    "request", "refund", "alive", "policy", "group_usage", "tick", "dispatch_usage", "latency", "backlog",
)  # fmt: skip


@dataclass(slots=True)
class Example:
    """Events of the page and what they give.

    Attributes:
        line: where the events begin, for the reader of a failure.
        policies: the file that they go with.
        events: lines of an event file.
        given: name of a block -> its lines.
    """

    line: int
    policies: str
    events: str
    given: dict[str, list[str]] = field(default_factory=dict)


def blocks() -> Iterator[tuple[int, str, str]]:
    """Line, name and text of every named block of the page."""
    page = DOC.read_text()
    for found in _BLOCK.finditer(page):
        yield page.count("\n", 0, found.start()) + 1, found[1], found[3]


def examples() -> list[Example]:
    """The events of the page, each with the policies above and what follows."""
    found: list[Example] = []
    policies = ""
    for line, name, text in blocks():
        if name == "Policies":
            policies = text
        elif name == "Events":
            found.append(Example(line, policies, text))
        elif name in ("Decisions", "Dead letters", "Summary"):
            found[-1].given[name] = text.splitlines()
    return found


def policy_texts(name: str) -> list[tuple[int, str]]:
    """Line and text of the policy files under this name."""
    return [(line, text) for line, called, text in blocks() if called == name]


def replayed(example: Example, folder: Path) -> ReplayResult:
    """What the local engine makes of an example; what proxies have decided in it stands."""
    policies, events = folder / "policies.yaml", folder / "events.jsonl"
    policies.write_text(example.policies)
    events.write_text(example.events)
    return replay_local(str(policies), [str(events)], as_decided=True)


def test_every_block_has_a_name() -> None:
    """No JSON or YAML of the page escapes these tests."""
    assert len(list(blocks())) == len(_FENCE.findall(DOC.read_text())) // 2 > 30


@each("line,text", policy_texts("Policies"))
def test_policies_pass_the_check(tmp_path: Path, line: int, text: str) -> None:
    """Every policy file shown is accepted."""
    file = tmp_path / "policies.yaml"
    file.write_text(text)
    load_policies(str(file))


def test_refused_policies_give_the_problems_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Line, key and message of each problem, as `weir policy check` prints them."""
    monkeypatch.chdir(tmp_path)
    (_, text), (_, problems) = policy_texts("Refused") + policy_texts("Problems")
    Path("policies.yaml").write_text(text)
    with pytest.raises(ConfigError) as refused:
        load_policies("policies.yaml")
    assert str(refused.value) == problems.rstrip("\n")


@each("example", examples())
def test_events_give_exactly_what_is_shown(tmp_path: Path, example: Example) -> None:
    """Every decision and dead letter that follows the events, byte for byte, and no other."""
    given = replayed(example, tmp_path)
    if "Summary" in example.given:
        shown: Any = orjson.loads("\n".join(example.given["Summary"]))
        assert summarise(given.decisions) == shown
    else:
        assert [line.decode() for line in given.decisions] == example.given.get("Decisions", [])
    assert [line.decode() for line in given.dead_letters] == example.given.get("Dead letters", [])


def actions() -> list[str]:
    """The lines of the page that log what was done about backlogs."""
    return [line for _, called, text in blocks() if called == "Actions" for line in text.splitlines()]


def test_actions_are_written_as_shown() -> None:
    """Read and written again, byte for byte, by the module that logs them."""
    assert actions()
    for line in actions():
        assert orjson.dumps(backlog_action(orjson.loads(line)).fields()).decode() == line


def test_the_steps_and_fields_of_actions_are_described() -> None:
    """In their own table, since some of the names mean other things elsewhere."""
    table = DOC.read_text().partition("Who acts logs it")[2].partition("**Actions:**")[0]
    described = set(re.findall(r"`(\w+)`", table))
    assert {field for line in actions() for field in orjson.loads(line)} - {"type"} <= described
    assert {*STEPS, TYPE} <= described


def test_every_type_has_an_example() -> None:
    """Each type of event and of decision is shown at least once."""
    events = "".join(example.events for example in examples())
    decisions = "".join("".join(example.given.get("Decisions", [])) for example in examples())
    for name in _TYPES:
        assert f'{{"type":"{name}"' in events
    for name in ("admission", "share", "dispatch", "limit", "backlog"):
        assert f'{{"type":"{name}"' in decisions


def test_fields_of_the_events_shown_are_described() -> None:
    """Who reads an example finds each of its fields in the text, and so the meaning of it."""
    page = DOC.read_text()
    described = set(re.findall(r"`(?:\w+\[\]\.)?(\w+)`", page))
    for example in examples():
        lines = [*example.events.splitlines(), *example.given.get("Decisions", [])]
        for line in filter(lambda line: line.startswith("{"), lines):
            assert set(orjson.loads(line)) <= described


@each("page", sorted((ROOT / "docs").rglob("*.md")))
def test_settings_that_the_pages_name_exist(page: Path) -> None:
    """A setting that is renamed, or goes, must do so here; two names are a log and a cursor of Pulsar's."""
    known = {(name, setting) for name, cls in SECTIONS for setting in cls.model_fields}
    named = set(_SETTING.findall(page.read_text())) - {("pulsar", "log"), ("pulsar", "dedup")}
    assert page != DOC or len(named) > 5
    assert named <= known


def test_commands_that_the_page_names_exist() -> None:
    """Each command in a code span is known, and so are all of its options."""
    parser = build_parser(None)
    for words, rest in _COMMAND.findall(DOC.read_text()):
        names = words.split()[1:]
        if names[0] == "is":  # the line that says that the stack is ready
            continue
        assert names[0] in COMMANDS
        own: Any = parser
        for name in names:
            own = next(action.choices for action in own._actions if isinstance(action.choices, dict))[name]
        helps = own.format_help()
        for option in re.findall(r"--[a-z-]+", rest):
            assert option in helps, f"{words} {option}"


def test_sections_that_the_code_cites_exist() -> None:
    """`docs/contract.md 3.2` in a comment leads to a heading with that number."""
    cited = {
        found
        for folder in ("streaming", "enforcer", "weir", "benchmarks", "tests")
        for file in (ROOT / folder).rglob("*.py")
        for found in _CITED.findall(file.read_text())
    }
    assert cited
    for page, number in cited:
        heading = rf"^##+ {re.escape(number)}\.? "
        assert re.search(heading, (ROOT / "docs" / page).read_text(), re.MULTILINE), f"{page} {number}"
