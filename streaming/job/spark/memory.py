"""A worker's memory after a batch of large records: given back to the system.

A worker lives as long as the job. What it needed for one batch it keeps for the next, which is right as long
as batches are alike; after one of unusually large records, such as requests under names of 32 kB, it would
be kept for nothing.
"""

import ctypes
from typing import Final

import pyarrow as pa

from streaming.columns.records import Records

UNUSUAL_RECORD_BYTES: Final = 4096
"""On average; a proxy's request with ten topics has 600."""
UNUSUAL_BYTES: Final = 256 * 2**10
"""Of a batch; what less leaves behind is little."""


def is_unusual(records: Records) -> bool:
    """Whether these records are so large, and so many, that what they took is given back."""
    size = int(records.sizes().sum())
    return size >= UNUSUAL_BYTES and size >= UNUSUAL_RECORD_BYTES * len(records)


def give_back() -> None:
    """Give freed memory back to the system: Arrow's, and glibc's where that is the C library."""
    pa.default_memory_pool().release_unused()
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)
