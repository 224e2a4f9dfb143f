"""Which topics a Produce request names, by its structure: records may be megabytes and are stepped over."""

from typing import Final

from enforcer.kafka.guard.protected import OwnTopics
from enforcer.wire.kafka import fields
from enforcer.wire.kafka.codec import asked
from enforcer.wire.kafka.frames import PRODUCE, RequestHeader
from enforcer.wire.kafka.traffic import PRODUCE_IDS_FROM

Bytes = bytes | bytearray
_NAMED: Final = asked(PRODUCE, "TransactionalId TopicData(Name|TopicId?)")
_HEAD: Final = asked(PRODUCE, "TransactionalId end:TimeoutMs")
# Behind the client id of a request without transactional id: that, acks and timeout, from version 3 on.
PLAIN_TOPICS_AT: Final = 8
ONE_TOPIC: Final = (b"\0\0\0\1", b"\2")
"""How a list of one begins, in classic and in flexible versions."""


def plain_names_ours(data: Bytes, offset: int, stop: int, version: int, protected: OwnTopics) -> bool | None:
    """Whether the one topic of a request is Weir's, from its first bytes alone, as the rest may not be here.

    By hand, since nearly every request is asked this: 0.3 µs, by the codec 1.4 and 0.6 for its header.

    Args:
        data: holds the request, or its beginning.
        offset: where its list of topics begins.
        stop: where it ends.
        version: its version.
        protected: what is Weir's.

    Returns:
        None: it has not one topic, or the part that is here does not tell.
    """
    flexible = version >= 9
    count = ONE_TOPIC[flexible]
    if not data.startswith(count, offset):
        return None
    name = offset + len(count)
    if min(len(data), stop) < name + protected.looked_at_bytes:
        return None
    if version >= PRODUCE_IDS_FROM:
        return bytes(data[name : name + len(fields.NO_ID)]) in protected.ids
    # A length from 127 on takes two bytes in the flexible versions; others always do.
    if flexible and data[name] > 0x7F and data[name + 1] > 0x7F:
        # Longer than it need be, which a broker takes, or no topic: it is read as a broker reads it.
        return None
    return protected.starts_at(data, name + (2 if not flexible or data[name] > 0x7F else 1))


def head_names_ours(head: Bytes, header: RequestHeader, protected: OwnTopics) -> bool | None:
    """The same for a request with a transactional id, or without the field, from its first bytes.

    Raises:
        BadFrame: they end before the topics.
    """
    transaction, topics_at = _HEAD(head, header)
    if protected.has(transaction):
        return True
    return plain_names_ours(head, topics_at, len(head), header.api_version, protected)


def names_ours(frame: Bytes, header: RequestHeader, protected: OwnTopics) -> bool:
    """Whether a Produce request has a topic or a transactional id of Weir's.

    Raises:
        BadFrame: it ends too early or a length in it is impossible.
    """
    transaction, topics = _NAMED(frame, header)
    version = header.api_version
    return protected.has(transaction) or any(is_ours(topic, version, protected) for topic in topics)


def is_ours(topic: bytes, version: int, protected: OwnTopics) -> bool:
    """Whether a topic, as a version calls it, is Weir's."""
    return topic in protected.ids if version >= PRODUCE_IDS_FROM else protected.has(topic)
