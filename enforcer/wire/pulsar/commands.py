"""Commands out of frames, and frames out of commands."""

import secrets
from enum import IntEnum
from typing import Any, Final

from enforcer.wire.kafka.frames import uvarint
from enforcer.wire.pulsar.frames import ERROR, body_at, command_end
from enforcer.wire.pulsar.schema import BODIES, new_body, read

CONNECTION: Final = 2**64 - 1
"""The request id of what concerns a whole connection, or comes unasked from the broker."""
TEXT_MAX: Final = 4_096
"""Topic names and the like are shorter than this, characters; a rule passes what is not to the broker."""


class ServerError(IntEnum):
    """What brokers say is wrong (PulsarApi ServerError)."""

    UNKNOWN = 0
    METADATA = 1
    PERSISTENCE = 2
    AUTHENTICATION = 3
    SERVICE_NOT_READY = 6
    PRODUCER_BLOCKED_QUOTA_EXCEEDED_ERROR = 7
    PRODUCER_BLOCKED_QUOTA_EXCEEDED_EXCEPTION = 8
    TOPIC_NOT_FOUND = 11
    TOO_MANY_REQUESTS = 14
    INVALID_TOPIC_NAME = 17
    NOT_ALLOWED = 22


class LookupType(IntEnum):
    """What a LOOKUP_RESPONSE is."""

    REDIRECT = 0
    CONNECT = 1
    FAILED = 2


def parse(frame: bytes) -> Any:
    """The body of a whole frame's command, one of those in schema.BODIES.

    Raises:
        BadFrame: it cannot be read.
    """
    start = body_at(frame)
    return read(BODIES[frame[9]], frame[start : command_end(frame)])


def build(kind: int, body: Any, message: bytes = b"") -> bytes:
    """A frame of a command, and the message behind it, if any."""
    content: bytes = body.SerializeToString()
    command = b"\x08" + uvarint(kind) + uvarint(kind << 3 | 2) + uvarint(len(content)) + content
    size = len(command)
    return (size + 4 + len(message)).to_bytes(4, "big") + size.to_bytes(4, "big") + command + message


def command(kind: int, **fields: Any) -> bytes:
    """A frame of a command with these fields."""
    return build(kind, new_body(kind, **fields))


def rewritten(frame: bytes, body: Any) -> bytes:
    """The frame with another body; the message behind it stays as it is."""
    return build(frame[9], body, frame[command_end(frame) :])


def error(request_id: int, code: int, message: str) -> bytes:
    """A frame that refuses a request, or with CONNECTION all."""
    return command(ERROR, request_id=request_id, error=code, message=message)


def own_request_id() -> int:
    """An id for a request of our own: clients count theirs from below, or from a random number of 63 bits.

    They cannot guess it, so that no answer to a request of a client's is taken for one to ours.
    """
    return 1 << 63 | secrets.randbits(62)
