"""Every API of Kafka 4.1: what a client could do with it, and what the proxy does about that.

The one place where this is said: version ranges, what is hidden and what may pass unread follow from it, and
the table in docs/protocol_notes.md 7 is held equal to it by a test. It imports nothing.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple


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
        name: Kafka's name.
        can: what it could create, change or reveal.
        rules: what the proxy does.
        versions: first and last version that the proxy can read; None: it reads none, or need not.
    """

    name: str
    can: str
    rules: tuple[Rule, ...]
    versions: tuple[int, int] | None = None


_PASS = (Rule.PASS,)
_HIDDEN = (Rule.HIDDEN,)
_FILTERED = (Rule.FILTERED,)
_BETWEEN_BROKERS = "between brokers and controllers"
_OF_THE_CLUSTER = "changes the cluster itself: for its operator, straight"

APIS: Final[Mapping[int, Api]] = MappingProxyType(
    {
        0: Api("Produce", "writes records", (Rule.METERED, Rule.FILTERED, Rule.REWRITTEN), (0, 13)),
        1: Api("Fetch", "reads records", (Rule.METERED, Rule.FILTERED, Rule.REWRITTEN), (0, 18)),
        2: Api("ListOffsets", "reveals offsets", _FILTERED, (0, 11)),
        3: Api(
            "Metadata", "reveals topics and brokers, creates topics",
            (Rule.CHARGED, Rule.FILTERED, Rule.REWRITTEN), (0, 13),
        ),
        4: Api("LeaderAndIsr", _BETWEEN_BROKERS, _HIDDEN),
        5: Api("StopReplica", _BETWEEN_BROKERS, _HIDDEN),
        6: Api("UpdateMetadata", _BETWEEN_BROKERS, _HIDDEN),
        7: Api("ControlledShutdown", _BETWEEN_BROKERS, _HIDDEN),
        8: Api("OffsetCommit", "writes a group's offsets", _FILTERED, (0, 10)),
        9: Api("OffsetFetch", "reveals a group's offsets", _FILTERED, (0, 10)),
        10: Api(
            "FindCoordinator", "reveals a broker, creates the topics of offsets and of transactions",
            (Rule.FILTERED, Rule.REWRITTEN), (0, 6),
        ),
        11: Api("JoinGroup", "changes a group", _PASS),
        12: Api("Heartbeat", "keeps a member in its group", _PASS),
        13: Api("LeaveGroup", "takes members out of a group", _PASS),
        14: Api("SyncGroup", "hands out partitions in a group", _PASS),
        15: Api("DescribeGroups", "reveals members; what they subscribe to is in their own encoding", _PASS),
        16: Api("ListGroups", "reveals groups", _PASS),
        17: Api("SaslHandshake", "begins a login", (Rule.OWN,), (1, 1)),
        18: Api("ApiVersions", "reveals what is offered", (Rule.OWN,), (0, 4)),
        19: Api("CreateTopics", "creates partitions", (Rule.CHARGED, Rule.FILTERED), (2, 7)),
        20: Api("DeleteTopics", "deletes partitions", (Rule.CHARGED, Rule.FILTERED), (1, 6)),
        21: Api("DeleteRecords", "deletes records", _FILTERED, (0, 2)),
        22: Api("InitProducerId", "fences the producers of a transactional id", _FILTERED, (0, 6)),
        23: Api("OffsetForLeaderEpoch", "reveals offsets", _FILTERED, (0, 4)),
        # From version 4 on it is for brokers, which batch the transactions of many clients.
        24: Api("AddPartitionsToTxn", "changes a transaction", _FILTERED, (0, 3)),
        25: Api("AddOffsetsToTxn", "changes a transaction", _FILTERED, (0, 4)),
        26: Api("EndTxn", "ends a transaction", _FILTERED, (0, 5)),
        27: Api("WriteTxnMarkers", "ends any producer's transaction; " + _BETWEEN_BROKERS, _HIDDEN),
        28: Api("TxnOffsetCommit", "writes a group's offsets", _FILTERED, (0, 5)),
        29: Api("DescribeAcls", "reveals ACLs", _FILTERED, (0, 3)),
        30: Api("CreateAcls", "allows and forbids", _FILTERED, (0, 3)),
        31: Api("DeleteAcls", "allows and forbids", _FILTERED, (0, 3)),
        32: Api(
            "DescribeConfigs", "reveals settings, brokers' listeners among them",
            (Rule.FILTERED, Rule.REWRITTEN), (0, 4),
        ),
        33: Api(
            "AlterConfigs", "changes settings of topics, groups and brokers",
            (Rule.FILTERED, Rule.REFUSED), (0, 2),
        ),
        34: Api("AlterReplicaLogDirs", "moves replicas between disks", _FILTERED, (0, 2)),
        35: Api("DescribeLogDirs", "reveals topics and their sizes", _FILTERED, (0, 5)),
        36: Api("SaslAuthenticate", "says who the client is", (Rule.OWN,), (0, 2)),
        37: Api("CreatePartitions", "creates partitions", (Rule.CHARGED, Rule.FILTERED), (0, 3)),
        38: Api("CreateDelegationToken", "another login for the same principal", _PASS),
        39: Api("RenewDelegationToken", "lengthens a token's life", _PASS),
        40: Api("ExpireDelegationToken", "ends a token", _PASS),
        41: Api("DescribeDelegationToken", "reveals tokens", _PASS),
        42: Api("DeleteGroups", "deletes groups; Weir has none", _PASS),
        43: Api("ElectLeaders", "moves leaders", _FILTERED, (0, 2)),
        44: Api(
            "IncrementalAlterConfigs", "changes settings of topics, groups and brokers",
            (Rule.FILTERED, Rule.REFUSED), (0, 1),
        ),
        45: Api("AlterPartitionReassignments", "moves replicas", _FILTERED, (0, 1)),
        46: Api("ListPartitionReassignments", "reveals topics and their replicas", _FILTERED, (0, 0)),
        47: Api("OffsetDelete", "deletes a group's offsets", _FILTERED, (0, 0)),
        48: Api("DescribeClientQuotas", "reveals quotas", _PASS),
        49: Api("AlterClientQuotas", "raises one's own quota", (Rule.REFUSED,), (0, 1)),
        50: Api("DescribeUserScramCredentials", "reveals users, no secrets", _PASS),
        51: Api("AlterUserScramCredentials", "makes users, and oneself another one", (Rule.REFUSED,), (0, 0)),
        52: Api("Vote", _BETWEEN_BROKERS, _HIDDEN),
        53: Api("BeginQuorumEpoch", _BETWEEN_BROKERS, _HIDDEN),
        54: Api("EndQuorumEpoch", _BETWEEN_BROKERS, _HIDDEN),
        55: Api("DescribeQuorum", "reveals the controllers' addresses", (Rule.REWRITTEN,), (0, 2)),
        56: Api("AlterPartition", _BETWEEN_BROKERS, _HIDDEN),
        57: Api("UpdateFeatures", _OF_THE_CLUSTER, _HIDDEN),
        58: Api("Envelope", "any request in another's name; " + _BETWEEN_BROKERS, _HIDDEN),
        59: Api("FetchSnapshot", "reveals all metadata; " + _BETWEEN_BROKERS, _HIDDEN),
        60: Api("DescribeCluster", "reveals brokers and controllers", (Rule.REWRITTEN,), (0, 2)),
        61: Api("DescribeProducers", "reveals producers", _FILTERED, (0, 0)),
        62: Api("BrokerRegistration", _BETWEEN_BROKERS, _HIDDEN),
        63: Api("BrokerHeartbeat", _BETWEEN_BROKERS, _HIDDEN),
        64: Api("UnregisterBroker", _OF_THE_CLUSTER, _HIDDEN),
        65: Api("DescribeTransactions", "reveals producers and topics", _FILTERED, (0, 0)),
        66: Api("ListTransactions", "reveals transactional ids", _FILTERED, (0, 2)),
        67: Api("AllocateProducerIds", _BETWEEN_BROKERS, _HIDDEN),
        68: Api("ConsumerGroupHeartbeat", "reveals ids of topics", _FILTERED, (0, 1)),
        69: Api("ConsumerGroupDescribe", "reveals topics", _FILTERED, (0, 1)),
        70: Api("ControllerRegistration", _BETWEEN_BROKERS, _HIDDEN),
        71: Api("GetTelemetrySubscriptions", "reveals what clients shall measure", _PASS),
        72: Api("PushTelemetry", "writes to the brokers' metrics plug-in", _PASS),
        73: Api("AssignReplicasToDirs", _BETWEEN_BROKERS, _HIDDEN),
        74: Api("ListConfigResources", "reveals topics", _FILTERED, (0, 1)),
        75: Api("DescribeTopicPartitions", "reveals topics", _FILTERED, (0, 0)),
        76: Api("ShareGroupHeartbeat", "share groups; see ShareFetch", _HIDDEN),
        77: Api("ShareGroupDescribe", "share groups; see ShareFetch", _HIDDEN),
        78: Api("ShareFetch", "reads records past the meter, reveals brokers", _HIDDEN),
        79: Api("ShareAcknowledge", "share groups; see ShareFetch", _HIDDEN),
        80: Api("AddRaftVoter", _OF_THE_CLUSTER, _HIDDEN),
        81: Api("RemoveRaftVoter", _OF_THE_CLUSTER, _HIDDEN),
        82: Api("UpdateRaftVoter", _BETWEEN_BROKERS, _HIDDEN),
        83: Api("InitializeShareGroupState", _BETWEEN_BROKERS, _HIDDEN),
        84: Api("ReadShareGroupState", _BETWEEN_BROKERS, _HIDDEN),
        85: Api("WriteShareGroupState", _BETWEEN_BROKERS, _HIDDEN),
        86: Api("DeleteShareGroupState", _BETWEEN_BROKERS, _HIDDEN),
        87: Api("ReadShareGroupStateSummary", _BETWEEN_BROKERS, _HIDDEN),
        88: Api("StreamsGroupHeartbeat", "creates internal topics in the broker's name, uncharged", _HIDDEN),
        89: Api("StreamsGroupDescribe", "streams groups; see StreamsGroupHeartbeat", _HIDDEN),
        90: Api("DescribeShareGroupOffsets", "share groups; see ShareFetch", _HIDDEN),
        91: Api("AlterShareGroupOffsets", "share groups; see ShareFetch", _HIDDEN),
        92: Api("DeleteShareGroupOffsets", "share groups; see ShareFetch", _HIDDEN),
    }
)  # fmt: skip
"""By API key, 0 to 92 without a gap."""

HIDDEN: Final = frozenset(key for key, api in APIS.items() if Rule.HIDDEN in api.rules)
FILTERED: Final = frozenset(key for key, api in APIS.items() if Rule.FILTERED in api.rules)
REFUSED: Final = frozenset(key for key, api in APIS.items() if Rule.REFUSED in api.rules)
READABLE: Final[Mapping[int, tuple[int, int]]] = MappingProxyType(
    {key: api.versions for key, api in APIS.items() if api.versions is not None}
)
"""First and last version of the APIs whose frames the proxy may have to read: others are not offered."""
