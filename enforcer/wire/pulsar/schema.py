"""Bodies of the commands that rules read or write: protobuf classes made from a table of names and numbers.

Only what a rule needs has a name here. All other fields stay in a message as unknown ones and are written
again as they came. Nothing is required, so that a lack is found where it matters.
"""

from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

from enforcer.wire.pulsar import frames
from enforcer.wire.pulsar.frames import BadFrame, Reason

_PACKAGE: Final = "weir.pulsar"
_TYPES: Final = {
    "s": "STRING", "by": "BYTES", "b": "BOOL", "u": "UINT64", "u32": "UINT32", "i32": "INT32", "i64": "INT64",
}  # fmt: skip
_PARTS: Final = {
    "FeatureFlags": "get_partitioned_metadata_without_auto_creation 5 b",
    "AuthData": "auth_method_name 1 s, auth_data 2 by",
    "MessageId": "ledger_id 1 u, entry_id 2 u",
    "MessageMetadata": "sequence_id 2 u, publish_time 3 u, compression 8 i32, num_messages_in_batch 11 i32,"
    " marker_type 20 i32",
}
_COMMANDS: Final = {
    # Clients append to client_version what they call themselves, in any bytes.
    frames.CONNECT: "Connect: client_version 1 by, auth_data 3 by, protocol_version 4 i32,"
    " auth_method_name 5 s, proxy_to_broker_url 6 s, original_principal 7 s, original_auth_data 8 by,"
    " feature_flags 10 FeatureFlags",
    frames.CONNECTED: "Connected: server_version 1 s, protocol_version 2 i32, max_message_size 3 i32,"
    " feature_flags 4 FeatureFlags",
    frames.SUBSCRIBE: "Subscribe: topic 1 s, subscription 2 s, sub_type 3 i32, consumer_id 4 u,"
    " request_id 5 u, force_topic_creation 15 b",
    frames.PRODUCER: "Producer: topic 1 s, producer_id 2 u, request_id 3 u",
    frames.SEND: "Send: producer_id 1 u, sequence_id 2 u, num_messages 3 i32, highest_sequence_id 6 u",
    frames.SEND_RECEIPT: "SendReceipt: producer_id 1 u, sequence_id 2 u",
    frames.SEND_ERROR: "SendError: producer_id 1 u, sequence_id 2 u, error 3 i32, message 4 s",
    frames.MESSAGE: "MessageCommand: consumer_id 1 u, message_id 2 MessageId, ack_set 4 i64*",
    frames.FLOW: "Flow: consumer_id 1 u, message_permits 2 u32",
    frames.UNSUBSCRIBE: "Unsubscribe: consumer_id 1 u, request_id 2 u",
    frames.SUCCESS: "Success: request_id 1 u",
    frames.ERROR: "Error: request_id 1 u, error 2 i32, message 3 s",
    frames.CLOSE_PRODUCER: "CloseProducer: producer_id 1 u, request_id 2 u, assignedBrokerServiceUrl 3 s,"
    " assignedBrokerServiceUrlTls 4 s",
    frames.CLOSE_CONSUMER: "CloseConsumer: consumer_id 1 u, request_id 2 u, assignedBrokerServiceUrl 3 s,"
    " assignedBrokerServiceUrlTls 4 s",
    frames.PRODUCER_SUCCESS: "ProducerSuccess: request_id 1 u, producer_ready 6 b",
    frames.PING: "Empty",
    frames.PONG: "Empty",
    frames.REDELIVER: "Redeliver: consumer_id 1 u, message_ids 2 MessageId*",
    frames.PARTITIONED_METADATA: "PartitionedMetadata: topic 1 s, request_id 2 u,"
    " metadata_auto_creation_enabled 6 b",
    frames.PARTITIONED_METADATA_RESPONSE: "PartitionedMetadataResponse: partitions 1 u32, request_id 2 u,"
    " response 3 i32, error 4 i32, message 5 s",
    frames.LOOKUP: "Lookup: topic 1 s, request_id 2 u, authoritative 3 b",
    frames.LOOKUP_RESPONSE: "LookupResponse: brokerServiceUrl 1 s, brokerServiceUrlTls 2 s, response 3 i32,"
    " request_id 4 u, authoritative 5 b, error 6 i32, message 7 s, proxy_through_service_url 8 b",
    frames.CONSUMER_STATS: "ConsumerStats: request_id 1 u, consumer_id 4 u",
    frames.CONSUMER_STATS_RESPONSE: "ConsumerStatsResponse: request_id 1 u, error_code 2 i32,"
    " availablePermits 8 u, blockedConsumerOnUnackedMsgs 10 b",
    frames.REACHED_END_OF_TOPIC: "ReachedEndOfTopic: consumer_id 1 u",
    frames.SEEK: "Seek: consumer_id 1 u, request_id 2 u",
    frames.ACTIVE_CONSUMER_CHANGE: "ActiveConsumerChange: consumer_id 1 u, is_active 2 b",
    frames.AUTH_CHALLENGE: "AuthChallenge: server_version 1 s, challenge 2 AuthData",
    frames.AUTH_RESPONSE: "AuthResponse: response 2 AuthData",
    frames.TOPIC_MIGRATED: "TopicMigrated: resource_id 1 u, resource_type 2 i32, brokerServiceUrl 3 s,"
    " brokerServiceUrlTls 4 s",
}
"""Kind -> the message that its body is, and the fields of that; see `MESSAGES`."""


def _fields(text: str) -> dict[str, tuple[int, str]]:
    return {name: (int(number), kind) for name, number, kind in map(str.split, filter(None, text.split(",")))}


BODIES: Final = {kind: text.partition(":")[0] for kind, text in _COMMANDS.items()}
"""Kind -> the message that its body is."""
MESSAGES: Final = {name: _fields(text) for name, text in _PARTS.items()} | {
    name: _fields(text) for name, _, text in (text.partition(":") for text in _COMMANDS.values())
}
"""Message -> field -> its number and type: s string, by bytes, b bool, u uint64, u32, i32 (enums too), i64,
or a message of this table; `*` for repeated."""


def _make(table: dict[str, dict[str, tuple[int, str]]]) -> dict[str, type[Message]]:
    # What proto2 is, but that a text which is none is no message: it would come as bytes.
    file = descriptor_pb2.FileDescriptorProto(
        name="weir_pulsar.proto",
        package=_PACKAGE,
        syntax="editions",
        edition=descriptor_pb2.Edition.EDITION_2023,
    )
    file.options.features.repeated_field_encoding = descriptor_pb2.FeatureSet.EXPANDED
    for name, fields in table.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            made = message.field.add(name=field, number=number)
            repeated = kind.endswith("*")
            made.label = made.LABEL_REPEATED if repeated else made.LABEL_OPTIONAL
            kind = kind.removesuffix("*")
            if kind in table:
                made.type, made.type_name = made.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
            else:
                made.type = descriptor_pb2.FieldDescriptorProto.Type.Value(f"TYPE_{_TYPES[kind]}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in table
    }


CLASSES: Final = _make(MESSAGES)
"""Message -> its class."""


def new_body(kind: int, **fields: Any) -> Any:
    """An empty body of a kind, with some fields."""
    return CLASSES[BODIES[kind]](**fields)


def read(name: str, data: bytes) -> Any:
    """A message of this name in the table.

    Raises:
        BadFrame: it is none.
    """
    try:
        return CLASSES[name].FromString(data)
    except DecodeError:
        raise BadFrame(Reason.BAD_BODY) from None
