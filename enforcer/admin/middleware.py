"""Around every request to the admin API: who asks, how it ended, and no answer without a reason."""

import logging
import time
from collections.abc import Sequence
from http import HTTPStatus

import orjson
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from enforcer.admin.auth import SAFE_METHODS, Grant, admit
from enforcer.admin.groups import Refused
from enforcer.admin.metrics import AdminMetrics

logger = logging.getLogger("weir.admin")

_CHALLENGES = 'Bearer, Basic realm="weir"'
_UNKNOWN = "unknown"


def reason_body(reason: str) -> bytes:
    """What every error answers, as Pulsar's."""
    return orjson.dumps({"reason": reason})


class QuotaCoordinator:
    """ASGI middleware: admits or refuses, counts, logs changes, and turns what went wrong into an answer.

    Args:
        app: what answers.
        grants: the tokens; none lets this machine in.
        metrics: where requests are counted.
        requests_max: requests at a time; further ones are refused.
    """

    def __init__(
        self, app: ASGIApp, grants: Sequence[Grant], metrics: AdminMetrics, requests_max: int
    ) -> None:
        self._app = app
        self._requests_max = requests_max
        self._requests = 0
        self._grants = grants
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the start and end of the server."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, status, who = time.monotonic(), 0, "nobody"
        self._requests += 1

        async def note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            if self._requests > self._requests_max:
                raise Refused(503, f"{self._requests_max} requests are under way already")
            who = await admit(self._grants, Request(scope))
            await self._app(scope, receive, note)
        except Refused as refused:
            await _refuse(note, refused.status, refused.reason)
        except Exception:
            # A mistake of ours costs this request, and the log says what it was.
            logger.exception("%s %s failed", scope["method"], scope["path"])
            if not status:
                await _refuse(note, 500, "The admin API made a mistake; its log says which")
        finally:
            self._requests -= 1
        route = getattr(scope.get("route"), "path", _UNKNOWN)
        self._metrics.answered(scope["method"], route, status, time.monotonic() - begun)
        if scope["method"] not in SAFE_METHODS:
            # As it was sent, so with no line breaks in it.
            sent = scope.get("raw_path", b"").decode("latin-1")
            logger.info("%s %s by %s: %s", scope["method"], sent, who, status)


async def _refuse(send: Send, status: int, reason: str) -> None:
    headers = [(b"content-type", b"application/json")]
    if status == HTTPStatus.UNAUTHORIZED:
        headers.append((b"www-authenticate", _CHALLENGES.encode()))
    body = reason_body(reason)
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
