"""Lookups, and topics that move: every answer leads back to the proxy.

A client that is told where a topic is served goes there, unless the answer says that it is to go through the
address it came from; then it comes back with a CONNECT that names that broker. Clients follow a redirect to
another broker by themselves and ask nobody, so none reaches them: it is followed here, in the client's name.
"""

import asyncio
import logging
from typing import Any, Final

from enforcer.host.dial import MakeUpstream
from enforcer.host.sockets import Address
from enforcer.pulsar.context import Context
from enforcer.pulsar.link import Link
from enforcer.pulsar.lookup.targets import PLAIN, SECURE
from enforcer.wire.pulsar.commands import LookupType, ServerError, build, command, parse, rewritten
from enforcer.wire.pulsar.frames import (
    ALL,
    AUTH_RESPONSE,
    CLOSE_CONSUMER,
    CLOSE_PRODUCER,
    CONNECTED,
    FRAME_OVERHEAD,
    LOOKUP,
    LOOKUP_RESPONSE,
    MESSAGE_BYTES_DEFAULT,
    PING,
    PONG,
    TOPIC_MIGRATED,
    BadFrame,
    Splitter,
)
from streaming.contract.errors import WeirError

LOOKUP_TIMEOUT_MS: Final = 10_000
"""A lookup is followed so long: a third of what clients wait (30 s), so that they may try again."""
LOOKUP_HOPS_MAX: Final = 20
"""Brokers that one lookup is followed to, as clients do."""
LOOKUPS_MAX: Final = 1_000
"""Lookups of one connection that may be followed; with more, some fail and are tried again."""

logger = logging.getLogger(__name__)

_IDLE_MS: Final = 10_000
_ASKED_MAX: Final = 8
"""Brokers that one client's redirects keep connections to; none that is being asked makes room."""
_ELSEWHERE: Final = frozenset({CLOSE_PRODUCER, CLOSE_CONSUMER, TOPIC_MIGRATED})
"""Kinds of frames by which a broker may send a client elsewhere."""
_NAMED: Final = ("assignedBrokerServiceUrl", "assignedBrokerServiceUrlTls")


class LookupClient:
    """The proxy's own connection to a broker that a lookup was referred to, logged in as the client.

    Attributes:
        peer, server_name: the client's.
        over: it cannot be asked any more.

    Args:
        link: the client's connection.
        connect: its CONNECT.
        target: the broker.
        make_upstream: makes the connection.
    """

    def __init__(self, link: Link, connect: bytes, target: Address, make_upstream: MakeUpstream) -> None:
        self.peer, self.server_name = link.peer, link.server_name
        self._connect = connect
        self._now_ms = link.now_ms
        self._used_ms = link.now_ms()
        # Nothing passes: all kinds are wanted.
        limit = MESSAGE_BYTES_DEFAULT + FRAME_OVERHEAD
        self._splitter = Splitter(lambda _data, _unfinished: None, self._take, limit)
        self._splitter.wanted = ALL
        self._open: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._heard = 0
        self.over = False
        self._upstream = make_upstream(self)
        self._upstream.dial(target)

    @property
    def busy(self) -> bool:
        """Whether somebody waits for an answer."""
        return bool(self._waiting)

    def idle_ms(self, now_ms: float) -> float:
        """Since when nobody waits for an answer, ms."""
        return 0.0 if self.busy else now_ms - self._used_ms

    async def ask(self, request_id: int, lookup: bytes) -> bytes:
        """Send a LOOKUP; returns the frame that answers it. The caller limits the time.

        Raises:
            WeirError: the broker is away, or does not let the client in.
        """
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = answer
        heard = self._heard
        try:
            await asyncio.shield(self._open)
            self._upstream.send(lookup)
            heard = self._heard
            return await answer
        except asyncio.CancelledError:
            if heard == self._heard:
                # Nothing has come in all that time: its host may be gone, and this way to it dead.
                self.close()
            raise
        finally:
            self._used_ms = self._now_ms()
            if self._waiting.get(request_id) is answer:
                del self._waiting[request_id]

    def close(self, why: str = "lost") -> None:
        """It is needed no more, or cannot be had."""
        self.over = True
        self._splitter.drop()
        self._upstream.close()
        unanswered: list[asyncio.Future[Any]] = [self._open, *self._waiting.values()]
        for waiting in unanswered:
            if not waiting.done():
                waiting.set_exception(WeirError(f"the broker cannot be asked ({why})"))
                # Whether somebody waits for it still does not matter.
                waiting.exception()

    def upstream_changed(self) -> None:
        """See dial.Owner: who is connected logs in."""
        login, self._connect = self._connect, b""
        if login:
            self._upstream.send(login)

    def upstream_failed(self, reason: str) -> None:
        """See dial.Owner."""
        self.close(reason)

    def upstream_closed(self) -> None:
        """See dial.Owner."""

    def upstream_received(self, data: bytes) -> None:
        """See dial.Owner."""
        self._heard += 1
        try:
            self._splitter.feed(data)
        except BadFrame:
            self.close()

    def _take(self, kind: int, frame: bytes) -> None:
        if kind == PING:
            self._upstream.send(command(PONG))
        elif kind == LOOKUP_RESPONSE:
            answer = self._waiting.get(parse(frame).request_id)
            if answer is not None and not answer.done():
                answer.set_result(frame)
        elif kind == CONNECTED and not self._open.done():
            self._open.set_result(None)
        elif kind != PONG and not self._open.done():
            # A login of several steps cannot be repeated for the client.
            self.close()


