"""Jars into a folder, all or nothing: every one that is pinned beside the pom, with its SHA-256, no other.

By Maven, or without it those of the list over HTTP or HTTPS, nothing else.
"""

import errno
import fcntl
import http.client
import os
import shutil
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

from streaming.contract.errors import WeirError
from streaming.kafka_io.threads import Threads
from weir.jars import maven
from weir.jars.folders import POMS, folder_of
from weir.jars.pins import LIST, POM, Pin, differences, digest_of, pins_of
from weir.jars.wait import Wait, never

REPOSITORY: Final = "WEIR_MAVEN_REPOSITORY"
"""The variable that names a Maven repository, for machines without Maven."""
_STAMP: Final = ".fetched"
_LIMIT_S: Final = 1_800.0
"""For another one to fetch, or for us."""
_AT_A_TIME: Final = 4
_SILENCE_S: Final = 20.0
"""A server that says nothing for so long is given up."""
_TRIES: Final = 3
_PAUSE_S: Final = 1.0
"""Before the second try; twice that before the third."""
_OF_THE_DISK: Final = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO)
"""Trying again helps as little as another repository would."""
_JAR_MAX_BYTES: Final = 512 * 2**20
_CHUNK_BYTES: Final = 64 * 2**10
_SERVER_ERROR: Final = 500


def fetch_jars(
    kind: str, say: Callable[[str], None], stopping: Callable[[], bool] = never, repository: str = ""
) -> bool:
    """Fetch the jars of a kind (`folders.KINDS`), unless they are there; all else as of `fetch`."""
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
            wait.until(lambda: _locked(lock.fileno()), _LIMIT_S)
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
            _download(pins, new, wait, repository or os.environ.get(REPOSITORY, ""))
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


def _download(pins: Sequence[Pin], new: Path, wait: Wait, repository: str) -> None:
    """The pinned jars into an empty folder, a few at a time, each compared with its sum at once."""
    if not repository:
        raise WeirError(
            f"no {wait.what}: there is no Maven (mvn) here. Install it (apt install maven, brew install "
            f"maven), or name a Maven repository to fetch them from: --repository URL or {REPOSITORY}"
        )
    wait.say(f"fetching {wait.what} ({len(pins)} of them) from {repository}")
    try:
        scheme = urlsplit(repository).scheme
    except ValueError:
        scheme = ""
    if scheme not in ("http", "https"):
        raise WeirError(f"{repository!r} is no repository; expected http://HOST/PATH or https://HOST/PATH")
    fetching, left, threads = _Fetching(repository.rstrip("/"), new), iter(pins), Threads()
    workers = [threads.submit(fetching.some, left) for _ in range(_AT_A_TIME)]

    def over() -> bool:
        ended = [worker for worker in workers if worker.done()]
        for worker in ended:
            worker.result()
        return len(ended) == len(workers)

    try:
        wait.until(over, _LIMIT_S, lambda: f", {len(fetching.there)} of {len(pins)}")
    finally:
        # Nobody waits for the threads: a server that is silent holds them up for a minute.
        fetching.ended.set()


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


class _Fetching:
    """One fetch of many jars."""

    def __init__(self, repository: str, into: Path) -> None:
        self._repository, self._into = repository, into
        self.there: list[Pin] = []
        self.ended = threading.Event()

    def some(self, left: Iterable[Pin]) -> None:
        """Fetch those that are left, of which others take some too."""
        for pin in left:
            self.one(pin)
            self.there.append(pin)

    def one(self, pin: Pin) -> None:
        """Fetch a jar, trying again where that may help."""
        url = f"{self._repository}/{quote(pin.path)}"
        for number in range(1, _TRIES + 1):
            try:
                self._read(url, self._into / pin.name)
                break
            except (OSError, http.client.HTTPException) as error:
                if isinstance(error, OSError) and error.errno in _OF_THE_DISK:
                    raise WeirError(f"{self._into / pin.name} cannot be written: {error.strerror}") from error
                refused = False
                if isinstance(error, urllib.error.HTTPError):
                    refused = error.code < _SERVER_ERROR
                    error.close()
                if refused or number == _TRIES or self.ended.wait(_PAUSE_S * number):
                    raise WeirError(f"{url}: {_reason(error)}") from error
        found = digest_of(self._into / pin.name)
        if found != pin.digest:
            raise WeirError(f"{url} has SHA-256 {found}, expected {pin.digest}")

    def _read(self, url: str, file: Path) -> None:
        size = 0
        with closing(urllib.request.urlopen(url, timeout=_SILENCE_S)) as answer, file.open("wb") as jar:
            # One read of the socket at a time: a server that sends a byte now and then must not hold us up.
            while chunk := answer.read1(_CHUNK_BYTES):
                if self.ended.is_set():
                    raise WeirError("nobody waits for it any more")
                size += len(chunk)
                if size > _JAR_MAX_BYTES:
                    raise WeirError(f"{url} is larger than any jar of ours ({_JAR_MAX_BYTES >> 20} MiB)")
                jar.write(chunk)
            if answer.length:
                raise http.client.IncompleteRead(b"", answer.length)


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"the repository answers {error.code} {error.reason}"
    if isinstance(error, http.client.IncompleteRead):
        return "the connection ended in the middle of the jar"
    return str(getattr(error, "reason", None) or error)
