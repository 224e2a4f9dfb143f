"""The proxy of an admin API between a client of the test and an upstream that the test plays."""

import asyncio
import base64
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import httpx2
import orjson
import uvicorn
from mutation_kit import Desk
from prometheus_client import CollectorRegistry
from sample_kit import sample_of
from starlette.types import ASGIApp, Receive

from enforcer.http.filled_answers import Fill
from enforcer.http.metrics import HttpMetrics
from enforcer.http.proxy import HttpProxy
from enforcer.http.settings import HttpSettings
from enforcer.laws.mutation.mutations import Mutations

HOME = "http://pulsar:8080"
TOPIC = "/admin/v2/persistent/acme/orders/t1"


@dataclass
class Seen:
    """What reached the upstream."""

    method: str
    host: str
    target: str
    headers: list[tuple[bytes, bytes]]
    body: bytes

    def header(self, name: str) -> str | None:
        """The first header of a name."""
        wanted = name.lower().encode()
        return next((value.decode() for key, value in self.headers if key.lower() == wanted), None)


@dataclass
class Told:
    """What the client was told."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    ended: bool = False

    @property
    def json(self) -> Any:
        """The body."""
        return orjson.loads(self.body)


Answer = Callable[[Seen], httpx2.Response]


def reply(status: int, value: Any = None, **headers: str) -> httpx2.Response:
    """An answer of the upstream."""
    content = b"" if value is None else value if isinstance(value, bytes) else orjson.dumps(value)
    given = {name.replace("_", "-"): text for name, text in headers.items()}
    if status != 204:
        given["content-length"] = str(len(content))
    return httpx2.Response(status, headers=given, stream=httpx2.ByteStream(content))


class Pulsar(httpx2.AsyncBaseTransport):
    """An upstream: partitions of topics, and answers that the test sets by `METHOD path`."""

    def __init__(self) -> None:
        self.partitions: dict[str, int] = {}
        self.answers: dict[str, Answer] = {}
        self.seen: list[Seen] = []
        self.fails: list[Exception] = []
        self.known: dict[str, str] = {}
        """Authorization -> user; none: whoever asks is let in."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """One request."""
        assert isinstance(request.stream, httpx2.AsyncByteStream)
        body = b"".join([chunk async for chunk in request.stream])
        seen = Seen(
            request.method, request.headers["host"], request.extensions["target"].decode("latin-1"),
            request.headers.raw, body,
        )  # fmt: skip
        self.seen.append(seen)
        if self.fails:
            raise self.fails.pop(0)
        return self._answer(seen)

    def asked(self, method: str) -> list[str]:
        """Targets of the requests of a method."""
        return [seen.target for seen in self.seen if seen.method == method]

    def _answer(self, seen: Seen) -> httpx2.Response:
        if self.known and seen.header("authorization") not in self.known:
            return reply(401)
        path = seen.target.partition("?")[0]
        for key in (f"{seen.method} {seen.host}{path}", f"{seen.method} {path}"):
            if key in self.answers:
                return self.answers[key](seen)
        topic = path.removesuffix("/partitions")
        count = self.partitions.get(topic)
        if seen.method == "GET" and path.endswith("/partitions"):
            return reply(200, {"partitions": count}) if count is not None else reply(404, {"reason": "no"})
        if seen.method == "PUT":
            if count is not None:
                return reply(409, {"reason": "This topic already exists"})
            self.partitions[topic] = orjson.loads(seen.body) if path.endswith("/partitions") else 0
        elif count is None and seen.method in ("POST", "DELETE"):
            return reply(404, {"reason": "Topic not found"})
        elif seen.method == "POST":
            self.partitions[topic] = orjson.loads(seen.body)
        elif seen.method == "DELETE":
            del self.partitions[topic]
        return reply(204)


class Front:
    """The proxy under a quota of a rate, decided at once.

    Args:
        rate, burst: of every user.
        binary_tls: as HttpProxy has it.
        settings: section `http`.
    """

    def __init__(
        self,
        rate: float = 2,
        burst: float = 22,
        fills: Mapping[str, Fill] | None = None,
        binary_tls: bool = False,
        **settings: Any,
    ) -> None:
        self.desk = Desk()
        self.desk.stand_alone()
        if rate:
            self.desk.limit(
                "quotas[user=<default>]", controller_mutation_rate=rate, controller_mutation_burst=burst
            )
        self.pulsar = Pulsar()
        self.registry = CollectorRegistry()
        self.mutations = Mutations(
            self.desk.coordinator,
            lambda delay_ms, function: asyncio.get_running_loop().call_later(delay_ms / 1000, function),
        )
        self.proxy = HttpProxy(
            HttpSettings(**{"upstream": HOME, **settings}), self.mutations, HttpMetrics(self.registry), fills,
            self.pulsar, binary_tls=binary_tls,
        )  # fmt: skip

    async def ask(
        self,
        method: str,
        target: str,
        body: Any = None,
        *,
        chunks: tuple[bytes, ...] | None = None,
        receive: Receive | None = None,
        stays: bool = True,
        scheme: str = "http",
        **headers: str,
    ) -> Told:
        """One request.

        Args:
            chunks: the body as it comes.
            receive: what comes, instead of a body.
            scheme: https by TLS.
            stays: the client waits for its answer; else it leaves once it has sent its body.
        """
        content = body if isinstance(body, bytes) else b"" if body is None else orjson.dumps(body)
        parts = list(chunks if chunks is not None else (content,))
        path, _, query = target.partition("?")
        given = {"host": "proxy:18080", **{name.replace("_", "-"): text for name, text in headers.items()}}
        told, done = Told(), asyncio.Event()
        scope = {
            "type": "http",
            "scheme": scheme,
            "method": method,
            "path": path,
            "raw_path": path.encode("latin-1"),
            "query_string": query.encode("latin-1"),
            "headers": [(name.lower().encode(), text.encode()) for name, text in given.items()],
        }

        async def coming() -> dict[str, Any]:
            if parts:
                part = parts.pop(0)
                return {"type": "http.request", "body": part, "more_body": bool(parts)}
            if stays:
                await done.wait()
            return {"type": "http.disconnect"}

        async def send(message: Mapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                told.status = message["status"]
                told.headers = {name.decode(): value.decode() for name, value in message["headers"]}
                return
            told.body += message.get("body", b"")
            if not message.get("more_body"):
                told.ended = True
                done.set()

        await self.proxy(scope, receive or coming, send)  # type: ignore[arg-type]  # mappings of ASGI, as the server has them
        return told

    def tokens(self, user: str) -> float:
        """A user's balance as the newest event has it."""
        events = [event for event in self.desk.of_type("request") if event["user"] == user]
        return float(events[-1]["decided"]["tokens"])

    def count(self, name: str, **labels: str) -> float:
        """A sample of a metric."""
        return sample_of(self.registry, name, labels)


@asynccontextmanager
async def serving(app: ASGIApp, **files: Any) -> AsyncIterator[int]:
    """A server for an application, by TLS with these files of uvicorn's; its port."""
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off", ws="none", **files))
    server.capture_signals = nullcontext  # type: ignore[method-assign,assignment]
    listener = socket.create_server(("127.0.0.1", 0))
    # Whoever connects before it serves waits in the socket's line.
    task = asyncio.create_task(server.serve(sockets=[listener]))
    yield listener.getsockname()[1]
    server.should_exit = True
    await task


@asynccontextmanager
async def proxied(upstream: str, front: Front | None = None, **settings: Any) -> AsyncIterator[int]:
    """The port of a proxy before a real upstream, under a front's quota."""
    decides = (front or Front()).mutations
    proxy = HttpProxy(HttpSettings(upstream=upstream, **settings), decides, HttpMetrics())
    async with serving(proxy) as port:
        yield port
    await proxy.close()


def jwt(**claims: Any) -> str:
    """A header with a token of these claims, whose signature nobody can check."""
    parts = ({"alg": "none"}, claims, "x")
    return "Bearer " + ".".join(
        base64.urlsafe_b64encode(orjson.dumps(part)).decode().rstrip("=") for part in parts
    )
