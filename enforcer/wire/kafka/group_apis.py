"""The APIs of consumer, share and streams groups, which kafka-python does not bring.

KIP-848's as in Kafka 4.1; KIP-932's with KIP-1206, KIP-1222 and KIP-1226, and KIP-1071's, as in Kafka 4.3.
Versions 0 of share groups, which 4.0 had on trial, are no more.

A field is `Name:type`, of an array `Name:[]type`. Behind the type stand `?` where the field may be null, and
is where nobody says anything, `/1+` where not all versions have it, and `=` with its default. A struct has
its fields in parentheses in the place of a type's name.
"""

from typing import Final

_ERROR = "ErrorCode:int16 ErrorMessage:string?"
_THROTTLED = f"ThrottleTimeMs:int32 {_ERROR}"
_SENDER = "GroupId:string MemberId:string MemberEpoch:int32"
_HEARD = "TopicId:uuid Partitions:[]int32"
_TOLD = f"""{_THROTTLED} MemberId:string? MemberEpoch:int32 HeartbeatIntervalMs:int32
    Assignment:?(TopicPartitions:[]({_HEARD}))"""
_ASSIGNMENT = "TopicPartitions:[](TopicId:uuid TopicName:string Partitions:[]int32)"
_DESCRIBE = "GroupIds:[]string IncludeAuthorizedOperations:bool"
_GROUP = f"{_ERROR} GroupId:string GroupState:string GroupEpoch:int32 AssignmentEpoch:int32"
_OPERATIONS = "AuthorizedOperations:int32=-2147483648"
_SESSION = "GroupId:string? MemberId:string? ShareSessionEpoch:int32"
_ACKNOWLEDGING = """
    IsRenewAck:bool/2+=false
    Topics:[](TopicId:uuid Partitions:[](PartitionIndex:int32
        AcknowledgementBatches:[](FirstOffset:int64 LastOffset:int64 AcknowledgeTypes:[]int8)
    ))"""
_LEADER = "CurrentLeader:(LeaderId:int32 LeaderEpoch:int32)"
_ENDPOINTS = "NodeEndpoints:[](NodeId:int32 Host:string Port:int32 Rack:string?)"
_KEY_VALUE, _ENDPOINT = "Key:string Value:string", "Host:string Port:uint16"
_CREATED = f"Name:string Partitions:int32 ReplicationFactor:int16 TopicConfigs:[]({_KEY_VALUE})"
_SUBTOPOLOGY = "SubtopologyId:string SourceTopics:[]string"
_SINKS = "RepartitionSinkTopics:[]string"
_CHANGELOGS = f"StateChangelogTopics:[]({_CREATED})"
_REPARTITIONED = f"RepartitionSourceTopics:[]({_CREATED})"
_TASK_IDS = "SubtopologyId:string Partitions:[]int32"
_TASKS = f"ActiveTasks:[]?({_TASK_IDS}) StandbyTasks:[]?({_TASK_IDS}) WarmupTasks:[]?({_TASK_IDS})"
_ASSIGNED = _TASKS.replace("?", "")
_TASK_OFFSET = "SubtopologyId:string Partition:int32 Offset:int64"
_OFFSETS = f"TaskOffsets:[]({_TASK_OFFSET}) TaskEndOffsets:[]({_TASK_OFFSET})"
_PLACED = "Topic:string Partitions:[]int32"

