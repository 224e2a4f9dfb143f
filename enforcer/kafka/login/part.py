"""Who a client is, seen in its SASL exchange with the broker, and what becomes of logins that fail."""

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final

from enforcer.core.metrics import Metrics
from enforcer.core.security.doors import source_of
from enforcer.core.settings import DelegationTokens, ProxySettings
from enforcer.kafka.part import Concern, Link, Part, Request, Slot
from enforcer.wire.kafka.frames import SASL_AUTHENTICATE, SASL_KEYS
from enforcer.wire.kafka.sasl import SaslObserver, Unreadable

HELD_MAX_MS: Final = 10_000
"""A login waits no longer: clients give up. Who would have to is to come again."""
AWAY_MAX_MS: Final = 60_000
"""However many logins of an address have failed, its turn comes after so long."""
ADDRESSES_MAX: Final = 10_000
MOMENT_MS: Final = 200
"""A login whose turn depends on others asks again after so long."""
_MINUTE_MS: Final = 60_000

Identify = Callable[[Link, str], bool]
"""A connection is this user's from now on; False: the user has as many as it may."""


class LoginConcern(Concern):
    """Reads every login."""

    keys = SASL_KEYS

    def __init__(
        self, settings: ProxySettings, metrics: Metrics, now_ms: Callable[[], float], identify: Identify
    ) -> None:
        self.settings = settings
        self.metrics = metrics
        self.now_ms, self.identify = now_ms, identify
        self.failed = FailedLogins(settings.failed_logins_per_minute, now_ms)

    def part(self, link: Link) -> Part:
        return LoginPart(link, self)


class LoginPart(Part):
    """The logins of one connection; sets `Link.user`."""

    def __init__(self, link: Link, concern: LoginConcern) -> None:
        self._link, self._concern = link, concern
        settings, peer = concern.settings, link.peer
        by_id = settings.delegation_tokens is DelegationTokens.BY_ID
        plain = link.secure or settings.sasl_plain_without_tls
        self._observer = SaslObserver(settings.oauth_claim, token_ids=by_id, plain=plain)
        self._address = source_of(str(peer[0])) if isinstance(peer, tuple) else ""
        # When the login may go on that counts as failed until it is decided, 0: it need not wait; None: there
        # is none.
        self._turn_ms: float | None = None
        self._late: asyncio.TimerHandle | None = None

    @property
    def free(self) -> bool:
        return self._late is None and not self._observer.waiting

    @property
    def waits_for_decision(self) -> bool:
        """The broker has said all that it will, and closed: the client is to hear of it in time."""
        return self._late is not None

    def take(self, request: Request) -> bool:
        if self._observer.begins(request.frame, request.header) and not self._in_turn(request):
            return False
        now_ms = self._concern.now_ms()
        try:
            self._observer.on_request(request.frame, request.header)
        except Unreadable as login:
            self._decide(request.header.api_key, failed=False)
            self._concern.metrics.refused_logins.labels(login.reason).inc()
            slot = request.slot()
            self._link.reserve(slot)
            self._answer_late(slot, login.response, now_ms, login.reason if login.ends else "")
            return False
        request.readers.append(partial(self._answered, now_ms))
        return True

    def close(self) -> None:
        if self._late is not None:
            self._late.cancel()
        # Who did not wait for the answer may have guessed.
        self._decide(SASL_AUTHENTICATE, failed=True)

    def _in_turn(self, request: Request) -> bool:
        """Whether a login may go on; else it is held, or its connection ends."""
        now_ms = self._concern.now_ms()
        if self._turn_ms is None:
            wait_ms = self._concern.failed.turn_ms(self._address)
            if wait_ms is None:
                self._link.hold(request)
                self._link.pacer.pause(MOMENT_MS)
                return False
            if wait_ms > HELD_MAX_MS:
                self._link.end("failed_logins")
                return False
            self._turn_ms = 0.0
            if wait_ms:
                self._concern.metrics.held_logins.inc()
                self._turn_ms = now_ms + wait_ms
        if self._turn_ms <= now_ms:
            return True
        self._link.hold(request)
        self._link.pacer.pause(self._turn_ms - now_ms)
        return False

    def _decide(self, api_key: int, *, failed: bool) -> None:
        """What became of the login that counts as failed, if there is one."""
        # A handshake decides nothing: it may have come in the midst of an exchange, which goes on.
        if self._turn_ms is not None and api_key == SASL_AUTHENTICATE:
            self._concern.failed.decide(self._address, waited=self._turn_ms > 0, failed=failed)
            self._turn_ms = None

    def _answered(self, since_ms: float, slot: Slot, response: bytes) -> bytes | None:
        observer, concern = self._observer, self._concern
        observer.on_response(response, slot.api_key, slot.api_version)
        self._link.expect_token(observer.token_bytes)
        if observer.failure is None:
            if observer.lifetime_ms is not None:
                # From before the broker's time began, so it never lasts longer than there.
                self._link.pacer.session_until_ms = since_ms + observer.lifetime_ms
            if observer.succeeded:
                self._link.user = observer.principal
                self._decide(slot.api_key, failed=False)
                if not concern.identify(self._link, self._link.user):
                    self._link.end("connections_per_user")
            return response
        concern.metrics.failed_logins.labels(observer.failure.value).inc()
        if self._turn_ms is None and observer.failure.guesses:
            concern.failed.add(self._address)
        self._decide(slot.api_key, failed=observer.failure.guesses)
        self._answer_late(slot, response, since_ms)
        return None

    def _answer_late(self, slot: Slot, response: bytes, since_ms: float, ends: str = "") -> None:
        """Answer a login that has failed, at a time that does not tell why; its connection may end then."""
        left_ms = since_ms + self._concern.settings.failed_login_delay_ms - self._concern.now_ms()
        self._late = self._link.call_later(max(0.0, left_ms), partial(self._answer, slot, response, ends))

    def _answer(self, slot: Slot, response: bytes, ends: str) -> None:
        self._late = None
        self._link.respond(slot, response)
        self._link.finish(0.0)
        if ends:
            self._link.end(ends)


