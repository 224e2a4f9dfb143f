"""Definitions that kafka-python does not carry yet, in the form of Kafka's own message files (KIP-848).

Fields of KIP-848's messages in Kafka 4.1: ConsumerGroupHeartbeat and ConsumerGroupDescribe 0 and 1.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

Definition = dict[str, Any]


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
    }
)  # fmt: skip
"""(API, request or response) -> definition."""
