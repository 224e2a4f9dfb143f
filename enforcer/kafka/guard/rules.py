"""Where requests name what belongs to Weir, and where their answers say what was refused, API by API.

Sources: Kafka's message definitions; the errors are those of Kafka's own authorizer for a principal without
rights (class KafkaApis).
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, NamedTuple

TOPIC_AUTHORIZATION_FAILED: Final = 29
CLUSTER_AUTHORIZATION_FAILED: Final = 31
TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Final = 53


class Kind(Enum):
    """What the entries of a list are."""

    TOPICS = TOPIC_AUTHORIZATION_FAILED
    TRANSACTIONS = TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    RESOURCES = "resources"
    """Those of configurations; the topics among them are named, brokers' may be changed by some only."""
    ACLS = "acls"
    QUOTAS = "quotas"
    USERS = "users"


class Rule(NamedTuple):
    """One list of a request, and the list of the answer that says what became of its entries.

    Attributes:
        asked: the list in the request; behind a dot if it stands in each struct of another list.
        said: the list in the answer, likewise.
        key: field of the outer structs that says which is which.
        name: field of an entry with its name; None: the entry is the name.
        said_name: the same in the answer's entry.
        parts: an entry's partitions; None: the answer speaks of the entry as a whole.
        number: field of a partition with its number; None: the partition is the number.
        said_parts: the same in the answer.
        said_index: the same in the answer.
        error: field with the error.
        more: what else the refused have that is not the default.
        copied: fields that the answer repeats from the request.
        kind: what the entries are.
        silent: the answer names only what is there, so nothing is said of the refused.
        by_place: the answer has an entry for each of the request, in its order, without a name.
        forwarded: the broker must be asked, even if nothing is left.
    """

    asked: str
    said: str
    key: str = ""
    name: str | None = "Name"
    said_name: str = "Name"
    parts: str | None = None
    number: str | None = "PartitionIndex"
    said_parts: str = "Partitions"
    said_index: str = "PartitionIndex"
    error: str = "ErrorCode"
    more: Mapping[str, Any] = MappingProxyType({})
    copied: tuple[str, ...] = ()
    kind: Kind = Kind.TOPICS
    silent: bool = False
    by_place: bool = False
    forwarded: bool = False


def _parts(asked: str, said: str, **more: Any) -> Rule:
    """A list of topics with partitions that are structs."""
    return Rule(asked, said, **({"parts": "Partitions"} | more))


def _numbers(asked: str, said: str, parts: str = "Partitions", **more: Any) -> Rule:
    """A list of topics with partitions that are numbers."""
    return Rule(asked, said, parts=parts, number=None, **more)


_NO_OFFSET: Final = MappingProxyType({"CommittedOffset": -1, "CommittedLeaderEpoch": -1, "Metadata": b""})
_NO_RECORDS: Final = MappingProxyType({"HighWatermark": -1, "Records": b""})
_UNKNOWN: Final = MappingProxyType({"Offset": -1, "Timestamp": -1})
_NO_NODE: Final = MappingProxyType({"NodeId": -1, "Port": -1})
_NO_CONFIGS: Final = MappingProxyType({"Configs": (), "NumPartitions": -1, "ReplicationFactor": -1})
_RESOURCE: Final = ("ResourceType", "ResourceName")
_CHANGED: Final = Rule("Resources", "Responses", kind=Kind.RESOURCES, copied=_RESOURCE)
_TOPICS: Final = "Topics"
_NAMED: Final[Mapping[str, Any]] = MappingProxyType({"name": "TopicName", "said_name": "TopicName"})
# A share session counts the requests that reach its broker.
_SHARED: Final = _parts(_TOPICS, "Responses", name="TopicId", said_name="TopicId", forwarded=True)

