"""Fetch requests of one connection under limits of dispatch (docs/protocol_notes.md 3.6).

A request of which some topics may be read goes on without the others. One of which none may be read is kept
for a moment and then answered without records, as a broker answers a throttled client. Either way the client
gets an answer for each partition that it asked for, in the order of its requests.
"""

from collections.abc import Callable
from itertools import chain
from math import ceil, inf
from typing import Final, NamedTuple

from enforcer.core.lines import RESERVED_MS, Claim, Pause
from enforcer.kafka.dispatch.context import FetchContext
from enforcer.kafka.dispatch.deliveries import Deliveries
from enforcer.kafka.dispatch.fetch_requests import (
    NO_SESSION,
    UNKNOWN_SESSION,
    FetchRequest,
    TopicRequest,
    asked_of,
    forwarded,
    session_of,
    whole_topics,
    with_session,
)
from enforcer.kafka.dispatch.fetch_responses import nothing_yet
from enforcer.kafka.dispatch.limited_topics import LimitedTopic, divided, estimate, left_for, most_of
from enforcer.kafka.dispatch.session import LookUp, NameResolver, PeerWait, Session, TopicCache, TopicReading
from enforcer.kafka.groups.readers import Client
from enforcer.kafka.part import FETCH_LIMIT_MAX, PART_BYTES_MIN
from enforcer.laws.dispatch.counter_table import Moment
from enforcer.laws.dispatch.left import Left
from enforcer.wire.kafka.frames import BadFrame, Reason, RequestHeader
from enforcer.wire.kafka.traffic import FETCH_IDS_FROM, fetching, with_limit

_THROTTLE_MAX_MS: Final = 1_000
"""A client is told to ask again within that time: it asks for nothing else meanwhile."""
_LOOK_MS: Final = 1_000.0
"""How often it is looked what a limit of a longer period leaves, though nobody said that it has changed."""
_COME_BACK_MS: Final = 100.0
"""A client has so long to ask again when its time has come, or loses its place to who does."""
_LIMITED_MAX: Final = 1_000
"""Topics of a connection of which it is remembered that a limit was reached."""


class Plan(NamedTuple):
    """What becomes of a request.

    Attributes:
        frame: it goes to the broker so; empty: it does not.
        cut: what is done to the broker's response; None: nothing.
        answer: what the client gets at once, if the broker is not asked.
    """

    frame: bytes
    cut: Callable[[bytes], bytes] | None = None
    answer: bytes = b""


