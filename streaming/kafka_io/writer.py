"""Writes to Kafka topics, each record acknowledged by all replicas and written once (docs/contract.md 1).

`Transactions` write all or nothing, and only as long as nobody else does under their name: Kafka has one
producer per transactional id, and whoever comes later ends the one before and everything that it may still
try (KIP-98).
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, Message, Producer

from streaming.contract.errors import WeirError
from streaming.contract.topics import Cluster
from streaming.kafka_io.reader import NO_LOG, reason_of

OVER: Final = frozenset({
    KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_ID_MAPPING,
})  # fmt: skip
"""Somebody else writes under our transactional id."""
_PURGED: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})
_OURS: Final[Mapping[str, Any]] = {
    "enable.idempotence": True,
    "linger.ms": 0,
    # As in Kafka's own clients, so that one subject is in one partition whoever writes.
    "partitioner": "murmur2_random",
    # Above what any of our records has.
    "message.max.bytes": 1_000_000,
    # A topic that is gone must not come back with the broker's settings because we write to it.
    "allow.auto.create.topics": False,
}
Learn = Callable[[int, float], None]
"""Told a written record's time by its broker, ms, and when we heard of it, steady ms."""
LAST_S: Final = 1.0
"""So long a producer that writes no more may take to tell of what it had sent; the rest it gives up."""
_POLL_S, _JOIN_S = 0.1, 1.0
_LOG: Final = logging.getLogger(__name__)


def connected(client: Mapping[str, Any], own: Mapping[str, Any]) -> Producer:
    """An idempotent producer.

    Args:
        client: librdkafka properties of our connections, as settings have them: they change nothing of ours.
        own: the caller's.
    """
    return Producer({**client, **_OURS, **own}, logger=NO_LOG)


def refusal(client: Mapping[str, Any]) -> str:
    """Why the library takes no such properties, in its words; empty: it takes them."""
    method = "sasl.oauthbearer.method"
    try:
        # With the other method it asks for a token at once, and lets go only once that is answered.
        connected(client, {method: "default"} if client.get(method) == "oidc" else {})
    except KafkaException as refused:
        return reason_of(refused)
    return ""


def served(producer: Producer, limit_s: float) -> KafkaError | None:
    """Take reports of deliveries for so long; what has broken the producer for good, if that is new.

    The library tells it here alone, once, and raises it: of what it held it only says that it was purged, and
    it refuses further work as _FATAL, by an error that is not fatal.
    """
    try:
        producer.poll(limit_s)
    except KafkaException as broken:
        error: KafkaError = broken.args[0]
        return error
    return None


def flushed(producer: Producer, limit_s: float) -> int:
    """Take reports of deliveries until there are no more, for so long at most; how many are left.

    What has broken the producer meanwhile is raised through our callback, which breaks it: it is passed over.
    """
    with contextlib.suppress(KafkaException, SystemError):
        return producer.flush(limit_s)
    return len(producer)


def let_go(producer: Producer) -> None:
    """Have one that writes no more tell what became of all that it holds; who waits knows then."""
    if flushed(producer, LAST_S):
        producer.purge()
        flushed(producer, LAST_S)


