"""Every API of Kafka 4.3, and what the proxy does about it.

The one place where this is said: version ranges, what is hidden and what may pass unread follow from it, and
the table in docs/protocol_notes.md 7, which says why, is held equal to it by a test. What they are called is
`definitions`'.
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
        name: Kafka's name.
        rules: what the proxy does.
        versions: first and last version that the proxy can read; None: it reads none, or need not.
    """

    name: str
    rules: tuple[Rule, ...]
    versions: tuple[int, int] | None


_BY_RULES: Final[Mapping[tuple[Rule, ...], Mapping[str, tuple[int, int] | None]]] = MappingProxyType(
    {
        (Rule.PASS,): dict.fromkeys(
            (
                "JoinGroup", "Heartbeat", "LeaveGroup", "SyncGroup", "DescribeGroups", "ListGroups",
                "CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken",
                "DescribeDelegationToken", "DeleteGroups", "DescribeClientQuotas",
                "DescribeUserScramCredentials", "GetTelemetrySubscriptions", "PushTelemetry",
            )
        ),
        (Rule.OWN,): {"SaslHandshake": (1, 1), "ApiVersions": (0, 4), "SaslAuthenticate": (0, 2)},
        (Rule.METERED, Rule.FILTERED, Rule.REWRITTEN): {
            "Produce": (0, 13), "Fetch": (0, 18), "ShareFetch": (1, 2),
        },
        (Rule.CHARGED, Rule.FILTERED, Rule.REWRITTEN): {"Metadata": (0, 13)},
        (Rule.CHARGED, Rule.FILTERED): {
            "CreateTopics": (2, 7), "DeleteTopics": (1, 6), "CreatePartitions": (0, 3),
            "StreamsGroupHeartbeat": (0, 0),
        },
        (Rule.FILTERED, Rule.REWRITTEN): {
            "FindCoordinator": (0, 6), "DescribeConfigs": (0, 4), "ShareAcknowledge": (1, 2),
        },
        (Rule.REWRITTEN,): {"DescribeQuorum": (0, 2), "DescribeCluster": (0, 2)},
        (Rule.FILTERED, Rule.REFUSED): {"AlterConfigs": (0, 2), "IncrementalAlterConfigs": (0, 1)},
        (Rule.REFUSED,): {"AlterClientQuotas": (0, 1), "AlterUserScramCredentials": (0, 0)},
        # AddPartitionsToTxn is for brokers from version 4 on: they batch the transactions of many clients.
        (Rule.FILTERED,): {
            "ListOffsets": (0, 11), "OffsetCommit": (0, 10), "OffsetFetch": (0, 10),
            "DeleteRecords": (0, 2), "InitProducerId": (0, 6), "OffsetForLeaderEpoch": (0, 4),
            "AddPartitionsToTxn": (0, 3), "AddOffsetsToTxn": (0, 4), "EndTxn": (0, 5),
            "TxnOffsetCommit": (0, 5), "DescribeAcls": (0, 3), "CreateAcls": (0, 3), "DeleteAcls": (0, 3),
            "AlterReplicaLogDirs": (0, 2), "DescribeLogDirs": (0, 5), "ElectLeaders": (0, 2),
            "AlterPartitionReassignments": (0, 1), "ListPartitionReassignments": (0, 0),
            "OffsetDelete": (0, 0), "DescribeProducers": (0, 0), "DescribeTransactions": (0, 0),
            "ListTransactions": (0, 2), "ConsumerGroupHeartbeat": (0, 1), "ConsumerGroupDescribe": (0, 1),
            "ListConfigResources": (0, 1), "DescribeTopicPartitions": (0, 0), "ShareGroupHeartbeat": (1, 1),
            "ShareGroupDescribe": (1, 1), "StreamsGroupDescribe": (0, 0),
            "DescribeShareGroupOffsets": (0, 1), "AlterShareGroupOffsets": (0, 0),
            "DeleteShareGroupOffsets": (0, 0),
        },
        # What brokers and controllers say to each other, and what is for the cluster's operator, straight.
        (Rule.HIDDEN,): dict.fromkeys(
            (
                "LeaderAndIsr", "StopReplica", "UpdateMetadata", "ControlledShutdown", "WriteTxnMarkers",
                "Vote", "BeginQuorumEpoch", "EndQuorumEpoch", "AlterPartition", "UpdateFeatures",
                "Envelope", "FetchSnapshot", "BrokerRegistration", "BrokerHeartbeat", "UnregisterBroker",
                "AllocateProducerIds", "ControllerRegistration", "AssignReplicasToDirs", "AddRaftVoter",
                "RemoveRaftVoter", "UpdateRaftVoter", "InitializeShareGroupState", "ReadShareGroupState",
                "WriteShareGroupState", "DeleteShareGroupState", "ReadShareGroupStateSummary",
            )
        ),
    }
)  # fmt: skip
_BY_NAME: Final = {
    name: Api(name, rules, versions) for rules, apis in _BY_RULES.items() for name, versions in apis.items()
}
APIS: Final[Mapping[int, Api]] = MappingProxyType({key: _BY_NAME[name] for key, name in enumerate(NAMES)})
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