RULES: Final[Mapping[int, tuple[tuple[int, Rule], ...]]] = MappingProxyType(
    {
        0: ((0, _parts("TopicData", "Responses", parts="PartitionData", number="Index",
                       said_parts="PartitionResponses", said_index="Index",
                       more=MappingProxyType({"BaseOffset": -1}))),),
        1: ((0, _parts(_TOPICS, "Responses", name="Topic", said_name="Topic", number="Partition",
                       more=_NO_RECORDS, forwarded=True)),),
        2: ((0, _parts(_TOPICS, _TOPICS, more=_UNKNOWN)),),
        3: ((0, Rule(_TOPICS, _TOPICS, forwarded=True)),),
        8: ((0, _parts(_TOPICS, _TOPICS)),),
        9: (
            (0, _numbers(_TOPICS, _TOPICS, "PartitionIndexes", more=_NO_OFFSET, forwarded=True)),
            (8, _numbers("Groups.Topics", "Groups.Topics", "PartitionIndexes", more=_NO_OFFSET,
                         key="GroupId", forwarded=True)),
        ),
        10: ((4, Rule("CoordinatorKeys", "Coordinators", name=None, said_name="Key", more=_NO_NODE,
                      kind=Kind.TRANSACTIONS)),),
        19: ((0, Rule(_TOPICS, _TOPICS, more=_NO_CONFIGS)),),
        20: (
            (0, Rule("TopicNames", "Responses", name=None)),
            (6, Rule(_TOPICS, "Responses")),
        ),
        21: ((0, _parts(_TOPICS, _TOPICS, more=MappingProxyType({"LowWatermark": -1}))),),
        23: ((0, _parts(_TOPICS, _TOPICS, name="Topic", said_name="Topic", number="Partition",
                        said_index="Partition")),),
        24: ((0, _numbers("V3AndBelowTopics", "ResultsByTopicV3AndBelow", said_parts="ResultsByPartition",
                          error="PartitionErrorCode")),),
        28: ((0, _parts(_TOPICS, _TOPICS)),),
        30: ((0, Rule("Creations", "Results", kind=Kind.ACLS, by_place=True)),),
        31: ((0, Rule("Filters", "FilterResults", kind=Kind.ACLS, by_place=True)),),
        32: ((0, Rule("Resources", "Results", kind=Kind.RESOURCES, copied=_RESOURCE)),),
        33: ((0, _CHANGED),),
        34: ((0, _numbers("Dirs.Topics", "Results", said_name="TopicName")),),
        35: ((0, Rule(_TOPICS, "", name="Topic", silent=True)),),
        37: ((0, Rule(_TOPICS, "Results")),),
        43: ((0, _numbers("TopicPartitions", "ReplicaElectionResults", name="Topic", said_name="Topic",
                          said_parts="PartitionResult", said_index="PartitionId")),),
        44: ((0, _CHANGED),),
        45: ((0, _parts(_TOPICS, "Responses")),),
        46: ((0, Rule(_TOPICS, "", silent=True)),),
        47: ((0, _parts(_TOPICS, _TOPICS)),),
        49: ((0, Rule("Entries", "Entries", name="", kind=Kind.QUOTAS, copied=("Entity",))),),
        51: (
            (0, Rule("Deletions", "Results", said_name="User", kind=Kind.USERS)),
            (0, Rule("Upsertions", "Results", said_name="User", kind=Kind.USERS)),
        ),
        61: ((0, _numbers(_TOPICS, _TOPICS, "PartitionIndexes")),),
        65: ((0, Rule("TransactionalIds", "TransactionStates", name=None, said_name="TransactionalId",
                      kind=Kind.TRANSACTIONS)),),
        75: ((0, Rule(_TOPICS, _TOPICS)),),
        78: ((0, _SHARED),),
        79: ((0, _SHARED),),
        90: ((0, _numbers("Groups.Topics", "Groups.Topics", key="GroupId", forwarded=True, **_NAMED)),),
        91: ((0, _parts(_TOPICS, "Responses", **_NAMED)),),
        92: ((0, Rule(_TOPICS, "Responses", **_NAMED)),),
    }
)  # fmt: skip
"""API -> its lists, each from a version on."""

TRANSACTION_OF: Final[Mapping[int, str]] = MappingProxyType(
    {
        0: "TransactionalId", 22: "TransactionalId", 24: "V3AndBelowTransactionalId",
        25: "TransactionalId", 26: "TransactionalId", 28: "TransactionalId",
    }
)  # fmt: skip
"""API -> field with the transactional id that all of the request is in the name of."""

_MEMBERS: Final = "Groups.Members"
_SUBTOPOLOGIES: Final = "Groups.Topology.Subtopologies"
_ENDPOINTS: Final = "PartitionsByUserEndpoint"
SHOWN: Final[Mapping[int, str]] = MappingProxyType(
    {
        9: "Topics.Name Groups.Topics.Name|TopicId",
        29: "Resources.ResourceName",
        35: "Results.Topics.Name",
        43: "ReplicaElectionResults.Topic",
        46: "Topics.Name",
        66: "TransactionStates.TransactionalId",
        68: "Assignment.TopicPartitions.TopicId",
        69: f"{_MEMBERS}.Assignment.TopicPartitions.TopicName,TopicId {_MEMBERS}.SubscribedTopicNames.Text"
            f" {_MEMBERS}.TargetAssignment.TopicPartitions.TopicName,TopicId",
        74: "ConfigResources.ResourceName",
        75: "Topics.Name,TopicId",
        76: "Assignment.TopicPartitions.TopicId",
        77: f"{_MEMBERS}.Assignment.TopicPartitions.TopicName,TopicId {_MEMBERS}.SubscribedTopicNames.Text",
        88: f"{_ENDPOINTS}.ActivePartitions.Topic {_ENDPOINTS}.StandbyPartitions.Topic",
        89: f"{_SUBTOPOLOGIES}.SourceTopics.Text {_SUBTOPOLOGIES}.RepartitionSinkTopics.Text"
            f" {_SUBTOPOLOGIES}.StateChangelogTopics.Name {_SUBTOPOLOGIES}.RepartitionSourceTopics.Name",
        90: "Groups.Topics.TopicName,TopicId",
    }
)  # fmt: skip
"""API -> lists of its answers that name what the client did not: where each stands, and behind the last dot
the fields of its entries with a name or an id, as `compiler` says them; of names alone it is `Text`."""


def rules_of(key: int, version: int) -> tuple[Rule, ...]:
    """The lists of a request in this version: those that begin with the last version up to it."""
    lists = RULES.get(key, ())
    first = max((since for since, _ in lists if since <= version), default=0)
    return tuple(rule for since, rule in lists if since == first)
