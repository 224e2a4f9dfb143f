"""Records on Weir's own topics that cannot be used: counted, and told of now and then."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from streaming.contract.printable import printable

logger = logging.getLogger(__name__)

Unusable = Callable[[str], None]
"""Told why a record is not used, in whatever thread read it."""
_SILENT_S: Final = 60.0


def unheard(_reason: str) -> None:
    """Nobody wants to know."""


class Complaints:
    """Counts every such record of one topic, and logs the reason of at most one a minute.

    Args:
        topic: its name.
        count: counts one.
        steady_s: tells the time.
    """

    def __init__(
        self, topic: str, count: Callable[[], None], steady_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._topic = topic
        self._count = count
        self._steady_s = steady_s
        self._since = 0
        self._next_s = float("-inf")
        # Two tails may read one topic.
        self._lock = threading.Lock()

    def __call__(self, reason: str) -> None:
        """A record was not used."""
        self._count()
        with self._lock:
            self._since += 1
            now_s = self._steady_s()
            if now_s < self._next_s:
                return
            self._next_s, count, self._since = now_s + _SILENT_S, self._since, 0
        logger.warning("%s: records that are not used: %d, such as %s", self._topic, count, printable(reason))
