"""Weir's own topics as they must be, and what is wrong with them (docs/contract.md 1).

One place for all: `weir up` and `weir job` create the topics with these settings, and every part looks at
them again and again (topic_watch). A topic that was deleted and that some client's request made again has
the broker's settings, not these; it takes records as before, and nobody would notice.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, ResourceType

from streaming.contract.errors import WeirError
from streaming.contract.topics import KEPT_MS, Cluster, Topics
from streaming.kafka_io.reader import NO_LOG, reason_of

T = TypeVar("T")

READ_BACK_MS: Final = 600_000
"""The most that a part reads back when it starts: a proxy what was decided, a collector what it had begun."""
SEGMENT_MS: Final = 24 * 3600 * 1000
"""Whole segments leave, and are compacted: a topic then holds a day more than it must, not a week more, which
is Kafka's own setting."""
TIMESTAMP_TYPE: Final = "message.timestamp.type"
CLEANUP_POLICY: Final = "cleanup.policy"
RETENTION_MS: Final = "retention.ms"
RETENTION_BYTES: Final = "retention.bytes"
COMPACTION_LAG_MS: Final = "min.compaction.lag.ms"
_FOR_EVER: Final = -1
_AGAIN_S, _LEAST_S = 0.5, 0.1
"""How soon a cluster is asked again that did not answer, and the least time that it gets."""


class Fault(StrEnum):
    """What can be wrong with a topic; the labels of metrics."""

    MISSING = "missing"
    """It is not there."""
    TIMESTAMPS = "timestamp_type"
    """Its records have the clocks of those who write them, not the broker's."""
    CLEANUP = "cleanup_policy"
    """It loses what is needed, or keeps what is not."""
    PARTITIONS = "partitions"
    """Its records have no order."""
    FORGETS = "forgets"
    """It holds less than parts read back when they start."""
    KEEPS_LESS = "keeps_less"
    """It holds less than `kafka.topics_kept_ms`, or what its size allows: an absence may cost events."""
    NOT_OURS = "broker_defaults"
    """Its settings do for now, but are the broker's: it was made by some client's request, not by Weir."""
    UNREADABLE = "unreadable"
    """The cluster does not tell its settings."""


STOPPING: Final = frozenset({Fault.TIMESTAMPS, Fault.CLEANUP, Fault.PARTITIONS, Fault.FORGETS})
"""With these decisions are wrong: `weir up`, `weir job`, `weir admin`, `weir collect pulsar` do not start."""


@dataclass(frozen=True, slots=True)
class TopicFault:
    """One thing that is wrong with a topic.

    Attributes:
        topic: its name.
        fault: what.
        what: it is, and what Weir needs.
        mend: the command that mends it.
    """

    topic: str
    fault: Fault
    what: str
    mend: str

    @property
    def text(self) -> str:
        """Both."""
        return f"{self.what}: {self.mend}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsSeen:
    """One look at the five topics.

    Attributes:
        faults: what is wrong with them.
        ids: of those that are there: Kafka's id by name, another one when a topic was deleted and made again.
        partitions: of those that are there: how many, by name.
    """

    faults: tuple[TopicFault, ...]
    ids: Mapping[str, str]
    partitions: Mapping[str, int]

    def check(self) -> None:
        """Refuse topics with which decisions would be wrong; one that is missing is no such topic.

        Raises:
            WeirError: what was expected, and the commands that mend it.
        """
        wrong = [each.text for each in self.faults if each.fault in STOPPING]
        if wrong:
            raise WeirError("\n".join(wrong))


def topic_settings(topics: Topics, kept_ms: int = KEPT_MS) -> dict[str, dict[str, str]]:
    """Kafka's topic properties by topic name, where events and decisions are kept for so long."""
    rolled = {"segment.ms": str(SEGMENT_MS)}
    kept = {
        CLEANUP_POLICY: "delete", RETENTION_MS: str(kept_ms), RETENTION_BYTES: str(_FOR_EVER), **rolled,
    }  # fmt: skip
    # One clock for all proxies: the broker's, at the moment of the append.
    arrival = {TIMESTAMP_TYPE: "LogAppendTime"}
    return {
        topics.requests: kept | arrival,
        topics.usage: kept | arrival,
        # Compacted away sooner than the requests, a change of limits would be missing in a replay.
        topics.policies: {CLEANUP_POLICY: "compact", COMPACTION_LAG_MS: str(kept_ms)} | rolled | arrival,
        topics.decisions: kept,
        topics.deadletter: kept,
    }


def look(admin: AdminClient, cluster: Cluster, limit_s: float) -> TopicsSeen:
    """Look at the topics once; creates none, also where the broker would.

    Args:
        limit_s: of each of two questions.

    Raises:
        WeirError: the cluster does not answer in time.
    """
    bootstrap, topics = cluster.bootstrap, cluster.topics
    partitions: dict[str, int] = {}
    ids: dict[str, str] = {}
    faults: list[TopicFault] = []
    # By name: a cluster may have a hundred thousand others. This request never creates a topic.
    described = admin.describe_topics(TopicCollection(list(topics.all())), request_timeout=limit_s)
    for name, found, error in _answers(described):
        if error is not None:
            faults.append(_unseen(name, error, bootstrap))
            continue
        partitions[name], ids[name] = len(found.partitions), str(found.topic_id)
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in partitions]
    settings = topic_settings(topics, cluster.topics_kept_ms)
    configs = admin.describe_configs(resources, request_timeout=limit_s) if resources else {}
    for resource, found, error in _answers(configs):
        name = resource.name
        if error is not None:
            faults.append(_unseen(name, error, bootstrap))
            continue
        faults += _wrong(name, found, settings[name], cluster)
    # Versions count up in one order; of the others an installation may have as many as it likes.
    if partitions.get(topics.policies, 1) != 1:
        faults.append(_too_many(topics.policies, partitions[topics.policies], bootstrap))
    return TopicsSeen(faults=tuple(faults), ids=ids, partitions=partitions)


