"""Every command with every kind of wrong file and folder: one line that names it, and never a traceback."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from wrong_paths import GOOD_EVENTS, GOOD_POLICIES, WrongPaths, terminal

from streaming.contract.errors import WeirError
from streaming.contract.printable import printable
from streaming.log import reading
from streaming.policy.yaml import lines
from weir import cli
from weir.imports import reading as imported
from weir.paths import check_readable, check_writable

NOBODY: Final = ("--kafka", "127.0.0.1:1")
"""Asked only by a command that has looked at its files too late: it would wait, and name this."""
ANYWHERE: Final = ("--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--metrics", "127.0.0.1:0")
SIMULATED: Final = ("--seconds", "2", "--slow-at", "0", "--slow-for", "1")
NOT_BEFORE: Final = ("endless device", "memory")
"""What shows only when it is read; events are read as they are sent."""
DAMAGED: Final = ("half.gz", "damaged.gz", "no.gz", "no.parquet")
READ, EVENTS, TOKEN, OPENED = "read", "events", "token", "opened"
WRITE, READY, FOLDER = "write", "ready", "folder"
OPTIONS: Final = (
    *((command, "--settings", READ, NOBODY) for command in (
        "up", "demo", "tail", "backlog", "policy get", "policy log", "job", "proxy", "admin", "collect",
        "collect kafka", "collect pulsar", "doctor", "top",
    )),
    ("bill", "--settings", READ, (*NOBODY, "--from", "-1h", "--to", "now")),
    ("explain", "--settings", READ, (*NOBODY, "--id", "a")),
    ("policy mode", "--settings", READ, (*NOBODY, "track")),
    ("send", "--settings", READ, (*NOBODY, "EVENTS")),
    ("policy apply", "--settings", READ, (*NOBODY, "POLICIES")),
    ("dump", "--settings", READ, (*NOBODY, "--out", "OUT")),
    ("replay", "--settings", READ, ("--from-kafka", NOBODY[1], "--policies", "POLICIES", "--out", "OUT")),
    ("up", "--policies", READ, NOBODY),
    ("demo", "--policies", READ, NOBODY),
    ("policy check", "file", READ, ()),
    ("policy apply", "file", READ, NOBODY),
    ("policy explain", "--policies", READ, ("--user", "u")),
    ("replay", "--policies", READ, ("--events", "EVENTS", "--out", "OUT")),
    ("replay", "--against", READ, ("--policies", "POLICIES", "--events", "EVENTS", "--out", "OUT")),
    ("simulate concurrency", "--policies", READ, (*SIMULATED, "--partition", "p", "--out", "OUT")),
    ("simulate failures", "--policies", READ, ("--events", "EVENTS")),
    ("job", "--candidate", READ, NOBODY),
    ("admin", "--tokens", READ, NOBODY),
    ("healthy", "ready_file", READ, ()),
    ("collect pulsar", "--token-file", TOKEN, (*NOBODY, "--admin", "http://127.0.0.1:1")),
    ("pulsar", "--token-file", TOKEN, ("--data", "FOLDER")),
    ("replay", "--events", EVENTS, ("--policies", "POLICIES", "--out", "OUT")),
    ("replay", "--decisions", EVENTS, ("--policies", "POLICIES", "--events", "EVENTS", "--out", "OUT")),
    ("simulate failures", "--events", EVENTS, ("--policies", "POLICIES")),
    ("explain", "--events", EVENTS, ("--id", "a", "--decisions", "EVENTS")),
    ("explain", "--decisions", EVENTS, ("--id", "a", "--events", "EVENTS")),
    ("send", "files", OPENED, NOBODY),
    ("import kafka-request-log", "files", READ, ("--out", "OUT")),
    ("import pulsar-access-log", "files", READ, ("--out", "OUT")),
    ("import kafka-request-log", "--policies", READ, ("--out", "OUT", "EVENTS")),
    ("import kafka-request-log", "--settings", READ, ("--out", "OUT", "EVENTS")),
    ("propose", "--events", EVENTS, ("--out", "OUT")),
    ("propose", "--policies", READ, ("--events", "EVENTS", "--out", "OUT")),
    ("propose", "--settings", READ, ("--from-kafka", NOBODY[1], "--out", "OUT")),
    ("state show", "--settings", READ, ()),
    ("replay", "--out", WRITE, ("--policies", "POLICIES", "--events", "EVENTS")),
    ("replay", "--dead-letters", WRITE, ("--policies", "POLICIES", "--events", "EVENTS", "--out", "OUT")),
    ("replay", "--summary", WRITE, ("--policies", "POLICIES", "--events", "EVENTS", "--out", "OUT")),
    ("replay", "--report", WRITE, (
        "--policies", "POLICIES", "--events", "EVENTS", "--out", "OUT", "--against", "POLICIES",
    )),
    ("propose", "--out", WRITE, ("--events", "EVENTS")),
    ("propose", "--dead-letters", WRITE, ("--events", "EVENTS", "--out", "OUT")),
    ("dump", "--out", WRITE, NOBODY),
    *(
        (f"import {log}", option, WRITE, ("--out", "OUT", "EVENTS"))
        for log in ("kafka-request-log", "pulsar-access-log") for option in ("--out", "--dead-letters")
    ),
    ("simulate concurrency", "--out", WRITE, SIMULATED),
    ("simulate failures", "--out", WRITE, ("--policies", "POLICIES", "--events", "EVENTS")),
    *((command, "--ready-file", READY, (*NOBODY, *ANYWHERE)) for command in ("up", "demo")),
    *((command, "--ready-file", READY, NOBODY) for command in (
        "job", "proxy", "admin", "collect", "collect kafka", "collect pulsar",
    )),
    ("kafka", "--ready-file", READY, ("--data", "FOLDER", "--port", "0")),
    ("pulsar", "--ready-file", READY, ("--data", "FOLDER", "--port", "0")),
    ("kafka", "--data", FOLDER, ("--port", "0")),
    ("pulsar", "--data", FOLDER, ("--port", "0")),
    ("up", "--data", FOLDER, (*NOBODY, *ANYWHERE)),
    ("demo", "--data", FOLDER, (*NOBODY, *ANYWHERE)),
    ("job", "--log-dir", FOLDER, NOBODY),
    ("job", "--checkpoint", FOLDER, (*NOBODY, "--log-dir", "FOLDER")),
)  # fmt: skip
"""Command, option, what its path is for, and further words."""


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WrongPaths]:
    """One folder of them for all."""
    with terminal() as device:
        yield WrongPaths(tmp_path_factory.mktemp("wrong"), device)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is too large is so sooner: endless devices and bombs took two thirds of the time."""
    for module, bound in ((reading, "LINE_MAX"), (imported, "LINE_MAX"), (lines, "MAX_FILE_BYTES")):
        monkeypatch.setattr(module, bound, 2**20)
    # Less than a line may be long.
    monkeypatch.setattr(reading, "READ_AT_ONCE", 2**19)
    monkeypatch.setattr(lines, "FREE_NODES", 1_000)


