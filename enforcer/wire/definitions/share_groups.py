"""The APIs of share groups (KIP-932, KIP-1206, KIP-1222, KIP-1226), as in Kafka 4.3.

Their versions 0 that 4.0 had on trial are no more.
"""

from typing import Final

from enforcer.wire.definitions.consumer_groups import GROUP, MEMBER
from enforcer.wire.definitions.parts import (
    ASSIGNMENT,
    ERROR,
    HEARD,
    THROTTLED,
    Definition,
    by_name,
    f,
    message,
    null,
)

_SHARE_MEMBER: Final = [
    *(MEMBER[place] for place in (0, 2, 3, 4, 5, 6)),
    f("Assignment", "Assignment", fields=ASSIGNMENT),
]
_SHARE_SESSION: Final = [
    null("GroupId", "string"), null("MemberId", "string"), f("ShareSessionEpoch", "int32"),
]  # fmt: skip
_RENEWS: Final = f("IsRenewAck", "bool", "2+", default="false")
_ACKNOWLEDGED: Final = [
    f("FirstOffset", "int64"), f("LastOffset", "int64"), f("AcknowledgeTypes", "[]int8"),
]  # fmt: skip
_ACKNOWLEDGING: Final = f(
    "Topics", "[]Topic",
    fields=[
        f("TopicId", "uuid"),
        f(
            "Partitions", "[]Partition",
            fields=[
                f("PartitionIndex", "int32"),
                f("AcknowledgementBatches", "[]Batch", fields=_ACKNOWLEDGED),
            ],
        ),
    ],
)  # fmt: skip
_LEADER: Final = f("CurrentLeader", "Leader", fields=[f("LeaderId", "int32"), f("LeaderEpoch", "int32")])
_ENDPOINTS: Final = f(
    "NodeEndpoints", "[]Node",
    fields=[
        f("NodeId", "int32"), f("Host", "string"), f("Port", "int32"), null("Rack", "string"),
    ],
)  # fmt: skip
_ACQUIRED: Final = [
    f("FirstOffset", "int64"), f("LastOffset", "int64"), f("DeliveryCount", "int16"),
]  # fmt: skip


def _by_id(*parts: Definition) -> Definition:
    """What an answer says of topics and their partitions."""
    fields = [f("PartitionIndex", "int32"), *ERROR, *parts]
    return f(
        "Responses", "[]Topic",
        fields=[f("TopicId", "uuid"), f("Partitions", "[]Partition", fields=fields)],
    )  # fmt: skip


SHARE_GROUPS: Final[dict[tuple[int, str], Definition]] = {
    (76, "request"): message(
        "1",
        f("GroupId", "string"), f("MemberId", "string"), f("MemberEpoch", "int32"),
        null("RackId", "string"), null("SubscribedTopicNames", "[]string"),
    ),
    (76, "response"): message(
        "1",
        *THROTTLED, null("MemberId", "string"), f("MemberEpoch", "int32"),
        f("HeartbeatIntervalMs", "int32"),
        null("Assignment", "Assignment", fields=[f("TopicPartitions", "[]Topic", fields=HEARD)]),
    ),
    (77, "request"): message("1", f("GroupIds", "[]string"), f("IncludeAuthorizedOperations", "bool")),
    (77, "response"): message(
        "1",
        f("ThrottleTimeMs", "int32"),
        f("Groups", "[]Group", fields=[
            *(f("Members", "[]Member", fields=_SHARE_MEMBER) if part["name"] == "Members" else part
              for part in GROUP),
        ]),
    ),
    (78, "request"): message(
        "1-2",
        *_SHARE_SESSION, f("MaxWaitMs", "int32"), f("MinBytes", "int32"),
        f("MaxBytes", "int32", default="0x7fffffff"), f("MaxRecords", "int32"), f("BatchSize", "int32"),
        f("ShareAcquireMode", "int8", "2+"), _RENEWS,
        _ACKNOWLEDGING, f("ForgottenTopicsData", "[]Topic", fields=HEARD),
    ),
    (78, "response"): message(
        "1-2",
        *THROTTLED, f("AcquisitionLockTimeoutMs", "int32"),
        _by_id(
            f("AcknowledgeErrorCode", "int16"), null("AcknowledgeErrorMessage", "string"), _LEADER,
            f("Records", "records"), f("AcquiredRecords", "[]Acquired", fields=_ACQUIRED),
        ),
        _ENDPOINTS,
    ),
    (79, "request"): message("1-2", *_SHARE_SESSION, _RENEWS, _ACKNOWLEDGING),
    (79, "response"): message(
        "1-2",
        *THROTTLED, f("AcquisitionLockTimeoutMs", "int32", "2+"), _by_id(_LEADER), _ENDPOINTS,
    ),
    (92, "request"): message("0", f("GroupId", "string"), by_name("Topics")),
    (92, "response"): message("0", *THROTTLED, by_name("Responses", f("TopicId", "uuid"), *ERROR)),
}  # fmt: skip
