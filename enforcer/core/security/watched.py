"""What is made of files, such as certificates and tokens, and made anew when they change."""

import logging
import os
import time
from collections.abc import Callable, Iterable
from typing import Final, Generic, TypeVar

_AGAIN_S: Final = 1.0
"""What could not be made is tried again so much later: no file need change before it can be."""

T = TypeVar("T")


class WatchedFiles(Generic[T]):
    """The newest that could be made of some files; while they are of no use, what was made before stays.

    Args:
        make: makes it.
        files: what it is made of.
        logger: is told when it was made anew, and once why it could not be.
        stays: how that begins.
        shown: errors that may be shown; others may hold what was read.

    Raises:
        Exception: as `make`, at the first time.
    """

    def __init__(
        self, make: Callable[[], T], files: Iterable[str],
        logger: logging.Logger, stays: str, shown: type[Exception],
    ) -> None:  # fmt: skip
        self._make, self._files = make, [path for path in files if path]
        self._logger, self._stays, self._shown = logger, stays, (shown, OSError)
        self._failed: object = None
        self._again_s, self._said = 0.0, ""
        self._seen = self._stamps()
        self._made = make()

    def now(self, tried: Callable[[bool], None] = lambda _: None) -> T:
        """By the files as they are now; `tried` is told of a try to make it anew, whether it was made."""
        stamps = self._stamps()
        if stamps == self._seen or (stamps == self._failed and time.monotonic() < self._again_s):
            return self._made
        try:
            self._made = self._make()
        except Exception as bad:  # noqa: BLE001  # whatever it is, nobody may be kept out, or let in, by it
            self._failed, self._again_s = stamps, time.monotonic() + _AGAIN_S
            text = str(bad) if isinstance(bad, self._shown) else type(bad).__name__
            if text != self._said:
                self._logger.warning("%s: %s", self._stays, text)
                self._said = text
            tried(False)
        else:
            self._seen, self._failed, self._said = stamps, None, ""
            self._logger.info("read again: %s", ", ".join(self._files))
            tried(True)
        return self._made

    def _stamps(self) -> list[tuple[int, ...]]:
        return [stamp for path in self._files if (stamp := _stamp(path))]


def _stamp(path: str) -> tuple[int, ...]:
    try:
        found = os.stat(path)
    except OSError:
        # In the middle of its replacement it is not there.
        return ()
    # The time of the node too: a change of mode is none of the content.
    return (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)