class FailedLogins:
    """How long the logins of each address (`source_of`) must wait: who guesses passwords does.

    A minute's worth of failures is free. Beyond, logins take turns at that rate. Each counts as failed from
    its turn on, so that many connections at once gain nothing, and so does closing before the answer; a good
    login gives its turn back.

    Args:
        per_minute: failures that are free; 0: all.
    """

    def __init__(self, per_minute: int, now_ms: Callable[[], float]) -> None:
        self._each_ms = _MINUTE_MS / per_minute if per_minute else 0.0
        self._now_ms = now_ms
        # When all failures will be forgiven.
        self._until_ms: dict[str, float] = {}
        # Logins that did not wait and have no answer yet.
        self._undecided: Counter[str] = Counter()

    def turn_ms(self, address: str) -> float | None:
        """How long a login must wait from now on; `decide` is to be called for each that has got its turn.

        Returns:
            Above HELD_MAX_MS it has got no turn; None: nor has it yet, for others may not have failed.
        """
        if not self._each_ms:
            return 0.0
        wait_ms = max(0.0, self._until_ms.get(address, 0.0) - self._now_ms() - _MINUTE_MS)
        if 0 < wait_ms <= self._undecided[address] * self._each_ms:
            return None
        if wait_ms <= HELD_MAX_MS:
            self.add(address)
            if not wait_ms:
                self._undecided[address] += 1
        return wait_ms

    def decide(self, address: str, *, waited: bool, failed: bool) -> None:
        """What became of a login that had its turn."""
        if not waited and address in self._undecided:
            self._undecided[address] -= 1
            if not self._undecided[address]:
                del self._undecided[address]
        if not failed and address in self._until_ms:
            self._until_ms[address] -= self._each_ms
            if self._until_ms[address] <= self._now_ms():
                del self._until_ms[address]

    def add(self, address: str) -> None:
        """A login counts as failed."""
        if not self._each_ms:
            return
        now_ms = self._now_ms()
        until_ms = max(now_ms, self._until_ms.pop(address, now_ms)) + self._each_ms
        if len(self._until_ms) >= ADDRESSES_MAX:
            del self._until_ms[next(iter(self._until_ms))]
        self._until_ms[address] = min(until_ms, now_ms + _MINUTE_MS + AWAY_MAX_MS)
