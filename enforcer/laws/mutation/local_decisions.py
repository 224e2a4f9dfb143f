"""What the proxy decides at once, and what it does so by (docs/contract.md 3.1, "Where it is decided").

Ties `local.book`, which knows no clock and no events, to the requests of clients.
"""

import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final

from enforcer.core.feeds.company import Charge
from enforcer.core.feeds.decisions import LONGEST_THROTTLE_MS, Decision
from enforcer.core.local.alive import Alive
from enforcer.core.local.book import Book
from enforcer.core.local.forms import Answer, Own, Statement
from enforcer.core.local.read_back import ReadBack
from enforcer.core.metrics import Metrics
from enforcer.core.settings import ProxySettings
from enforcer.laws.mutation.gate import MutationQuota
from enforcer.laws.mutation.ledger import Ask
from enforcer.laws.mutation.sizes import in_own_names
from streaming.policy.policy_set import Algorithm, Decide
from streaming.policy.timeline import PolicyTimeline

OWN_EVENTS_MAX: Final = 100_000
"""Own events and their items whose decision was not read, kept to decide by; the oldest are summed up."""

METERING: Final = frozenset({"kafka", "pulsar"})
"""Protocols whose traffic is metered; others only ask for partition mutations."""
AWAY_MS: Final = 8_000
"""The job is away once an event of ours stands on the topic undecided for so long."""
_LOST_MS: Final = 60_000
"""One that is so much older than what the job decides now will never be decided."""
_LOOK_MS: Final = 1_000
_STANDING_MAX: Final = 10_000
"""Events whose decision is waited for to see that the job is there; of more the newest are not looked at."""


