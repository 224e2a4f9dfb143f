"""Makes one connection wait: mutes after its own throttles, the hold for its subject's not-before time."""

import asyncio
from collections.abc import Callable

from enforcer.core.coordinator import QuotaCoordinator
from enforcer.core.mute import Mute

CallLater = Callable[[float, Callable[[], None]], asyncio.TimerHandle]


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
        self._mute = Mute(coordinator.settings.mute_split_ms)
        # Apart from the mute, since it may become shorter when its group gets more.
        self._brake = Mute(coordinator.settings.mute_split_ms)
        self._mute_timer: asyncio.TimerHandle | None = None
        self._held_subject: str | None = None
        self._hold_timer: asyncio.TimerHandle | None = None
        self.idle = True
        """Whether there is neither a mute nor a hold; most connections never see one."""

    @property
    def may_read(self) -> bool:
        """Whether the client's socket may be read; a hold leaves it open, within the connection's bounds."""
        return self._mute.may_pass and self._brake.may_pass

    @property
    def may_handle(self) -> bool:
        """Whether the next request may be handled."""
        return self._held_subject is None and self.may_read

    def pass_one(self) -> bool:
        """Note that a request is handled; True if it is the one let through in a long mute."""
        self._brake.pass_one()
        return self._mute.pass_one()

    def mute(self, mute_ms: float) -> None:
        """Stop reading for so long, as Kafka does with a client over its quota."""
        if mute_ms > 0:
            self._begin(self._mute, mute_ms)

    def brake(self, wait_ms: float) -> bool:
        """The same for traffic whose group is in debt (connection_meter.Brake)."""
        longer = wait_ms > self._brake.left_ms(self._now_ms())
        self._begin(self._brake, wait_ms)
        return longer

    def hasten(self, factor: float) -> None:
        """Only this part of what is left of the brake is needed (connection_meter.Brake)."""
        if self._brake.active:
            self._brake.shorten(self._now_ms(), factor)
            self._arm()

    def hold(self, subject: str, wait_ms: float) -> None:
        """Let nothing be handled until the subject may go on."""
        self._held_subject = subject
        self.idle = False
        self._coordinator.wait_for(subject, self._wake)
        self._hold_timer = self._call_later(wait_ms, self._wake)

    def close(self) -> None:
        """The connection is gone."""
        self._unhold()
        if self._mute_timer is not None:
            self._mute_timer.cancel()
        if self._muted:
            self._coordinator.metrics.traffic.muted -= 1
        self._mute.end()
        self._brake.end()

    @property
    def _muted(self) -> bool:
        return self._mute.active or self._brake.active

    def _begin(self, mute: Mute, wait_ms: float) -> None:
        if not self._muted:
            self._coordinator.metrics.traffic.muted += 1
        mute.begin(self._now_ms(), wait_ms)
        self.idle = False
        self._arm()

    def _now_ms(self) -> float:
        return self._coordinator.clock.steady_ms()

    def _arm(self) -> None:
        if self._mute_timer is not None:
            self._mute_timer.cancel()
        wake_ms = min(mute.wake_ms for mute in (self._mute, self._brake) if mute.active)
        self._mute_timer = self._call_later(max(0.0, wake_ms - self._now_ms()), self._on_mute_timer)

    def _on_mute_timer(self) -> None:
        self._mute_timer = None
        for mute in (self._mute, self._brake):
            if mute.active:
                mute.advance(self._now_ms())
        if self._muted:
            self._arm()
        else:
            self._coordinator.metrics.traffic.muted -= 1
            self.idle = self._held_subject is None
        self._resume()

    def _unhold(self) -> None:
        if self._held_subject is not None:
            self._coordinator.stop_waiting(self._held_subject, self._wake)
            self._held_subject = None
            self.idle = not self._muted
        if self._hold_timer is not None:
            self._hold_timer.cancel()
            self._hold_timer = None

    def _wake(self) -> None:
        # The held request is judged again; it may have to wait on.
        self._unhold()
        self._resume()
