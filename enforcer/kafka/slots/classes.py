"""Which class a request is of, for concurrency limits, and which requests a broker keeps waiting on purpose
(docs/protocol_notes.md 3.7)."""

from typing import Final

from enforcer.wire.kafka.frames import FETCH, PRODUCE

PRODUCE_CLASS: Final = "produce"
"""Never exempt: what carries records, and the transactions around them."""
ADMIN_CLASS: Final = "admin"
"""All that is of no other class."""

_JOIN_GROUP: Final = 11
_SYNC_GROUP: Final = 14
_CLASSES: Final[dict[str, tuple[int, ...]]] = {
    # Produce, InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn
    PRODUCE_CLASS: (PRODUCE, 22, 24, 25, 26),
    # Fetch, ShareFetch
    "fetch": (FETCH, 78),
    # Heartbeat, ConsumerGroupHeartbeat, ShareGroupHeartbeat, StreamsGroupHeartbeat
    "heartbeat": (12, 68, 76, 88),
    # OffsetCommit, OffsetFetch, FindCoordinator, JoinGroup, LeaveGroup, SyncGroup, TxnOffsetCommit,
    # ShareAcknowledge
    "group": (8, 9, 10, _JOIN_GROUP, 13, _SYNC_GROUP, 28, 79),
    "sasl": (17, 36),
    "api_versions": (18,),
    # ListOffsets, Metadata, OffsetForLeaderEpoch, DescribeCluster, DescribeTopicPartitions
    "metadata": (2, 3, 23, 60, 75),
}
_BY_KEY: Final = {key: name for name, keys in _CLASSES.items() for key in keys}

DELAYED_KEYS: Final = frozenset({FETCH, 78, _JOIN_GROUP, _SYNC_GROUP})
"""Requests that a broker answers when something comes to pass elsewhere: records, or members of a group. How
long that takes says nothing of its load, and meanwhile they cost it nothing."""


def class_of(key: int) -> str:
    """The class of an API's requests.

    >>> class_of(0), class_of(12), class_of(19)
    ('produce', 'heartbeat', 'admin')
    """
    return _BY_KEY.get(key, ADMIN_CLASS)
