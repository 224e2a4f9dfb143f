"""Actions on backlogs, written to `weir.decisions` before and after (docs/contract.md 3.5)."""

import asyncio
from concurrent.futures import Future
from functools import partial

import orjson
from confluent_kafka import KafkaError, KafkaException

from streaming.contract.backlog.actions import BacklogAction
from streaming.contract.errors import WeirError
from streaming.contract.topics import Cluster
from streaming.kafka_io.reader import reason_of
from streaming.kafka_io.writer import Lasting, connected


class ActionLog:
    """Writes actions, each acknowledged by all replicas before it counts as written.

    Not in transactions, as the reports are: a collector that is killed in the middle of one would keep all
    readers of the decisions waiting until Kafka ends it.

    Args:
        cluster: they go to its `weir.decisions`.
        timeout_s: limit of a write.

    Raises:
        WeirError: the library makes no client, as where no thread is left for one.
    """

    def __init__(self, cluster: Cluster, timeout_s: float) -> None:
        self._topic = cluster.topics.decisions
        self._where = f"{self._topic} on {cluster.bootstrap}"
        own = {"message.timeout.ms": int(timeout_s * 1000), "linger.ms": 1}
        try:
            self._lasting = Lasting(partial(connected, cluster.properties, own), "action log")
        except KafkaException as refused:
            raise WeirError(f"cannot write to {self._where}: {reason_of(refused)}") from refused

    async def write(self, action: BacklogAction) -> None:
        """Write one step.

        Raises:
            WeirError: it was not written in time, or is not known to be.
        """
        written: Future[KafkaError | None] = Future()
        # Whoever stops waiting cannot take it back: it is still told of.
        written.set_running_or_notify_cancel()
        value = orjson.dumps(action.fields())
        try:
            self._lasting.producer.produce(
                self._topic, value, action.topic.encode(),
                on_delivery=lambda error, _message: written.set_result(error),
            )  # fmt: skip
        except (KafkaException, BufferError) as error:
            raise WeirError(f"not written to {self._where}: {reason_of(error)}") from error
        failed = await asyncio.wrap_future(written)
        if failed is not None:
            raise WeirError(f"not written to {self._where}: {failed.str()}")

    def close(self) -> None:
        """End the thread; what was not written is given up."""
        self._lasting.stop()
        self._lasting.producer.purge()
