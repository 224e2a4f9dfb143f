"""How many messages bytes can hold: what a batch claims is its producer's word, which nobody checks."""

from typing import Final

_BYTES_EACH: Final = 6
"""A message of a batch takes so many at least: its size, and metadata that say how long its payload is."""
_PER_BYTE: Final = (0, 42, 172, 5_000, 4)
"""Messages of a batch that a byte can stand for where it is compressed: so many equal ones the longest
repetition of the codec holds (CompressionType: none, LZ4, ZLIB, ZSTD, SNAPPY)."""


def plausible(claimed: int, payload: int, compression: int) -> int:
    """How many messages a batch counts for: no more than its payload can hold, at least 1.

    Args:
        claimed: what it says.
        payload: its bytes.
        compression: a CompressionType; one that is not known counts as a message for each byte.

    >>> plausible(30, 3_000, 0), plausible(2_000_000_000, 60, 0), plausible(1_000, 60, 1), plausible(5, 0, 9)
    (30, 10, 1000, 1)
    """
    if not compression:
        room = payload // _BYTES_EACH
    else:
        room = payload * (_PER_BYTE[compression] if 0 < compression < len(_PER_BYTE) else 1)
    return max(1, min(claimed, room))
