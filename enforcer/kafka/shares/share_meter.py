"""One connection's ShareFetch requests while traffic is metered (docs/protocol_notes.md 3.9).

Charged as Fetches are, by what has come. But what has come is the client's: nothing of it is held back, and
it is told no throttle time, by which it would keep its acknowledgements to itself. So a request waits before
it goes on, for a moment; where it may not, it asks for nothing.
"""

from math import inf
from typing import Final

from enforcer.core.account import DISPATCH, Account
from enforcer.core.lines import Pause
from enforcer.core.metrics import Metrics
from enforcer.kafka.names import NameResolver
from enforcer.kafka.part import PART_BYTES_MIN, Behind
from enforcer.kafka.share_sessions import RECORDS_MAX, Asking, ShareSessions, may_acknowledge
from enforcer.kafka.shares.connection_meter import ConnectionMeter
from enforcer.kafka.shares.frame_meter import FrameMeter
from enforcer.wire.kafka.frames import Frame, RequestHeader
from enforcer.wire.kafka.traffic import TopicUse, share_error, shared, sharing, with_share

HOLD_MS: Final = 1_000.0
"""A request is kept no longer, whatever it would wait at the broker."""


class ShareMeter(ConnectionMeter):
    """A share session as the meter sees it; arguments as of ConnectionMeter."""

    def __init__(self, frames: FrameMeter, metrics: Metrics, pause: Pause, naming: NameResolver) -> None:
        super().__init__(frames, metrics, pause, naming)
        self._sessions = ShareSessions(frames.sessions)
        # Who owes for what has come.
        self._owing: set[Account] = set()
        self._held_since_ms = inf
        self._behind = False

    @property
    def partitions(self) -> int:
        return self._sessions.partitions

    def look_behind(self, requests: Behind) -> None:
        """These wait, the one that is kept in front: it gives way to what may acknowledge."""
        if self._held_since_ms != inf and not self._behind and may_acknowledge(requests):
            self._behind = True
            self.line_up.wake()

    def ask(self, frame: bytes, header: RequestHeader, user: str, broker: str) -> bytes | None:
        """A ShareFetch request as it is forwarded: where somebody owes, it is kept or asks for nothing.

        Returns:
            None: it must wait, and is to be handled again when the pause is over.

        Raises:
            BadFrame: it cannot be read.
        """
        asked = sharing(frame, header)
        self.asking = self._sessions.of(asked, self._meter.begun, user, broker)
        session = self.asking.session
        self._use(session, ids=True)
        if not asked.acquires:
            return self._go(frame)
        now_ms = self._steady_ms()
        left_ms = min(self._held_since_ms, now_ms) + asked.kept_ms(HOLD_MS) - now_ms
        may_wait = not (asked.acknowledges or self._behind) and left_ms > 0
        unknown = self._frames.unknown_ids([*self._unnamed, *self._session])
        if may_wait and (self.naming.must_prove() or self.naming.must_wait(unknown)):
            return None
        accounts = self._frames.fetching(self._session_accounts(), user, header.client_id or "")
        if session.overflown:
            accounts = accounts | {account for account in self._owing if self._meter.has(account)}
        if may_wait:
            self._unnamed.clear()
            if not self.line_up.admits_fetch(accounts, now_ms, most_ms=left_ms):
                self._held_since_ms = min(self._held_since_ms, now_ms)
                return None
        else:
            lacks = self.naming.lacking(unknown)
            goes = self.naming.proven and not lacks and not self.line_up.must_wait(accounts, now_ms)
            self.line_up.step_aside()
            if not goes:
                return self._go(with_share(frame, asked, records=0, size=PART_BYTES_MIN))
        # Whose accounts they would be is not known of one that began elsewhere and has brought nothing yet.
        if session.overflown or (session.unheard and self._meter.grouped):
            return self._go(with_share(frame, asked, records=1, size=PART_BYTES_MIN))
        limit = self._frames.fetch_limit(asked.summary, accounts)
        if limit is None and (asked.max_records <= RECORDS_MAX or not self._meter.grouped):
            return self._go(frame)
        size = asked.max_bytes if limit is None else limit
        return self._go(with_share(frame, asked, records=min(asked.max_records, RECORDS_MAX), size=size))

    def got(self, asking: Asking, response: Frame, header: RequestHeader, user: str) -> None:
        """Charge the response to a ShareFetch, which is the client's whatever it brings.

        Raises:
            BadFrame: it cannot be read.
        """
        asking.hear(share_error(response, header.api_version))
        passed: list[TopicUse] = []
        if self._meter.grouped:
            passed = [TopicUse(*use[:3]) for use in shared(response, header.api_version)]
        bill = self._frames.fetched(response, passed, header, user)
        now_ms = self._steady_ms()
        self.line_up.fetched(bill.owed, now_ms)
        # It may have begun before anything was metered: then what comes tells its topics.
        asking.session.learn(use.topic for use in passed)
        self._unnamed = bill.unknown
        self._meter.unmetered += len(bill.unknown)
        wait = bill.charge(DISPATCH, now_ms).wait
        charged = self._owing.union(item.account for item in bill.owed)
        self._owing = {account for account in charged if account.debt(DISPATCH, now_ms) is not None}
        if wait is not None:
            self._told_ms(wait)

    def _go(self, frame: bytes) -> bytes:
        self._held_since_ms = inf
        self._behind = False
        return frame
