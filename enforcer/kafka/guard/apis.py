"""Every API of Kafka 4.3: what a client could do with it, and what the proxy does about that.

The one place where this is said: version ranges, what is hidden and what may pass unread follow from it, and
the table in docs/protocol_notes.md 7 is held equal to it by a test. What they are called is `definitions`'.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from enforcer.wire.kafka.definitions import NAMES


class Rule(StrEnum):
    """What the proxy does with an API's frames."""

    PASS = "passes"
    OWN = "answered"
    """The proxy takes part: it limits the versions, or learns who the client is."""
    REWRITTEN = "rewritten"
    """Addresses of brokers are replaced or blanked."""
    METERED = "metered"
    CHARGED = "charged"
    """Partition mutations: asked for and charged."""
    FILTERED = "filtered"
    """Weir's own topics and transactional ids are refused in requests and left out of answers."""
    REFUSED = "refused"
    """Refused per entry, other than for those whom a setting names."""
    HIDDEN = "hidden"
    """Not offered in ApiVersions; a request of it ends the connection, as an unknown one does at a broker."""


class Api(NamedTuple):
    """One API.

    Attributes:
        can: what it could create, change or reveal.
        rules: what the proxy does.
        versions: first and last version that the proxy can read; None: it reads none, or need not.
        name: Kafka's name.
    """

    can: str
    rules: tuple[Rule, ...]
    versions: tuple[int, int] | None = None
    name: str = ""


_PASS = (Rule.PASS,)
_HIDDEN = (Rule.HIDDEN,)
_FILTERED = (Rule.FILTERED,)
_METERED = (Rule.METERED, Rule.FILTERED, Rule.REWRITTEN)
_CHARGED = (Rule.CHARGED, Rule.FILTERED)
_SHOWN = (Rule.FILTERED, Rule.REWRITTEN)
_CHANGED = (Rule.FILTERED, Rule.REFUSED)
_BETWEEN_BROKERS = "between brokers and controllers"
_OF_THE_CLUSTER = "changes the cluster itself: for its operator, straight"

