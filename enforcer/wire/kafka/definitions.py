"""Kafka's own definitions of its messages: which fields a body has in a version.

They are the JSON files that kafka-python carries, read when they are first needed; newer ones stand here:
KIP-848's ConsumerGroupHeartbeat and ConsumerGroupDescribe 0 and 1, as in Kafka 4.1, and the APIs of share
groups (KIP-932, KIP-1206, KIP-1222, KIP-1226), as in 4.3. Their versions 0 that 4.0 had on trial are no more.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import orjson

Definition = dict[str, Any]
_COMMENT: Final = re.compile(r"(?m)^\s*//.*$")
WIDTHS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "bool": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "float64": 8,
        "uuid": 16,
    }
)  # fmt: skip
"""Types of fixed size, and their bytes."""

NAMES: Final = (
    "Produce", "Fetch", "ListOffsets", "Metadata", "LeaderAndIsr", "StopReplica", "UpdateMetadata",
    "ControlledShutdown", "OffsetCommit", "OffsetFetch", "FindCoordinator", "JoinGroup", "Heartbeat",
    "LeaveGroup", "SyncGroup", "DescribeGroups", "ListGroups", "SaslHandshake", "ApiVersions",
    "CreateTopics", "DeleteTopics", "DeleteRecords", "InitProducerId", "OffsetForLeaderEpoch",
    "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "WriteTxnMarkers", "TxnOffsetCommit", "DescribeAcls",
    "CreateAcls", "DeleteAcls", "DescribeConfigs", "AlterConfigs", "AlterReplicaLogDirs", "DescribeLogDirs",
    "SaslAuthenticate", "CreatePartitions", "CreateDelegationToken", "RenewDelegationToken",
    "ExpireDelegationToken", "DescribeDelegationToken", "DeleteGroups", "ElectLeaders",
    "IncrementalAlterConfigs", "AlterPartitionReassignments", "ListPartitionReassignments", "OffsetDelete",
    "DescribeClientQuotas", "AlterClientQuotas", "DescribeUserScramCredentials",
    "AlterUserScramCredentials", "Vote", "BeginQuorumEpoch", "EndQuorumEpoch", "DescribeQuorum",
    "AlterPartition", "UpdateFeatures", "Envelope", "FetchSnapshot", "DescribeCluster", "DescribeProducers",
    "BrokerRegistration", "BrokerHeartbeat", "UnregisterBroker", "DescribeTransactions", "ListTransactions",
    "AllocateProducerIds", "ConsumerGroupHeartbeat", "ConsumerGroupDescribe", "ControllerRegistration",
    "GetTelemetrySubscriptions", "PushTelemetry", "AssignReplicasToDirs", "ListConfigResources",
    "DescribeTopicPartitions", "ShareGroupHeartbeat", "ShareGroupDescribe", "ShareFetch",
    "ShareAcknowledge", "AddRaftVoter", "RemoveRaftVoter", "UpdateRaftVoter", "InitializeShareGroupState",
    "ReadShareGroupState", "WriteShareGroupState", "DeleteShareGroupState", "ReadShareGroupStateSummary",
    "StreamsGroupHeartbeat", "StreamsGroupDescribe", "DescribeShareGroupOffsets", "AlterShareGroupOffsets",
    "DeleteShareGroupOffsets",
)  # fmt: skip
"""Kafka's name of each API, by its key."""


def _f(name: str, kind: str, versions: str = "0+", **more: Any) -> Definition:
    return {"name": name, "type": kind, "versions": versions, **more}


def _null(name: str, kind: str, versions: str = "0+", **more: Any) -> Definition:
    return _f(name, kind, versions, nullableVersions="0+", default="null", **more)


