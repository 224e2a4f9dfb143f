"""Set-up takes no jar but those whose SHA-256 is committed beside its pom, by Maven or from a repository."""

import contextlib
import hashlib
import io
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from each_kit import each
from served import files_of
from threaded import until

from streaming.contract.errors import WeirError
from weir.jars import folders, installation
from weir.jars.__main__ import main
from weir.jars.folders import KINDS, POMS, jars_dir
from weir.jars.java import java_command
from weir.jars.pins import Pin, pins_of, written
from weir.jars.wait import Wait

ROOT = Path(__file__).resolve().parents[2]
# In place of Maven: what it would fetch lies in $FETCHED.
MVN = """#!/bin/sh
for word in "$@"; do case $word in
  -DoutputDirectory=*) into=${word#*=} ;;
  -Dmaven.repo.local=*) mkdir -p "${word#*=}/group/1" && cp "$FETCHED"/* "${word#*=}/group/1" ;;
esac; done
cp "$FETCHED"/* "$into"
"""
A, B = "group/1/a.jar", "group/1/b.jar"


class Rig:
    """A pom with two pinned jars, a Maven and a repository that hand out what lies in `fetched`."""

    def __init__(self, folder: Path) -> None:
        self.root, self.source, self.jars = folder / "repository", folder / "source", folder / "jars"
        self.fetched = self.root / "group" / "1"
        for made in (self.fetched, self.source, folder / "bin"):
            made.mkdir(parents=True)
        (self.source / "pom.xml").touch()
        self.maven = folder / "bin" / "mvn"
        self.maven.write_text(MVN)
        self.maven.chmod(0o755)
        for name in ("a.jar", "b.jar"):
            (self.fetched / name).write_text(name)
        self.said: list[str] = []
        pins = [Pin(path, hashlib.sha256(path[-5:].encode()).hexdigest()) for path in (A, B)]
        (self.source / "jars.sha256").write_text(written(pins))

    def environment(self) -> dict[str, str]:
        path = f"{self.maven.parent}:{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "FETCHED": str(self.fetched), "PYTHONPATH": str(ROOT)}

    def run(self, *words: str) -> tuple[int, str]:
        """What make does; exit status and what it complains about."""
        done = subprocess.run(
            [sys.executable, "-m", "weir.jars", *words], env=self.environment(), capture_output=True,
            text=True, timeout=20, check=False,
        )  # fmt: skip
        return done.returncode, done.stderr

    def fetch(self, repository: str = "") -> tuple[int, str]:
        """The same in this process: fetch, with Maven unless a repository is named."""
        words = ["weir.jars", "fetch", str(self.source), str(self.jars), "--repository", repository]
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(io.StringIO()) as said:
            patch.setattr(sys, "argv", words)
            for name in ("PATH", "FETCHED"):
                patch.setenv(name, self.environment()[name])
            return main(), said.getvalue()

    def there(self) -> set[str]:
        """What stands beside the list's jars and in their folder, by name."""
        return {path.name for path in (*self.jars.parent.glob("*jars*"), *self.jars.glob("*"))}


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


@pytest.fixture
def repository(rig: Rig) -> Iterator[str]:
    with files_of(rig.root) as url:
        yield url


@pytest.fixture
def odd() -> Iterator[tuple[str, list[bytes]]]:
    """A server that says the bytes in the list, and hangs up; b"" hangs."""
    answer, opened = [b""], []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection = listener.accept()[0]
                except OSError:
                    return
                opened.append(connection)
                connection.recv(4096)
                if answer[0]:
                    connection.sendall(answer[0])
                    connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", answer
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    for connection in opened:
        connection.close()


def here(rig: Rig, url: str) -> None:
    installation.fetch(rig.source, rig.jars, Wait("test jars", rig.said.append), url)


def test_maven_brings_the_pinned_jars(rig: Rig) -> None:
    """And nothing more; a list written by `pin` is that of sha256sum in a repository."""
    before = (rig.source / "jars.sha256").read_text()
    assert rig.run("pin", str(rig.source)) == (0, "")
    assert (rig.source / "jars.sha256").read_text() == before
    assert rig.run("fetch", str(rig.source), str(rig.jars)) == (0, "")
    assert {path.name for path in rig.jars.glob("*.jar")} == {"a.jar", "b.jar"}


