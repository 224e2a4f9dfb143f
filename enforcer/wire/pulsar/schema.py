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
    "s": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
    "by": descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
    "b": descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
    "u": descriptor_pb2.FieldDescriptorProto.TYPE_UINT64,
    "u32": descriptor_pb2.FieldDescriptorProto.TYPE_UINT32,
    "i32": descriptor_pb2.FieldDescriptorProto.TYPE_INT32,
    "i64": descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
}

MESSAGES: Final[dict[str, dict[str, tuple[int, str]]]] = {
    "Empty": {},
    "FeatureFlags": {
        "get_partitioned_metadata_without_auto_creation": (5, "b"),
    },
    "Connect": {
        # Clients append to it what they call themselves, in any bytes.
        "client_version": (1, "by"),
        "auth_data": (3, "by"),
        "protocol_version": (4, "i32"),
        "auth_method_name": (5, "s"),
        "proxy_to_broker_url": (6, "s"),
        "original_principal": (7, "s"),
        "feature_flags": (10, "FeatureFlags"),
    },
    "Connected": {
        "server_version": (1, "s"),
        "protocol_version": (2, "i32"),
        "max_message_size": (3, "i32"),
        "feature_flags": (4, "FeatureFlags"),
    },
    "AuthData": {"auth_method_name": (1, "s"), "auth_data": (2, "by")},
    "AuthChallenge": {"server_version": (1, "s"), "challenge": (2, "AuthData")},
    "AuthResponse": {"response": (2, "AuthData")},
    "Lookup": {
        "topic": (1, "s"),
        "request_id": (2, "u"),
        "authoritative": (3, "b"),
    },
    "LookupResponse": {
        "brokerServiceUrl": (1, "s"),
        "brokerServiceUrlTls": (2, "s"),
        "response": (3, "i32"),
        "request_id": (4, "u"),
        "authoritative": (5, "b"),
        "error": (6, "i32"),
        "message": (7, "s"),
        "proxy_through_service_url": (8, "b"),
    },
    "PartitionedMetadata": {
        "topic": (1, "s"),
        "request_id": (2, "u"),
        "metadata_auto_creation_enabled": (6, "b"),
    },
    "PartitionedMetadataResponse": {
        "partitions": (1, "u32"),
        "request_id": (2, "u"),
        "response": (3, "i32"),
        "error": (4, "i32"),
        "message": (5, "s"),
    },
    "Producer": {"topic": (1, "s"), "producer_id": (2, "u"), "request_id": (3, "u")},
    "ProducerSuccess": {"request_id": (1, "u"), "producer_ready": (6, "b")},
    "MessageId": {"ledger_id": (1, "u"), "entry_id": (2, "u")},
    "Send": {
        "producer_id": (1, "u"),
        "sequence_id": (2, "u"),
        "num_messages": (3, "i32"),
        "highest_sequence_id": (6, "u"),
    },
    "SendReceipt": {"producer_id": (1, "u"), "sequence_id": (2, "u")},
    "SendError": {"producer_id": (1, "u"), "sequence_id": (2, "u"), "error": (3, "i32"), "message": (4, "s")},
    "Subscribe": {
        "topic": (1, "s"),
        "subscription": (2, "s"),
        "sub_type": (3, "i32"),
        "consumer_id": (4, "u"),
        "request_id": (5, "u"),
        "force_topic_creation": (15, "b"),
    },
    "Unsubscribe": {"consumer_id": (1, "u"), "request_id": (2, "u")},
    "Flow": {"consumer_id": (1, "u"), "message_permits": (2, "u32")},
    "MessageCommand": {
        "consumer_id": (1, "u"),
        "message_id": (2, "MessageId"),
        "ack_set": (4, "i64*"),
    },
    "Redeliver": {"consumer_id": (1, "u"), "message_ids": (2, "MessageId*")},
    "Seek": {"consumer_id": (1, "u"), "request_id": (2, "u")},
    "ConsumerStats": {"request_id": (1, "u"), "consumer_id": (4, "u")},
    "ConsumerStatsResponse": {
        "request_id": (1, "u"),
        "error_code": (2, "i32"),
        "availablePermits": (8, "u"),
        "blockedConsumerOnUnackedMsgs": (10, "b"),
    },
    "ReachedEndOfTopic": {"consumer_id": (1, "u")},
    "ActiveConsumerChange": {"consumer_id": (1, "u"), "is_active": (2, "b")},
    "CloseProducer": {
        "producer_id": (1, "u"),
        "request_id": (2, "u"),
        "assignedBrokerServiceUrl": (3, "s"),
        "assignedBrokerServiceUrlTls": (4, "s"),
    },
    "CloseConsumer": {
        "consumer_id": (1, "u"),
        "request_id": (2, "u"),
        "assignedBrokerServiceUrl": (3, "s"),
        "assignedBrokerServiceUrlTls": (4, "s"),
    },
    "Error": {"request_id": (1, "u"), "error": (2, "i32"), "message": (3, "s")},
    "Success": {"request_id": (1, "u")},
    "TopicMigrated": {
        "resource_id": (1, "u"),
        "resource_type": (2, "i32"),
        "brokerServiceUrl": (3, "s"),
        "brokerServiceUrlTls": (4, "s"),
    },
    "MessageMetadata": {
        "sequence_id": (2, "u"),
        "publish_time": (3, "u"),
        "compression": (8, "i32"),
        "num_messages_in_batch": (11, "i32"),
        "marker_type": (20, "i32"),
    },
}
"""Message -> field -> its number and type: s string, by bytes, b bool, u uint64, u32, i32 (enums too), i64,
or a message of this table; `*` for repeated."""

