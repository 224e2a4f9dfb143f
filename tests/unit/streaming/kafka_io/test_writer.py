"""What settings say of our connections changes nothing that records rest on, and how a producer ends."""

from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException

from streaming.contract.errors import WeirError
from streaming.contract.topics import Cluster
from streaming.kafka_io import writer


def test_a_clients_properties_change_nothing_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records are written once, where murmur2 says; the caller's own properties come last."""
    given = dict[str, Any]()
    monkeypatch.setattr(writer, "Producer", lambda properties, logger: given.update(properties))
    hostile = {
        "enable.idempotence": False, "partitioner": "consistent_random", "allow.auto.create.topics": True,
        "linger.ms": 900, "security.protocol": "SSL",
    }  # fmt: skip
    writer.connected(hostile, {"linger.ms": 5})
    assert given["enable.idempotence"] is True and given["partitioner"] == "murmur2_random"
    assert given["allow.auto.create.topics"] is False
    assert (given["linger.ms"], given["security.protocol"]) == (5, "SSL")

class Broken:
    """A producer whose queue is full, and which another one has ended by the time it is empty."""

    def __init__(self) -> None:
        self._answers: list[Exception] = [
            BufferError("full"), KafkaException(KafkaError(KafkaError._FATAL, "it was fenced"))
        ]  # fmt: skip

    def __getattr__(self, _name: str) -> Any:
        return lambda *_: None

    def produce(self, *_: object, **__: object) -> None:
        """There is no room, then it takes nothing more."""
        raise self._answers.pop(0)

    def flush(self, _limit_s: float) -> int:
        """What the library makes of an error that a callback of its own raises."""
        raise SystemError("returned a result with an exception set")

    def __len__(self) -> int:
        return 1


def test_a_producer_that_ends_as_its_queue_empties_is_told_as_any_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever writes may begin again: more than fits into the queue ended in a traceback."""
    monkeypatch.setattr(writer, "connected", lambda *_: Broken())
    transactions = writer.Transactions(Cluster("b:1"), "topic", "name", 10.0, 10.0)
    with pytest.raises(writer.NotWritten, match="it was fenced"):
        transactions.write([writer.Record(value=b"x")], 10.0)


def test_a_producer_that_cannot_be_made_is_a_right_that_is_not_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no thread is left for one a collector ended with a traceback; its next round tries again."""

    def none_left(*_: object) -> None:
        raise KafkaException(KafkaError(KafkaError._CRIT_SYS_RESOURCE, "no thread left"))

    monkeypatch.setattr(writer, "connected", none_left)
    with pytest.raises(WeirError, match=r"cannot write to topic on b:1: no thread left"):
        writer.Transactions(Cluster("b:1"), "topic", "name", 10.0, 10.0)


class Taking:
    """A producer whose records have a time of their broker's, or of their own."""

    def __init__(self, kind: int) -> None:
        self._kind = kind

    def __getattr__(self, _name: str) -> Any:
        return lambda *_: None

    def produce(self, *_: object, on_delivery: Any, **__: object) -> None:
        """Acknowledged at once."""
        on_delivery(None, self)

    def timestamp(self) -> tuple[int, int]:
        """Of the record."""
        return self._kind, 77


@pytest.mark.parametrize(("kind", "learnt"), [(TIMESTAMP_LOG_APPEND_TIME, [77]), (TIMESTAMP_CREATE_TIME, [])])
def test_a_written_record_tells_its_brokers_time(
    monkeypatch: pytest.MonkeyPatch, kind: int, learnt: list[int]
) -> None:
    """One that its broker did not stamp tells our own."""
    found: list[int] = []
    monkeypatch.setattr(writer, "connected", lambda *_: Taking(kind))

    def learn(record_ms: int, _arrived_ms: float) -> None:
        found.append(record_ms)

    transactions = writer.Transactions(Cluster("b:1"), "topic", "name", 10.0, 10.0, learn)
    transactions.write([writer.Record(value=b"x")], 10.0)
    assert found == learnt