_BY_NAME: Final[Mapping[str, Api]] = MappingProxyType(
    {
        "Produce": Api("writes records", _METERED, (0, 13)),
        "Fetch": Api("reads records", _METERED, (0, 18)),
        "ListOffsets": Api("reveals offsets", _FILTERED, (0, 11)),
        "Metadata": Api("reveals topics and brokers, creates topics",
                       (Rule.CHARGED, Rule.FILTERED, Rule.REWRITTEN), (0, 13)),
        "OffsetCommit": Api("writes a group's offsets", _FILTERED, (0, 10)),
        "OffsetFetch": Api("reveals a group's offsets", _FILTERED, (0, 10)),
        "FindCoordinator": Api("reveals a broker, creates the topics of offsets and of transactions",
                              _SHOWN, (0, 6)),
        "JoinGroup": Api("changes a group", _PASS),
        "Heartbeat": Api("keeps a member in its group", _PASS),
        "LeaveGroup": Api("takes members out of a group", _PASS),
        "SyncGroup": Api("hands out partitions in a group", _PASS),
        "DescribeGroups": Api("reveals members; what they subscribe to is in their own encoding", _PASS),
        "ListGroups": Api("reveals groups", _PASS),
        "SaslHandshake": Api("begins a login", (Rule.OWN,), (1, 1)),
        "ApiVersions": Api("reveals what is offered", (Rule.OWN,), (0, 4)),
        "CreateTopics": Api("creates partitions", _CHARGED, (2, 7)),
        "DeleteTopics": Api("deletes partitions", _CHARGED, (1, 6)),
        "DeleteRecords": Api("deletes records", _FILTERED, (0, 2)),
        "InitProducerId": Api("fences the producers of a transactional id", _FILTERED, (0, 6)),
        "OffsetForLeaderEpoch": Api("reveals offsets", _FILTERED, (0, 4)),
        # From version 4 on it is for brokers, which batch the transactions of many clients.
        "AddPartitionsToTxn": Api("changes a transaction", _FILTERED, (0, 3)),
        "AddOffsetsToTxn": Api("changes a transaction", _FILTERED, (0, 4)),
        "EndTxn": Api("ends a transaction", _FILTERED, (0, 5)),
        "WriteTxnMarkers": Api("ends any producer's transaction; " + _BETWEEN_BROKERS, _HIDDEN),
        "TxnOffsetCommit": Api("writes a group's offsets", _FILTERED, (0, 5)),
        "DescribeAcls": Api("reveals ACLs", _FILTERED, (0, 3)),
        "CreateAcls": Api("allows and forbids", _FILTERED, (0, 3)),
        "DeleteAcls": Api("allows and forbids", _FILTERED, (0, 3)),
        "DescribeConfigs": Api("reveals settings, brokers' listeners among them", _SHOWN, (0, 4)),
        "AlterConfigs": Api("changes settings of topics, groups and brokers", _CHANGED, (0, 2)),
        "AlterReplicaLogDirs": Api("moves replicas between disks", _FILTERED, (0, 2)),
        "DescribeLogDirs": Api("reveals topics and their sizes", _FILTERED, (0, 5)),
        "SaslAuthenticate": Api("says who the client is", (Rule.OWN,), (0, 2)),
        "CreatePartitions": Api("creates partitions", _CHARGED, (0, 3)),
        "CreateDelegationToken": Api("another login for the same principal", _PASS),
        "RenewDelegationToken": Api("lengthens a token's life", _PASS),
        "ExpireDelegationToken": Api("ends a token", _PASS),
        "DescribeDelegationToken": Api("reveals tokens", _PASS),
        "DeleteGroups": Api("deletes groups; Weir has none", _PASS),
        "ElectLeaders": Api("moves leaders", _FILTERED, (0, 2)),
        "IncrementalAlterConfigs": Api("changes settings of topics, groups and brokers", _CHANGED, (0, 1)),
        "AlterPartitionReassignments": Api("moves replicas", _FILTERED, (0, 1)),
        "ListPartitionReassignments": Api("reveals topics and their replicas", _FILTERED, (0, 0)),
        "OffsetDelete": Api("deletes a group's offsets", _FILTERED, (0, 0)),
        "DescribeClientQuotas": Api("reveals quotas", _PASS),
        "AlterClientQuotas": Api("raises one's own quota", (Rule.REFUSED,), (0, 1)),
        "DescribeUserScramCredentials": Api("reveals users, no secrets", _PASS),
        "AlterUserScramCredentials": Api("makes users, and oneself another one", (Rule.REFUSED,), (0, 0)),
        "DescribeQuorum": Api("reveals the controllers' addresses", (Rule.REWRITTEN,), (0, 2)),
        "Envelope": Api("any request in another's name; " + _BETWEEN_BROKERS, _HIDDEN),
        "FetchSnapshot": Api("reveals all metadata; " + _BETWEEN_BROKERS, _HIDDEN),
        "DescribeCluster": Api("reveals brokers and controllers", (Rule.REWRITTEN,), (0, 2)),
        "DescribeProducers": Api("reveals producers", _FILTERED, (0, 0)),
        "DescribeTransactions": Api("reveals producers and topics", _FILTERED, (0, 0)),
        "ListTransactions": Api("reveals transactional ids", _FILTERED, (0, 2)),
        "ConsumerGroupHeartbeat": Api("reveals ids of topics", _FILTERED, (0, 1)),
        "ConsumerGroupDescribe": Api("reveals topics", _FILTERED, (0, 1)),
        "GetTelemetrySubscriptions": Api("reveals what clients shall measure", _PASS),
        "PushTelemetry": Api("writes to the brokers' metrics plug-in", _PASS),
        "ListConfigResources": Api("reveals topics", _FILTERED, (0, 1)),
        "DescribeTopicPartitions": Api("reveals topics", _FILTERED, (0, 0)),
        "ShareGroupHeartbeat": Api("reveals ids of topics", _FILTERED, (1, 1)),
        "ShareGroupDescribe": Api("reveals topics", _FILTERED, (1, 1)),
        "ShareFetch": Api("reads records for a share group, ends deliveries", _METERED, (1, 2)),
        "ShareAcknowledge": Api("ends deliveries", _SHOWN, (1, 2)),
        "StreamsGroupHeartbeat": Api("creates a topology's internal topics", _CHARGED, (0, 0)),
        "StreamsGroupDescribe": Api("reveals topics", _FILTERED, (0, 0)),
        "DescribeShareGroupOffsets": Api("reveals a share group's offsets", _FILTERED, (0, 1)),
        "AlterShareGroupOffsets": Api("writes a share group's offsets", _FILTERED, (0, 0)),
        "DeleteShareGroupOffsets": Api("deletes a share group's offsets", _FILTERED, (0, 0)),
        **dict.fromkeys(
            ("LeaderAndIsr", "StopReplica", "UpdateMetadata", "ControlledShutdown", "Vote",
            "BeginQuorumEpoch", "EndQuorumEpoch", "AlterPartition", "BrokerRegistration", "BrokerHeartbeat",
            "AllocateProducerIds", "ControllerRegistration", "AssignReplicasToDirs", "UpdateRaftVoter",
            "InitializeShareGroupState", "ReadShareGroupState", "WriteShareGroupState",
            "DeleteShareGroupState", "ReadShareGroupStateSummary"),
            Api(_BETWEEN_BROKERS, _HIDDEN),
        ),
        **dict.fromkeys(
            ("UpdateFeatures", "UnregisterBroker", "AddRaftVoter", "RemoveRaftVoter"),
            Api(_OF_THE_CLUSTER, _HIDDEN),
        ),
    }
)  # fmt: skip
APIS: Final[Mapping[int, Api]] = MappingProxyType(
    {key: _BY_NAME[name]._replace(name=name) for key, name in enumerate(NAMES)}
)
"""By API key, 0 to 92 without a gap."""

HIDDEN: Final = frozenset(key for key, api in APIS.items() if Rule.HIDDEN in api.rules)
FILTERED: Final = frozenset(key for key, api in APIS.items() if Rule.FILTERED in api.rules)
REFUSED: Final = frozenset(key for key, api in APIS.items() if Rule.REFUSED in api.rules)
READABLE: Final[Mapping[int, tuple[int, int]]] = MappingProxyType(
    {key: api.versions for key, api in APIS.items() if api.versions is not None}
)
"""First and last version of the APIs whose frames the proxy may have to read: others are not offered."""

# An API that is not in READABLE passes with the broker's own range. Produce keeps minimum 0 there: older
# librdkafka looks for it (KAFKA-18659). SaslHandshake 0 would be followed by raw tokens without headers.
# The low ends of the admin APIs are those of a 4.1 broker.
ANY_VERSION: Final = (0, (1 << 15) - 1)