BODIES: Final[dict[int, str]] = {
    frames.CONNECT: "Connect",
    frames.CONNECTED: "Connected",
    frames.SUBSCRIBE: "Subscribe",
    frames.PRODUCER: "Producer",
    frames.SEND: "Send",
    frames.SEND_RECEIPT: "SendReceipt",
    frames.SEND_ERROR: "SendError",
    frames.MESSAGE: "MessageCommand",
    frames.FLOW: "Flow",
    frames.UNSUBSCRIBE: "Unsubscribe",
    frames.SUCCESS: "Success",
    frames.ERROR: "Error",
    frames.CLOSE_PRODUCER: "CloseProducer",
    frames.CLOSE_CONSUMER: "CloseConsumer",
    frames.PRODUCER_SUCCESS: "ProducerSuccess",
    frames.PING: "Empty",
    frames.PONG: "Empty",
    frames.REDELIVER: "Redeliver",
    frames.PARTITIONED_METADATA: "PartitionedMetadata",
    frames.PARTITIONED_METADATA_RESPONSE: "PartitionedMetadataResponse",
    frames.LOOKUP: "Lookup",
    frames.LOOKUP_RESPONSE: "LookupResponse",
    frames.CONSUMER_STATS: "ConsumerStats",
    frames.CONSUMER_STATS_RESPONSE: "ConsumerStatsResponse",
    frames.REACHED_END_OF_TOPIC: "ReachedEndOfTopic",
    frames.SEEK: "Seek",
    frames.ACTIVE_CONSUMER_CHANGE: "ActiveConsumerChange",
    frames.AUTH_CHALLENGE: "AuthChallenge",
    frames.AUTH_RESPONSE: "AuthResponse",
    frames.TOPIC_MIGRATED: "TopicMigrated",
}
"""Kind -> the message that its body is."""


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
                made.type = _TYPES[kind]
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in table
    }


CLASSES: Final = _make(MESSAGES)
"""Message -> its class."""
_BODY_CLASSES: Final = {kind: CLASSES[name] for kind, name in BODIES.items()}


def new_body(kind: int, **fields: Any) -> Any:
    """An empty body of a kind, with some fields."""
    return _BODY_CLASSES[kind](**fields)


def read_body(kind: int, data: bytes) -> Any:
    """The body of a kind.

    Raises:
        BadFrame: it is none.
    """
    return read(_BODY_CLASSES[kind], data)


def read_metadata(data: bytes) -> Any:
    """A message's metadata (`MessageMetadata`).

    Raises:
        BadFrame: it is none.
    """
    return read(CLASSES["MessageMetadata"], data)


def read(cls: type[Message], data: bytes) -> Any:
    """A message of a class.

    Raises:
        BadFrame: it is none.
    """
    try:
        return cls.FromString(data)
    except DecodeError:
        raise BadFrame(Reason.BAD_BODY) from None
