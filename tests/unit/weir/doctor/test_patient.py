"""What `weir doctor` asks the cluster itself, and how."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource
from doctor_kit import brokers, patient_of

from weir.doctor.patient import Unanswered, broker_settings, client, metadata


class OneBrokerACall:
    """librdkafka's client, which refuses two brokers in one call.

    Args:
        count: of brokers, which answer when the last one was asked.
        refuses: a broker that tells nothing.
    """

    def __init__(self, count: int, refuses: int = 0) -> None:
        self._count, self._refuses = count, refuses
        self._asked: dict[ConfigResource, Future[Any]] = {}

    def describe_configs(
        self, resources: list[ConfigResource], request_timeout: float
    ) -> dict[ConfigResource, Future[Any]]:
        """Futures at once."""
        (resource,) = resources
        # Whoever waits before all are asked never gets an answer.
        self._asked[resource] = Future()
        if len(self._asked) == self._count:
            for each, future in self._asked.items():
                self._answer(each, future)
        return {resource: self._asked[resource]}

    def _answer(self, resource: ConfigResource, future: Future[Any]) -> None:
        if int(resource.name) == self._refuses:
            future.set_exception(KafkaException(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED)))
        else:
            future.set_result({"node.id": SimpleNamespace(value=resource.name)})


@pytest.mark.parametrize("count", [1, 3])
def test_each_broker_is_asked_by_a_call_of_its_own(count: int) -> None:
    """All of them before any answer is waited for."""
    patient = patient_of({metadata: brokers(count), client: OneBrokerACall(count)})
    assert broker_settings(patient) == {n: {"node.id": str(n)} for n in range(1, count + 1)}


def test_a_broker_that_refuses_to_tell() -> None:
    """Is no broker without settings."""
    patient = patient_of({metadata: brokers(3), client: OneBrokerACall(3, refuses=2)})
    with pytest.raises(Unanswered, match="does not tell"):
        broker_settings(patient)