class Lasting:
    """A producer whose reports of deliveries a thread takes, and another one once it has broken for good.

    Attributes:
        producer: the library's that takes records now.

    Args:
        connect: makes one.
        name: of the thread.
    """

    def __init__(self, connect: Callable[[], Producer], name: str) -> None:
        self._connect = connect
        self.producer = connect()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()
        self._thread.join(_JOIN_S)

    def _run(self) -> None:
        broken: KafkaError | None = None
        again_s = 0.0
        while not self._stopping.is_set():
            old = self.producer
            if (found := served(old, _POLL_S)) is not None:
                broken = found
            if broken is None or time.monotonic() < again_s:
                continue
            # Where no thread is left for another one there may be at the next look: it is not told of again.
            with contextlib.suppress(KafkaException):
                self.producer = self._connect()
                # One that breaks each time, as where a right is missing, is not replaced ten times a second.
                again_s = time.monotonic() + LAST_S
                _LOG.warning("the %s starts again: %s", self._thread.name, broken)
                broken = None
                let_go(old)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What is written.

    Attributes:
        value: its bytes.
        key: by which its partition is chosen; None: none.
        partition: where it goes; -1: where its key says.
        headers: of it.
    """

    value: bytes
    key: bytes | None = None
    partition: int = -1
    headers: tuple[tuple[str, bytes], ...] = ()


class NotWritten(Exception):
    """A transaction failed.

    Attributes:
        codes: of all that went wrong.
        unknown: it may have been written all the same.
        late: Kafka did not take the records in time, and nothing was committed.

    Args:
        why: for people.
    """

    def __init__(self, why: str, codes: set[int], *, unknown: bool = False, late: bool = False) -> None:
        super().__init__(why)
        self.codes, self.unknown, self.late = codes, unknown, late


class Transactions:
    """The right to write under a transactional id, until somebody else takes it.

    Args:
        cluster: written to.
        topic: where all goes.
        name: the transactional id.
        limit_s: a transaction that lasts longer is ended by the broker.
        timeout_s: limit for taking the right.
        learn: told of each written record.

    Raises:
        WeirError: the cluster did not answer in time or refuses.
    """

    def __init__(
        self, cluster: Cluster, topic: str, name: str, limit_s: float, timeout_s: float,
        learn: Learn = lambda *_: None,
    ) -> None:  # fmt: skip
        self._topic, self._learn = topic, learn
        limit_ms = int(limit_s * 1000)
        own = {"transactional.id": name, "transaction.timeout.ms": limit_ms, "message.timeout.ms": limit_ms}
        try:
            self.producer = connected(cluster.properties, own)
            """The library's."""
            self.producer.init_transactions(timeout_s)
        except KafkaException as error:
            raise WeirError(f"cannot write to {topic} on {cluster.bootstrap}: {reason_of(error)}") from error

    def write(self, records: Iterable[Record], timeout_s: float, within_s: float | None = None) -> None:
        """Write records, all or none.

        Args:
            records: what to write.
            timeout_s: limit of each step.
            within_s: what Kafka does not take in so long is not committed.

        Raises:
            NotWritten: nothing was written, or it is not known; the transaction may be open.
        """
        begun = time.monotonic()
        refused: list[KafkaError] = []
        committing = False

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                refused.append(error)
            elif (said := message.timestamp())[0] == TIMESTAMP_LOG_APPEND_TIME:
                self._learn(said[1], time.monotonic() * 1000)

        try:
            self.producer.begin_transaction()
            for record in records:
                self._produce(record, delivered, timeout_s)
            if within_s is not None:
                # What is fatal the commit says.
                flushed(self.producer, within_s)
                if time.monotonic() - begun > within_s:
                    raise NotWritten(f"Kafka took longer than {within_s:g} s", set(), late=True)
            committing = True
            self.producer.commit_transaction(timeout_s)
        except (KafkaException, BufferError) as error:
            codes = {one.code() for one in refused} | _codes(error)
            # What was purged is what the library gave up because of the error.
            own = [one.str() for one in refused if one.code() not in _PURGED]
            why = own[0] if own else reason_of(error)
            raise NotWritten(why, codes, unknown=committing and not refused) from error

    def _produce(self, record: Record, delivered: Callable[..., None], timeout_s: float) -> None:
        arguments = self._topic, record.value, record.key, record.partition
        headers: list[tuple[str, str | bytes | None]] = [*record.headers]
        with contextlib.suppress(BufferError):
            self.producer.produce(*arguments, headers=headers, on_delivery=delivered)
            self.producer.poll(0)
            return
        # librdkafka's queue is full: what is in it goes out first. What is fatal the next call says.
        flushed(self.producer, timeout_s)
        self.producer.produce(*arguments, headers=headers, on_delivery=delivered)

    def abort(self, limit_s: float) -> set[int]:
        """End what is open, so that readers need not wait for the broker; the codes of what goes wrong."""
        try:
            self.producer.abort_transaction(limit_s)
        except KafkaException as error:
            self.producer.purge()
            return _codes(error)
        return set()

    def close(self) -> None:
        """Leave; what is under way is given up."""
        self.producer.purge()


def _codes(error: Exception) -> set[int]:
    return {error.args[0].code()} if isinstance(error, KafkaException) else set()
