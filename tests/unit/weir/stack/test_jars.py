"""Jars that are fetched when a command needs them: once, with words meanwhile, or not at all."""

import threading
from pathlib import Path

import pytest

from streaming.contract.errors import WeirError
from weir.stack import jars

KIND = "pulsar_broker"


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose script does what the test writes into it; its words are POM and FOLDER."""
    path = tmp_path / "scripts" / "fetch-jars.sh"
    path.parent.mkdir()
    path.write_text('#!/bin/sh\nmkdir "$2" && touch "$2/a.jar" "$2/.fetched" && echo "$1" >"$2/pom"\n')
    path.chmod(0o755)
    monkeypatch.setattr(jars, "ROOT", tmp_path)
    monkeypatch.setenv("WEIR_JARS", str(tmp_path / "jars"))
    return path


def test_jars_are_fetched_once(script: Path, tmp_path: Path) -> None:
    """By the pom of their kind; the second time nothing is run."""
    said: list[str] = []
    with pytest.raises(WeirError, match="run `make pulsar`"):
        jars.jars_dir(KIND)
    jars.fetch_jars(KIND, said.append)
    assert (jars.jars_dir(KIND) / "pom").read_text() == f"{tmp_path}/conf/{KIND}/pom.xml\n"
    assert len(said) == 1 and "once" in said[0]
    script.unlink()
    jars.fetch_jars(KIND, said.append)
    assert len(said) == 1


def test_other_kinds_are_of_the_set_up(script: Path) -> None:
    """The message names what brings them."""
    with pytest.raises(WeirError, match="run `make setup`"):
        jars.jars_dir("kafka")


def test_a_failure_is_told_with_its_reason(script: Path) -> None:
    """What the script said last is in the message."""
    script.write_text("#!/bin/sh\necho is the network reachable\nexit 1\n")
    with pytest.raises(WeirError, match="no pulsar_broker jars: is the network reachable"):
        jars.fetch_jars(KIND, lambda line: None)
    script.unlink()
    with pytest.raises(WeirError, match=r"no pulsar_broker jars: .*No such file"):
        jars.fetch_jars(KIND, lambda line: None)


def test_it_says_that_it_is_still_fetching_and_gives_up(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop ends it at once, its limit at the latest."""
    monkeypatch.setattr(jars, "_STILL_FETCHING_S", 0.2)
    script.write_text("#!/bin/sh\nsleep 60\n")
    said: list[str] = []
    with pytest.raises(WeirError, match="stopped"):
        jars.fetch_jars(KIND, said.append, stopping=lambda: len(said) > 2)
    assert said[1].startswith("still fetching")
    monkeypatch.setattr(jars, "_FETCH_LIMIT_S", 0.5)
    with pytest.raises(WeirError, match="no pulsar_broker jars within"):
        jars.fetch_jars(KIND, said.append)


def test_two_at_the_same_time_fetch_once(script: Path, tmp_path: Path) -> None:
    """The other one waits and finds them."""
    slow = f"echo run >>{tmp_path}/runs && sleep 0.5 && mkdir"
    script.write_text(script.read_text().replace("mkdir", slow))
    threads = [threading.Thread(target=jars.fetch_jars, args=(KIND, lambda line: None)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "runs").read_text() == "run\n"
