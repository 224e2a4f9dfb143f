"""`weir state show` on the checkpoint of a real job: what it says is so, and it changes nothing."""

import hashlib
import json
import os
import shutil
import signal
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import orjson
import pytest
from bench_kit import PACKED, Bench, bench
from job_broker_kit import TOPICS, Event
from law_kit import quota, request
from pack_kit import rows_of
from stack_kit import until

from streaming.columns.packed import pack
from streaming.job.checkpoint_name import LAYOUT
from weir import cli

pytestmark = pytest.mark.soak

USERS = 4_000
"""Their rows are more than a body carries by itself."""
SETTINGS = """\
job:
  tick_interval_ms: 1000
  spark_conf:
    spark.sql.streaming.stateStore.minDeltasForSnapshot: "2"
    spark.sql.streaming.stateStore.maintenanceInterval: 200ms
"""


def asked(user: str) -> Event:
    """A request of a user for one partition."""
    fields = request(f"of-{user}", 0, 1, subject=f"user={user}", user=user, strict=True)
    return {name: value for name, value in fields.items() if name != "ts"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A job that has decided for many users, in enough batches for a snapshot of its state."""
    with bench(tmp_path_factory.mktemp("shown"), SETTINGS) as running:
        running.tell({"quotas[user=<default>]": quota(1, 9)})
        running.job.start()
        for value in pack("request", rows_of([asked(f"u{number}") for number in range(USERS)])):
            running.write(TOPICS.requests, value, headers=PACKED)
        running.until(lambda found: len(found) >= USERS)
        until(lambda: list(base(running).glob("*/state/0/0/*.snapshot")), what="a snapshot")
        yield running


def base(made: Bench) -> Path:
    """The folder of its checkpoints."""
    return made.job.log.parent / "checkpoint"


def shown(capsys: pytest.CaptureFixture[str], *words: object) -> Any:
    """What it says as JSON of the one checkpoint."""
    assert cli.main(["state", "show", "--json", *map(str, words)]) == cli.DONE
    (one,) = orjson.loads(capsys.readouterr().out)
    return one


def digests(folder: Path) -> dict[str, str]:
    """Every file of a folder and what is in it."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_it_says_what_is_there(made: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    """While the job runs, and when it has ended: offsets as the topics', all users, what wrote it."""
    running = shown(capsys, base(made))
    assert running["layout"] == LAYOUT and running["note"]["weir"] == version("weir")
    assert not running["note"]["left"]
    assert made.job.end(signal.SIGTERM) == 0
    before = digests(base(made))
    one = shown(capsys, base(made))
    assert one == shown(capsys, one["path"]) and digests(base(made)) == before
    assert one["batch"] >= running["batch"] and one["note"]["left"]
    read = {topic: sum(partitions.values()) for topic, partitions in one["offsets"].items()}
    assert read[TOPICS.policies] == 1 and 0 < read[TOPICS.requests] < USERS and read[TOPICS.usage] > 0
    laws = {shard["law"]: shard for shard in one["shards"]}
    assert set(laws) == {"mutation", "shares", "dispatch", "concurrency", "backlog"}
    assert laws["mutation"]["subjects"] + laws["mutation"]["resting"] == USERS
    assert laws["mutation"]["segments"] > 0 and laws["mutation"]["segment_bytes"] > 0
    assert cli.main(["state", "show", str(base(made))]) == cli.DONE
    text = capsys.readouterr().out
    assert f"layout {LAYOUT}, written by Weir {version('weir')} (pid" in text and "weir.policies" in text


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda path: shutil.rmtree(path / "commits"), "has no complete batch; expected one in commits/"),
        (lambda path: path.rename(path.with_name("v6-shards1-partitions1")), "holds v6-shards1-"),
        (lambda path: shutil.rmtree(path), f"holds no checkpoint; expected a checkpoint of layout {LAYOUT}"),
        (lambda path: _each(path, "state/0/0/*.*"), "cannot be read (it has no blocks of LZ4)"),
        (lambda path: _each(path, "state/0/0/*.*", None), ".delta is missing; the checkpoint is damaged"),
        (lambda path: shutil.rmtree(path / "state"), ".delta is missing; the checkpoint is damaged"),
        (lambda path: _each(path, "segments/*/*", None), "missing"),
        (lambda path: _each(path, "segments/*/*"), "does not hold what its name says"),
        (lambda path: Path(f"{path}.pid").unlink() or Path(f"{path}.pid").mkdir(), "Is a directory"),
        (lambda path: _each(path, "offsets/*", b"v2\n{}"), "cannot be read (it is of version b'v2'"),
        (lambda path: _each(path, "offsets/*", b'v1\n{"batchTimestampMs":1e30}'), "its batch has no time"),
        (lambda path: _each(path, "offsets/*", b"v1\n[]"), "cannot be read ("),
        (lambda path: _each(path, "offsets/*", b'v1\n{"batchTimestampMs":1,"conf":[]}'), "no configuration"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_one_line(
    made: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: Any, told: str
) -> None:
    """Status 1, what was found and what was expected."""
    copy = tmp_path / "a\x1b[2Kcopy"
    shutil.copytree(base(made), copy)
    (path,) = (path for path in copy.iterdir() if path.is_dir())
    damage(path)
    capsys.readouterr()
    assert cli.main(["state", "show", str(copy)]) == cli.FAILED
    said = capsys.readouterr()
    assert told in said.err and said.err.startswith("weir: ") and said.err.count("\n") == 1
    assert "\x1b" not in said.err and said.out == ""


def test_one_that_cannot_be_read_hides_no_other(
    made: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line in its place, and status 1."""
    shutil.copytree(base(made), tmp_path, dirs_exist_ok=True)
    (path,) = (path for path in tmp_path.iterdir() if path.is_dir())
    (tmp_path / f"v{LAYOUT}-shards7-partitions7").mkdir()
    for words, shown in (([], f"{path}\nlayout "), (["--json"], f'[{{"path": "{path}"')):
        assert cli.main(["state", "show", *words, str(tmp_path)]) == cli.FAILED
        said = capsys.readouterr()
        assert said.out.startswith(shown) and "-shards7-partitions7 has no complete batch" in said.err


def test_a_strange_path_and_note_are_json(
    made: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names that are not UTF-8, numbers beyond 64 bits."""
    copy = Path(os.fsdecode(bytes(tmp_path) + b"/\xff"))
    shutil.copytree(base(made), copy)
    (note,) = copy.glob("*.pid")
    note.write_text(json.dumps(json.loads(note.read_text()) | {"host": "\udcff", "pid": 2**70}))
    assert cli.main(["state", "show", "--json", str(copy)]) == cli.DONE
    (one,) = json.loads(capsys.readouterr().out)
    assert one["path"] == str(note.with_suffix("")) and one["note"]["host"] == "\udcff"
    assert one["note"]["pid"] == 2**70


def test_a_state_that_spark_alone_reads_is_said(
    made: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All the rest is shown."""
    shutil.copytree(base(made), tmp_path, dirs_exist_ok=True)
    for file in tmp_path.glob("*/offsets/[0-9]*"):
        file.write_text(file.read_text().replace("HDFSBackedStateStoreProvider", "RocksDBStateStoreProvider"))
    one = shown(capsys, tmp_path)
    assert one["shards"] == [] and "RocksDBStateStoreProvider" in one["unread"] and one["offsets"]


def test_a_uri_is_not_read(capsys: pytest.CaptureFixture[str]) -> None:
    """It says how to come by a folder."""
    assert cli.main(["state", "show", "s3a://weir/checkpoint"]) == cli.FAILED
    assert "s3a://weir/checkpoint: expected a folder; copy it" in capsys.readouterr().err


def _each(path: Path, which: str, content: bytes | None = b"x" * 30) -> None:
    """Have this content in these files; None: have none of them."""
    for file in path.glob(which):
        if content is None:
            file.unlink()
        else:
            file.write_bytes(content)