_HEARD: Final = [_f("TopicId", "uuid"), _f("Partitions", "[]int32")]
_DESCRIBED: Final = [_f("TopicId", "uuid"), _f("TopicName", "string"), _f("Partitions", "[]int32")]
_ASSIGNMENT: Final = [_f("TopicPartitions", "[]TopicPartitions", fields=_DESCRIBED)]
_MEMBER: Final = [
    _f("MemberId", "string"),
    _null("InstanceId", "string"),
    _null("RackId", "string"),
    _f("MemberEpoch", "int32"),
    _f("ClientId", "string"),
    _f("ClientHost", "string"),
    _f("SubscribedTopicNames", "[]string"),
    _null("SubscribedTopicRegex", "string"),
    _f("Assignment", "Assignment", fields=_ASSIGNMENT),
    _f("TargetAssignment", "Assignment", fields=_ASSIGNMENT),
    _f("MemberType", "int8", "1+", default="-1"),
]
_GROUP: Final = [
    _f("ErrorCode", "int16"),
    _null("ErrorMessage", "string"),
    _f("GroupId", "string"),
    _f("GroupState", "string"),
    _f("GroupEpoch", "int32"),
    _f("AssignmentEpoch", "int32"),
    _f("AssignorName", "string"),
    _f("Members", "[]Member", fields=_MEMBER),
    _f("AuthorizedOperations", "int32", default="-2147483648"),
]

_ERROR: Final = [_f("ErrorCode", "int16"), _null("ErrorMessage", "string")]
_THROTTLED: Final = [_f("ThrottleTimeMs", "int32"), *_ERROR]
_SHARE_MEMBER: Final = [
    *(_MEMBER[place] for place in (0, 2, 3, 4, 5, 6)),
    _f("Assignment", "Assignment", fields=_ASSIGNMENT),
]
_SHARE_SESSION: Final = [
    _null("GroupId", "string"), _null("MemberId", "string"), _f("ShareSessionEpoch", "int32"),
]  # fmt: skip
_RENEWS: Final = _f("IsRenewAck", "bool", "2+", default="false")
_ACKNOWLEDGED: Final = [
    _f("FirstOffset", "int64"), _f("LastOffset", "int64"), _f("AcknowledgeTypes", "[]int8"),
]  # fmt: skip
_ACKNOWLEDGING: Final = _f(
    "Topics", "[]Topic",
    fields=[
        _f("TopicId", "uuid"),
        _f(
            "Partitions", "[]Partition",
            fields=[
                _f("PartitionIndex", "int32"),
                _f("AcknowledgementBatches", "[]Batch", fields=_ACKNOWLEDGED),
            ],
        ),
    ],
)  # fmt: skip
_LEADER: Final = _f("CurrentLeader", "Leader", fields=[_f("LeaderId", "int32"), _f("LeaderEpoch", "int32")])
_ENDPOINTS: Final = _f(
    "NodeEndpoints", "[]Node",
    fields=[
        _f("NodeId", "int32"), _f("Host", "string"), _f("Port", "int32"), _null("Rack", "string"),
    ],
)  # fmt: skip
_ACQUIRED: Final = [
    _f("FirstOffset", "int64"), _f("LastOffset", "int64"), _f("DeliveryCount", "int16"),
]  # fmt: skip


def _by_id(*parts: Definition) -> Definition:
    """What an answer says of topics and their partitions."""
    fields = [_f("PartitionIndex", "int32"), *_ERROR, *parts]
    return _f(
        "Responses", "[]Topic",
        fields=[_f("TopicId", "uuid"), _f("Partitions", "[]Partition", fields=fields)],
    )  # fmt: skip


def _by_name(name: str, *fields: Definition, **more: Any) -> Definition:
    """A list of topics by name."""
    return _f(name, "[]Topic", fields=[_f("TopicName", "string"), *fields], **more)


def _message(versions: str, *fields: Definition) -> Definition:
    return {"validVersions": versions, "fields": list(fields)}


