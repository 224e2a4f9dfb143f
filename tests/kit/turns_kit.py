"""A stop that comes after some turns of what is shown again and again."""

from collections.abc import Callable
from typing import Any

from weir.foreground import StopSignal


class Turns(StopSignal):
    """Asked for once so many pauses were made, which take no time.

    Attributes:
        waited: how long each was to be, s.
    """

    def __init__(self, count: int) -> None:
        super().__init__()
        self._count, self.waited = count, list[float]()

    def wait(self, limit_s: float) -> bool:
        """A turn is over."""
        self.waited.append(limit_s)
        if len(self.waited) == self._count:
            self.ask()
        return self.asked

    def unless(self, work: Callable[[], Any]) -> Any:
        """No stop comes meanwhile."""
        return work()