def test_a_damaged_jar_stops_set_up(rig: Rig) -> None:
    """It is named, with both sums; nothing of that fetch stays, and what was there before does."""
    rig.fetch()
    (rig.jars / ".fetched").unlink()
    (rig.jars / "a.jar").write_text("older")
    (rig.fetched / "b.jar").write_text("b.jaR")
    status, said = rig.fetch()
    wrong, right = (hashlib.sha256(text).hexdigest() for text in (b"b.jaR", b"b.jar"))
    assert status == 1
    assert f"b.jar has SHA-256 {wrong}, expected {right}" in said
    assert "a.jar has" not in said and "weir.jars pin" in said
    assert (rig.jars / "a.jar").read_text() == "older"
    assert rig.there() == {"jars", ".jars.lock", "a.jar", "b.jar"}


def test_a_jar_too_many_or_too_few_stops_set_up(rig: Rig) -> None:
    """A changed pom, or a registry that names other dependencies."""
    (rig.fetched / "b.jar").rename(rig.fetched / "c.jar")
    status, said = rig.fetch()
    assert status == 1
    assert "c.jar is not in" in said and "b.jar was not fetched" in said
    assert not rig.jars.exists()


def test_a_repository_does_without_maven(rig: Rig, repository: str) -> None:
    """A second time nothing is asked; copied jars are taken as they are, if they are the right ones."""
    rig.maven.unlink()
    assert rig.fetch(repository) == (0, "")
    (rig.fetched / "a.jar").unlink()
    assert rig.fetch(repository) == (0, "")
    (rig.jars / ".fetched").unlink()
    assert rig.fetch(repository) == (0, "")


@pytest.mark.parametrize(("repository", "lacking"), [("", 1), ("https://there", 0)])
def test_make_wants_no_maven_where_a_repository_is_named(repository: str, lacking: int) -> None:
    """What looks before set-up asks for no more than that needs."""
    words = ["/bin/sh", ROOT / "scripts" / "prerequisites.sh", sys.executable, "mvn"]
    environment = {"PATH": "/nowhere", "WEIR_MAVEN_REPOSITORY": repository}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr.count("Maven is needed")) == (lacking, lacking)


