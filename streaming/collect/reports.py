"""A collector's reports on `weir.usage`, and the right to be the only collector of its cluster.

Two collectors of one cluster would report everything twice and push against each other. Kafka has one
producer per transactional id: whoever comes later ends the one before (KIP-98). So reports are written in
transactions whose id names the cluster, and a collector that may not write any more learns it with its next
report. It ends, or stands by while the other one is at work: else they would take turns.
"""

import asyncio
import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, Self

import orjson
from confluent_kafka import KafkaException
from kafka.errors import KafkaError, TransactionalIdNotFoundError

from streaming.contract.errors import TakenOver, WeirError
from streaming.contract.printable import printable
from streaming.contract.topics import Cluster
from streaming.kafka_io.admin_client import AdminClient
from streaming.kafka_io.reader import reason_of
from streaming.kafka_io.writer import OVER, Learn, NotWritten, Record, Transactions

logger = logging.getLogger("weir.collect")

RECORD_BYTES: Final = 900_000
DOUBT_TIMES: Final = 3
"""For so many limits of a step after a failure who ends us may be ourselves: a broker that comes back still
finds what we asked before, takes it for a producer that starts, and ends the one that has started since."""
QUIET_S: Final = 180.0
"""The least time of silence that is taken for the other one's end."""
_INTERVALS: Final = 3
_LOOK_S: Final = 10.0
_LIMIT_MS: Final = 10_000


class Reports:
    """Writes reports, until another collector of the cluster does; a context manager.

    Args:
        cluster: they go to its `weir.usage`.
        lease: the transactional id.
        timeout_s: limit of each step.
        learn: told of each written record.

    Raises:
        WeirError: Kafka did not answer in time, or refuses.
    """

    def __init__(
        self, cluster: Cluster, lease: str, timeout_s: float, learn: Learn = lambda *_: None
    ) -> None:
        self._topic, self._timeout_s = cluster.topics.usage, timeout_s
        self._where, self._lease = f"{self._topic} on {cluster.bootstrap}", lease
        self._connect = partial(Transactions, cluster, self._topic, lease, timeout_s, timeout_s, learn)
        self._transactions: Transactions | None = self._connect()
        self._in_doubt_until = 0.0

    def write(self, events: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Write (broker, event) pairs as JSON, as `send` does."""
        self.send(Record(value=orjson.dumps(event), key=broker.encode()) for broker, event in events)

    def partitions(self) -> int:
        """How many the topic has.

        Raises:
            WeirError: Kafka does not say in time, or there is no such topic.
        """
        transactions = self._transactions = self._transactions or self._again()
        try:
            known = transactions.producer.list_topics(self._topic, self._timeout_s)
        except KafkaException as error:
            raise WeirError(f"cannot write to {self._where}: {reason_of(error)}") from error
        found = known.topics[self._topic]
        if found.error is not None or not found.partitions:
            raise WeirError(f"cannot write to {self._where}: {found.error or 'it has no partition'}")
        return len(found.partitions)

    def send(self, records: Iterable[Record]) -> None:
        """Write records, all or none; blocks for a few limits at most.

        Raises:
            TakenOver: see there; nothing was written.
            WeirError: not written, or not known to be; the next report may be.
        """
        transactions = self._transactions or self._again()
        # Until it has succeeded: what failed may have left it in any state, and Kafka ends a transaction that
        # lasts too long, and its producer with it, as if there were another one.
        self._transactions = None
        began = time.monotonic()
        try:
            transactions.write(records, self._timeout_s)
        except NotWritten as failure:
            codes = failure.codes | transactions.abort(self._timeout_s)
            if codes & OVER and time.monotonic() - began < self._timeout_s and began > self._in_doubt_until:
                raise TakenOver(
                    f"another collector has taken over as {self._lease}; this one does nothing more",
                    self._lease,
                ) from failure
            self._in_doubt_until = time.monotonic() + DOUBT_TIMES * self._timeout_s
            raise WeirError(f"the report was not written to {self._where}: {failure}") from failure
        self._transactions = transactions

    def _again(self) -> Transactions:
        """Take the right again, after a failure."""
        try:
            return self._connect()
        except WeirError:
            self._in_doubt_until = time.monotonic() + DOUBT_TIMES * self._timeout_s
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._transactions is not None:
            self._transactions.close()


async def stand_by(cluster: Cluster, taken: TakenOver, interval_s: float) -> None:
    """Return once whoever has taken over has written nothing for so long.

    Args:
        interval_s: between two of its reports; three of them are waited for, and three minutes at least.
    """
    quiet_s = max(QUIET_S, _INTERVALS * interval_s)
    logger.warning("%s until that one has been silent for %.0f s", printable(str(taken)), quiet_s)
    seen, since_s = None, time.monotonic()
    while time.monotonic() - since_s < quiet_s:
        await asyncio.sleep(_LOOK_S)
        try:
            found = await asyncio.to_thread(last_begun_ms, cluster, taken.lease)
        except (WeirError, RuntimeError):
            # Where we cannot ask, as where no thread is left for it, that one need not be silent.
            since_s = time.monotonic()
            continue
        if found != seen:
            seen, since_s = found, time.monotonic()
    logger.warning("the other collector is silent; this one takes over as %s", taken.lease)


def last_begun_ms(cluster: Cluster, lease: str) -> int:
    """When the newest transaction of a transactional id began, by its broker; -1: there is none.

    Raises:
        WeirError: Kafka does not tell.
    """
    try:
        admin = AdminClient(cluster=cluster, timeout_ms=_LIMIT_MS)
        try:
            return int(admin.describe_transactions([lease])[lease].transaction_start_time_ms)
        finally:
            admin.close()
    except TransactionalIdNotFoundError:
        return -1
    except (KafkaError, OSError, ValueError) as error:
        raise WeirError(f"{cluster.bootstrap} does not tell who writes as {lease}: {error}") from error


def records(event: Mapping[str, Any], name: str, size_max: int = RECORD_BYTES) -> Iterator[dict[str, Any]]:
    """A `group_usage` as records that each fit, at least one; they differ in their ids.

    >>> event = {"broker": "b", "usage": {"g1": {"publishedMsg": 1}, "g2": {"publishedMsg": 2}}}
    >>> [(one["id"], list(one["usage"])) for one in records(event, "c-1", 30)]
    [('c-1', ['g1']), ('c-1.1', ['g2'])]
    """
    usage: dict[str, Any] = {}
    size = number = 0
    for group, entry in event["usage"].items():
        added = len(orjson.dumps({group: entry}))
        if usage and size + added > size_max:
            yield {**event, "id": f"{name}.{number}" if number else name, "usage": usage}
            usage, size, number = {}, 0, number + 1
        usage[group] = entry
        size += added
    yield {**event, "id": f"{name}.{number}" if number else name, "usage": usage}
