"""Around every request to the admin API: who asks, how it ended, and no answer without a reason."""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import orjson
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from enforcer.control.access.auth import ASKS_FIRST_HEADER, SAFE_METHODS, admit, is_ours
from enforcer.control.access.tokens import Grant, Tokens
from enforcer.control.groups import Refusal
from enforcer.control.metrics import AdminMetrics
from enforcer.control.settings import AdminSettings
from streaming.contract.topics import address_text

REQUESTS_MAX: Final = 200
"""Requests at a time, and as many for the API behind it, if there is one; for a further one that ends which
waits for its body longest, or if none does, it gets 503."""
BODY_S: Final = 10.0
"""Who waits longer for a body lets it stream, and has a bound of its own for these."""
logger = logging.getLogger("weir.admin")

CALLER: Final = "weir.caller"
"""Where the scope of a request that was let in says who sent it."""
_CHALLENGES: Final = ('Bearer, Basic realm="weir"', "Bearer")
"""For a person who types an address; for a page that asks for a token itself, and wants no dialog before."""
_UNKNOWN, _BEYOND = "unknown", "upstream"
_MINUTE_S = 60.0
_SHOWN_BYTES = 512
REFUSALS_A_MINUTE = 30


def reason_answer(status: int, reason: str, headers: Mapping[str, str] | None = None) -> Response:
    """What every error answers, as Pulsar's."""
    return Response(orjson.dumps({"reason": reason}), status, headers, "application/json")