def test_without_maven_it_says_what_to_do(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit status 1, with the option and the variable; $WEIR_MAVEN_REPOSITORY is taken."""
    monkeypatch.setenv("PATH", "")
    with pytest.raises(WeirError, match=r"--repository URL or WEIR_MAVEN_REPOSITORY"):
        here(rig, "")
    monkeypatch.setenv("WEIR_MAVEN_REPOSITORY", "ftp://there")
    with pytest.raises(WeirError, match="'ftp://there' is no repository"):
        here(rig, "")


def test_a_repository_with_other_jars_is_refused(rig: Rig, repository: str) -> None:
    """Another content, with both sums; none at all, with the answer."""
    (rig.fetched / "b.jar").write_text("b.jaR")
    wrong, right = (hashlib.sha256(text).hexdigest() for text in (b"b.jaR", b"b.jar"))
    with pytest.raises(WeirError, match=f"{repository}/{B} has SHA-256 {wrong}, expected {right}"):
        here(rig, repository)
    (rig.fetched / "b.jar").unlink()
    with pytest.raises(WeirError, match=f"{repository}/{B}: the repository answers 404"):
        here(rig, repository)
    assert rig.there() == {".jars.lock"}


def test_a_cut_connection_is_tried_again_and_told(
    rig: Rig, odd: tuple[str, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a jar is none; what is larger than any jar is not read to its end."""
    monkeypatch.setattr(installation, "_PAUSE_S", 0.01)
    url, answer = odd
    answer[0] = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"
    with pytest.raises(WeirError, match="ended in the middle of the jar"):
        here(rig, url)
    monkeypatch.setattr(installation, "_JAR_MAX_BYTES", 3)
    with pytest.raises(WeirError, match="larger than any jar"):
        here(rig, url)
    assert rig.there() == {".jars.lock"}


def test_a_server_that_hangs_is_given_up(
    rig: Rig, odd: tuple[str, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its silence, so many times."""
    monkeypatch.setattr(installation, "_PAUSE_S", 0.01)
    monkeypatch.setattr(installation, "_SILENCE_S", 0.2)
    begun = time.monotonic()
    with pytest.raises(WeirError, match="timed out"):
        here(rig, odd[0])
    assert time.monotonic() - begun < 5


def test_a_stop_waits_for_no_server(
    rig: Rig, odd: tuple[str, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in `weir setup`: one that hangs held it up for a minute."""
    monkeypatch.setattr(installation, "_SILENCE_S", 2.0)
    begun = time.monotonic()
    wait = Wait("test jars", rig.said.append, lambda: time.monotonic() > begun + 0.2)
    with pytest.raises(WeirError, match="stopped while fetching test jars"):
        installation.fetch(rig.source, rig.jars, wait, odd[0])
    assert time.monotonic() - begun < 2
    assert rig.there() == {".jars.lock"}


def test_a_full_disk_is_said_and_not_tried_again(
    rig: Rig, repository: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """/dev/full in place of a jar's file."""
    read = installation._Fetching._read
    full = Path("/dev/full")
    monkeypatch.setattr(installation._Fetching, "_read", lambda self, url, file: read(self, url, full))
    with pytest.raises(WeirError, match="cannot be written: No space left"):
        here(rig, repository)
    assert rig.there() == {".jars.lock"}


def test_who_is_killed_in_the_middle_leaves_nothing_that_is_used(
    rig: Rig, odd: tuple[str, list[bytes]], repository: str
) -> None:
    """kill -9 while a server hangs; the next fetch clears it away."""
    words = ["fetch", str(rig.source), str(rig.jars), "--repository", odd[0]]
    with subprocess.Popen([sys.executable, "-m", "weir.jars", *words], env=rig.environment()) as process:
        until(rig.jars.with_name("jars.new").exists, 10)
        process.send_signal(signal.SIGKILL)
    assert not rig.jars.exists()
    here(rig, repository)
    assert rig.there() == {"jars", ".jars.lock", ".fetched", "a.jar", "b.jar"}


def test_two_at_the_same_time_fetch_once(rig: Rig, repository: str) -> None:
    """The other one waits and finds them."""
    threads = [threading.Thread(target=here, args=(rig, repository)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(rig.said) == 1 and (rig.jars / "b.jar").exists()


def test_where_jars_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """$WEIR_JARS, the clone, or the user's own data; a kind that is not there says what brings it."""
    monkeypatch.setenv("WEIR_JARS", str(tmp_path))
    assert folders.folder_of("spark") == tmp_path / "spark"
    with pytest.raises(WeirError, match="run `weir setup --pulsar` or set WEIR_JARS"):
        jars_dir("pulsar_broker")
    monkeypatch.delenv("WEIR_JARS")
    assert folders.jars_base() == (ROOT / ".weir" / "jars").resolve()
    monkeypatch.setattr(folders, "is_clone", lambda: False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert folders.jars_base() == tmp_path / "weir" / "jars"
    monkeypatch.delenv("XDG_DATA_HOME")
    # A number that is nobody's, as in a container: a traceback.
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 9)
    with pytest.raises(WeirError, match="no home folder for jars; set HOME or WEIR_JARS"):
        folders.jars_base()


@pytest.mark.parametrize("kind", ["kafka", "spark"])
def test_jars_in_use_are_the_pinned_ones(kind: str) -> None:
    """What make setup left is what is committed."""
    digests = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in jars_dir(kind).glob("*.jar")
    }
    assert digests == {pin.name: pin.digest for pin in pins_of(POMS / kind)}


@each("kind", KINDS)
def test_pins_name_places_in_a_repository(kind: str) -> None:
    """Group, artifact, version, file; the file begins with artifact and version."""
    for pin in pins_of(POMS / kind):
        *group, artifact, version, file = pin.path.split("/")
        assert group and file.startswith(f"{artifact}-{version.removesuffix('-SNAPSHOT')}")


def test_java_is_given_the_jars_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By name, whatever order the file system has: an archive of classes holds for one order only."""
    (tmp_path / "kafka").mkdir()
    for name in ("c.jar", "a.jar", "b.jar", "classes.jsa"):
        (tmp_path / "kafka" / name).touch()
    monkeypatch.setenv("WEIR_JARS", str(tmp_path))
    command = java_command("Main")
    found = command[command.index("-cp") + 1].split(":")
    assert [Path(jar).name for jar in found] == ["a.jar", "b.jar", "c.jar"]
