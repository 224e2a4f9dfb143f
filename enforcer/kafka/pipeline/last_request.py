"""The request that passed last on a connection: most clients say the same again and again.

What a request passes by are its bytes up to some place, but for the correlation id, and what is in force.
So a request with the same bytes passes as well, and nothing of it need be looked at.
"""

from collections.abc import Callable
from typing import Final
from weakref import ref

from enforcer.kafka.guard.produce import ONE_TOPIC, PLAIN_TOPICS_AT, plain_names_ours
from enforcer.kafka.guard.protected import OwnTopics
from enforcer.wire.kafka.frames import API_VERSIONS, HEARTBEAT, METADATA, PRODUCE

KNOWN_BYTES: Final = 512
"""What is kept of a request, at most."""
REPEATED_KEYS: Final = frozenset({PRODUCE, METADATA, API_VERSIONS, HEARTBEAT})
"""APIs whose requests are alike; others count on with each one."""

# A request begins with length, key, version, correlation id (until here), length of the client id (and here).
_AFTER_ID: Final = 12
_NAME: Final = 14

InForce = Callable[[], object]
"""What tells whether a Metadata request must be read; another object when that may be another answer."""


class LastRequest:
    """The last request that passed.

    Args:
        protected: what a request that passes must not name.
        in_force: see `InForce`.
    """

    __slots__ = ("_ids", "_in_force", "_looked_at", "_protected", "_rules", "_stop", "key", "version")

    def __init__(self, protected: OwnTopics, in_force: InForce) -> None:
        self._protected = protected
        self._in_force = in_force
        self._ids = protected.ids
        # Not kept alive: a set of policies may be large, and a connection idle for days.
        self._rules: ref[object] | None = None
        self._looked_at = b""
        self._stop = 0
        self.key = -1
        """Its API; -1: none is known."""
        self.version = 0
        """Its version."""

    def is_like(self, data: bytes, size: int) -> bool:
        """Whether a request passes as the last one did; its API and version are the same.

        Args:
            data: begins with its length; all of it need not be here.
            size: of all of it, with its length.
        """
        key, stop = self.key, self._stop
        return (
            data[_AFTER_ID:stop] == self._looked_at
            and (size == stop or key == PRODUCE)
            and self._protected.ids is self._ids
            and (self._rules is None or self._in_force() is self._rules())
        )

    def forget(self) -> None:
        """Another client may be speaking, or in another way."""
        self.key = -1

    def keep(self, data: bytes | bytearray, size: int, key: int, version: int, name_bytes: int) -> None:
        """Note a request that passes and is answered, if others may be like it.

        Args:
            data: begins with its length.
            size: of all of it, with its length.
            key: its API.
            version: its version.
            name_bytes: the length of its client id, -1 if absent.
        """
        self.key = -1
        stop = size
        if key == PRODUCE:
            topics = _NAME + max(0, name_bytes) + PLAIN_TOPICS_AT
            stop = topics + len(ONE_TOPIC[version >= 9]) + self._protected.looked_at_bytes
            # Told by its first bytes: no transactional id, one topic, not ours.
            null = b"\0\0" if version >= 9 else b"\xff\xff"
            if (
                version < 3
                or data[topics - PLAIN_TOPICS_AT : topics - PLAIN_TOPICS_AT + len(null)] != null
                or plain_names_ours(data, topics, min(size, len(data)), version, self._protected) is not False
            ):
                return
        if key not in REPEATED_KEYS or stop > min(KNOWN_BYTES, len(data)):
            return
        self._looked_at, self._stop = bytes(data[_AFTER_ID:stop]), stop
        self._ids = self._protected.ids
        self._rules = ref(self._in_force()) if key == METADATA else None
        self.key, self.version = key, version
