"""The command `weir`: exit status, messages, and what it loads."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from import_kit import create

from streaming.contract.errors import ConfigError, Problem, TakenOver, WeirError
from streaming.job.spark.settings import JobSettings
from weir import cli
from weir.commands.job import _candidates, _overridden
from weir.commands.proxy import _addresses

IDLE = "backlog: {enabled: false}"
RULES = "http:\n  upstream: http://pulsar:8080\n  rules:\n  - method: PUT\n    path: topics"


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Any], int]], None]:
    """Puts a function in the place of every command."""

    def put(run: Callable[[Any], int]) -> None:
        module = SimpleNamespace(add_options=lambda parser: None, run=run)
        monkeypatch.setattr(cli, "import_module", lambda name: module)

    return put


def raising(error: BaseException) -> Callable[[Any], int]:
    """A command that fails so."""

    def run(args: Any) -> int:
        raise error

    return run


def problem(line: int, path: str = "a.b", message: str = "is wrong; right was expected") -> Problem:
    """Of a file."""
    return Problem(file="f.yaml", line=line, path=path, message=message)


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (
            ConfigError([problem(3), problem(5)]), 2,
            "f.yaml:3: a.b: is wrong; right was expected\nf.yaml:5: a.b: is wrong; right was expected\n",
        ),
        (WeirError("kafka is away"), 1, "weir: kafka is away\n"),
        # Whatever starts it again can leave that to the other one.
        (TakenOver("another one has taken over"), 3, "weir: another one has taken over\n"),
        # No message forges a line: of others than problems all but the first are indented.
        (
            ConfigError([problem(1, "a\nf.yaml:2: b", "is wrong\x1b[2K")]), 2,
            "f.yaml:1: a\\nf.yaml:2: b: is wrong\\x1b[2K\n",
        ),
        (WeirError("kafka ended:\nweir: done\x1b"), 1, "weir: kafka ended:\n  weir: done\\x1b\n"),
    ],
)  # fmt: skip
def test_failures_are_lines_with_a_status(
    error: Exception, status: int, said: str, command: Any, capsys: Any
) -> None:
    """One a problem, and no traceback for what we raise on purpose."""
    command(raising(error))
    assert cli.main(["up"]) == status
    assert capsys.readouterr().err == said


PRINTS = """
import sys
from types import SimpleNamespace
from streaming.contract.errors import TakenOver
from weir import cli

def run(args):
    if sys.argv[1] == "3":
        raise TakenOver("another one has taken over")
    print("limits")
    return int(sys.argv[1])

cli.import_module = lambda name: SimpleNamespace(add_options=lambda parser: None, run=run)
sys.exit(cli.main([*sys.argv[2:], "up"]))
"""
"""A command that prints a line and ends with a status; with 3 it says why."""


def ended(
    status: int, output: Any, errors: Any = subprocess.PIPE, also: Sequence[str] = ()
) -> tuple[int, str | None]:
    """Status and stderr of PRINTS, whose standard output goes there, and what it says of errors."""
    words = [sys.executable, "-c", PRINTS, str(status), *also]
    # Or each line would be written at once, and the first one end it.
    own = {**os.environ, "PYTHONUNBUFFERED": ""}
    done = subprocess.run(words, stdout=output, stderr=errors, text=True, timeout=30, check=False, env=own)
    return done.returncode, done.stderr


def test_a_stream_that_is_closed_is_nobodys(tmp_path: Path) -> None:
    """`weir replay --against ... >&-` was a traceback, and by its status 1 beyond the bounds; what was for a
    closed stderr went to stdout, and what libraries wrote there into a file that was opened since.
    """
    told = "import os, sys; print('to stderr', file=sys.stderr); print(sys.stdout.isatty(), 'to stdout');"
    opened = f"file = os.open({str(tmp_path / 'f')!r}, os.O_CREAT | os.O_WRONLY); os.write(2, b'of C')"
    run = PRINTS.replace('print("limits")', f"exec({f'{told} {opened}'!r})")
    for closed, said in ((">&-", ""), ("2>&-", "False to stdout\n"), ("<&- >&- 2>&-", "")):
        words = ["sh", "-c", f'"$@" {closed}', "sh", sys.executable, "-c", run, "0"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
        assert (done.returncode, done.stdout) == (0, said), done.stderr
        assert (tmp_path / "f").read_bytes() == b""


def test_names_of_any_letters_are_told_in_any_locale(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In one of Latin-1 those of a user in Cyrillic ended the command, a replay after its work."""
    (tmp_path / "p.yaml").write_text("version: 1\n")
    for encoding in ("latin-1", "ascii"):
        told = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", told)
            words = ["policy", "explain", "--policies", str(tmp_path / "p.yaml"), "--user", "ключ"]
            assert cli.main(words) == 0
        told.seek(0)
        assert "no quota applies to user 'ключ'" in told.read()


