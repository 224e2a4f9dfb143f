"""The proxy of an admin API, as an ASGI application: what changes partitions is decided, all else passes."""

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator, Coroutine, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

import httpx2
import orjson
from starlette.types import Receive, Scope, Send

from enforcer.host.doors.certificates import NewestContext
from enforcer.http.filled_answers import Fill, Fillings, lookups
from enforcer.http.metrics import OTHER, HttpMetrics
from enforcer.http.mutation_count import Count, count
from enforcer.http.principal import Principals
from enforcer.http.pulsar_rules import PULSAR
from enforcer.http.refusal import HttpRefusal, refuse
from enforcer.http.relay.body import Body, ClientGone, ReplayMemory
from enforcer.http.relay.upstream import (
    CONNECTIONS_MAX,
    Address,
    ApiRequest,
    Headers,
    Reply,
    Upstream,
    UpstreamFailed,
    forwarded,
)
from enforcer.http.rules import Match, Rules
from enforcer.http.settings import HttpSettings, Table
from enforcer.laws.mutation.mutations import Answer, Mutations
from enforcer.laws.mutation.request import Request
from enforcer.wire.http.paths import BadPath, plain

REPLAY_BYTES: Final = 67_108_864
"""Bodies kept for redirects, and answers that are read, of all requests at a time."""
REPLAY_BODY_BYTES: Final = 5_242_880
"""Body of a request that is kept to be sent again when it is sent on: a large function's package is not."""
COUNTED_BODY_BYTES: Final = 65_536
"""Largest body of a request whose partitions are counted, which is a number or a few names; larger ones get
413."""
READ_ANSWER_BYTES: Final = 16_777_216
"""Largest answer of the upstream that is read to count or to fill in: the list of 100,000 topics fits."""
BODY_TIMEOUT_MS: Final = 10_000
"""A body that must be whole arrives within it, or gets 408; others are passed as they come."""
STREAMS_MAX: Final = CONNECTIONS_MAX // 2
"""So many at a time, further ones get 503: however slowly they come, others reach the upstream."""

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

_BODILESS: Final = frozenset((204, 304))
_UNKNOWN: Final = frozenset((502, 504))
"""What a gateway before the upstream says that has got no answer: it may have been done."""