def admin_of(properties: Mapping[str, Any]) -> AdminClient:
    """A client that asks the cluster.

    Raises:
        WeirError: the library makes none, as where no thread is left for one.
    """
    try:
        return AdminClient(dict(properties), logger=NO_LOG)
    except KafkaException as refused:
        raise WeirError(f"cannot ask {properties['bootstrap.servers']}: {reason_of(refused)}") from refused


def asked_until(
    deadline: float, connect: Callable[[], AdminClient], ask: Callable[[AdminClient, float], T]
) -> T:
    """What a cluster answers, asked again as often as a broker ends before it has: another one may know.

    Args:
        deadline: of a steady clock, seconds.
        connect: makes the client that asks, anew each time: one of librdkafka's has been seen waiting for a
            controller that answered all others.
        ask: asks it for at most half of the time left, seconds; raises WeirError if it does not answer.

    Raises:
        WeirError: it does not answer in time.
    """
    while True:
        try:
            return ask(connect(), max(_LEAST_S, (deadline - time.monotonic()) / 2))
        except WeirError:
            if time.monotonic() > deadline - _AGAIN_S:
                raise
        time.sleep(_AGAIN_S)


def _answers(asked: Mapping[Any, Future[Any]]) -> Iterator[tuple[Any, Any, KafkaError | None]]:
    """What the cluster says of each that it was asked for, or its error, if it has one about this topic.

    Raises:
        WeirError: it did not answer.
    """
    for what, future in asked.items():
        try:
            yield what, future.result(), None
        except KafkaException as failure:
            error: KafkaError = failure.args[0]
            if error.code() < 0:  # the library's own: no answer, no connection
                raise WeirError(f"the cluster does not answer: {error.str()}") from failure
            yield what, None, error


def _unseen(name: str, error: KafkaError, bootstrap: str) -> TopicFault:
    if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
        what, mend = f"is not there on {bootstrap}", "`weir job` and `weir up` create it when they start"
        return TopicFault(name, Fault.MISSING, f"topic {name} {what}", mend)
    mend = "Weir needs the operations Describe and DescribeConfigs on it"
    return TopicFault(name, Fault.UNREADABLE, f"topic {name} cannot be looked at: {error.str()}", mend)


def _wrong(
    name: str, found: Mapping[str, Any], settings: Mapping[str, str], cluster: Cluster
) -> list[TopicFault]:
    add = ",".join(f"{key}={value}" for key, value in settings.items())
    mend = (
        f"kafka-configs --bootstrap-server {cluster.bootstrap} --alter --entity-type topics"
        f" --entity-name {name} --add-config {add}"
    )
    other = [
        (fault, f"{key}={found[key].value}; Weir needs {settings[key]}")
        for key, fault in ((TIMESTAMP_TYPE, Fault.TIMESTAMPS), (CLEANUP_POLICY, Fault.CLEANUP))
        if key in settings and found[key].value != settings[key]
    ]
    # Where something else is wrong the same command mends both.
    said = other or _forgets(found, settings, read_back=name != cluster.topics.deadletter)
    faults = [TopicFault(name, fault, f"topic {name} exists with {what}", mend) for fault, what in said]
    # Whoever creates a topic of Weir sets this one on it; it is the broker's where a request created it.
    if not faults and found[CLEANUP_POLICY].source != ConfigSource.DYNAMIC_TOPIC_CONFIG.value:
        what = f"topic {name} has the broker's settings, since a client's request made it, not Weir"
        faults.append(TopicFault(name, Fault.NOT_OURS, what, mend))
    return faults


def _forgets(
    found: Mapping[str, Any], settings: Mapping[str, str], *, read_back: bool
) -> Iterator[tuple[Fault, str]]:
    """Whether a topic forgets too soon."""
    for key in (RETENTION_MS, COMPACTION_LAG_MS, RETENTION_BYTES):
        if key not in settings or int(found[key].value) == _FOR_EVER:
            continue
        held, wanted = int(found[key].value), int(settings[key])
        if key == RETENTION_BYTES:
            yield Fault.KEEPS_LESS, f"{key}={held}; Weir needs {wanted}: by size it may forget at any time"
        elif held < READ_BACK_MS and key == RETENTION_MS and read_back:
            yield Fault.FORGETS, f"{key}={held}; Weir needs {READ_BACK_MS} to read back, {wanted} to keep"
        elif held < wanted:
            yield Fault.KEEPS_LESS, f"{key}={held}; Weir needs {wanted} (kafka.topics_kept_ms)"


def _too_many(name: str, count: int, bootstrap: str) -> TopicFault:
    mend = (
        f"keep what it says (weir policy get --kafka {bootstrap} > policies.yaml), delete it (kafka-topics"
        f" --bootstrap-server {bootstrap} --delete --topic {name}), start `weir job` and then"
        f" weir policy apply policies.yaml --kafka {bootstrap}"
    )
    what = f"topic {name} has {count} partitions; Weir needs 1, since versions count up in one order"
    return TopicFault(name, Fault.PARTITIONS, what, mend)
