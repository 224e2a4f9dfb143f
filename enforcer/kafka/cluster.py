"""What the proxy itself asks the cluster: its brokers and its default partition count."""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource

logger = logging.getLogger(__name__)

_ASK_LIMIT_S = 5.0
_RETRY_S = 2.0
_DEFAULT_PARTITIONS = "num.partitions"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """One look at the cluster.

    Attributes:
        brokers: (id, host, port) of every broker.
        default_partitions: num.partitions; None if we may not read it.
    """

    brokers: tuple[tuple[int, str, int], ...]
    default_partitions: int | None


def look(admin: AdminClient) -> ClusterView:
    """Ask once.

    Raises:
        KafkaException: the cluster does not answer.
    """
    found = admin.list_topics(topic="", timeout=_ASK_LIMIT_S).brokers.values()
    brokers = tuple((broker.id, str(broker.host), broker.port) for broker in found)
    default = None
    if brokers:
        resource = ConfigResource(ConfigResource.Type.BROKER, str(brokers[0][0]))
        answer = admin.describe_configs([resource], request_timeout=_ASK_LIMIT_S)[resource]
        try:
            default = int(answer.result(_ASK_LIMIT_S)[_DEFAULT_PARTITIONS].value)
        except (KafkaException, KeyError, ValueError, TimeoutError) as error:
            logger.info("num.partitions cannot be read: %s", error)
    return ClusterView(brokers=brokers, default_partitions=default)


class ClusterWatch:
    """Looks again and again, in a thread: the library's calls block.

    Args:
        properties: librdkafka properties of the connection.
        interval_ms: time between two looks.
        deliver: gets each view, in the thread.
    """

    def __init__(
        self, properties: Mapping[str, str], interval_ms: int, deliver: Callable[[ClusterView], None]
    ) -> None:
        self._properties: dict[str, str | int | float | bool] = {**properties, "log_level": "0"}
        self._interval_s = interval_ms / 1000
        self._deliver = deliver
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cluster watch", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """End; a look that is under way is not waited for."""
        self._stopping.set()

    def _run(self) -> None:
        admin = AdminClient(self._properties)
        while not self._stopping.is_set():
            pause_s = self._interval_s
            try:
                view = look(admin)
            except KafkaException as error:
                logger.debug("the cluster does not answer: %s", error)
                pause_s = min(_RETRY_S, pause_s)
            else:
                self._deliver(view)
            self._stopping.wait(pause_s)