class HttpProxy:
    """Stands in front of one upstream.

    Args:
        settings: section `http`, with an upstream.
        mutations: decides.
        metrics: counts.
        fills: answers that are filled in, besides those of lookups; see Fillings.
        transport: instead of the network.
        binary_tls: our proxy of Pulsar's binary protocol speaks TLS.
    """

    def __init__(
        self,
        settings: HttpSettings,
        mutations: Mutations,
        metrics: HttpMetrics,
        fills: Mapping[str, Fill] | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
        *,
        binary_tls: bool = False,
    ) -> None:
        self._settings = settings
        self._mutations = mutations
        self._metrics = metrics
        self._rules = Rules([*settings.rules, *(PULSAR if settings.table is Table.PULSAR else ())])
        self._fillings = Fillings({**lookups(settings.binary_address, binary_tls), **(fills or {})})
        self._memory = ReplayMemory(REPLAY_BYTES, metrics)
        self._streams = 0
        self._upstream = Upstream(
            Address.of_url(settings.upstream),
            settings.allowed_hosts,
            metrics,
            None if settings.upstream_tls is None else NewestContext.of_client(settings.upstream_tls),
            transport,
        )
        self._principals = Principals(settings, metrics, self._ask_credential, time.monotonic)
        metrics.waiting_requests.set_function(lambda: mutations.waiting)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        call = _Call(scope, send)
        body = Body(receive, self._memory)
        operation = OTHER
        try:
            path = call.path
            match = self._rules.find(call.method, path)
            if match is None:
                await self._pass(call, body)
            else:
                operation = match.rule.operation
                await self._mutate(call, body, match)
        except BadPath as bad:
            await call.refuse(400, str(bad))
        except HttpRefusal as refused:
            await call.refuse(refused.status, refused.reason)
        except TimeoutError:
            await call.refuse(408, f"The body did not come within {BODY_TIMEOUT_MS} ms")
        except ClientGone:
            # Nobody is there to be told.
            call.status = call.status or 499
        except Exception as failed:
            # Who stands around this answers it: with a refusal's own status, else as a mistake.
            call.status = call.status or getattr(failed, "status", 500)
            raise
        finally:
            body.release()
            self._metrics.requests.labels(operation, str(call.status)).inc()

    async def close(self) -> None:
        """End the connections to the upstream."""
        await self._upstream.close()

    async def _pass(self, call: "_Call", body: Body) -> None:
        """A request that changes no partitions."""
        with contextlib.suppress(TimeoutError):
            await body.keep(REPLAY_BODY_BYTES, BODY_TIMEOUT_MS / 1000)
        if body.whole:
            # As soon as the client has left, its answer need not be fetched any more.
            await call.while_there(body, self._relay(call, body))
            return
        if self._streams >= STREAMS_MAX:
            raise HttpRefusal(503, f"{STREAMS_MAX} bodies that are large or slow are under way already")
        self._streams += 1
        try:
            await self._relay(call, body)
        finally:
            self._streams -= 1

    async def _relay(self, call: "_Call", body: Body) -> None:
        fill = self._fillings.find(call.method, call.path)
        request = call.request(body.content())
        if fill is not None:
            plainly = [(name, value) for name, value in request.headers if name != b"accept-encoding"]
            request = replace(request, headers=plainly)
        async with contextlib.aclosing(await self._upstream.send(request)) as reply:
            if fill is None or reply.status != 200:
                await call.stream(reply)
                return
            try:
                value = orjson.loads(await self._read(reply) or b"")
            except orjson.JSONDecodeError:
                raise HttpRefusal(502, "The upstream's answer cannot be read") from None
            told = fill(value, call.origin)
        try:
            filled = orjson.dumps(told)
        except TypeError:  # a number beyond 64 bits, as reports of backlogs may add up to
            filled = json.dumps(told).encode()
        kept = [(name, value) for name, value in reply.headers if name != b"content-length"]
        await call.answer(reply.status, kept, filled)

    async def _mutate(self, call: "_Call", body: Body, match: Match) -> None:
        """A request that changes partitions: counted, decided, carried out, settled, answered."""
        content = await self._whole(call, body, match)

        credential = call.header(b"authorization")

        async def asked() -> tuple[Count, str]:
            counted = await count(match, content, lambda path: self._get(path, credential))
            return counted, await self._principals.user(credential)

        # Who has given up may ask again, and must not find it done.
        counted, user = await call.while_there(body, asked())
        request = Request(
            user=user,
            client_id="",
            api=match.rule.operation,
            api_version=0,
            strict=True,
            dry_run=counted.dry,
            items=counted.items,
        )
        answer = await call.while_there(body, self._mutations.decide(request, self._settings.wait_ms))
        if not answer.allowed:
            status, headers, text = refuse(answer)
            await call.answer(status, headers, text)
            return
        carried = await self._carry_out(call, content, request, counted, answer)
        async with contextlib.aclosing(carried) as reply:
            await self._mutations.acknowledged(answer)
            await call.stream(reply)

    async def _read(self, reply: Reply) -> bytes | None:
        """A whole answer, None if it is too large, or all that are read at a time are."""
        answer = bytearray()
        try:
            async for chunk in reply.chunks():
                if len(answer) + len(chunk) > READ_ANSWER_BYTES or not self._memory.take(len(chunk)):
                    return None
                answer += chunk
            return bytes(answer)
        finally:
            self._memory.give_back(len(answer))

    async def _whole(self, call: "_Call", body: Body, match: Match) -> bytes:
        most = REPLAY_BODY_BYTES
        if match.rule.reads_body:
            most = COUNTED_BODY_BYTES
            if call.header(b"content-encoding") not in (None, b"identity"):
                raise HttpRefusal(415, "The partitions of an encoded body cannot be counted")
        if not await body.keep(most, BODY_TIMEOUT_MS / 1000):
            reason = f"The body is larger than {most} bytes, or all bodies together are too large"
            raise HttpRefusal(413, reason)
        return body.kept

    async def _carry_out(
        self, call: "_Call", content: bytes, request: Request, counted: Count, answer: Answer
    ) -> Reply:
        """Send it, and correct the balance by what came of it."""
        # Until we hear otherwise: what is given back could be had twice.
        done = True
        try:
            reply = await self._upstream.send(call.request(content))
            done = 200 <= reply.status < 300 or reply.status in _UNKNOWN
            return reply
        except UpstreamFailed as failed:
            done = failed.sent
            raise
        finally:
            if done and counted.beyond:
                self._mutations.charge(request, counted.beyond)
            self._mutations.settle(answer, counted.items if done else {})

    async def _get(self, path: str, authorization: bytes | None) -> tuple[int, bytes | None]:
        """Ask the upstream with a client's own rights."""
        headers: Headers = [(b"accept", b"application/json")]
        if authorization is not None:
            headers.append((b"authorization", authorization))
        asked = ApiRequest("GET", path.encode("latin-1"), headers)
        async with contextlib.aclosing(await self._upstream.send(asked)) as reply:
            return reply.status, await self._read(reply)

    async def _ask_credential(self, authorization: bytes) -> int:
        status, _ = await self._get(self._settings.credential_path, authorization)
        return status


