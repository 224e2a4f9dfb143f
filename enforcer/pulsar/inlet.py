"""The reading side of one socket: who objects to reading it, and how much of a turn its frames may take."""

import asyncio
from collections.abc import Callable
from typing import Final

from enforcer.host.turns import Turns
from enforcer.wire.pulsar.frames import Splitter

_TURN: Final = "turn"
_LOOKS_EVERY: Final = 16
"""After so many frames that parts have seen it is asked whether the turn is over."""


class Inlet:
    """Reads frames, shows those that are wanted, and stops where somebody objects.

    What comes is handed to `feed` by whoever has the socket. Frames that are shown cost time; a run of them
    that takes longer than a turn of the loop is finished in later rounds, since others wait.

    Attributes:
        splitter: its frames.
        reading: whether the socket is read.
        objections: who does not want it read.

    Args:
        turns: shares the loop out.
        pass_on: gets what nobody wants (frames.Splitter).
        take: gets frames that somebody wants.
        go_on: called in a later round: `feed` is to be called, with nothing, if the connection is not over.
        limit: the largest frame, bytes.
    """

    def __init__(
        self,
        turns: Turns,
        pass_on: Callable[[bytes, bool], object],
        take: Callable[[int, bytes], None],
        go_on: Callable[[], None],
        limit: int,
    ) -> None:
        self.splitter = Splitter(pass_on, self._show, limit)
        self.objections: set[object] = set()
        self.reading = True
        self._turns = turns
        self._take = take
        self._go_on = go_on
        self._transport: asyncio.Transport | None = None
        self._begun_s = 0.0
        self._shown = 0
        self._stops: set[str] = set()

    def open(self, transport: asyncio.Transport) -> None:
        """It is read from there."""
        self._transport = transport
        self._set()

    def pause(self, who: object) -> None:
        """Read no more until `resume`; frames that were read are still shown.

        One that has come in part is kept: behind its beginning nothing else could be sent to the other side,
        and what is read again once that is sent would never be.
        """
        self.objections.add(who)
        self._set()

    def resume(self, who: object) -> None:
        """This one has no objection any more."""
        self.objections.discard(who)
        self._set()

    def stop(self, why: str) -> None:
        """The same as `pause`, but what was read already is kept too."""
        self._stops.add(why)
        self.splitter.stopped = True
        self.pause(why)

    def go(self, why: str) -> None:
        """The end of `stop`; what is kept is shown with the next `feed`."""
        self._stops.discard(why)
        self.splitter.stopped = bool(self._stops)
        self.resume(why)

    def feed(self, data: bytes) -> int:
        """Take what has come; returns how many frames went on. Raises BadFrame, and what `take` raises."""
        before, begun_s = self.splitter.frames, None
        if not self._stops:
            begun_s = self._turns.begin()
            if begun_s is None:
                self._wait()
            else:
                self._begun_s = begun_s
        try:
            self.splitter.feed(data)
        finally:
            if begun_s is not None:
                self._turns.end(begun_s)
        return self.splitter.frames - before

    def finish(self) -> None:
        """Nothing more comes: show at once what waits for a turn."""
        while _TURN in self._stops:
            self.go(_TURN)
            self.splitter.feed(b"")

    def close(self) -> None:
        """Keep nothing, show nothing."""
        self.splitter.drop()
        self._transport = None

    def _show(self, kind: int, frame: bytes) -> None:
        self._take(kind, frame)
        self._shown += 1
        if self._shown % _LOOKS_EVERY == 0 and self._turns.over(self._begun_s):
            self._wait()

    def _wait(self) -> None:
        self.stop(_TURN)
        self._turns.wait(self._next_turn)

    def _next_turn(self) -> None:
        if _TURN in self._stops:
            self.go(_TURN)
            self._go_on()

    def _set(self) -> None:
        transport, wanted = self._transport, not self.objections
        self.splitter.whole = not wanted
        if transport is not None and wanted != self.reading and not transport.is_closing():
            self.reading = wanted
            (transport.resume_reading if wanted else transport.pause_reading)()