_SHARE_GROUPS: Final[dict[tuple[int, str], Definition]] = {
    (76, "request"): _message(
        "1",
        _f("GroupId", "string"), _f("MemberId", "string"), _f("MemberEpoch", "int32"),
        _null("RackId", "string"), _null("SubscribedTopicNames", "[]string"),
    ),
    (76, "response"): _message(
        "1",
        *_THROTTLED, _null("MemberId", "string"), _f("MemberEpoch", "int32"),
        _f("HeartbeatIntervalMs", "int32"),
        _null("Assignment", "Assignment", fields=[_f("TopicPartitions", "[]Topic", fields=_HEARD)]),
    ),
    (77, "request"): _message("1", _f("GroupIds", "[]string"), _f("IncludeAuthorizedOperations", "bool")),
    (77, "response"): _message(
        "1",
        _f("ThrottleTimeMs", "int32"),
        _f("Groups", "[]Group", fields=[
            *(_f("Members", "[]Member", fields=_SHARE_MEMBER) if part["name"] == "Members" else part
              for part in _GROUP),
        ]),
    ),
    (78, "request"): _message(
        "1-2",
        *_SHARE_SESSION, _f("MaxWaitMs", "int32"), _f("MinBytes", "int32"),
        _f("MaxBytes", "int32", default="0x7fffffff"), _f("MaxRecords", "int32"), _f("BatchSize", "int32"),
        _f("ShareAcquireMode", "int8", "2+"), _RENEWS,
        _ACKNOWLEDGING, _f("ForgottenTopicsData", "[]Topic", fields=_HEARD),
    ),
    (78, "response"): _message(
        "1-2",
        *_THROTTLED, _f("AcquisitionLockTimeoutMs", "int32"),
        _by_id(
            _f("AcknowledgeErrorCode", "int16"), _null("AcknowledgeErrorMessage", "string"), _LEADER,
            _f("Records", "records"), _f("AcquiredRecords", "[]Acquired", fields=_ACQUIRED),
        ),
        _ENDPOINTS,
    ),
    (79, "request"): _message("1-2", *_SHARE_SESSION, _RENEWS, _ACKNOWLEDGING),
    (79, "response"): _message(
        "1-2",
        *_THROTTLED, _f("AcquisitionLockTimeoutMs", "int32", "2+"), _by_id(_LEADER), _ENDPOINTS,
    ),
    (90, "request"): _message(
        "0-1",
        _f("Groups", "[]Group", fields=[
            _f("GroupId", "string"),
            _by_name("Topics", _f("Partitions", "[]int32"), nullableVersions="0+"),
        ]),
    ),
    (90, "response"): _message(
        "0-1",
        _f("ThrottleTimeMs", "int32"),
        _f("Groups", "[]Group", fields=[
            _f("GroupId", "string"),
            _by_name("Topics", _f("TopicId", "uuid"), _f("Partitions", "[]Partition", fields=[
                _f("PartitionIndex", "int32"), _f("StartOffset", "int64"), _f("LeaderEpoch", "int32"),
                _f("Lag", "int64", "1+", default="-1"), *_ERROR,
            ])),
            *_ERROR,
        ]),
    ),
    (91, "request"): _message(
        "0",
        _f("GroupId", "string"),
        _by_name("Topics", _f("Partitions", "[]Partition", fields=[
            _f("PartitionIndex", "int32"), _f("StartOffset", "int64"),
        ])),
    ),
    (91, "response"): _message(
        "0",
        *_THROTTLED,
        _by_name("Responses", _f("TopicId", "uuid"), _f("Partitions", "[]Partition", fields=[
            _f("PartitionIndex", "int32"), *_ERROR,
        ])),
    ),
    (92, "request"): _message("0", _f("GroupId", "string"), _by_name("Topics")),
    (92, "response"): _message("0", *_THROTTLED, _by_name("Responses", _f("TopicId", "uuid"), *_ERROR)),
}  # fmt: skip

DEFINITIONS: Final[Mapping[tuple[int, str], Definition]] = MappingProxyType(
    {
        (68, "request"): {
            "validVersions": "0-1",
            "fields": [
                _f("GroupId", "string"),
                _f("MemberId", "string"),
                _f("MemberEpoch", "int32"),
                _null("InstanceId", "string"),
                _null("RackId", "string"),
                _f("RebalanceTimeoutMs", "int32", default="-1"),
                _null("SubscribedTopicNames", "[]string"),
                _null("SubscribedTopicRegex", "string", "1+"),
                _null("ServerAssignor", "string"),
                _null("TopicPartitions", "[]TopicPartitions", fields=_HEARD),
            ],
        },
        (68, "response"): {
            "validVersions": "0-1",
            "fields": [
                _f("ThrottleTimeMs", "int32"),
                _f("ErrorCode", "int16"),
                _null("ErrorMessage", "string"),
                _null("MemberId", "string"),
                _f("MemberEpoch", "int32"),
                _f("HeartbeatIntervalMs", "int32"),
                _null(
                    "Assignment", "Assignment",
                    fields=[_f("TopicPartitions", "[]TopicPartitions", fields=_HEARD)],
                ),
            ],
        },
        (69, "request"): {
            "validVersions": "0-1",
            "fields": [_f("GroupIds", "[]string"), _f("IncludeAuthorizedOperations", "bool")],
        },
        (69, "response"): {
            "validVersions": "0-1",
            "fields": [_f("ThrottleTimeMs", "int32"), _f("Groups", "[]Group", fields=_GROUP)],
        },
        **_SHARE_GROUPS,
    }
)  # fmt: skip
"""(API, request or response) -> definition."""


