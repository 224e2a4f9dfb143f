"""What a blob store needs of a file system that cannot be mapped, and how long it asks for it."""

import time
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

import pyarrow as pa

from streaming.contract.errors import StateError

ATTEMPTS_MIN: Final = 4
"""One attempt may take this part of the limit, so that one hanging connection does not use all of it."""
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 2.0
_FINAL: Final = (FileNotFoundError, PermissionError)
"""What asking again will not change."""

Answer = TypeVar("Answer")


class Files(Protocol):
    """Whole files by their paths, far away. Each call ends within the implementation's own time limit.

    Raises:
        FileNotFoundError, PermissionError: asking again is of no use.
        OSError: it may be another time.
    """

    def write(self, path: str, content: bytes) -> None:
        """Have a file with this content: whole and for good when it returns, and never half of it."""

    def read(self, path: str) -> pa.Buffer:
        """The content of a file."""

    def delete(self, path: str) -> None:
        """Delete a file, if it is there."""


def insist(ask: Callable[[], Answer], uri: str, what: str, limit_s: float) -> Answer:
    """Ask until it works, is refused, or `limit_s` is nearly over.

    Args:
        ask: one attempt, which takes at most a part (ATTEMPTS_MIN) of `limit_s`.
        uri: of the file, for people.
        what: is asked for, for people: "written", "read", "deleted".
        limit_s: for all attempts together, s.

    Raises:
        StateError: it did not work; names the URI and what to do.
    """
    begun, pause_s = time.monotonic(), _FIRST_PAUSE_S
    while True:
        try:
            return ask()
        except _FINAL as error:
            raise _failed(uri, what, error) from error
        except OSError as error:
            # The next attempt must end within the limit.
            if time.monotonic() - begun + pause_s > limit_s * (1 - 1 / ATTEMPTS_MIN):
                text = (
                    f"{uri} could not be {what} within {limit_s:g} s: {error}; see that its file system "
                    "answers, then start the job again: it goes on where it was"
                )
                raise StateError(text) from error
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _failed(uri: str, what: str, error: OSError) -> StateError:
    if isinstance(error, FileNotFoundError):
        return StateError(
            f"{uri} is missing ({error}); the checkpoint is damaged: bring it back from a backup, or begin "
            "anew with another job.checkpoint_dir"
        )
    return StateError(
        f"{uri} may not be {what}: {error}; give the job's user the right to read, write and delete there"
    )
