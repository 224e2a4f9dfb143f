"""Set-up takes no jar but those whose SHA-256 is committed beside its pom."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from weir.stack.jars import jars_dir

ROOT = Path(__file__).resolve().parents[2]
# In place of Maven: what it would fetch lies in $FETCHED.
MVN = """#!/bin/sh
for word in "$@"; do case $word in -DoutputDirectory=*) cp "$FETCHED"/* "${word#*=}" ;; esac; done
"""


class SetUp:
    """A pom with two jars, pinned, and a Maven that hands out what lies in `fetched`."""

    def __init__(self, folder: Path) -> None:
        self.fetched, self.conf, self.jars = folder / "fetched", folder / "conf", folder / "jars"
        for made in (self.fetched, self.conf, folder / "bin"):
            made.mkdir()
        (self.conf / "pom.xml").touch()
        mvn = folder / "bin" / "mvn"
        mvn.write_text(MVN)
        mvn.chmod(0o755)
        self._environment = {
            **os.environ,
            "PATH": f"{mvn.parent}:{os.environ['PATH']}",
            "FETCHED": str(self.fetched),
        }
        for name in ("a.jar", "b.jar"):
            (self.fetched / name).write_text(name)
        assert self.run("--pin", str(self.conf / "pom.xml"))[0] == 0

    def run(self, *words: str) -> tuple[int, str]:
        """Exit status and what it complains about."""
        command = [str(ROOT / "scripts" / "fetch-jars.sh"), *words]
        done = subprocess.run(
            command, env=self._environment, capture_output=True, text=True, timeout=20, check=False
        )
        return done.returncode, done.stderr

    def fetch(self) -> tuple[int, str]:
        """What `make setup` does."""
        return self.run(str(self.conf / "pom.xml"), str(self.jars))


@pytest.fixture
def setup(tmp_path: Path) -> SetUp:
    return SetUp(tmp_path)


def test_pinned_jars_are_taken(setup: SetUp) -> None:
    """The list is that of sha256sum."""
    assert setup.fetch() == (0, "")
    assert (setup.jars / ".fetched").exists()
    assert {path.name for path in setup.jars.glob("*.jar")} == {"a.jar", "b.jar"}
    lines = [f"{hashlib.sha256(name.encode()).hexdigest()}  {name}\n" for name in ("a.jar", "b.jar")]
    assert (setup.conf / "jars.sha256").read_text() == "".join(lines)


def test_a_damaged_jar_stops_set_up(setup: SetUp) -> None:
    """It is named, nothing of that fetch stays, and what was there before does."""
    setup.fetch()
    (setup.fetched / "b.jar").write_text("b.jaR")
    status, said = setup.fetch()
    assert status == 1
    assert f"b.jar has SHA-256 {hashlib.sha256(b'b.jaR').hexdigest()}, expected" in said
    assert "a.jar" not in said and "--pin" in said
    assert (setup.jars / "b.jar").read_text() == "b.jar"
    assert not Path(f"{setup.jars}.new").exists()


def test_a_jar_too_many_or_too_few_stops_set_up(setup: SetUp) -> None:
    """A changed pom, or a registry that names other dependencies."""
    shutil.move(setup.fetched / "b.jar", setup.fetched / "c.jar")
    status, said = setup.fetch()
    assert status == 1
    assert "c.jar is not in" in said and "b.jar was not fetched" in said
    assert not setup.jars.exists()


@pytest.mark.parametrize("kind", ["kafka", "spark"])
def test_jars_in_use_are_the_pinned_ones(kind: str) -> None:
    """What make setup left is what is committed."""
    digests = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in jars_dir(kind).glob("*.jar")
    }
    lines = (ROOT / "conf" / kind / "jars.sha256").read_text().splitlines()
    assert digests == {name: digest for digest, name in (line.split() for line in lines)}
