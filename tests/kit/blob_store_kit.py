"""A blob store for tests: segments in memory, with what must never happen to them checked."""

import hashlib

import pyarrow as pa

from streaming.state.body import unpacked


class MemoryBlobStore:
    """Segments by their content's digest.

    Args:
        batches_kept: how long what is dropped stays.
    """

    def __init__(self, batches_kept: int = 2) -> None:
        self.batches_kept = batches_kept
        self.contents: dict[str, bytes] = {}

    def put(self, content: bytes) -> str:
        """Keep `content`."""
        name = hashlib.blake2b(content, digest_size=16).hexdigest()
        self.contents[name] = content
        return name

    def get(self, name: str, *, remember: bool = True) -> pa.RecordBatch:
        """The rows of this name; nothing is remembered."""
        return unpacked(pa.py_buffer(self.contents[name]))

    def drop(self, name: str) -> None:
        """Forget it."""
        self.contents.pop(name, None)
