"""How set-up waits: with a word every ten seconds, a limit, and an ear for who wants it stopped."""

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from streaming.contract.errors import WeirError
from weir.stack.process import Child

_STILL_S: Final = 10.0
_POLL_S: Final = 0.1


def never() -> bool:
    """Nobody wants it stopped."""
    return False


@dataclass(frozen=True, slots=True)
class Wait:
    """What somebody who sets up is told, and may say.

    Attributes:
        what: the jars, as messages call them.
        say: takes lines for people.
        stopping: asked all the time; True ends it.
        doing: what is done with them, if not fetched.
    """

    what: str
    say: Callable[[str], None]
    stopping: Callable[[], bool] = never
    doing: str = "fetching"

    def until(self, done: Callable[[], bool], limit_s: float, so_far: Callable[[], str] = str) -> None:
        """Wait until it is done, and tell people how far it is.

        Raises:
            WeirError: it was to stop, or took too long.
        """
        begun = time.monotonic()
        next_word = begun + _STILL_S
        while not done():
            if self.stopping():
                raise WeirError(f"stopped while {self.doing} {self.what}")
            now = time.monotonic()
            if now > begun + limit_s:
                raise WeirError(f"no {self.what} within {limit_s:.0f} s")
            if now > next_word:
                next_word += _STILL_S
                self.say(f"still {self.doing} {self.what} ({now - begun:.0f} s{so_far()})")
            time.sleep(_POLL_S)

    def run(self, argv: Sequence[str], limit_s: float, lines: int) -> list[str] | None:
        """Run a program; None, or if it failed the last lines of what it said. Raises as `until`."""
        with tempfile.TemporaryDirectory(prefix="weir-setup-", ignore_cleanup_errors=True) as folder:
            # What it leaves when it is killed, and Spark with it, goes with ours.
            here = dict.fromkeys(("TMPDIR", "SPARK_LOCAL_DIRS"), folder)
            child = Child(self.what, argv, log=Path(folder) / "log", env=here)
            child.start()
            try:
                self.until(lambda: not child.alive(), limit_s)
            finally:
                child.kill()
            return child.last_lines(lines) if child.poll() else None