def test_a_full_disk_under_the_output_ends_with_1() -> None:
    """`weir policy get > policies.yaml`: Python tried once more at its exit, and ended with 120."""
    with Path("/dev/full").open("w") as full:
        assert ended(0, full) == (1, "weir: No space left on device\n")


@pytest.fixture
def unread() -> Iterator[int]:
    """A pipe that nobody reads any more."""
    read, write = os.pipe()
    os.close(read)
    yield write
    os.close(write)


@pytest.mark.parametrize(("status", "also"), [(0, []), (1, []), (0, ["--version"])])
def test_who_stops_reading_changes_no_status(unread: int, status: int, also: list[str]) -> None:
    """`weir doctor | head` has found an error all the same."""
    assert ended(status, unread, also=also) == (status, "")


def test_nor_does_who_stops_reading_what_is_wrong(unread: int) -> None:
    """`weir collect 2>&1 | logger`: whatever starts it again took a collector for failed, by status 1."""
    assert ended(3, subprocess.DEVNULL, unread) == (3, None)


def test_options_of_the_collector_may_stand_before_its_cluster() -> None:
    """As in the unit of systemd: what is absent behind the word does not undo them."""
    words = ["collect", "--settings", "f.yaml", "--once", "kafka", "--stand-by"]
    args = cli.build_parser("collect").parse_args(words)
    assert (args.settings, args.once, args.stand_by, args.kafka) == ("f.yaml", True, True, None)
    args = cli.build_parser("collect").parse_args(["collect", "--kafka", "h:1", "pulsar", "--push"])
    assert (args.kafka, args.settings, args.push, args.admin) == ("h:1", None, True, None)


