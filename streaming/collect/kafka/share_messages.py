"""Messages about share groups' offsets that kafka-python does not bring: their fields, as in Kafka 4.3."""

from kafka.protocol.api_message import ApiMessage


class DescribeShareGroupOffsetsRequest(ApiMessage, load_json=__package__):  # type: ignore
    """How far share groups have come."""


class DescribeShareGroupOffsetsResponse(ApiMessage, load_json=__package__):  # type: ignore
    """Of each partition where the first record is that may be delivered, and from version 1 on the lag."""


class AlterShareGroupOffsetsRequest(ApiMessage, load_json=__package__):  # type: ignore
    """Move a share group without members."""


class AlterShareGroupOffsetsResponse(ApiMessage, load_json=__package__):  # type: ignore
    """Whether it was moved."""
