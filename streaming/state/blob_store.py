"""Where what is large lies beside the state, and when it is deleted."""

from collections.abc import Iterable
from typing import Final, Protocol

import pyarrow as pa

NO_BLOB_STORE: Final = (
    "the state has rows in segments beside the checkpoint, which this job does not know; "
    "start it with the checkpoint's own folder"
)


class BlobStore(Protocol):
    """Where the segments of one shard lie; every reader of the same body must find them."""

    def put(self, content: bytes) -> str:
        """Keep `content` and return its name: the same content has the same name, and is there for good."""

    def get(self, name: str, *, remember: bool = True) -> pa.RecordBatch:
        """What `put` kept under this name; `remember`: it will be asked for again.

        Raises:
            StateError: it is missing or damaged.
        """

    def drop(self, name: str) -> None:
        """Forget what is kept under this name, if it is there."""

    @property
    def batches_kept(self) -> int:
        """How many batches back the state may be asked for again: so long nothing is dropped."""


class DiscardedNames:
    """Names that a shard's body mentions no more; older bodies do, and may be asked for again.

    Args:
        batch: how many batches there have been.
        names: (number of the batch that discarded it, name).
    """

    def __init__(self, batch: int = 0, names: Iterable[tuple[int, str]] = ()) -> None:
        self.batch = batch
        self.names = [(number, name) for number, name in names]

    def add(self, name: str) -> None:
        """It is not needed any more."""
        self.names.append((self.batch, name))

    def use(self, name: str) -> None:
        """It is needed: the same content may come to lie there again before its first file is deleted."""
        self.names = [entry for entry in self.names if entry[1] != name]

    def end_batch(self, blobs: BlobStore | None) -> None:
        """Delete what was discarded so long ago that nobody can ask for it."""
        self.batch += 1
        if blobs is None:
            return
        oldest = self.batch - blobs.batches_kept
        for _, name in [entry for entry in self.names if entry[0] < oldest]:
            blobs.drop(name)
        self.names = [entry for entry in self.names if entry[0] >= oldest]
