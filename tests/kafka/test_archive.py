"""Archives of Java classes: used when they fit, left alone without a word when they do not."""

import subprocess
from pathlib import Path

import pytest

from streaming.job.spark.class_archive import archiving, forget, keep, shared_classes
from weir.jars.folders import jars_dir
from weir.jars.java import java_command

LIMIT_S = 60.0
ARCHIVED = "source: shared objects file (top)"
"""What Java's log of loaded classes says of one that comes from the archive of a program."""


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The jars of Kafka in a folder without an archive."""
    folder = tmp_path / "kafka"
    folder.mkdir()
    for jar in jars_dir("kafka").glob("*.jar"):
        (folder / jar.name).symlink_to(jar)
    monkeypatch.setenv("WEIR_JARS", str(tmp_path))
    return folder


def a_tool(*options: str) -> "subprocess.CompletedProcess[str]":
    """Run a small tool of Kafka, which prints a UUID."""
    command = java_command("kafka.tools.StorageTool", "random-uuid", options=options)
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=True)


@pytest.mark.soak
def test_classes_come_from_the_archive(jars: Path) -> None:
    """Once it is kept; before, nothing is asked of Java."""
    assert shared_classes(jars) == [] and not keep(jars)
    a_tool(*archiving(jars))
    assert shared_classes(jars) == []
    assert keep(jars) and shared_classes(jars)
    assert ARCHIVED in a_tool("-Xlog:class+load").stdout
    forget(jars)
    assert shared_classes(jars) == []


@pytest.mark.soak
@pytest.mark.parametrize("damage", ["no archive", "other jars"])
def test_an_archive_that_does_not_fit_is_left_alone(jars: Path, damage: str) -> None:
    """The program runs as if there were none, and says nothing of it."""
    without = a_tool(*archiving(jars)).stderr
    assert keep(jars)
    archive = jars / "classes.jsa"
    if damage == "no archive":
        archive.unlink()
        archive.write_bytes(bytes(1_000))
    else:
        for jar in jars.glob("kafka_*.jar"):
            target = jar.resolve()
            jar.unlink()
            jar.write_bytes(target.read_bytes())
    done = a_tool()
    assert len(done.stdout.strip()) == 22 and done.stderr == without
    assert ARCHIVED not in a_tool("-Xlog:class+load").stdout