GROUP_APIS: Final[dict[tuple[int, str], tuple[str, str]]] = {
    (68, "request"): ("0-1", f"""
        {_SENDER} InstanceId:string? RackId:string? RebalanceTimeoutMs:int32=-1 SubscribedTopicNames:[]string?
        SubscribedTopicRegex:string?/1+ ServerAssignor:string? TopicPartitions:[]?({_HEARD})"""),
    (68, "response"): ("0-1", _TOLD),
    (69, "request"): ("0-1", _DESCRIBE),
    (69, "response"): ("0-1", f"""
        ThrottleTimeMs:int32 Groups:[]({_GROUP} AssignorName:string Members:[](
            MemberId:string InstanceId:string? RackId:string? MemberEpoch:int32 ClientId:string
            ClientHost:string SubscribedTopicNames:[]string SubscribedTopicRegex:string?
            Assignment:({_ASSIGNMENT}) TargetAssignment:({_ASSIGNMENT}) MemberType:int8/1+=-1
        ) {_OPERATIONS})"""),
    (76, "request"): ("1", f"{_SENDER} RackId:string? SubscribedTopicNames:[]string?"),
    (76, "response"): ("1", _TOLD),
    (77, "request"): ("1", _DESCRIBE),
    (77, "response"): ("1", f"""
        ThrottleTimeMs:int32 Groups:[]({_GROUP} AssignorName:string Members:[](
            MemberId:string RackId:string? MemberEpoch:int32 ClientId:string ClientHost:string
            SubscribedTopicNames:[]string Assignment:({_ASSIGNMENT})
        ) {_OPERATIONS})"""),
    (78, "request"): ("1-2", f"""
        {_SESSION} MaxWaitMs:int32 MinBytes:int32 MaxBytes:int32=0x7fffffff MaxRecords:int32 BatchSize:int32
        ShareAcquireMode:int8/2+ {_ACKNOWLEDGING} ForgottenTopicsData:[]({_HEARD})"""),
    (78, "response"): ("1-2", f"""
        {_THROTTLED} AcquisitionLockTimeoutMs:int32 Responses:[](TopicId:uuid Partitions:[](
            PartitionIndex:int32 {_ERROR} AcknowledgeErrorCode:int16 AcknowledgeErrorMessage:string? {_LEADER}
            Records:records AcquiredRecords:[](FirstOffset:int64 LastOffset:int64 DeliveryCount:int16)
        )) {_ENDPOINTS}"""),
    (79, "request"): ("1-2", f"{_SESSION} {_ACKNOWLEDGING}"),
    (79, "response"): ("1-2", f"""
        {_THROTTLED} AcquisitionLockTimeoutMs:int32/2+
        Responses:[](TopicId:uuid Partitions:[](PartitionIndex:int32 {_ERROR} {_LEADER})) {_ENDPOINTS}"""),
    (88, "request"): ("0", f"""
        {_SENDER} EndpointInformationEpoch:int32 InstanceId:string? RackId:string? RebalanceTimeoutMs:int32=-1
        Topology:?(Epoch:int32 Subtopologies:[](
            {_SUBTOPOLOGY} SourceTopicRegex:[]string {_CHANGELOGS} {_SINKS} {_REPARTITIONED}
            CopartitionGroups:[](
                SourceTopics:[]int16 SourceTopicRegex:[]int16 RepartitionSourceTopics:[]int16)
        ))
        {_TASKS} ProcessId:string? UserEndpoint:?({_ENDPOINT}) ClientTags:[]?({_KEY_VALUE})
        {_OFFSETS.replace("[]", "[]?")} ShutdownApplication:bool=False"""),
    (88, "response"): ("0", f"""
        {_THROTTLED} MemberId:string MemberEpoch:int32 HeartbeatIntervalMs:int32 AcceptableRecoveryLag:int32
        TaskOffsetIntervalMs:int32 Status:[]?(StatusCode:int8 StatusDetail:string) {_TASKS}
        EndpointInformationEpoch:int32 PartitionsByUserEndpoint:[]?(
            UserEndpoint:({_ENDPOINT}) ActivePartitions:[]({_PLACED}) StandbyPartitions:[]({_PLACED})
        )"""),
    (89, "request"): ("0", _DESCRIBE),
    (89, "response"): ("0", f"""
        ThrottleTimeMs:int32 Groups:[]({_GROUP}
            Topology:?(Epoch:int32 Subtopologies:[]?({_SUBTOPOLOGY} {_SINKS} {_CHANGELOGS} {_REPARTITIONED}))
            Members:[](
                MemberId:string MemberEpoch:int32 InstanceId:string? RackId:string? ClientId:string
                ClientHost:string TopologyEpoch:int32 ProcessId:string UserEndpoint:?({_ENDPOINT})
                ClientTags:[]({_KEY_VALUE}) {_OFFSETS} Assignment:({_ASSIGNED}) TargetAssignment:({_ASSIGNED})
                IsClassic:bool
            ) {_OPERATIONS})"""),
    (92, "request"): ("0", "GroupId:string Topics:[](TopicName:string)"),
    (92, "response"): ("0", f"{_THROTTLED} Responses:[](TopicName:string TopicId:uuid {_ERROR})"),
}
"""(API, request or response) -> its versions and fields."""
