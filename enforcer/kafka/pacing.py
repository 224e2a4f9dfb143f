"""Makes one connection wait: mutes after its own throttles, holds of the request at its head.

A request is held for its subject's not-before time, or while somebody owes (core/lines.py).
"""

import asyncio
from collections.abc import Callable
from math import inf

from enforcer.core import bounds
from enforcer.laws.mutation.admission import CallLater
from enforcer.laws.mutation.coordinator import QuotaCoordinator


class Pacer:
    """When a connection may go on.

    In a long mute one request is let through after each MUTE_SPLIT_MS: a client that hears nothing for its
    own time limit gives up and connects again (docs/protocol_notes.md 2.2).

    Args:
        coordinator: knows when a subject's not-before time is dropped; tells the time.
        call_later: calls a function after so many ms.
        resume: called when the connection may go on.
    """

    def __init__(
        self, coordinator: QuotaCoordinator, call_later: CallLater, resume: Callable[[], None]
    ) -> None:
        self._coordinator = coordinator
        self._now_ms = coordinator.clock.steady_ms
        self._call_later, self._resume = call_later, resume
        self._muted = self._one_may_pass = False
        self._until_ms = self._next_pass_ms = 0.0
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
        return not self._muted or self._one_may_pass

    @property
    def may_handle(self) -> bool:
        """Whether the next request may be handled."""
        return not self.held and self.may_read

    @property
    def session_over(self) -> bool:
        """Whether the broker closes at the next request that is no login."""
        # Most have none that ends: they ask for no time.
        return self.session_until_ms < inf and self.session_until_ms <= self._now_ms()

    def pass_one(self) -> bool:
        """Note that a request is handled; True if it is the one let through in a long mute."""
        passed, self._one_may_pass = self._one_may_pass, False
        return passed

    def mute(self, mute_ms: float) -> None:
        """Stop reading for so long, as Kafka does with a client over its quota; a mute can only grow."""
        now_ms = self._now_ms()
        self._until_ms = max(self._until_ms, now_ms + mute_ms) if self._muted else now_ms + mute_ms
        self._coordinator.metrics.traffic.muted += not self._muted
        self._muted, self._one_may_pass, self.idle = True, False, False
        self._next_pass_ms = now_ms + bounds.MUTE_SPLIT_MS
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
        self._unmute()

    def _arm(self) -> None:
        if self._mute_timer is not None:
            self._mute_timer.cancel()
        left_ms = min(self._until_ms, self._next_pass_ms) - self._now_ms()
        self._mute_timer = self._call_later(max(0.0, left_ms), self._on_mute_timer)

    def _on_mute_timer(self) -> None:
        self._mute_timer = None
        now_ms = self._now_ms()
        if now_ms >= self._until_ms:
            self._unmute()
            self.idle = not self.held
        else:
            if now_ms >= self._next_pass_ms:
                self._one_may_pass = True
                self._next_pass_ms = now_ms + bounds.MUTE_SPLIT_MS
            self._arm()
        self._resume()

    def _unmute(self) -> None:
        self._coordinator.metrics.traffic.muted -= self._muted
        self._muted = self._one_may_pass = False

    def _unhold(self) -> None:
        if self._held_subject is not None:
            self._coordinator.questions.stop_waiting(self._held_subject, self._wake)
            self._held_subject = None
        self.held, self.released = False, True
        self.idle = not self._muted
        if self._hold_timer is not None:
            self._hold_timer.cancel()
            self._hold_timer = None

    def _wake(self) -> None:
        # The held request is judged again; it may have to wait on.
        self._unhold()
        self._resume()
