"""Jars into a folder, all or nothing: every one that is pinned beside the pom, with its SHA-256, and no
other."""

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from streaming.contract.errors import WeirError
from weir.jars import download, maven
from weir.jars.folders import POMS, folder_of
from weir.jars.pins import LIST, POM, differences, digest_of, pins_of
from weir.jars.wait import Wait, never

REPOSITORY: Final = "WEIR_MAVEN_REPOSITORY"
"""The variable that names a Maven repository, for machines without Maven."""
_STAMP: Final = ".fetched"
_LOCK_LIMIT_S: Final = 1_800.0


def fetch_jars(
    kind: str, say: Callable[[str], None], stopping: Callable[[], bool] = never, repository: str = ""
) -> bool:
    """Fetch the jars of a kind, unless they are there.

    Args:
        kind: one of `folders.KINDS`.
        say: takes lines for people, one every ten seconds.
        stopping: asked while waiting; True gives up.
        repository: as of `fetch`.

    Returns:
        Whether they had to be fetched.

    Raises:
        WeirError: as `fetch`.
    """
    return fetch(POMS / kind, folder_of(kind), Wait(f"{kind} jars", say, stopping), repository)


def fetch(source: Path, into: Path, wait: Wait, repository: str = "") -> bool:
    """Have the jars of a pom in a folder.

    By Maven where it is there and no repository is named; else by plain HTTP from the repository that is
    named here or by $WEIR_MAVEN_REPOSITORY. Two that want the same at a time fetch it once.

    Args:
        source: folder with the pom and its list.
        into: folder, replaced as a whole; what else was in it is gone then.
        wait: says what goes on, knows when to stop.
        repository: URL of a Maven repository.

    Returns:
        Whether they had to be fetched.

    Raises:
        WeirError: they could not be fetched, or are others than those of the list: then none is used,
            and those that were there before stay.
    """
    pinned = digest_of(source / LIST)
    try:
        into.parent.mkdir(parents=True, exist_ok=True)
        with (into.parent / f".{into.name}.lock").open("a") as lock:
            wait.until(lambda: _locked(lock.fileno()), _LOCK_LIMIT_S)
            if _stamp(into) == pinned:
                return False
            if any(into.glob("*.jar")) and not differences(into, pins_of(source)):
                # Copied here from another machine, or fetched by an older Weir.
                (into / _STAMP).write_text(pinned)
                return False
            _fetch(source, into, wait, repository, pinned)
    except OSError as error:
        raise WeirError(f"no {wait.what}: {error}") from error
    return True


def _fetch(source: Path, into: Path, wait: Wait, repository: str, pinned: str) -> None:
    pins = pins_of(source)
    new, old = into.with_name(f"{into.name}.new"), into.with_name(f"{into.name}.old")
    for left in (new, old):
        shutil.rmtree(left, ignore_errors=True)
    new.mkdir()
    try:
        if repository or shutil.which("mvn") is None:
            _download(source, new, wait, repository or os.environ.get(REPOSITORY, ""))
        else:
            wait.say(f"fetching {wait.what} with Maven ({len(pins)} of them)")
            maven.fetch(source, new, wait)
        if wrong := differences(new, pins):
            said = "\n".join(f"{line} ({source / LIST})" for line in wrong)
            raise WeirError(
                f"{said}\nnone of these jars is used. Maven keeps what it fetched (in ~/.m2/repository): "
                f"delete it there to fetch it anew. If {source / POM} was changed on purpose: "
                f"python -m weir.jars pin {source}"
            )
        (new / _STAMP).write_text(pinned)
        # Moved aside as a whole: who is killed while deleting must not leave a folder that looks complete.
        if into.exists():
            into.replace(old)
        new.replace(into)
    finally:
        shutil.rmtree(new, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def _download(source: Path, new: Path, wait: Wait, repository: str) -> None:
    if not repository:
        raise WeirError(
            f"no {wait.what}: there is no Maven (mvn) here. Install it (apt install maven, brew install "
            f"maven), or name a Maven repository to fetch them from: --repository URL or {REPOSITORY}"
        )
    pins = pins_of(source)
    wait.say(f"fetching {wait.what} ({len(pins)} of them) from {repository}")
    download.fetch(pins, repository, new, wait)


def _stamp(folder: Path) -> str:
    """The list by which the jars in a folder were fetched, as its sum; empty if they were not, or not
    whole."""
    try:
        return (folder / _STAMP).read_text()
    except OSError:
        return ""


def _locked(descriptor: int) -> bool:
    """Whether we, and no other program, may fetch now."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
