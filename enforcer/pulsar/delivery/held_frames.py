"""Frames of one consumer that wait for a limit, in the order in which its broker sent them."""

from collections import deque
from typing import Final, NamedTuple

from enforcer.pulsar.delivery.entry import ArrivedEntry

FRAME_BYTES: Final = 200
"""What a frame takes beside its own bytes."""


class HeldFrame(NamedTuple):
    """One frame.

    Attributes:
        frame: all of it.
        message: what it brings; None: another command, which only keeps its place.
    """

    frame: bytes
    message: ArrivedEntry | None

    @property
    def size(self) -> int:
        """What it takes, bytes."""
        return len(self.frame) + FRAME_BYTES


class Store:
    """How much is held, of one proxy or one connection.

    Attributes:
        frames: number.
        size: bytes.

    Args:
        outer: the store that this one is a part of.
    """

    __slots__ = ("_outer", "frames", "size")

    def __init__(self, outer: "Store | None" = None) -> None:
        self._outer = outer
        self.frames = self.size = 0

    def add(self, frames: int, size: int) -> None:
        """So much more, or less."""
        self.frames += frames
        self.size += size
        if self._outer is not None:
            self._outer.add(frames, size)


class Queue:
    """The frames of one consumer.

    Args:
        store: of its connection.
    """

    __slots__ = ("_frames", "_store")

    def __init__(self, store: Store) -> None:
        self._store = store
        self._frames: deque[HeldFrame] = deque()

    def __len__(self) -> int:
        return len(self._frames)

    @property
    def first(self) -> HeldFrame:
        """The one that goes next."""
        return self._frames[0]

    def put(self, held: HeldFrame) -> None:
        """Behind all others."""
        self._frames.append(held)
        self._store.add(1, held.size)

    def pop(self) -> HeldFrame:
        """Take the first one out."""
        held = self._frames.popleft()
        self._store.add(-1, -held.size)
        return held
