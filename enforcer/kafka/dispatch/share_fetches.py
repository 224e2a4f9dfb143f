"""ShareFetch requests of one connection under limits of dispatch (docs/protocol_notes.md 3.9).

What a member of a share group gets is locked for it, and counts as a delivery, before the answer leaves the
broker. So all is decided before the request goes on: it is kept for a moment, or asks for less, or for
nothing; an answer is counted and passed on whole. Acknowledgements never wait: who brings some, in this
request or behind it, is answered at once, with nothing where nothing may be delivered.
"""

from collections.abc import Callable
from functools import partial
from math import ceil, inf
from typing import Final

from enforcer.core.lines import RESERVED_MS, Pause
from enforcer.kafka.dispatch.claims import Claims, LimitedTopic
from enforcer.kafka.dispatch.context import LARGE_MS, UNHEARD_MS, FetchContext
from enforcer.kafka.dispatch.fetch_requests import TopicRequest
from enforcer.kafka.dispatch.fetches import Plan
from enforcer.kafka.dispatch.session import TopicReading
from enforcer.kafka.groups.readers import Client, short
from enforcer.kafka.names import NameResolver
from enforcer.kafka.part import FETCH_LIMIT_MAX, PART_BYTES_MIN, Behind
from enforcer.kafka.share_sessions import RECORDS_MAX, ShareSession, ShareSessions, may_acknowledge
from enforcer.wire.kafka.frames import BadFrame, Reason, RequestHeader
from enforcer.wire.kafka.traffic import ShareAsked, share_error, shared, sharing, with_share

ALONE_MS: Final = 10_000.0
"""Who has met nobody at its limits for so long waits at the broker as it likes. A newcomer does not, so that
they meet at once."""

Taken = Callable[[bytes], bytes]
"""Counts what an answer brings."""


