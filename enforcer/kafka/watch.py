"""Looks at the cluster again and again, in a thread: the library's calls block."""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

logger = logging.getLogger(__name__)

_RETRY_S: Final = 2.0
"""After a look that found no cluster the next one comes so soon."""


class Watch(ABC):
    """What several looks have in common.

    Args:
        properties: librdkafka properties of the connection.
        interval_ms: time between two looks.
    """

    def __init__(self, properties: Mapping[str, str], interval_ms: int) -> None:
        self._properties: dict[str, str | int | float | bool] = {**properties, "log_level": "0"}
        self._interval_s = interval_ms / 1000
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=type(self).__name__, daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """End; a look that is under way is not waited for."""
        self._stopping.set()

    @abstractmethod
    def _look(self, admin: AdminClient) -> None:
        """Look once, and tell what is there.

        Raises:
            KafkaException: the cluster does not answer.
            TimeoutError: it takes too long.
        """

    def _run(self) -> None:
        admin = AdminClient(self._properties)
        while not self._stopping.is_set():
            pause_s = self._interval_s
            try:
                self._look(admin)
            except (KafkaException, TimeoutError) as error:
                logger.debug("the cluster does not answer: %s", error)
                pause_s = _RETRY_S
            except Exception:  # of a look; nobody would look again
                logger.exception("%s failed", type(self).__name__)
            self._stopping.wait(pause_s)