def paths(wrong: WrongPaths, purpose: str) -> dict[str, str]:
    """What is wrong for it."""
    return {
        READ: wrong.unreadable | wrong.contents | {"pipe": wrong.pipe},
        EVENTS: wrong.unreadable | {name: wrong.contents[name] for name in DAMAGED},
        TOKEN: wrong.unreadable,
        OPENED: {kind: wrong.unreadable[kind] for kind in wrong.unreadable if kind not in NOT_BEFORE},
        WRITE: wrong.unwritable,
        READY: wrong.no_plain_file,
        FOLDER: wrong.no_folder,
    }[purpose]


def run(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit status, and what is said."""
    capsys.readouterr()
    try:
        status = cli.main(words)
    except SystemExit as ended:
        status = int(ended.code or 0)
    return status, capsys.readouterr().err


@pytest.mark.parametrize("each", OPTIONS, ids=[f"{one[0]} {one[1]}" for one in OPTIONS])
@pytest.mark.parametrize("count", [8, pytest.param(1, marks=pytest.mark.soak)], ids=["some", "all"])
def test_a_wrong_path_is_named_in_words(
    each: tuple[str, ...], count: int, wrong: WrongPaths, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Before anything is started or asked, with status 1 or 2."""
    monkeypatch.chdir(tmp_path)
    command, option, _, more = each
    good = {"POLICIES": GOOD_POLICIES, "EVENTS": GOOD_EVENTS}
    for name, content in good.items():
        (tmp_path / name).write_bytes(content)
    found = []
    # Each so-manieth of what is wrong for an option; for those of one purpose together, all.
    alike = [one for one in OPTIONS if one[2] == each[2]]
    step = min(count, len(alike))
    for kind, path in list(paths(wrong, each[2]).items())[alike.index(each) % step :: step]:
        words = [*command.split(), *more, *([option] if option.startswith("-") else []), path]
        with wrong.written(path):
            status, said = run(words, capsys)
        if status not in (1, 2) or "Traceback" in said or printable(path.split("\n")[0]) not in said:
            found.append(f"{kind}: status {status}: {said[-500:]}")
        assert "127.0.0.1:1 " not in said, f"{kind}: it was started: {said}"
    assert not found, "\n".join(found)


def test_lines_that_are_no_events_are_dead_letters(
    wrong: WrongPaths, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever stands in an event file: the replay is done, and says how many."""
    (tmp_path / "policies").write_bytes(GOOD_POLICIES)
    for name, path in wrong.contents.items():
        words = ["--policies", str(tmp_path / "policies"), "--events", path, "--out", str(tmp_path / "out")]
        status, said = run(["replay", *words], capsys)
        assert status == (1 if name in DAMAGED else 0) and "Traceback" not in said, said


def test_every_option_that_takes_a_path_is_tried() -> None:
    """Of all commands, by what the parser says of them."""
    there = set()

    def walk(parser: argparse.ArgumentParser, command: str) -> None:
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for name, one in action.choices.items():
                    walk(one, f"{command} {name}".strip())
            elif action.type is Path or action.metavar in ("FILE", "DIR"):
                there.add((command, (action.option_strings or [action.dest])[0]))

    walk(cli.build_parser(None), "")
    assert there == {(command, option) for command, option, *_ in OPTIONS}


def test_an_empty_word_is_no_file_to_write() -> None:
    """As of a variable that is not set, in `--out "$OUT"`: a replay found out when it was done."""
    with pytest.raises(WeirError, match=r"^: cannot be written: Is a directory$"):
        check_writable("")


def test_a_device_is_written_to_and_stays(wrong: WrongPaths, tmp_path: Path) -> None:
    """Root could replace it by a file: /dev/stdout and /dev/null are no drafts' places."""
    from streaming.log.writing import write_lines

    with terminal() as device:
        write_lines(device, [])
        assert Path(device).is_char_device()
    link, target = tmp_path / "link", tmp_path / "target"
    link.symlink_to(target)
    write_lines(str(link), [b"{}"])
    assert link.is_symlink() and target.read_bytes() == b"{}\n"
    assert {one.name for one in tmp_path.iterdir()} == {"link", "target"}


def test_what_cannot_be_a_path_is_said() -> None:
    """A name from a file may hold a null."""
    with pytest.raises(WeirError, match="cannot be read: embedded null"):
        check_readable("a\0b")


def test_a_file_that_fails_under_way_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """What no command has thought of: a full disk, a file that goes."""

    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device", "/var/x")

    monkeypatch.setattr("weir.health.check_health", fails)
    assert run(["healthy", str(tmp_path / "x")], capsys) == (1, "weir: /var/x: No space left on device\n")


@pytest.mark.parametrize(
    "words",
    [
        ("replay", "--policies", "POLICIES", "--events", "EVENTS", "--out", "EVENTS"),
        ("replay", "--policies", "POLICIES", "--events", "EVENTS", "--out", "OUT", "--summary", "POLICIES"),
        ("replay", "--policies", "POLICIES", "--events", "EVENTS", "--against", "MORE", "--out", "OUT",
         "--report", "MORE"),
        ("propose", "--events", "EVENTS", "--policies", "POLICIES", "--out", "POLICIES"),
        ("simulate", "failures", "--policies", "POLICIES", "--events", "EVENTS", "--out", "EVENTS"),
        ("simulate", "concurrency", "--policies", "POLICIES", "--partition", "p", "--out", "POLICIES"),
        ("import", "kafka-request-log", "EVENTS", "--out", "EVENTS"),
        ("import", "kafka-request-log", "EVENTS", "--policies", "POLICIES", "--out", "POLICIES"),
    ],
)  # fmt: skip
def test_what_is_read_is_not_written(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A slip must not cost anybody their log or policies, under whatever name."""
    texts = {"EVENTS": GOOD_EVENTS, "POLICIES": GOOD_POLICIES, "MORE": GOOD_POLICIES}
    for name, text in texts.items():
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    (tmp_path / "link").symlink_to(tmp_path / words[-1])
    before = {name: (tmp_path / name).read_bytes() for name in texts}
    given = [str(tmp_path / word) if word in (*texts, "OUT") else word for word in words]
    for last in (given[-1], str(tmp_path / "link")):
        assert cli.main([*given[:-1], last]) == 1
        said = f"weir: {last}: cannot be written: it is read, too; name another file"
        assert said in capsys.readouterr().err
    assert before == {name: (tmp_path / name).read_bytes() for name in texts}


@pytest.mark.parametrize(
    "words", [("replay", "--policies", "POLICIES", "--events"), ("import", "kafka-request-log")]
)
def test_a_draft_is_not_what_is_read(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """As one that a killed command has left: it was written over and gone, though nothing came of it."""
    monkeypatch.chdir(tmp_path)
    Path("POLICIES").write_bytes(GOOD_POLICIES)
    left = Path("log.partial")
    left.write_bytes(GOOD_EVENTS)
    assert cli.main([*words, str(left), "--out", "log"]) == 1
    assert "log.partial: cannot be written: it is read, too; name another file" in capsys.readouterr().err
    assert left.read_bytes() == GOOD_EVENTS