class ShareFetches:
    """The ShareFetch requests of one connection."""

    def __init__(self, context: FetchContext, pause: Pause, naming: NameResolver) -> None:
        self._context = context
        self._naming = naming
        self.claims = Claims(context, pause, context.new_trail())
        """What it waits for."""
        self.sessions = ShareSessions(context.sessions)
        self._topics: set[str] = set()
        # Requests whose answers are to be counted, and whether the last one is one of them.
        self._under_way, self._counted = 0, False
        self._behind = False
        self._met_ms = context.steady_ms()

    def look_behind(self, requests: Behind) -> None:
        """These wait, the one that is kept in front: it gives way to what may acknowledge."""
        if self.claims.held and not self._behind and may_acknowledge(requests):
            self._behind = True
            self.claims.wake()

    def take_back(self) -> None:
        """The last request does not go on, after all: it is planned again."""
        self._under_way -= self._counted
        self._counted = False
        self.claims.take_back()

    def plan(
        self, frame: bytes, header: RequestHeader, client: Client, address: tuple[str, int]
    ) -> Plan | None:
        """What becomes of a request; None: it waits, and is to be planned again when the pause is over.

        Args:
            address: of the broker.

        Raises:
            BadFrame: it cannot be read.
        """
        asked, context = sharing(frame, header), self._context
        broker = context.broker(address)
        asking = self.sessions.of(asked, context.dispatch.begun, client.user, broker)
        plan = self._planned(frame, header.api_version, asked, asking.session, broker)
        if plan is None or not asking.number:
            return plan
        cut = plan.cut

        def hear(response: bytes) -> bytes:
            asking.hear(share_error(response, header.api_version))
            return response if cut is None else cut(response)

        return Plan(plan.frame, hear)

    def _planned(
        self, frame: bytes, version: int, asked: ShareAsked, session: ShareSession, broker: str
    ) -> Plan | None:
        if not asked.acquires:
            return self._go(frame)
        may_wait = not (asked.acknowledges or self._behind)
        if session.overflown:
            return self._by_itself(frame, asked, may_wait, LARGE_MS)
        keys = session.wanted
        if may_wait and (self._naming.must_wait(keys) or self._naming.must_prove()):
            return None
        if not may_wait and self._naming.lacking(keys):
            # Asked for before the next one, which brings no acknowledgements.
            return self._go(with_share(frame, asked, records=0, size=PART_BYTES_MIN))
        group = short(asked.group or "")
        taken = partial(self._taken, version, session, broker, group)
        if session.unheard:
            # It began through another proxy, perhaps: nobody knows what it has.
            return self._by_itself(frame, asked, may_wait, UNHEARD_MS, taken)
        wants = self._wanted(keys, broker, group)
        wait_ms = self._wait_ms(wants, broker)
        if not wait_ms:
            if not wants and session.begun:
                if session.number:
                    # Its answer is read whole.
                    size = max(1, min(asked.max_bytes, FETCH_LIMIT_MAX))
                    frame = with_share(frame, asked, records=asked.max_records, size=size)
                return self._go(frame)
            if wants:
                # No longer than what it may bring is kept free; alone, so often that who comes meets it.
                alone = self._context.steady_ms() >= self._met_ms + ALONE_MS
                most_ms = ALONE_MS / 2 if alone else RESERVED_MS
                frame = with_share(frame, asked, **self._room(asked, wants), wait_ms=most_ms)
            return self._go(frame, taken)
        # It goes on for all of its topics or for none.
        if may_wait and self.claims.hold(wait_ms, asked.kept_ms(self._context.hold_ms)):
            return None
        return self._go(with_share(frame, asked, records=0, size=PART_BYTES_MIN))

    def _go(self, frame: bytes, taken: Taken | None = None) -> Plan:
        self.claims.release()
        self._behind, self._counted = False, taken is not None
        self._under_way += self._counted
        return Plan(frame, taken)

    def _by_itself(
        self, frame: bytes, asked: ShareAsked, may_wait: bool, between_ms: float, taken: Taken | None = None
    ) -> Plan | None:
        """A request of a session whose topics are not known: one record, and so much time between these."""
        # The answer that is awaited may tell them.
        awaits = taken is not None and self._under_way
        wait_ms = RESERVED_MS if awaits else self.claims.apart_ms(between_ms)
        if may_wait and wait_ms and self.claims.hold(wait_ms, asked.kept_ms(self._context.hold_ms)):
            return None
        return self._go(with_share(frame, asked, records=0 if wait_ms else 1, size=PART_BYTES_MIN), taken)

    def _wanted(self, keys: list[bytes], broker: str, group: str) -> list[LimitedTopic]:
        """The topics that are limited."""
        dispatch, found = self._context.dispatch, []
        for key in keys:
            name = self._context.topic(key, True)
            if name is not None and dispatch.limits(name, group):
                counters = dispatch.counters(broker, name, group)
                claim = self.claims, "", group
                topic = TopicRequest(key, 0, 0, [])
                reading = TopicReading(broker, name, (group,), claim, False, False, counters)
                found.append(LimitedTopic(topic, reading))
        return found

    def _wait_ms(self, wants: list[LimitedTopic], broker: str) -> float:
        """How long the strictest of the limits lets it wait; 0: it may go on."""
        claims, context = self.claims, self._context
        if self._under_way:
            # What is left is what that may bring; its broker answers one after the other anyway.
            return RESERVED_MS if wants else 0.0
        topics = {want.name for want in wants}
        if topics != self._topics:
            # Its place is in other lines now.
            self._topics = topics
            claims.give_up()
        claims.begin()
        claims.give_up(wants)
        if not wants:
            return 0.0
        now_ms = context.steady_ms()
        if not all(context.lines.are_left_to(want.counters, want.claim) for want in wants):
            self._met_ms = now_ms
        return claims.decide_together(wants, now_ms, context.dispatch.moment(broker))

    def _room(self, asked: ShareAsked, wants: list[LimitedTopic]) -> dict[str, int]:
        """How many records and bytes may come at once."""
        records, size = float(min(asked.max_records, RECORDS_MAX)), float(asked.max_bytes)
        for want in wants:
            unit = 1.0
            if self._context.dispatch.by_entry and want.msgs < inf:
                unit, _ = self._context.dispatch.mean_entry(want.broker, want.name, want.group)
            records = min(records, want.msgs * max(1.0, unit))
            size = min(size, max(PART_BYTES_MIN, want.size))
        # What is below 0 a broker takes for what it likes.
        return {"records": max(1, ceil(records)), "size": max(1, int(min(size, FETCH_LIMIT_MAX)))}

    def _taken(self, version: int, session: ShareSession, broker: str, group: str, response: bytes) -> bytes:
        """Count what a response brings: it is the client's, whatever it brings."""
        context, dispatch = self._context, self._context.dispatch
        self._under_way -= 1
        self.claims.settle()
        if self.claims.held:
            self.claims.wake()
        try:
            uses = shared(response, version)
        except BadFrame as bad:
            if bad.reason is not Reason.TOO_MANY_ITEMS:
                raise
            context.metrics.large_fetches.inc()
            return response
        session.learn(use.topic for use in uses)
        moment = dispatch.moment(broker)
        for use in uses:
            name = context.topic(use.topic, True)
            if name is None or not dispatch.limits(name, group):
                continue
            context.metrics.redelivered.inc(use.again)
            # What is left unread is not told, so there is always taken to be something.
            dispatch.deliver_at(
                moment, name, group, msgs=use.records, size=use.size, entries=use.batches, backlog=True
            )
        return response
