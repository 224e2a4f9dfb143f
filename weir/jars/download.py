"""Jars from a Maven repository without Maven: those of the list, over HTTP or HTTPS, nothing else."""

import errno
import http.client
import threading
import urllib.error
import urllib.request
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

from streaming.contract.errors import WeirError
from streaming.kafka_io.threads import Threads
from weir.jars.pins import Pin, digest_of
from weir.jars.wait import Wait

_AT_A_TIME: Final = 4
_LIMIT_S: Final = 1_800.0
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


def fetch(pins: Sequence[Pin], repository: str, into: Path, wait: Wait) -> None:
    """Put the pinned jars into an empty folder, a few at a time, each compared with its sum at once.

    Args:
        pins: what is wanted.
        repository: URL of the repository's root.
        into: takes them.
        wait: says what goes on, knows when to stop.

    Raises:
        WeirError: the URL is none, or a jar is not to be had, is another one, or came too slowly; with
        its URL.
    """
    try:
        scheme = urlsplit(repository).scheme
    except ValueError:
        scheme = ""
    if scheme not in ("http", "https"):
        raise WeirError(f"{repository!r} is no repository; expected http://HOST/PATH or https://HOST/PATH")
    fetching, left, threads = _Fetching(repository.rstrip("/"), into), iter(pins), Threads()
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