class LocalDecisions:
    """Decides requests by the newest statement of their subject and what was sent since.

    Args:
        proxy_id: name of this proxy.
        settings: bounds, and where requests are decided whose quota does not say it.
        metrics: counts.
        timeline: the policies.
        brokers_ms: the brokers' time.
    """

    def __init__(
        self,
        proxy_id: str,
        settings: ProxySettings,
        metrics: Metrics,
        timeline: PolicyTimeline,
        brokers_ms: Callable[[], int],
    ) -> None:
        self._proxy_id = proxy_id
        self._metrics = metrics
        self._default = settings.decide
        self._brokers_ms = brokers_ms
        # Record times of own events that stand on the topic undecided, in order.
        self._standing: OrderedDict[str, int] = OrderedDict()
        self._looked_ms = 0
        self.book = Book(timeline, subjects_max=settings.subjects_max, tail_max=OWN_EVENTS_MAX)
        self.open = False
        """Whether what was decided before the start is known; until then everything is asked."""
        self._reading: ReadBack | None = ReadBack(self.book)
        self.alive = Alive(proxy_id, secrets.token_hex(8))
        self.company: int | None = None
        """How many proxies are alive, this one included; None: not known, or they may not know of us."""
        self.speaks = ""
        """The protocol of our clients; set by whoever owns it."""
        self.metering: int | None = None
        """How many of them see traffic that counts for groups; None as above."""
        self.peers = 1
        """How many of them may stand before the same brokers: those of our protocol, as far as is known."""
        self.read_to_ms: Callable[[], int | None] = lambda: None
        """Up to which record time all decisions are read; None: all that there are. Set by who reads them."""

    def decides(self, quota: MutationQuota | None) -> bool:
        """Whether requests under a quota are decided here."""
        return (
            self.open
            and quota is not None
            and (quota.decide or self._default) == Decide.LOCAL
            and quota.algorithm == Algorithm.TOKEN_BUCKET
            and not quota.shadow
        )

    def decide(self, ask: Ask, quota: MutationQuota, event: dict[str, Any]) -> bool:
        """Decide a request; False: the job must be asked, and its question is noted.

        Args:
            ask: the request; gets its decision.
            quota: the quota in force, one that is decided here.
            event: of the request, whole; gets the decision and its time.
        """
        own = self._own(ask, event)
        if own.ts - self._looked_ms > 2 * _LOOK_MS:
            # The process stood still: nobody knows who lives.
            self.look()
        answer = self.book.decide(quota, own)
        ask.local = True
        if answer is None:
            return False
        self._put(answer, event)
        ask.decision = self._decision(ask, quota, answer)
        return True

    def charge(self, ask: Ask, quota: MutationQuota, event: dict[str, Any]) -> None:
        """Decide what was carried out already: it is charged, whatever the balance is."""
        ask.local = True
        own = self._own(ask, event)._replace(id=event["id"], strict=False, dry=False)
        answer = self.book.decide(quota, own)
        if answer is not None:
            self._put(answer, event)

    def asked(self, ask: Ask, event: Mapping[str, Any]) -> None:
        """Note what the job is to decide: before it has, its quota may be one that is decided here."""
        if self.open and ask.subject:
            self.book.asked(ask.subject, self._own(ask, event))

    def refund(self, ask: Ask, event: dict[str, Any], mutations: int) -> None:
        """Note that so much is given back; the event gets its time."""
        event["ts"] = self.book.refunded(ask.subject, event["id"], self._brokers_ms(), mutations)

    def unanswered(self, ask: Ask) -> None:
        """The time limit of a question has passed."""
        self.book.unanswered(ask.subject, ask.id)

    def withdraw(self, ask: Ask) -> None:
        """The event of a question will never stand on the topic."""
        self.book.withdraw(ask.subject, ask.id)

    def take(self, decision: Decision) -> None:
        """A decision was read from Kafka, whoever asked."""
        if decision.proxy == self._proxy_id:
            self._decided(decision.id)
        if not decision.subject:
            return
        state = self.book.stated if self._reading is None else self._reading.admission
        state(Statement(decision.subject, decision.id, decision.at, decision.tokens, decision.refunds))

    @property
    def newest_stated_ts(self) -> int | None:
        """Applied time of the newest admission that was read before `begin`, ms; None: there was none."""
        return None if self._reading is None else self._reading.newest_ts

    def read_back(self, charge: Charge) -> None:
        """An event was found on `weir.requests`, before `begin`."""
        if self._reading is not None:
            self._reading.event(charge.subject, charge.id, charge.ts, charge.mutations, refund=charge.refund)

    def begin(self) -> None:
        """All is read back: decide at once from now on."""
        self._reading = None
        self.open = True
        self.look()

    @property
    def hears_of_no_decision(self) -> bool:
        """Whether there are others, and no event of ours whose decision would show that the job is there."""
        return self.book.proxies > 1 and not self._standing

    def stands(self, event_id: str, record_ms: int) -> None:
        """An own event, to be decided, stands on the topic since this time of its record."""
        if len(self._standing) < _STANDING_MAX:
            self._standing[event_id] = record_ms

    def look(self) -> None:
        """Once a second: see who lives, and whether we hear of what they take."""
        ts = self._looked_ms = self._brokers_ms()
        read_to_ms = self.read_to_ms()
        self.alive.at_end(ts if read_to_ms is None else read_to_ms)
        oldest_ms = next(iter(self._standing.values()), ts)
        count, blind = self.alive.count(away=ts - oldest_ms >= AWAY_MS), self.alive.blind(ts)
        self.company = None if blind else count
        self.metering = None if blind else self.alive.count_of(METERING)
        self.peers = self.alive.count_of(frozenset({self.speaks}))
        self.book.set_proxies(count)
        self.book.set_blind(blind)
        self._metrics.local.proxies = self.book.proxies
        self._metrics.local.own_events = self.book.tail
        self._metrics.local.counts = self.book.counts

    def _decided(self, event_id: str) -> None:
        record_ms = self._standing.pop(event_id, None)
        if record_ms is None:
            return
        self.alive.decided(record_ms)
        while self._standing and next(iter(self._standing.values())) < record_ms - _LOST_MS:
            self._standing.popitem(last=False)

    def _own(self, ask: Ask, event: Mapping[str, Any]) -> Own:
        # Names as the event has them: by these the job knows the items.
        items = {item["name"]: item["mutations"] for item in event["items"]}
        return Own(ask.id, self._brokers_ms(), ask.strict, ask.dry_run, items)

    def _put(self, answer: Answer, event: dict[str, Any]) -> None:
        event["ts"] = answer.ts
        event["decided"] = answer.decided()

    def _decision(self, ask: Ask, quota: MutationQuota, answer: Answer) -> Decision:
        rejected = frozenset(answer.rejected)
        return Decision(
            id=ask.id,
            ts=answer.ts,
            proxy=self._proxy_id,
            subject=ask.subject,
            throttle_time_ms=min(answer.throttle_time_ms, LONGEST_THROTTLE_MS),
            rejected=in_own_names(ask.aliases, rejected) if ask.aliases else rejected,
            limit=quota.rate,
            tokens=answer.tokens,
            rate=None,
            shadow=False,
            late=False,
        )