class Lookups:
    """The lookups of one connection, and where its broker sends it (link.Part).

    Args:
        link: the connection.
        context: what all connections share.
        make_upstream: makes connections to brokers.
    """

    def __init__(self, link: Link, context: Context, make_upstream: MakeUpstream) -> None:
        self._link = link
        self._context, self._make_upstream = context, make_upstream
        self._metrics = context.pulsar_metrics
        # As the client logs in now.
        self._connect = link.connect
        self._asked: dict[int, bytes] = {}
        self._others: dict[Address, LookupClient] = {}
        # How large their frames are.
        self._following: dict[asyncio.Task[None], int] = {}
        self.up = frozenset({LOOKUP, AUTH_RESPONSE})
        self.down = frozenset({LOOKUP_RESPONSE}) | _ELSEWHERE

    @property
    def held_bytes(self) -> int:
        """See link.Part."""
        asked = sum(map(len, self._asked.values())) + sum(self._following.values())
        return len(self._connect) + asked

    def take_up(self, kind: int, frame: bytes) -> bytes | None:
        """A lookup is kept until it is answered, since it may have to be asked again elsewhere.

        So is the newest login: that of CONNECT may be over by then.
        """
        if kind == AUTH_RESPONSE:
            login = parse(self._connect)
            # Of who stands before the client and passes its login on, a broker wants that one anew.
            whose = "original_auth_data" if login.HasField("original_auth_data") else "auth_data"
            setattr(login, whose, parse(frame).response.auth_data)
            self._connect = rewritten(self._connect, login)
            return frame
        if len(self._asked) >= LOOKUPS_MAX:
            # Only a redirect would need it; then that one fails, and is tried again.
            del self._asked[next(iter(self._asked))]
        self._asked[parse(frame).request_id] = frame
        return frame

    def take_down(self, kind: int, frame: bytes) -> bytes | None:
        """An answer, or what sends the client elsewhere."""
        if kind in _ELSEWHERE:
            return self._led_back(kind, frame)
        body = parse(frame)
        asked = self._asked.pop(body.request_id, None)
        if body.response != LookupType.REDIRECT:
            return self._through(body, frame)
        if asked is None or len(self._following) >= LOOKUPS_MAX:
            self._metrics.redirects.labels("too_many").inc()
            return self._failed(body.request_id, "too many lookups at once")
        task = asyncio.get_running_loop().create_task(self._follow(parse(asked), body))
        self._following[task] = len(asked)
        task.add_done_callback(self._followed)
        return None

    def check(self, now_ms: float) -> None:
        """Close what was not asked for long."""
        for address, other in list(self._others.items()):
            if other.idle_ms(now_ms) > _IDLE_MS:
                self._others.pop(address).close()

    def close(self) -> None:
        """See link.Part."""
        for task in self._following:
            task.cancel()
        for other in self._others.values():
            other.close()
        self._others.clear()
        self._asked.clear()
        self._connect = b""

    def _through(self, body: Any, frame: bytes) -> bytes:
        """An answer as the client gets it."""
        if body.response == LookupType.FAILED:
            self._metrics.lookups.labels("failed").inc()
            return frame
        if self._learn(body) is None:
            return self._failed(body.request_id, self._no_address)
        # Clients take one of the two; behind the proxy both are the same connection.
        _, _, address = self._url(body).partition("://")
        body.brokerServiceUrl, body.brokerServiceUrlTls = PLAIN + address, SECURE + address
        body.proxy_through_service_url = True
        self._metrics.lookups.labels("connect").inc()
        return rewritten(frame, body)

    def _url(self, body: Any) -> str:
        return str(body.brokerServiceUrlTls if self._context.targets.secure else body.brokerServiceUrl)

    def _learn(self, body: Any) -> Address | None:
        through = body.proxy_through_service_url
        return self._context.targets.learn(self._url(body), through=through, by=self._link.broker)

    @property
    def _no_address(self) -> str:
        return f"the broker has no address {'with' if self._context.targets.secure else 'without'} TLS"

    def _failed(self, request_id: int, why: str) -> bytes:
        self._metrics.lookups.labels("refused").inc()
        return command(
            LOOKUP_RESPONSE,
            request_id=request_id,
            response=LookupType.FAILED,
            error=ServerError.SERVICE_NOT_READY,
            message=f"the proxy could not look the topic up: {why}",
        )

    async def _follow(self, asked: Any, answer: Any) -> None:
        """Ask the broker that was named, and further ones that are, until one serves the topic."""
        request_id = asked.request_id
        try:
            async with asyncio.timeout(LOOKUP_TIMEOUT_MS / 1000):
                frame = await self._serving(asked, answer)
            result = "followed"
        except (WeirError, OSError, ValueError) as error:
            result = "failed"
            frame = self._failed(request_id, str(error) or "it took too long")
        self._metrics.redirects.labels(result).inc()
        self._link.to_client(frame)

    def _followed(self, task: asyncio.Task[None]) -> None:
        del self._following[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a lookup met a mistake of ours", exc_info=error)
            self._link.end("internal")

    async def _serving(self, asked: Any, answer: Any) -> bytes:
        frame = b""
        for _ in range(LOOKUP_HOPS_MAX):
            if answer.response != LookupType.REDIRECT:
                return self._through(answer, frame)
            target = self._learn(answer)
            if target is None:
                raise WeirError(self._no_address)
            asked.authoritative = answer.authoritative
            frame = await self._other(target).ask(asked.request_id, build(LOOKUP, asked))
            answer = parse(frame)
        raise WeirError("brokers refer to each other")

    def _other(self, target: Address) -> LookupClient:
        """Our own connection to another broker, in the client's name."""
        other = self._others.pop(target, None)
        if other is None or other.over:
            if len(self._others) >= _ASKED_MAX:
                idle = next((address for address, each in self._others.items() if not each.busy), None)
                if idle is None:
                    raise WeirError("too many brokers are asked at once")
                self._others.pop(idle).close()
            other = LookupClient(self._link, self._connect, target, self._make_upstream)
        self._others[target] = other
        return other

    def _led_back(self, kind: int, frame: bytes) -> bytes | None:
        """What sends a client elsewhere, as it gets it; None: its connection ends.

        A broker that gives a topic away may name the new one to its clients. Some versions of clients go
        there directly, so the name is taken out: all of them look the topic up again, which leads through the
        proxy.

        A topic that was migrated to another cluster is looked up there, outside this proxy, unless the
        settings name one that stands before that cluster.
        """
        body, moved = parse(frame), self._context.pulsar_metrics.moved
        if kind != TOPIC_MIGRATED:
            if not any(map(body.HasField, _NAMED)):
                return frame
            for name in _NAMED:
                body.ClearField(name)
            moved.labels("unnamed").inc()
            return rewritten(frame, body)
        url = self._context.pulsar.migrated_url
        if not url:
            moved.labels("ended").inc()
            self._link.end("topic_migrated")
            return None
        body.brokerServiceUrl = body.brokerServiceUrlTls = url
        moved.labels("migrated").inc()
        return rewritten(frame, body)
