"""Records as confluent-kafka hands them over, as far as feeds look at them; what a Pulsar frame holds."""

from typing import Any

import orjson

from enforcer.wire.pulsar.frames import body_at
from streaming.columns.packed import CONTENT_TYPE, HEADER


class Record:
    """One record.

    Args:
        value: its bytes, or what they say; None: it has none.
        key: its key.
        ts: time at its broker, ms.
        packed: its header says that it is a packed one.
        partition, offset: where it stands.
    """

    def __init__(
        self, value: Any, key: bytes = b"", ts: int = 5_100, *, packed: bool = False, partition: int = 1,
        offset: int = 1,
    ) -> None:  # fmt: skip
        self._value = value if isinstance(value, bytes | None) else orjson.dumps(value)
        self._key, self._ts, self._packed = key, ts, packed
        self.partition, self.offset = lambda: partition, lambda: offset

    def error(self) -> None:
        """It is a record."""

    def value(self) -> bytes | None:
        """Its bytes."""
        return self._value

    def key(self) -> bytes:
        """What its rows have in common."""
        return self._key

    def timestamp(self) -> tuple[int, int]:
        """Its broker's time."""
        return 2, self._ts

    def headers(self) -> list[tuple[str, bytes]] | None:
        """What says that it is packed."""
        return [(HEADER, CONTENT_TYPE.encode())] if self._packed else None

    def topic(self) -> str:
        """Where it stands."""
        return "weir.requests"


def kind_of(frame: bytes) -> int:
    """Which command a whole Pulsar frame holds, one that can be read in one way only."""
    body_at(frame)
    return frame[9]