class _Call:
    """One request of a client and its answer.

    Attributes:
        status: of the answer, 0 before it began.
        answered: the answer was given to its end.
    """

    def __init__(self, scope: Scope, send: Send) -> None:
        self._send = send
        self._headers: Headers = scope["headers"]
        self._scheme: str = scope.get("scheme", "http")
        self._sent_path = scope["raw_path"].decode("latin-1")
        self._query: bytes = scope["query_string"]
        self.method: str = scope["method"]
        self.status = 0
        self.answered = False

    @property
    def path(self) -> str:
        """As it is matched and sent on."""
        return plain(self._sent_path)

    @property
    def origin(self) -> str:
        """Where the client has found us."""
        return f"{self._scheme}://{(self.header(b'host') or b'').decode('latin-1')}"

    def header(self, name: bytes) -> bytes | None:
        """The first header of a name."""
        return next((value for known, value in self._headers if known == name), None)

    def request(self, content: bytes | AsyncIterator[bytes]) -> ApiRequest:
        """The same for the upstream, with this body."""
        target = self.path.encode("latin-1") + (b"?" + self._query if self._query else b"")
        headers = forwarded(self._headers)
        if not isinstance(content, bytes):
            # Streamed: as long as the client says; in chunks if it says that, too (RFC 9112, 6.3).
            length = None if self.header(b"transfer-encoding") else self.header(b"content-length")
            chunked = b"transfer-encoding", b"chunked"
            headers.append(chunked if length is None else (b"content-length", length))
        elif content or self.method in ("POST", "PUT", "PATCH"):
            headers.append((b"content-length", str(len(content)).encode()))
        return ApiRequest(self.method, target, headers, content)

    async def while_there(self, body: Body, work: Coroutine[Any, Any, Result]) -> Result:
        """Do something for a client whose whole body is read; raises ClientGone: it left, no more is done."""
        doing, leaving = asyncio.create_task(work), asyncio.create_task(body.gone())
        try:
            await asyncio.wait((doing, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not doing.done() and not self.answered:
                raise ClientGone
            return await doing
        finally:
            for task in (doing, leaving):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task

    async def refuse(self, status: int, reason: str) -> None:
        """Answer with a reason, as Pulsar does, if nothing was answered yet."""
        if self.status:
            # Its body was cut off: only the end of the connection can say so.
            logger.warning("an answer could not be passed to its end: %s", reason)
            return
        await self.answer(status, [(b"content-type", b"application/json")], orjson.dumps({"reason": reason}))

    async def answer(self, status: int, headers: Headers, content: bytes) -> None:
        """A whole answer."""
        headers = [*headers, (b"content-length", str(len(content)).encode())]
        await self._begin(status, headers)
        await self._end(b"" if self.method == "HEAD" else content)

    async def stream(self, reply: Reply) -> None:
        """An answer of the upstream, as it comes."""
        await self._begin(reply.status, reply.headers)
        bodiless = self.method == "HEAD" or reply.status in _BODILESS
        # To its end in any case: else its connection could not be used again.
        async for chunk in reply.chunks():
            if not bodiless:
                await self._send({"type": "http.response.body", "body": chunk, "more_body": True})
        await self._end(b"")

    async def _end(self, content: bytes) -> None:
        self.answered = True
        await self._send({"type": "http.response.body", "body": content})

    async def _begin(self, status: int, headers: Headers) -> None:
        self.status = status
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