def test_interrupt_is_no_traceback(
    command: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C where no command has taken over the signal, or while one is loaded."""
    command(raising(KeyboardInterrupt()))
    assert cli.main(["up"]) == 1
    monkeypatch.setattr(cli, "import_module", raising(KeyboardInterrupt()))
    assert cli.main(["up"]) == 1
    assert capsys.readouterr().err == "weir: interrupted\n" * 2


def test_brokers_of_a_list_may_stand_apart() -> None:
    """As librdkafka and Spark take them: a proxy looked for the host ` b`, so without `a` it had no Kafka."""
    found = _addresses("a:9092, b:9093 ,[::1]:9094", "--kafka")
    assert found == (("a", 9092), ("b", 9093), ("::1", 9094))


def test_workers_before_pulsar_share_what_one_was_told(tmp_path: Path, monkeypatch: Any) -> None:
    """Beside their ready files; a proxy alone has nobody to ask."""
    monkeypatch.setattr("weir.proxy_process.run_proxy", lambda make, _ready_file: make())
    signs = []
    monkeypatch.setattr("enforcer.pulsar.proxy.PulsarProxy", lambda config: signs.append(config.sign))
    words = ["proxy", "--kafka", "k:1", "--pulsar", "p:2", "--ready-file", str(tmp_path / "worker 1.json")]
    for more in ([], ["--worker"]):
        assert cli.main([*words, *more]) == 0
    assert signs == [None, tmp_path / "through"]


def test_an_empty_word_leaves_the_checkpoint_where_the_settings_have_it() -> None:
    """`weir job --checkpoint "$STATE"` without that variable kept it in `/`, which a container forgets."""
    words = ["job", "--checkpoint", "", "--master", ""]
    settings = _overridden(JobSettings(checkpoint_dir="/state"), cli.build_parser("job").parse_args(words))
    assert (settings.checkpoint_dir, settings.master) == ("/state", "local[*]")


def test_relative_times_need_no_equals_sign() -> None:
    """`--from -10m` is understood, although argparse takes a leading dash for an option."""
    words = cli.joined_times(["dump", "--from", "-10m", "--to", "-5s", "--out", "-"])
    args = cli.build_parser("dump").parse_args(words)
    assert args.end - args.start in range(594_000, 596_000)


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_help(name: str, capsys: Any) -> None:
    """`weir NAME --help` ends with 0 and names itself."""
    with pytest.raises(SystemExit) as ended:
        cli.main([name, "--help"])
    assert ended.value.code == 0
    assert f"usage: weir {name}" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["dump", "propose", "replay", "send"])
def test_who_reads_or_writes_event_files_says_that_columns_do(name: str, capsys: Any) -> None:
    """Of dump and send the help named lines alone."""
    with pytest.raises(SystemExit):
        cli.main([name, "--help"])
    assert ".parquet" in capsys.readouterr().out


def test_help_and_version_load_no_heavy_library() -> None:
    """A fresh interpreter shows the help of all commands without Spark, Kafka clients or Numba."""
    code = (
        "import sys; from weir.cli import build_parser; build_parser(None).format_help();"
        "heavy = {'pyspark', 'pandas', 'numba', 'kafka', 'confluent_kafka', 'uvloop'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    assert shown.stdout == "[]\n"


@pytest.mark.parametrize(
    ("command", "section", "told"),
    [
        ("proxy", "proxy: {advertise: 'h:9'}", "1: proxy.advertise: is the text 'h:9'; expected a host"),
        (
            "collect", f"{IDLE}\ncollect: {{quotas_from_kafka: false}}",
            "1: backlog.enabled: is false, and so is",
        ),
        ("collect pulsar --no-usage", IDLE, "1: backlog.enabled: is false, and --no-usage was given"),
        (
            "collect pulsar", "collect_pulsar: {admin: 'h:8080'}",
            "1: collect_pulsar.admin: is no address of an",
        ),
        ("dump --out x", "job: {checkpoint_dir: ''}", "1: job.checkpoint_dir: is the text ''; expected"),
        ("proxy --pulsar b:6650", "pulsar:\n  targets: none", "2: pulsar.targets"),
        ("admin", RULES, "4: http.rules[0].operation: is missing; expected a name"),
        ("admin", RULES, "5: http.rules[0].path: is no path of a rule; expected a path"),
        # A misspelt part would be another user than was meant.
        (
            "proxy", "kafka:\n  clients:\n    prxy: {sasl.username: weir-proxy}",
            "3: kafka.clients.prxy: is not a known key; expected proxy (did you mean that?)",
        ),
        # It was called --kafka, which nobody had given.
        ("proxy", "kafka: {bootstrap: broker1}", " kafka.bootstrap: 'broker1' is not HOST:PORT"),
    ],
)  # fmt: skip
def test_settings_that_no_part_can_go_by_end_with_2(
    command: str, section: str, told: str, tmp_path: Path, capsys: Any
) -> None:
    """With their line, before anything is asked."""
    file = tmp_path / "weir.yaml"
    file.write_text(f"{section}\n")
    assert cli.main([*command.split(), "--settings", str(file)]) == 2
    assert f"{file}:{told}" in capsys.readouterr().err


def test_what_a_pulsar_is_given_as() -> None:
    """An address or `local`; nothing by default."""
    parser = cli.build_parser("up")
    assert parser.parse_args(["up"]).pulsar is None
    assert parser.parse_args(["up", "--pulsar", "local"]).pulsar == "local"
    given = parser.parse_args(["up", "--pulsar", "h:6650", "--pulsar-admin", "http://h:8080/"])
    assert (given.pulsar, given.pulsar_admin) == ("h:6650", "http://h:8080")
    assert given.pulsar_listen == ("127.0.0.1", 16650)


def test_a_file_whose_name_is_not_utf_8_is_checked(tmp_path: Path, capsys: Any) -> None:
    """The line that says so ended in a traceback."""
    file = tmp_path / os.fsdecode(b"\xff.yaml")
    file.write_text("version: 1\n")
    assert cli.main(["policy", "check", str(file)]) == 0
    assert "\\udcff.yaml: no problems; entries: none" in capsys.readouterr().out


def test_names_of_files_that_are_not_utf_8_stand_in_json_as_in_messages(tmp_path: Path) -> None:
    """A replay and an import ended in a traceback, once an id, a dead letter or a report had such a name;
    a job with such a candidate failed in each batch.
    """

    def file(name: str, text: str) -> str:
        path = tmp_path / os.fsdecode(b"\xff" + name.encode())
        path.write_text(text)
        return str(path)

    policies, letters, told = file(".yaml", "version: 1\n"), tmp_path / "dead.jsonl", tmp_path / "told.json"
    asked = '{"type":"request","ts":1,"user":"alice","items":[{"name":"t","mutations":1}]}\n'
    words = ["replay", "--policies", policies, "--events", file(".jsonl", f"{asked}nonsense"), "--out"]
    words += [str(tmp_path / "out.jsonl"), "--dead-letters", str(letters), "--summary", str(told)]
    assert cli.main([*words, "--against", policies]) == 0
    assert b'"id":"\\\\udcff.jsonl:1"' in (tmp_path / "out.jsonl").read_bytes()
    assert json.loads(letters.read_bytes())["topic"] == "\\udcff.jsonl"
    assert json.loads(told.read_bytes())["name"] == "\\udcff.yaml"
    lines = file(".log", f"{create(0)}\nCompleted request: nonsense")
    words = ["import", "kafka-request-log", lines, "--dead-letters", str(letters), "--out"]
    assert cli.main([*words, str(tmp_path / "out.jsonl")]) == 0
    assert json.loads(letters.read_bytes())["topic"] == "\\udcff.log"
    (candidate,) = _candidates(cli.build_parser("job").parse_args(["job", "--candidate", policies]))
    assert candidate.name == "\\udcff"
