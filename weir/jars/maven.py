"""Jars by Maven: what a pom says, with Maven's own settings, mirrors and store."""

import tempfile
from pathlib import Path
from typing import Final

from streaming.contract.errors import WeirError
from weir.jars.pins import LIST, POM, Pin, digest_of, written
from weir.jars.wait import Wait

_GOAL: Final = "dependency:copy-dependencies"
_LAST_LINES: Final = 20
_LIMIT_S: Final = 1_800.0


def fetch(source: Path, into: Path, wait: Wait, *properties: str) -> None:
    """Have Maven put the jars of a pom into an empty folder.

    Its own checksums are those of the registry (-C: a wrong one ends it), so they say nothing about a
    registry that is not what it was; whoever calls compares. Properties are further ones, `name=value`.

    Raises:
        WeirError: Maven failed, with the end of what it said, or was too slow, or was to stop.
    """
    words = ["mvn", "-B", "-q", "-C", "-f", str(source / POM), _GOAL, f"-DoutputDirectory={into}"]
    said = wait.run([*words, *(f"-D{each}" for each in properties)], _LIMIT_S, _LAST_LINES)
    if said is not None:
        raise WeirError("\n".join([
            *said, f"Maven could not fetch the jars of {source / POM} (see above); is the network or a mirror"
            " reachable?",
        ]))  # fmt: skip


def pin(source: Path, wait: Wait) -> None:
    """Write a pom's list anew, past what Maven has kept, for review and commit; raises as `fetch`."""
    with tempfile.TemporaryDirectory(prefix="weir-pin-") as name:
        jars, repository = Path(name) / "jars", Path(name) / "repository"
        jars.mkdir()
        fetch(source, jars, wait, f"maven.repo.local={repository}")
        places = {file.name: file.relative_to(repository).as_posix() for file in repository.rglob("*.jar")}
        pins = [Pin(places[file.name], digest_of(file)) for file in jars.glob("*.jar")]
        (source / LIST).write_text(written(pins))
