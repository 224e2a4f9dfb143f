"""Messages that kafka-python does not bring, as classes of its kind, from Kafka 4.3's JSON beside this."""

from kafka.protocol.api_message import ApiMessage


class DescribeShareGroupOffsetsRequest(ApiMessage, load_json=__package__):  # type: ignore[call-arg, misc]
    """How far share groups have come."""


class DescribeShareGroupOffsetsResponse(ApiMessage, load_json=__package__):  # type: ignore[call-arg, misc]
    """Of each partition where the first record is that may be delivered, and from version 1 on the lag."""


class AlterShareGroupOffsetsRequest(ApiMessage, load_json=__package__):  # type: ignore[call-arg, misc]
    """Move a share group without members."""


class AlterShareGroupOffsetsResponse(ApiMessage, load_json=__package__):  # type: ignore[call-arg, misc]
    """Whether it was moved."""
