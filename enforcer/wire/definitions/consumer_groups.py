"""KIP-848's ConsumerGroupHeartbeat and ConsumerGroupDescribe 0 and 1, as in Kafka 4.1."""

from typing import Final

from enforcer.wire.definitions.parts import ASSIGNMENT, HEARD, THROTTLED, Definition, f, message, null

MEMBER: Final = [
    f("MemberId", "string"),
    null("InstanceId", "string"),
    null("RackId", "string"),
    f("MemberEpoch", "int32"),
    f("ClientId", "string"),
    f("ClientHost", "string"),
    f("SubscribedTopicNames", "[]string"),
    null("SubscribedTopicRegex", "string"),
    f("Assignment", "Assignment", fields=ASSIGNMENT),
    f("TargetAssignment", "Assignment", fields=ASSIGNMENT),
    f("MemberType", "int8", "1+", default="-1"),
]
GROUP: Final = [
    f("ErrorCode", "int16"),
    null("ErrorMessage", "string"),
    f("GroupId", "string"),
    f("GroupState", "string"),
    f("GroupEpoch", "int32"),
    f("AssignmentEpoch", "int32"),
    f("AssignorName", "string"),
    f("Members", "[]Member", fields=MEMBER),
    f("AuthorizedOperations", "int32", default="-2147483648"),
]

CONSUMER_GROUPS: Final[dict[tuple[int, str], Definition]] = {
    (68, "request"): message(
        "0-1",
        f("GroupId", "string"), f("MemberId", "string"), f("MemberEpoch", "int32"),
        null("InstanceId", "string"), null("RackId", "string"),
        f("RebalanceTimeoutMs", "int32", default="-1"), null("SubscribedTopicNames", "[]string"),
        null("SubscribedTopicRegex", "string", "1+"), null("ServerAssignor", "string"),
        null("TopicPartitions", "[]TopicPartitions", fields=HEARD),
    ),
    (68, "response"): message(
        "0-1",
        *THROTTLED, null("MemberId", "string"), f("MemberEpoch", "int32"), f("HeartbeatIntervalMs", "int32"),
        null("Assignment", "Assignment", fields=[f("TopicPartitions", "[]TopicPartitions", fields=HEARD)]),
    ),
    (69, "request"): message("0-1", f("GroupIds", "[]string"), f("IncludeAuthorizedOperations", "bool")),
    (69, "response"): message("0-1", f("ThrottleTimeMs", "int32"), f("Groups", "[]Group", fields=GROUP)),
}  # fmt: skip
