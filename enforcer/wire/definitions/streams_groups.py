"""The APIs of streams groups (KIP-1071), as in Kafka 4.3."""

from typing import Final

from enforcer.wire.definitions.parts import ERROR, THROTTLED, Definition, f, message, null

_KEY_VALUE: Final = [f("Key", "string"), f("Value", "string")]
_ENDPOINT: Final = [f("Host", "string"), f("Port", "uint16")]
_TASK_IDS: Final = [f("SubtopologyId", "string"), f("Partitions", "[]int32")]
_TASK_OFFSET: Final = [f("SubtopologyId", "string"), f("Partition", "int32"), f("Offset", "int64")]
_TOPIC_INFO: Final = [
    f("Name", "string"), f("Partitions", "int32"), f("ReplicationFactor", "int16"),
    f("TopicConfigs", "[]KeyValue", fields=_KEY_VALUE),
]  # fmt: skip
_CHANGELOGS: Final = f("StateChangelogTopics", "[]TopicInfo", fields=_TOPIC_INFO)
_SINKS: Final = f("RepartitionSinkTopics", "[]string")
_REPARTITIONED: Final = f("RepartitionSourceTopics", "[]TopicInfo", fields=_TOPIC_INFO)
_SUBTOPOLOGY: Final = [f("SubtopologyId", "string"), f("SourceTopics", "[]string")]
_TASKS: Final = [
    null(name, "[]TaskIds", fields=_TASK_IDS) for name in ("ActiveTasks", "StandbyTasks", "WarmupTasks")
]
_OFFSETS: Final = ("TaskOffsets", "TaskEndOffsets")
_TOPIC_PARTITION: Final = [f("Topic", "string"), f("Partitions", "[]int32")]
_ASSIGNED: Final = [f(part["name"], "[]TaskIds", fields=_TASK_IDS) for part in _TASKS]
_MEMBER: Final = [
    f("MemberId", "string"), f("MemberEpoch", "int32"), null("InstanceId", "string"),
    null("RackId", "string"), f("ClientId", "string"), f("ClientHost", "string"), f("TopologyEpoch", "int32"),
    f("ProcessId", "string"),
    null("UserEndpoint", "Endpoint", fields=_ENDPOINT), f("ClientTags", "[]KeyValue", fields=_KEY_VALUE),
    *(f(name, "[]TaskOffset", fields=_TASK_OFFSET) for name in _OFFSETS),
    f("Assignment", "Assignment", fields=_ASSIGNED), f("TargetAssignment", "Assignment", fields=_ASSIGNED),
    f("IsClassic", "bool"),
]  # fmt: skip

STREAMS_GROUPS: Final[dict[tuple[int, str], Definition]] = {
    (88, "request"): message(
        "0",
        f("GroupId", "string"), f("MemberId", "string"), f("MemberEpoch", "int32"),
        f("EndpointInformationEpoch", "int32"), null("InstanceId", "string"), null("RackId", "string"),
        f("RebalanceTimeoutMs", "int32", default=-1),
        null("Topology", "Topology", fields=[
            f("Epoch", "int32"),
            f("Subtopologies", "[]Subtopology", fields=[
                *_SUBTOPOLOGY, f("SourceTopicRegex", "[]string"), _CHANGELOGS, _SINKS, _REPARTITIONED,
                f("CopartitionGroups", "[]CopartitionGroup", fields=[
                    f("SourceTopics", "[]int16"), f("SourceTopicRegex", "[]int16"),
                    f("RepartitionSourceTopics", "[]int16"),
                ]),
            ]),
        ]),
        *_TASKS, null("ProcessId", "string"), null("UserEndpoint", "Endpoint", fields=_ENDPOINT),
        null("ClientTags", "[]KeyValue", fields=_KEY_VALUE),
        *(null(name, "[]TaskOffset", fields=_TASK_OFFSET) for name in _OFFSETS),
        f("ShutdownApplication", "bool", default=False),
    ),
    (88, "response"): message(
        "0",
        *THROTTLED, f("MemberId", "string"), f("MemberEpoch", "int32"), f("HeartbeatIntervalMs", "int32"),
        f("AcceptableRecoveryLag", "int32"), f("TaskOffsetIntervalMs", "int32"),
        f("Status", "[]Status", nullableVersions="0+", fields=[
            f("StatusCode", "int8"), f("StatusDetail", "string"),
        ]),
        *_TASKS, f("EndpointInformationEpoch", "int32"),
        null("PartitionsByUserEndpoint", "[]EndpointToPartitions", fields=[
            f("UserEndpoint", "Endpoint", fields=_ENDPOINT),
            f("ActivePartitions", "[]TopicPartition", fields=_TOPIC_PARTITION),
            f("StandbyPartitions", "[]TopicPartition", fields=_TOPIC_PARTITION),
        ]),
    ),
    (89, "request"): message("0", f("GroupIds", "[]string"), f("IncludeAuthorizedOperations", "bool")),
    (89, "response"): message(
        "0",
        f("ThrottleTimeMs", "int32"),
        f("Groups", "[]DescribedGroup", fields=[
            *ERROR, f("GroupId", "string"), f("GroupState", "string"), f("GroupEpoch", "int32"),
            f("AssignmentEpoch", "int32"),
            null("Topology", "Topology", fields=[
                f("Epoch", "int32"),
                null("Subtopologies", "[]Subtopology", fields=[
                    *_SUBTOPOLOGY, _SINKS, _CHANGELOGS, _REPARTITIONED,
                ]),
            ]),
            f("Members", "[]Member", fields=_MEMBER),
            f("AuthorizedOperations", "int32", default="-2147483648"),
        ]),
    ),
}  # fmt: skip
