"""Which ids Weir's topics have now: requests may name one by it, and a topic made again has a new one."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from enforcer.kafka.guard.protected import IDS_MAX, OwnTopics
from enforcer.kafka.watch import Watch

PROTECTED_IDS_REFRESH_MS: Final = 2_000
"""So long a topic of Weir's that is made anew is protected by its name alone."""

_ASK_LIMIT_S: Final = 5.0
# All names of a cluster are a large answer: other topics under the prefix are looked for each so many looks.
_LIST_EACH: Final = 30
_HALF: Final = 1 << 64
_NOT_THERE: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED)


class IdWatch(Watch):
    """Looks at the topics.

    Args:
        properties: librdkafka properties of the connection.
        protected: says which topics are Weir's.
        deliver: gets the ids each time, in the thread.
    """

    def __init__(
        self, properties: Mapping[str, str], protected: OwnTopics, deliver: Callable[[frozenset[bytes]], None]
    ) -> None:
        super().__init__(properties, PROTECTED_IDS_REFRESH_MS)
        self._own = protected.topics.all()
        self._protected = protected
        self._names = self._own
        self._ids: dict[str, bytes] = {}
        self._deliver = deliver
        self._looks = 0

    def _look(self, admin: AdminClient) -> None:
        if self._looks % _LIST_EACH == 0:
            self._names = self._listed(admin)
        before, self._ids = self._ids, ids_of(admin, self._names)
        # Who does not know one now, as a broker that has just begun, takes no id away yet.
        self._deliver(frozenset((before | self._ids).values()))
        self._looks += 1

    def _listed(self, admin: AdminClient) -> tuple[str, ...]:
        others = [
            name
            for name in admin.list_topics(timeout=_ASK_LIMIT_S).topics
            if name not in self._own and self._protected.has(name.encode())
        ]
        return (*self._own, *sorted(others)[: IDS_MAX - len(self._own)])


def ids_of(admin: AdminClient, names: tuple[str, ...]) -> dict[str, bytes]:
    """The ids of those topics that are there, by name.

    Raises:
        KafkaException: the cluster does not answer.
        TimeoutError: it takes too long.
    """
    found = {}
    answers = admin.describe_topics(TopicCollection(list(names)), request_timeout=_ASK_LIMIT_S)
    for name, answer in answers.items():
        try:
            found[name] = _bytes(answer.result(2 * _ASK_LIMIT_S).topic_id)
        except KafkaException as error:
            # One that is not ours to see must not keep the others unknown.
            if error.args[0].code() not in _NOT_THERE:
                raise
    return found


def _bytes(topic_id: Any) -> bytes:  # confluent_kafka.Uuid, which has no types
    high: int = topic_id.get_most_significant_bits()
    low: int = topic_id.get_least_significant_bits()
    return (high % _HALF).to_bytes(8, "big") + (low % _HALF).to_bytes(8, "big")
