"""When a throttled connection may be read; pure, times are arguments."""


class Mute:
    """The mute of one connection.

    In a long mute one request is let through after each `split_ms`: a client that hears nothing for its own
    time limit gives up and connects again (docs/protocol_notes.md 2.2).

    Args:
        split_ms: how long nothing at all is let through.
    """

    __slots__ = ("_next_pass_ms", "_one_may_pass", "_split_ms", "_until_ms", "active")

    def __init__(self, split_ms: float) -> None:
        self.active = False
        self._split_ms = split_ms
        self._until_ms = 0.0
        self._next_pass_ms = 0.0
        self._one_may_pass = False

    @property
    def may_pass(self) -> bool:
        """Whether a request may be handled now."""
        return not self.active or self._one_may_pass

    @property
    def wake_ms(self) -> float:
        """When `advance` is due."""
        return min(self._until_ms, self._next_pass_ms)

    def begin(self, now_ms: float, mute_ms: float) -> None:
        """Mute from now on; a mute that is under way can only become longer."""
        self._until_ms = max(self._until_ms, now_ms + mute_ms) if self.active else now_ms + mute_ms
        self.active = True
        self._one_may_pass = False
        self._next_pass_ms = now_ms + self._split_ms

    def advance(self, now_ms: float) -> None:
        """Let time pass: end the mute, or allow one request in it."""
        if now_ms >= self._until_ms:
            self.end()
        elif now_ms >= self._next_pass_ms:
            self._one_may_pass = True
            self._next_pass_ms = now_ms + self._split_ms

    def pass_one(self) -> bool:
        """Note that a request is handled; True if it is one let through in a mute."""
        passed = self.active and self._one_may_pass
        self._one_may_pass = False
        return passed

    def end(self) -> None:
        """The connection is read again."""
        self.active = False
        self._one_may_pass = False
