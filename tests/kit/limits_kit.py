"""Pulsar's admin API as far as the collector calls it, in memory, and what it would find there."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import httpx2
import orjson

from streaming.collect.pulsar.limits import Rates, Slot, body_of
from streaming.collect.pulsar.metrics import CollectMetrics
from streaming.collect.pulsar.notes import Notes
from streaming.collect.pulsar.push import Pusher
from streaming.collect.pulsar.rest import Rest, RestTerms

BASE = "http://admin:8080"
NOTES = "/admin/v2/namespaces/pulsar/system"

T = TypeVar("T")


class FakeApi:
    """An admin API that knows some answers; of what it does not know it says that it is not there.

    Attributes:
        answers: path -> JSON.
        calls: method and path, with its query, of all calls, in order.
        fail: (method, path) -> status, or None for no answer at all, in place of an answer; 0: answer.
    """

    def __init__(self, answers: Mapping[str, Any] | None = None) -> None:
        self.answers = dict(answers or {})
        self.calls: list[tuple[str, str]] = []
        self.fail: Callable[[str, str], int | None] = lambda _method, _path: 0

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        """What a request is answered with."""
        path = request.url.raw_path.decode()
        self.calls.append((request.method, path))
        status = self.fail(request.method, path)
        if status is None:
            raise httpx2.ConnectError("no route")
        if status:
            return httpx2.Response(status, json={"reason": f"because {status}"})
        return self.answer(request, path)

    def answer(self, request: httpx2.Request, path: str) -> httpx2.Response:
        """What one is answered with that does not fail."""
        if path in self.answers:
            return httpx2.Response(200, json=self.answers[path])
        return httpx2.Response(404, json={"reason": "not there"})


class FakePulsar(FakeApi):
    """Limits, properties and pages in memory.

    Attributes:
        set: path -> body of limits.
        properties: of the namespace for notes.
        pages: host of a broker -> its metrics page.
        absent: paths that begin so are not there.
    """

    def __init__(self) -> None:
        super().__init__()
        self.set: dict[str, Any] = {}
        self.properties: dict[str, str] = {}
        self.pages: dict[str, str] = {"broker1:8080": ""}
        self.absent: tuple[str, ...] = ()

    def answer(self, request: httpx2.Request, path: str) -> httpx2.Response:
        """See FakeApi."""
        method = request.method
        if path == "/metrics/":
            return httpx2.Response(200, text=self.pages[request.url.netloc.decode()])
        if path == "/admin/v2/brokers":
            return httpx2.Response(200, json=list(self.pages))
        if path.startswith(NOTES):
            return self._note(method, path, request.content)
        if any(path.startswith(one) for one in self.absent):
            return httpx2.Response(404, json={"reason": "not there"})
        return self._limit(method, path, request.content)

    def hold(self, slot: Slot, rates: Rates) -> None:
        """Somebody sets a limit."""
        self.set[slot.path] = body_of(slot.kind, rates)

    def changes(self) -> list[tuple[str, str]]:
        """Calls that changed limits, notes aside."""
        return [(method, path) for method, path in self.calls if method != "GET" and NOTES not in path]

    def _note(self, method: str, path: str, content: bytes) -> httpx2.Response:
        if method == "PUT":
            self.properties |= orjson.loads(content)
        if method == "DELETE":
            self.properties.pop(path.rpartition("/")[2], None)
        return httpx2.Response(200, json=self.properties)

    def _limit(self, method: str, path: str, content: bytes) -> httpx2.Response:
        if method == "GET":
            body = self.set.get(path)
            return httpx2.Response(200, content=b"" if body is None else orjson.dumps(body))
        if method == "POST":
            self.set[path] = orjson.loads(content)
        else:
            self.set.pop(path, None)
        return httpx2.Response(204)


def rest_of(fake: Callable[[httpx2.Request], httpx2.Response], **terms: Any) -> Rest:
    """A client of it."""
    return Rest(RestTerms(base=BASE, **{"attempts_max": 1, **terms}), transport=httpx2.MockTransport(fake))


def pusher_of(fake: FakePulsar, *, override: bool = False) -> Pusher:
    """A collector's pushing half that has just started."""
    rest = rest_of(fake)
    return Pusher(rest, Notes(rest, "pulsar/system"), CollectMetrics(), override=override)


def run(work: Awaitable[T]) -> T:
    """In a loop of its own."""

    async def wait() -> T:
        return await work

    return asyncio.run(wait())
