"""Fetch requests of one connection under limits of dispatch (docs/protocol_notes.md 3.6).

A request of which some topics may be read goes on without the others. One of which none may be read is kept
for a moment and then answered without records, as a broker answers a throttled client. Either way the client
gets an answer for each partition that it asked for, in the order of its requests.
"""

from collections.abc import Callable, Sequence
from itertools import chain
from math import ceil, inf
from typing import Final, NamedTuple

from enforcer.core.lines import Pause
from enforcer.kafka.dispatch.claims import Ample, Claims, LimitedTopic
from enforcer.kafka.dispatch.context import FetchContext
from enforcer.kafka.dispatch.deliveries import Deliveries
from enforcer.kafka.dispatch.fetch_requests import (
    NO_SESSION,
    FetchRequest,
    TopicRequest,
    asked_of,
    forwarded,
    whole_topics,
)
from enforcer.kafka.dispatch.fetch_responses import nothing_yet
from enforcer.kafka.dispatch.session import Session, TopicCache, TopicReading
from enforcer.kafka.groups.readers import Client
from enforcer.kafka.names import NameResolver
from enforcer.kafka.part import FETCH_LIMIT_MAX, PART_BYTES_MIN
from enforcer.wire.kafka.frames import BadFrame, Reason, RequestHeader
from enforcer.wire.kafka.traffic import (
    FETCH_IDS_FROM,
    UNKNOWN_SESSION,
    fetching,
    session_of,
    with_limit,
    with_session,
)

_THROTTLE_MAX_MS: Final = 1_000
"""A client is told to ask again within that time: it asks for nothing else meanwhile."""
_KNOWN_MS: Final = 1_000.0
_UNKNOWN_MS: Final = 2_000.0
"""So long a connection's first Fetch waits for what other proxies may tell of its client, known or not."""
_LOOK_AGAIN_MS: Final = 50.0
_WIDE_MAX: Final = 2 * FETCH_LIMIT_MAX
"""A Fetch of hundreds of partitions brings at most so many bytes at once."""


class Plan(NamedTuple):
    """What becomes of a request.

    Attributes:
        frame: it goes to the broker so; empty: it does not.
        cut: what is done to the broker's response; None: nothing.
        answer: what the client gets at once, if the broker is not asked.
        look: sees the broker's response, which it passes on as it is; None: nobody does.
    """

    frame: bytes
    cut: Callable[[bytes], bytes] | None = None
    answer: bytes = b""
    look: Callable[[bytes], bytes] | None = None