class _Arriving:
    """What comes of a request; while its client lets it wait for the body, it may be displaced."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._scope, self._receive, self._until_s = scope, receive, time.monotonic() + BODY_S
        self._limit: asyncio.Timeout | None = None
        self._asked = self._whole = self._displaced = False

    def displace(self) -> bool:
        """End it if it waits for its client; whether it does."""
        if self._limit is None or time.monotonic() > self._until_s:
            return False
        self._displaced = True
        self._limit.reschedule(0)
        return True

    def answered(self, head: Message) -> Message:
        """The head of its answer as it goes out."""
        if self._asked or "expect" not in Headers(scope=self._scope):
            return head
        # A client need not send what it was not told to (100), and its next request would be read as that.
        return {**head, "headers": [*head["headers"], (b"connection", b"close")]}

    async def __call__(self) -> Message:
        """See ASGI; raises Refusal (503) where it was displaced."""
        self._asked = True
        if self._whole:
            return await self._receive()
        try:
            async with asyncio.timeout(None) as self._limit:
                message = await self._receive()
        except TimeoutError:
            pass  # it was displaced
        finally:
            self._limit = None
        if self._displaced:
            raise Refusal(503, f"{REQUESTS_MAX} requests came after this one's body began", retry_after_s=1)
        self._whole = not message.get("more_body", False)
        return message


class FewLines:
    """A log that nobody can fill by being refused: so many lines a minute, then the number of the others."""

    def __init__(self) -> None:
        self._until_s = 0.0
        self._lines = self._left_out = 0

    def warn(self, text: str) -> None:
        """Log a line, or count it."""
        now_s = time.monotonic()
        if now_s >= self._until_s:
            if self._left_out:
                logger.warning("%d more requests were refused in the minute before", self._left_out)
            self._until_s, self._lines, self._left_out = now_s + _MINUTE_S, 0, 0
        if self._lines >= REFUSALS_A_MINUTE:
            self._left_out += 1
            return
        self._lines += 1
        logger.warning("%s", text)


@dataclass(eq=False)
class AccessControl:
    """ASGI middleware: admits or refuses, counts, logs changes, and turns what went wrong into an answer.

    Attributes:
        app: what is Weir's own.
        tokens: without any this machine is let in.
        metrics, settings: of the process.
        beyond: gets what is not for Weir, in front of another admin API; who may ask that is for it to say.
        ours: whether a request is for Weir itself.
        check: raises Refusal for one of Weir's own that may be read in several ways.
    """

    app: ASGIApp
    tokens: Tokens
    metrics: AdminMetrics
    settings: AdminSettings
    beyond: ASGIApp | None
    ours: Callable[[Scope], bool]
    check: Callable[[Scope], None]

    def __post_init__(self) -> None:
        self._requests: dict[bool, dict[_Arriving, None]] = {False: {}, True: {}}
        self._refusals: defaultdict[int, FewLines] = defaultdict(FewLines)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the start and end of the server."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun, status, who, route = time.monotonic(), 0, "", ""
        under_way, arriving = dict[_Arriving, None](), _Arriving(scope, receive)

        async def note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status, message = message["status"], arriving.answered(message)
            await send(message)

        try:
            beyond = None if self.beyond is None or self.ours(scope) else self.beyond
            # Apart: one behind that answers nobody would leave no room for Weir's own.
            under_way = self._requests[beyond is not None]
            if len(under_way) >= REQUESTS_MAX:
                displaced = next((each for each in under_way if each.displace()), None)
                if displaced is None:
                    raise Refusal(503, f"{REQUESTS_MAX} requests are under way already", retry_after_s=1)
                del under_way[displaced]
            under_way[arriving] = None
            if beyond is not None:
                if not self.settings.share_tokens and is_ours(self._in_force(), Request(scope)):
                    raise Refusal(401, "This is a token of Weir's, and is not shown to the API behind it")
                route = _BEYOND
                await beyond(scope, arriving, note)
                return
            who = self._admitted(scope)
            await self.app(scope, arriving, note)
        except Refusal as refused:
            # The reason names the token's holder where there is one, and never the token.
            line = f"{_asked(scope)} refused: {refused.status} {refused.reason}"
            # Strangers must not be able to fill the log that tells of those who have a token.
            self._refusals[refused.status].warn(line)
            who = ""
            await self._refuse(scope, receive, note, refused)
        except Exception:
            # A mistake of ours costs this request, and the log says what it was.
            logger.exception("%s %s failed", scope["method"], scope["path"])
            if not status:
                mistake = Refusal(500, "The admin API made a mistake; its log says which")
                await self._refuse(scope, receive, note, mistake)
        finally:
            under_way.pop(arriving, None)
            route = route or getattr(scope.get("route"), "path", _UNKNOWN)
            self.metrics.answered(scope["method"], route, status, time.monotonic() - begun)
        if who and scope["method"] not in SAFE_METHODS:
            logger.info("%s %s by %s: %s", scope["method"], _path(scope), who, status)

    def _admitted(self, scope: Scope) -> str:
        """Who asks for what is Weir's own; raises Refusal."""
        if self.beyond is not None:
            self.check(scope)
        scope[CALLER] = caller = admit(self._in_force(), Request(scope), self.settings.allowed_origins)
        return caller.name

    async def _refuse(self, scope: Scope, receive: Receive, send: Send, refused: Refusal) -> None:
        asked, headers = Headers(scope=scope), dict[str, str]()
        if refused.status == HTTPStatus.UNAUTHORIZED:
            headers["www-authenticate"] = _CHALLENGES[ASKS_FIRST_HEADER in asked]
        if (origin := asked.get("origin", "")) in self.settings.allowed_origins:
            # Else its browser does not show a listed page why it was refused.
            headers |= {"access-control-allow-origin": origin, "vary": "Origin"}
        if refused.retry_after_s:
            headers["retry-after"] = str(refused.retry_after_s)
        await reason_answer(refused.status, refused.reason, headers)(scope, receive, send)

    def _in_force(self) -> Sequence[Grant]:
        return self.tokens.in_force(self.metrics.token_reads)


def caller_of(request: Request) -> Grant:
    """Who sent a request that was let in."""
    caller: Grant = request.scope[CALLER]
    return caller


def _asked(scope: Scope) -> str:
    client = address_text(*(scope.get("client") or ("nobody", 0)))
    return f"{scope['method']} {_path(scope)} from {client}"


def _path(scope: Scope) -> str:
    """As it was sent."""
    return str(scope.get("raw_path", b"")[:_SHOWN_BYTES].decode("latin-1"))
