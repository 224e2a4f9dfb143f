"""What the proxy itself asks the cluster: its brokers and its default partition count."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource

from enforcer.kafka.watch import Watch

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


class ClusterWatch(Watch):
    """Looks at the brokers.

    Args:
        properties: librdkafka properties of the connection.
        interval_ms: time between two looks.
        deliver: gets each view, in the thread.
    """

    def __init__(
        self, properties: Mapping[str, str], interval_ms: int, deliver: Callable[[ClusterView], None]
    ) -> None:
        super().__init__(properties, interval_ms, _RETRY_S)
        self._deliver = deliver

    def _look(self, admin: AdminClient) -> None:
        self._deliver(look(admin))
