"""`GET /weir/v1/stream`: how all is, the list's first page and an entity's decisions as they come, as
server-sent events.

A stream is a request that lasts: there are few, each waits for its client at most as long as any answer
(connections.py), and what comes faster than that is taken is left out, not kept.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, Final

import orjson
from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from enforcer.control.access.tokens import Grant
from enforcer.control.answers.reach import check_seen, seen_by
from enforcer.control.answers.routes import By, Name, OfLaw, Rows, now_ms
from enforcer.control.answers.shown import page, summary
from enforcer.control.connections import LASTS
from enforcer.control.docs import refusals
from enforcer.control.entities.laws import Entity
from enforcer.control.groups import Refusal, Unavailable
from enforcer.control.middleware import caller_of
from enforcer.control.parts import Parts, Streams
from streaming.contract.fields import Fields

STREAMS_MAX: Final = 50
"""At a time; further ones get 503."""
EVERY_S: Final = 1.0
SLOW_S: Final = 5.0
"""Who takes so long for one round of events is dropped."""
_DECISIONS_MAX: Final = 100
"""Of one entity between two rounds; older ones are left out."""
_SPACING_S: Final = 0.1
_HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def stream_routes(parts: Parts) -> APIRouter:
    """The one endpoint."""
    router = APIRouter(prefix="/weir/v1", tags=["Who waits, and why"])

    @router.get(
        "/stream",
        response_class=Response,
        responses={200: {"content": {"text/event-stream": {}}}, **refusals(400)},
        summary="Server-sent events: summary and entities each second, decision as they come",
    )
    async def stream(
        request: Request, by: By, law: OfLaw, limit: Rows, name: Name = "", entity: str = ""
    ) -> Response:
        watched = None
        first = partial(page, parts.view, by=by, law=law, name=name, limit=limit)
        if entity:
            if law is None:
                raise Refusal(400, "law: missing beside an entity; expected the law that limits it")
            watched = Entity(law, entity)
            check_seen(caller_of(request), parts.store.entries, watched)
        if parts.streams.open >= STREAMS_MAX:
            parts.metrics.streams_ended.labels("full").inc()
            raise Refusal(503, f"{STREAMS_MAX} streams are open already", retry_after_s=10)
        request.scope[LASTS] = True
        return _Counted(parts.streams, _Events(parts, caller_of(request), first, watched).told(request))

    return router


class _Counted(StreamingResponse):
    """One stream; it counts from the step on in which there was found to be room for it."""

    def __init__(self, streams: Streams, events: AsyncIterator[bytes]) -> None:
        super().__init__(events, media_type="text/event-stream", headers=_HEADERS)
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See Response."""
        self._streams.open += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.open -= 1


class _Events:
    """The events of one stream, `first` its page, but for the time and what is seen."""

    def __init__(
        self, parts: Parts, caller: Grant, first: Callable[..., Any], watched: Entity | None
    ) -> None:
        self._parts, self._caller, self._first, self._watched = parts, caller, first, watched
        self._decisions: deque[Fields] = deque(maxlen=_DECISIONS_MAX)
        self._came = asyncio.Event()

    async def told(self, request: Request) -> AsyncIterator[bytes]:
        """Until the client leaves, takes too long, loses its token, or the process ends."""
        parts, ended = self._parts, "gone"
        if self._watched is not None:
            parts.view.watch[self._take] = None
        try:
            next_s = 0.0
            while not await request.is_disconnected():
                # It lasts longer than the look at its token at its start.
                grants = parts.tokens.in_force(parts.metrics.token_reads)
                if parts.streams.stopping.is_set() or (grants and self._caller not in grants):
                    ended = "stopped"
                    return
                begun = time.monotonic()
                if begun >= next_s:
                    next_s = begun + EVERY_S
                    yield self._round()
                if self._decisions:
                    decisions, self._decisions = list(self._decisions), deque(maxlen=_DECISIONS_MAX)
                    yield b"".join(_event("decision", decision) for decision in decisions)
                if time.monotonic() - begun > SLOW_S:
                    ended = "slow"
                    return
                await self._wait(next_s)
        finally:
            parts.view.watch.pop(self._take, None)
            parts.metrics.streams_ended.labels(ended).inc()

    def _take(self, entity: Entity, fields: Fields) -> None:
        if entity == self._watched:
            self._decisions.append(fields)
            self._came.set()

    def _round(self) -> bytes:
        parts, now = self._parts, now_ms()
        try:
            seen = seen_by(self._caller, parts.store.entries)
        except Unavailable:
            return b": the policies are not read\n\n"
        if self._watched is not None and seen is not None and not seen.has(self._watched):
            self._watched = None
            self._decisions.clear()
        rows, _ = self._first(now, seen=seen)
        return _event("summary", summary(parts.view, now, seen)) + _event("entities", rows)

    async def _wait(self, until_s: float) -> None:
        """Until a decision comes, or the next round is due."""
        await asyncio.sleep(min(_SPACING_S, max(0.0, until_s - time.monotonic())))
        ends = [asyncio.ensure_future(event.wait()) for event in (self._came, self._parts.streams.stopping)]
        try:
            await asyncio.wait(
                ends, timeout=max(0.0, until_s - time.monotonic()), return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for each in ends:
                each.cancel()
        self._came.clear()


def _event(name: str, data: Any) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), orjson.dumps(data))
