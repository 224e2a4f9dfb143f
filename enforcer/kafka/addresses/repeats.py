"""Answers that the proxy has changed before: the same bytes of a broker are changed in the same way again."""

from typing import Final

from enforcer.wire.kafka.frames import CORRELATION_BYTES, LENGTH_BYTES

REPEATS_MAX: Final = 256
"""Answers that are known at a time."""
REPEATED_BYTES: Final = 4_096
"""The longest of them; the work on a longer one is little beside that of copying it."""


class Repeats:
    """What became of small answers, for all connections of a proxy.

    A cluster says the same to every client for hours. Whatever changes what answers become calls `clear`.
    """

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[tuple[int, int, bytes], tuple[bytes, bytes]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def find(self, key: int, version: int, came: bytes) -> tuple[bytes, bytes] | None:
        """What an answer becomes: its length as it stands before it, and all behind its correlation id.

        Args:
            key: which API.
            version: in which version.
            came: the broker's answer behind the correlation id.

        Returns:
            None: it was not seen before, or is too long.
        """
        return self._known.get((key, version, came)) if len(came) <= REPEATED_BYTES else None

    def keep(self, key: int, version: int, came: bytes, left: bytes) -> None:
        """Note that an answer became this, both without correlation id, if it is short enough."""
        if len(came) > REPEATED_BYTES or len(left) > REPEATED_BYTES:
            return
        if len(self._known) >= REPEATS_MAX:
            # Those that are still asked for come back at their next answer.
            self._known.clear()
        length = (CORRELATION_BYTES + len(left)).to_bytes(LENGTH_BYTES, "big")
        self._known[key, version, came] = length, left

    def clear(self) -> None:
        """Answers become something else from now on."""
        self._known.clear()
