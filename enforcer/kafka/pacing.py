"""Makes one connection wait: mutes after its own throttles, holds of the request at its head.

A request is held for its subject's not-before time, or while somebody owes (core/lines.py).
"""

import asyncio
from collections.abc import Callable
from math import inf

from enforcer.core import bounds
from enforcer.laws.mutation.coordinator import QuotaCoordinator

CallLater = Callable[[float, Callable[[], None]], asyncio.TimerHandle]


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


class Pacer:
    """When a connection may go on.

    Args:
        coordinator: knows when a subject's not-before time is dropped; tells the time.
        call_later: calls a function after so many ms.
        resume: called when the connection may go on.
    """

    def __init__(
        self, coordinator: QuotaCoordinator, call_later: CallLater, resume: Callable[[], None]
    ) -> None:
        self._coordinator = coordinator
        self._call_later = call_later
        self._resume = resume
        self._mute = Mute(bounds.MUTE_SPLIT_MS)
        self._mute_timer: asyncio.TimerHandle | None = None
        self.held = False
        """Whether the request at the head waits."""
        self.released = False
        """Whether one that was held may have gone on since this was last set back."""
        self.session_until_ms = inf
        """When the login's session ends (KIP-368)."""
        self._held_subject: str | None = None
        self._hold_timer: asyncio.TimerHandle | None = None
        self.idle = True
        """Whether there is neither a mute nor a hold; most connections never see one."""

    @property
    def may_read(self) -> bool:
        """Whether the client's socket may be read; a hold leaves it open, within the connection's bounds."""
        return self._mute.may_pass

    @property
    def may_handle(self) -> bool:
        """Whether the next request may be handled."""
        return not self.held and self.may_read

    @property
    def session_over(self) -> bool:
        """Whether the broker closes at the next request that is no login."""
        return self.session_until_ms <= self._now_ms()

    def pass_one(self) -> bool:
        """Note that a request is handled; True if it is the one let through in a long mute."""
        return self._mute.pass_one()

    def mute(self, mute_ms: float) -> None:
        """Stop reading for so long, as Kafka does with a client over its quota."""
        if mute_ms > 0:
            if not self._mute.active:
                self._coordinator.metrics.traffic.muted += 1
            self._mute.begin(self._now_ms(), mute_ms)
            self.idle = False
            self._arm()

    def hold(self, subject: str, wait_ms: float) -> None:
        """Let nothing be handled until the subject may go on."""
        self._held_subject = subject
        self._coordinator.questions.wait_for(subject, self._wake)
        self.pause(wait_ms)

    def pause(self, wait_ms: float) -> None:
        """Let nothing be handled until `wake`, and for so long at most."""
        self.held = True
        self.idle = False
        self._hold_timer = self._call_later(wait_ms, self._wake)

    def wake(self) -> None:
        """What `pause` waited for may have come.

        Not at once: whoever says so may be in the middle of another connection's request.
        """
        if self.held and self._hold_timer is not None:
            self._hold_timer.cancel()
            self._hold_timer = self._call_later(0.0, self._wake)

    def close(self) -> None:
        """The connection is gone."""
        self._unhold()
        if self._mute_timer is not None:
            self._mute_timer.cancel()
        if self._mute.active:
            self._coordinator.metrics.traffic.muted -= 1
        self._mute.end()

    def _now_ms(self) -> float:
        return self._coordinator.clock.steady_ms()

    def _arm(self) -> None:
        if self._mute_timer is not None:
            self._mute_timer.cancel()
        self._mute_timer = self._call_later(
            max(0.0, self._mute.wake_ms - self._now_ms()), self._on_mute_timer
        )

    def _on_mute_timer(self) -> None:
        self._mute_timer = None
        self._mute.advance(self._now_ms())
        if self._mute.active:
            self._arm()
        else:
            self._coordinator.metrics.traffic.muted -= 1
            self.idle = not self.held
        self._resume()

    def _unhold(self) -> None:
        if self._held_subject is not None:
            self._coordinator.questions.stop_waiting(self._held_subject, self._wake)
            self._held_subject = None
        self.held, self.released = False, True
        self.idle = not self._mute.active
        if self._hold_timer is not None:
            self._hold_timer.cancel()
            self._hold_timer = None

    def _wake(self) -> None:
        # The held request is judged again; it may have to wait on.
        self._unhold()
        self._resume()