class Fetches:
    """The Fetch requests of one connection.

    Args:
        context: what all connections share.
        pause: holds the connection back.
        look_up: asks the broker for names of topic ids.
    """

    def __init__(self, context: FetchContext, pause: Pause, look_up: LookUp) -> None:
        self._context = context
        self._pause = pause
        self._session = Session(context)
        self.naming = NameResolver(context.names, pause, look_up, context.steady_ms)
        """The names of its topics, and whether it was let in."""
        self.meeting = PeerWait(context, pause)
        """What other proxies may know of its client."""
        self._trail = context.new_trail()
        self._deliveries = Deliveries(context, self._trail)
        # Until when it need not be asked what is left for them, unless it was woken.
        self._waiting: dict[Claim, float] = {}
        self._woken = False
        self._going: list[Claim] = []
        # Those of which a limit was reached; with what came then, and when, until it is asked what is left.
        self._limited_before: dict[Claim, tuple[float, LimitedTopic] | None] = {}
        # Until when it need not be asked either, since far more is left than one response may bring.
        self._ample: dict[Claim, float] = {}
        self._generation = -1
        self._held_since_ms = inf
        self._known = TopicCache[dict[bytes, LimitedTopic]](context)
        self._was_limited = False
        self._broker = ""

    def wake(self) -> None:
        """It may be its turn (lines.Waiter)."""
        self._woken = True
        self._pause.wake()

    def plan(
        self, frame: bytes, header: RequestHeader, client: Client, address: tuple[str, int]
    ) -> Plan | None:
        """What becomes of a request; None: it waits, and is to be planned again when the pause is over.

        Args:
            frame: the request.
            header: its header.
            client: who asks.
            address: of the broker.

        Raises:
            BadFrame: it cannot be read.
        """
        try:
            return self._plan(frame, header, client, address)
        except BadFrame as bad:
            if bad.reason is not Reason.TOO_MANY_ITEMS:
                raise
            return self._by_itself(frame, header)

    def _plan(
        self, frame: bytes, header: RequestHeader, client: Client, address: tuple[str, int]
    ) -> Plan | None:
        at, _, epoch = session_of(frame, header)
        full = epoch <= 0
        session, ids = self._session, header.api_version >= FETCH_IDS_FROM
        # What follows a limited request nearly always is one too, and then is read as a whole only.
        asked = None
        if full and self._was_limited:
            asked = self._known.waited(frame) or asked_of(frame, header)
        if asked is None:
            read = fetching(frame, header)
            if read.more:
                raise BadFrame(Reason.TOO_MANY_ITEMS)
            keys = read.topics
        else:
            keys = [topic.key for topic in asked.topics]
        if not full and not session.known:
            # It began unread. The broker says that it knows no such session, and the client begins anew.
            return Plan(with_session(frame, at, UNKNOWN_SESSION, epoch))
        if ids and self.naming.must_wait(keys):
            return None
        if self.meeting.must_wait(client, keys, ids):
            return None
        (session.begin if full else session.add)(keys, ids)
        self._was_limited = session.is_limited(client)
        if not self._was_limited:
            return Plan(frame)
        if not full:
            session.forget()
            return Plan(with_session(frame, at, UNKNOWN_SESSION, epoch))
        asked = asked or asked_of(frame, header)
        if self.naming.must_prove():
            return None
        wanted = self._wanted(asked, client, ids, address)
        if not wanted:
            # Another group may be told what it reads, so it has no session all the same.
            self._give_up(wanted)
            return Plan(with_session(frame, at, asked.session, NO_SESSION) if at else frame)
        return self._limited(frame, header, asked, wanted)

    def _by_itself(self, frame: bytes, header: RequestHeader) -> Plan | None:
        """A request of more partitions than can be told apart: it gets one batch, one such request at a time.

        Its client is not cut off for having so many, and yet gets nearly nothing past a limit by it.
        """
        wait_ms = self._context.large_wait_ms()
        if wait_ms:
            self._pause.pause(wait_ms)
            return None
        asked, (at, session, _) = fetching(frame, header), session_of(frame, header)
        self._session.forget()
        if asked.limit_offset is None:
            # Versions 0 to 2, of clients before Kafka 0.10.1, cannot be asked for one batch.
            raise BadFrame(Reason.TOO_MANY_ITEMS)
        frame = with_limit(frame, asked, PART_BYTES_MIN)
        return Plan(with_session(frame, at, session, NO_SESSION) if at else frame)

    def take_back(self) -> None:
        """What was planned last is not sent after all."""
        self._settle()

    def close(self) -> None:
        """The connection is gone."""
        self._settle()
        for claim in self._waiting:
            self._context.lines.leave(claim)
        self._waiting.clear()
        self.unheard()

    def unheard(self) -> None:
        """The client is gone, though what it sent may still be carried out."""
        self._context.finder.trails.leave(self._trail)

    def _wanted(
        self, asked: FetchRequest, client: Client, ids: bool, address: tuple[str, int]
    ) -> dict[bytes, LimitedTopic]:
        """The limited topics of a request, by name or id."""
        self._broker = broker = self._context.broker(address)
        found = self._known.begin(asked, client, broker, ids)
        self._trail.client = client
        if found is not None:
            for want in found.values():
                want.begin()
            return found
        found = {}
        for topic in whole_topics(asked):
            known, reading, tracked = self._known.of(topic)
            if not known:
                reading = self._reading(topic, client, ids, broker)
            elif tracked:
                self._track(tracked, topic)
            if reading is not None:
                found[topic.key] = LimitedTopic(topic, reading)
        return found

    def _reading(self, topic: TopicRequest, client: Client, ids: bool, broker: str) -> TopicReading | None:
        """Who reads a topic; None: nothing limits it."""
        context = self._context
        name = context.topic(topic.key, ids)
        if name is None:
            return None
        tracked = context.dispatch.may_limit_groups(name)
        groups: tuple[str, ...] = ("",)
        unsure, stays = False, True
        if context.dispatch.by_subscription:
            if tracked:
                self._track(name, topic)
            parts = [part.number for part in topic.parts]
            key = topic.key
            keys: list[str | bytes] = [context.names.get(key, ""), key] if ids else [key.decode()]
            groups, unsure, stays = context.groups_of(client, self._trail, name, keys, parts)
            if unsure and self._held_since_ms == inf:
                context.metrics.ambiguous_fetches.inc()
        limited = any(context.dispatch.limits(name, group) for group in groups)
        limited = limited or context.finder.watches(name, client.user)
        reading = None
        if limited:
            found = (context.dispatch.counters(broker, name, group) for group in groups)
            counters = tuple(dict.fromkeys(chain.from_iterable(found)))
            claim = self, name, "|".join(groups)
            reading = TopicReading(broker, name, groups, claim, tracked, unsure, counters)
        if stays:
            self._known.keep(topic, groups, reading, name if tracked else "")
        return reading

    def _track(self, name: str, topic: TopicRequest) -> None:
        asked = ((part.number, part.offset) for part in topic.parts)
        self._trail.asked(name, asked, self._context.steady_ms())

    def _limited(
        self, frame: bytes, header: RequestHeader, asked: FetchRequest, wanted: dict[bytes, LimitedTopic]
    ) -> Plan | None:
        self._settle()
        self._give_up(wanted)
        self._look_anew()
        wants = list(wanted.values())
        now_ms, moment = self._context.steady_ms(), self._context.dispatch.moment(self._broker)
        for want in wants:
            self._decide(want, now_ms, moment)
        soonest_ms = min((want.wait_ms for want in wants if want.wait_ms), default=inf)
        waiting, limits = divided(asked, wanted)
        if waiting and len(waiting) == len(asked.topics):
            return self._hold(frame, header, asked, wanted, soonest_ms)
        self._held_since_ms = inf
        if self._waiting:
            for want in wants:
                if want.most and not want.wait_ms:
                    self._go_on(want)
        request = forwarded(
            frame, asked, header.api_version,
            left_out=waiting,
            limits=limits if asked.limit_at else {},
            wait_ms=asked.wait_ms if not waiting else min(asked.wait_ms, ceil(soonest_ms)),
            min_bytes=min((asked.min_bytes, FETCH_LIMIT_MAX, *limits.values())),
            limit=min(asked.limit, most_of(asked)),
        )  # fmt: skip

        def cut(response: bytes) -> bytes:
            self._settle()
            found = self._deliveries.taken(response, header.api_version, asked, wants)
            came_ms = self._context.steady_ms()
            for want in wants:
                if want.left is not None and want.left.level:
                    self._note_limited(want.claim, (came_ms, want))
            return found

        return Plan(request, cut)

    def _decide(self, want: LimitedTopic, now_ms: float, moment: Moment) -> None:
        """Whether a topic may be read now, and how much of it; else it has its place in the line."""
        context, claim = self._context, want.claim
        caught_up = self._deliveries.caught_up(want.topic.key)
        if caught_up and not context.dispatch.all_charged:
            return
        until_ms = self._waiting.get(claim)
        if until_ms is not None and until_ms > now_ms:
            want.wait_ms = until_ms - now_ms
            return
        want.turns = not caught_up and claim in self._limited_before
        if self._ample.get(claim, 0.0) > now_ms:
            want.most = FETCH_LIMIT_MAX
            return
        left = self._left_before(want, now_ms) or left_for(context.dispatch, moment, want)
        if left.msgs is None and left.bytes is None:
            return
        msgs = inf if left.msgs is None else float(left.msgs)
        size = inf if left.bytes is None else float(left.bytes)
        if left.wait_ms:
            self._note_limited(claim)
            want.wait_ms = float(left.wait_ms)
        elif want.unsure and (sits_out_ms := context.sits_out_ms(self._trail)):
            want.wait_ms = sits_out_ms
            self._go_on(want)
            return
        elif msgs <= 0 or size <= 0 or (
            want.turns and not all(context.lines.is_next(each, claim) for each in want.counters)
        ):
            want.wait_ms = RESERVED_MS
        if want.wait_ms:
            within_ms = want.wait_ms + _COME_BACK_MS
            context.lines.join(want.counters, claim, wait_ms=float(left.wait_ms), within_ms=within_ms)
            if until_ms is None and left.level:
                context.dispatch.throttled(want.broker, want.name, want.group, left.level, left.dimension)
            self._waiting[claim] = now_ms + min(float(left.wait_ms), _LOOK_MS)
            return
        estimate(context, want, msgs, size)
        self._let_go(want, now_ms)

    def _let_go(self, want: LimitedTopic, now_ms: float) -> None:
        """It goes on: what it may bring is kept free for it, where it takes turns."""
        if want.turns:
            self._context.lines.reserve(want.counters, want.claim, want.est_msgs, want.est_size)
            self._going.append(want.claim)
        elif want.most == FETCH_LIMIT_MAX and not want.unsure:
            if len(self._ample) >= _LIMITED_MAX:
                self._ample.clear()
            self._ample[want.claim] = now_ms + _LOOK_MS

    def _left_before(self, want: LimitedTopic, now_ms: float) -> Left | None:
        """What was left when a limit was reached, as long as it has to be waited for; None: look anew."""
        reached = self._limited_before.get(want.claim)
        if reached is None or (left := reached[1].left) is None:
            return None
        self._limited_before[want.claim] = None
        wait_ms = left.wait_ms - (now_ms - reached[0])
        want.group = reached[1].group
        return left._replace(wait_ms=ceil(wait_ms)) if wait_ms > 0 else None

    def _look_anew(self) -> None:
        """Forget how long what is held need not be looked at, if anything has changed."""
        generation = self._context.dispatch.generation
        if self._woken or generation != self._generation:
            self._waiting = dict.fromkeys(self._waiting, 0.0)
            self._limited_before = dict.fromkeys(self._limited_before)
            self._ample.clear()
        self._woken, self._generation = False, generation

    def _note_limited(self, claim: Claim, reached: tuple[float, LimitedTopic] | None = None) -> None:
        """From now on it takes turns; before, nobody waits for what others may bring."""
        self._ample.pop(claim, None)
        if len(self._limited_before) >= _LIMITED_MAX:
            self._limited_before.clear()
        self._limited_before[claim] = reached

    def _hold(
        self, frame: bytes, header: RequestHeader, asked: FetchRequest, wanted: dict[bytes, LimitedTopic],
        soonest_ms: float,
    ) -> Plan | None:  # fmt: skip
        now_ms = self._context.steady_ms()
        if self._held_since_ms == inf:
            self._held_since_ms = now_ms
            self._context.metrics.held_fetches.inc()
        left_ms = self._held_since_ms + self._context.hold_ms - now_ms
        if left_ms > 0:
            self._pause.pause(min(soonest_ms, left_ms))
            self._known.wait(frame, asked, wanted)
            return None
        self._held_since_ms = inf
        throttle_ms = min(_THROTTLE_MAX_MS, ceil(soonest_ms))
        topics = self._deliveries.missing(wanted.values())
        return Plan(b"", None, nothing_yet(header.correlation_id, header.api_version, topics, throttle_ms))

    def _go_on(self, want: LimitedTopic) -> None:
        if want.claim in self._waiting:
            del self._waiting[want.claim]
            self._context.lines.leave(want.claim)

    def _give_up(self, wanted: dict[bytes, LimitedTopic]) -> None:
        """Who waited for what is not asked for any more does not wait."""
        if self._waiting:
            asked = {want.claim for want in wanted.values()}
            for claim in [claim for claim in self._waiting if claim not in asked]:
                del self._waiting[claim]
                self._context.lines.leave(claim)

    def _settle(self) -> None:
        going, self._going = self._going, []
        for claim in going:
            self._context.lines.settle(claim)