class Field(NamedTuple):
    """A field of a struct in one version.

    Attributes:
        name: Kafka's.
        present: this version has it.
        kind: a type of fixed size, `string`, `bytes`, `struct`, or `[]` before the type of an array's items.
        nullable: it may be null.
        default: its value where nobody says one.
        fields: of the struct, or of each struct of the array.
    """

    name: str
    present: bool
    kind: str
    nullable: bool
    default: Any
    fields: tuple["Field", ...] = ()

    @property
    def width(self) -> int:
        """Bytes, if that is always the same, else 0."""
        return WIDTHS.get(self.kind, 0)


@cache
def body(key: int, version: int, kind: str) -> tuple[Field, ...]:
    """The fields of a body but for the tagged ones; those of other versions are not `present`.

    Args:
        key: of the API.
        version: its version.
        kind: request or response, or Kafka's name of what clients send each other in them. With `.Name`
            behind it one field of it, as the content of a tagged one is; with `.Name()` a struct of such a
            list, `.Name().Name()` one in that.

    Raises:
        OSError: there is no definition of it.
    """
    kind, *names = kind.split(".")
    definition = _definition(key, kind)
    common = {part["name"]: part["fields"] for part in definition.get("commonStructs", ())}
    parts = definition["fields"]
    for name in names:
        one = _named(parts, name.removesuffix("()"), version)
        parts = one["fields"] if name.endswith("()") else [{**one, "taggedVersions": "none"}]
    return _fields(parts, common, version)


def newest(key: int) -> int:
    """The last version that the definitions of an API have, the lesser of request and response."""
    return min(_span(_definition(key, kind)["validVersions"])[1] for kind in ("request", "response"))


def _named(definitions: Sequence[Definition], name: str, version: int) -> Definition:
    return next(one for one in definitions if one["name"] == name and _holds(one["versions"], version))


@cache
def _definition(key: int, kind: str) -> Definition:
    found = DEFINITIONS.get((key, kind))
    if found is not None:
        return found
    # To import kafka-python for a few files would cost the proxy a fifth of a second and its memory.
    package = find_spec("kafka")
    if package is None or package.origin is None:
        raise FileNotFoundError("kafka-python is not installed")
    folder = Path(package.origin).parent / "protocol" / "schemas" / "resources"
    name = f"{NAMES[key]}{kind.capitalize()}" if kind in ("request", "response") else kind
    text = (folder / f"{name}.json").read_text()
    read: Definition = orjson.loads(_COMMENT.sub("", text))
    return read


def _span(text: str) -> tuple[int, int]:
    """`3+`, `0-12` or `7` as first and last version; `none` as an empty span."""
    if text == "none":
        return 0, -1
    first, _, last = text.partition("-")
    if first.endswith("+"):
        return int(first[:-1]), (1 << 15) - 1
    return int(first), int(last or first)


def _holds(text: str, version: int) -> bool:
    first, last = _span(text)
    return first <= version <= last


def _fields(
    definitions: Sequence[Definition], common: Mapping[str, Sequence[Definition]], version: int
) -> tuple[Field, ...]:
    found = []
    for definition in definitions:
        if definition.get("taggedVersions", "none") != "none":
            continue
        present = _holds(definition["versions"], version)
        kind = definition["type"].replace("records", "bytes")
        item = kind.removeprefix("[]")
        fields: tuple[Field, ...] = ()
        if item not in WIDTHS and item not in ("string", "bytes"):
            fields = _fields(definition.get("fields") or common[item], common, version)
            kind = kind.removesuffix(item) + "struct"
        nullable = _holds(definition.get("nullableVersions", "none"), version)
        default = _default(definition, kind, nullable)
        found.append(Field(definition["name"], present, kind, nullable, default, fields))
    return tuple(found)


def _default(definition: Definition, kind: str, nullable: bool) -> Any:
    if kind in ("string", "bytes"):
        return None if nullable else b""
    if kind not in WIDTHS:
        return () if kind.startswith("[]") else None
    said = str(definition.get("default", "0"))
    if kind == "bool":
        return said.lower() == "true"
    if kind == "uuid":
        return bytes(WIDTHS[kind])
    return float(said) if kind == "float64" else int(said, 0)
