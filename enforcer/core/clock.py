"""The clocks of an enforcer; what is handed one knows no other time."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """The two clocks of one process; tests put their own in.

    Attributes:
        steady_ms: never goes back; for time limits.
        wall_ms: ms since the epoch; for policies and the time of decisions.
    """

    steady_ms: Callable[[], float]
    wall_ms: Callable[[], int]