class Fetches:
    """The Fetch requests of one connection."""

    def __init__(self, context: FetchContext, pause: Pause, naming: NameResolver) -> None:
        self._context = context
        self._pause = pause
        self._session = Session(context)
        self._naming = naming
        self.met, self._came_ms = False, inf
        """Whether nothing more is waited for that other proxies may tell of its client; since when it is."""
        self._trail = context.new_trail()
        self._deliveries = Deliveries(context, self._trail)
        self.claims = Claims(context, pause, self._trail)
        """What it waits for."""
        self._known = TopicCache[dict[bytes, LimitedTopic]](context)
        self._was_limited = False
        self._broker = ""

    @property
    def partitions(self) -> int:
        """Of how many it is remembered what was delivered."""
        return self._trail.size

    def plan(
        self, frame: bytes, header: RequestHeader, client: Client, address: tuple[str, int]
    ) -> Plan | None:
        """What becomes of a request; None: it waits, and is to be planned again when the pause is over.

        Args:
            address: of the broker.

        Raises:
            BadFrame: it cannot be read.
        """
        try:
            plan = self._plan(frame, header, client, address)
        except BadFrame as bad:
            if bad.reason is not Reason.TOO_MANY_ITEMS:
                raise
            plan = self._by_itself(frame, header)
        if plan is not None:
            self.claims.release()
        return plan

    def _plan(
        self, frame: bytes, header: RequestHeader, client: Client, address: tuple[str, int]
    ) -> Plan | None:
        at, number, epoch = session_of(frame, header)
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
        if not full and not session.knows(number):
            # It began unread, or on another connection: the broker says that it knows no such session, and
            # the client begins anew.
            session.number = UNKNOWN_SESSION
            return Plan(with_session(frame, at, UNKNOWN_SESSION, epoch))
        if ids and self._naming.must_wait(keys):
            return None
        if self._must_meet(client, keys, ids):
            return None
        (session.begin if full else session.add)(keys, ids)
        self._was_limited = session.is_limited(client)
        if not self._was_limited:
            look = None if epoch else session.look(header.api_version)
            if look is not None:
                # What is read is kept until it is whole.
                frame = with_limit(frame, fetching(frame, header), FETCH_LIMIT_MAX)
            return Plan(frame, look=look)
        if not full:
            session.forget()
            return Plan(with_session(frame, at, UNKNOWN_SESSION, epoch))
        asked = asked or asked_of(frame, header)
        if self._naming.must_prove():
            return None
        wanted, ample = self._wanted(asked, client, ids, address)
        if not wanted and not ample:
            # Another group may be told what it reads, so it has no session all the same.
            self.claims.give_up()
            return Plan(with_session(frame, at, asked.session, NO_SESSION) if at else frame)
        return self._limited(frame, header, asked, wanted, ample)

    def _must_meet(self, client: Client, keys: Sequence[bytes], ids: bool) -> bool:
        """Whether it may turn out right now for which group a connection reads, which waits for that.

        Its client may be known here for other groups already, and this one be a further one's.
        """
        context = self._context
        if self.met or context.alone or not context.dispatch.by_subscription:
            return False
        names = (context.topic(key, ids) for key in keys)
        if not any(name is not None and context.dispatch.may_limit_groups(name) for name in names):
            return False
        now_ms = context.steady_ms()
        self._came_ms = min(self._came_ms, now_ms)
        self.met = now_ms >= self._came_ms + (_KNOWN_MS if context.readers.groups(client) else _UNKNOWN_MS)
        if not self.met:
            self._pause.pause(_LOOK_AGAIN_MS)
        return not self.met

    def _by_itself(self, frame: bytes, header: RequestHeader) -> Plan | None:
        """A request of more partitions than can be told apart: it gets one batch, one such request at a time.

        Its client is not cut off for having so many, and yet gets nearly nothing past a limit by it.
        """
        wait_ms = self.claims.apart_ms()
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
        """The last request does not go on, after all: it is planned again."""
        self.claims.take_back()

    def close(self) -> None:
        """The connection is gone."""
        self.claims.close()
        self.unheard()

    def unheard(self) -> None:
        """The client is gone, though what it sent may still be carried out."""
        self._context.finder.trails.leave(self._trail)

    def _wanted(
        self, asked: FetchRequest, client: Client, ids: bool, address: tuple[str, int]
    ) -> tuple[dict[bytes, LimitedTopic], Ample]:
        """The limited topics of a request, by name or id, and those of which far more is left."""
        self._broker = broker = self._context.broker(address)
        found = self._known.begin(asked, client, broker, ids)
        self._trail.client = client
        self.claims.begin()
        if found is not None:
            for want in found.values():
                want.begin()
            return found, {}
        found, ample = {}, Ample()
        now_ms, is_ample = self._context.steady_ms(), self.claims.is_ample
        for topic in whole_topics(asked):
            known, reading, tracked = self._known.of(topic)
            if not known:
                reading = self._reading(topic, client, ids, broker)
            elif tracked:
                self._track(tracked, topic, now_ms)
            if reading is None:
                continue
            if is_ample(reading.claim, now_ms):
                ample[topic.key] = topic, reading
            else:
                found[topic.key] = LimitedTopic(topic, reading)
        return found, ample

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
                self._track(name, topic, context.steady_ms())
            parts = [part.number for part in topic.parts]
            key = topic.key
            keys: list[str | bytes] = [context.names.get(key, ""), key] if ids else [key.decode()]
            groups, unsure, stays = context.groups_of(client, self._trail, name, keys, parts)
            if unsure and not self.claims.again:
                context.metrics.ambiguous_fetches.inc()
        found = (context.dispatch.counters(broker, name, group) for group in groups)
        counters = tuple(dict.fromkeys(chain.from_iterable(found)))
        reading = None
        if counters or context.finder.watches(name, client.user):
            claim = self.claims, name, "|".join(groups)
            reading = TopicReading(broker, name, groups, claim, tracked, unsure, counters)
        if stays:
            self._known.keep(topic, groups, reading, name if tracked else "")
        return reading

    def _track(self, name: str, topic: TopicRequest, now_ms: float) -> None:
        self._trail.asked(name, [(part.number, part.offset) for part in topic.parts], now_ms)

    def _limited(
        self, frame: bytes, header: RequestHeader, asked: FetchRequest, wanted: dict[bytes, LimitedTopic],
        ample: Ample,
    ) -> Plan | None:  # fmt: skip
        claims, wants, broker = self.claims, list(wanted.values()), self._broker
        claims.give_up(wants)
        now_ms, moment = self._context.steady_ms(), self._context.dispatch.moment(broker)
        for want in wants:
            claims.decide(want, now_ms, moment, self._deliveries.caught_up(want.topic.key))
        soonest_ms = min((want.wait_ms for want in wants if want.wait_ms), default=inf)
        waiting, limits = _divided(asked, wanted)
        if waiting and len(waiting) == len(asked.topics):
            return self._hold(frame, header, asked, wanted, soonest_ms)
        if claims.waits:
            for want in wants:
                if want.most and not want.wait_ms:
                    claims.leave(want)
        request = forwarded(
            frame, asked, header.api_version,
            left_out=waiting,
            limits=limits if asked.limit_at else {},
            wait_ms=asked.wait_ms if not waiting else min(asked.wait_ms, ceil(soonest_ms)),
            min_bytes=min((asked.min_bytes, FETCH_LIMIT_MAX, *limits.values())),
            limit=min(asked.limit, _most_of(asked)),
        )  # fmt: skip

        def cut(response: bytes) -> bytes:
            found = self._deliveries.taken(response, header.api_version, asked, broker, wants, ample)
            # Not before: who asks meanwhile has no part of what was kept free for this.
            claims.settle()
            came_ms = self._context.steady_ms()
            for want in wants:
                if want.left is not None and want.left.level:
                    claims.reached(want, want.left, came_ms)
                elif want.scarce:
                    claims.look(want)
            return found

        return Plan(request, cut)

    def _hold(
        self, frame: bytes, header: RequestHeader, asked: FetchRequest, wanted: dict[bytes, LimitedTopic],
        soonest_ms: float,
    ) -> Plan | None:  # fmt: skip
        if self.claims.hold(soonest_ms, self._context.hold_ms):
            self._known.wait(frame, asked, wanted)
            return None
        throttle_ms = min(_THROTTLE_MAX_MS, ceil(soonest_ms))
        topics = self._deliveries.missing(wanted.values())
        return Plan(b"", None, nothing_yet(header.correlation_id, header.api_version, topics, throttle_ms))


def _divided(asked: FetchRequest, wanted: dict[bytes, LimitedTopic]) -> tuple[set[int], dict[int, int]]:
    """Which topics of a request must wait, and how much may be read of others; both by place."""
    waiting, limits = set[int](), dict[int, int]()
    for place, topic in enumerate(asked.topics if wanted else ()):
        want = wanted.get(topic.key)
        if want is not None and want.wait_ms:
            waiting.add(place)
        elif want is not None and 0 < want.most < FETCH_LIMIT_MAX:
            limits[place] = want.most
    return waiting, limits


def _most_of(asked: FetchRequest) -> int:
    """Most bytes of a response: each partition that is looked at takes its time, whatever it brings."""
    parts = sum(len(topic.parts) for topic in asked.topics)
    return max(FETCH_LIMIT_MAX, min(_WIDE_MAX, 2 * PART_BYTES_MIN * parts))
