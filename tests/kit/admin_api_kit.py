"""The admin API without Kafka: a store in memory, and clients for it."""

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import unquote

import orjson
import pytest
from fastapi.testclient import TestClient

from enforcer.control.access.tokens import Grant, Tokens
from enforcer.control.api import create_app
from enforcer.control.entities.view import EntityView
from enforcer.control.groups import Changes, Entries, Refusal, Unavailable
from enforcer.control.metrics import AdminMetrics
from enforcer.control.parts import Parts
from enforcer.control.settings import AdminSettings
from streaming.contract.usage_events import GroupReport, GroupUsage
from streaming.kafka_io.policy_topic import PolicyLog
from streaming.policy.policy_set import PolicySet


class MemoryStore:
    """A `PolicyStore` in memory.

    Attributes:
        meanwhile: what happens while a change waits for its turn.
    """

    meanwhile: Callable[[], object] = staticmethod(lambda: None)

    def __init__(self) -> None:
        self.held: dict[str, Any] = {}
        self.down = False
        self.authors: list[tuple[str, str]] = []

    @property
    def entries(self) -> Entries:
        """What is held, unless it is down."""
        if self.down:
            raise Unavailable("Kafka does not answer")
        return self.held

    @property
    def log(self) -> PolicyLog:
        """What is held, without who has set it."""
        told = PolicyLog()
        for path, value in self.entries.items():
            told.timeline.apply(path, value, 0)
        return told

    async def change(self, decide: Callable[[Entries], Changes], actor: str, reason: str) -> None:
        """At once."""
        self.meanwhile()
        self.authors.append((actor, reason))
        for path, value in decide(self.entries).items():
            if value is None:
                del self.held[path]
            else:
                self.held[path] = value


def parts(*grants: Grant, **settings: Any) -> Parts:
    """What an application is made of, its store a MemoryStore."""
    store = MemoryStore()
    return Parts(
        store=store, view=EntityView(lambda: PolicySet(store.held), 100), metrics=AdminMetrics(),
        settings=AdminSettings(**settings), tokens=Tokens(grants),
    )


def client(made: Parts, address: str = "127.0.0.1") -> TestClient:
    """A client at this address."""
    return TestClient(
        create_app(made), base_url="http://127.0.0.1:18080", client=(address, 50_000),
        raise_server_exceptions=False,
    )


def served() -> tuple[Parts, TestClient]:
    """What an application is made of, and a client of it."""
    made = parts()
    return made, client(made)


def answer(api: TestClient, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Status and body of an answer, as JSON where it is."""
    content = body if isinstance(body, bytes) or body is None else orjson.dumps(body)
    response = api.request(method, path, content=content, headers={"content-type": "application/json"})
    is_json = response.headers.get("content-type") == "application/json"
    return response.status_code, response.json() if is_json and response.content else response.text


def scope_of(
    target: str, method: str = "GET", *headers: tuple[bytes, bytes], address: str = "127.0.0.1"
) -> dict[str, Any]:
    """A request to an application itself, its target as it stands on the wire."""
    raw, _, query = target.partition("?")
    return {
        "type": "http", "http_version": "1.1", "scheme": "http", "method": method, "path": unquote(raw),
        "root_path": "", "raw_path": raw.encode(), "query_string": query.encode(),
        "client": (address, 50_000), "headers": [(b"host", b"127.0.0.1:18080"), *headers],
    }  # fmt: skip


async def status_of(app: Any, scope: dict[str, Any], receive: Callable[[], Awaitable[Any]]) -> int:
    """What such a request, of which this comes, is answered with."""
    statuses = list[int]()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    await app(scope, receive, send)
    (status,) = statuses
    return status


def report(
    broker: str, ts: int, msgs: int, *, group: str = "rg1", throttled: int | None = None
) -> GroupUsage:
    """A report of two seconds."""
    usage = GroupReport(counts=(msgs, 0, 0, 0), throttled_ms=(throttled, None, None, None))
    return GroupUsage(id="x", ts=ts, at=ts, broker=broker, period_ms=2_000, usage=((group, usage),))


def refusal(act: Callable[..., Any], *given: Any) -> tuple[int, str]:
    """Status and reason of what must be refused."""
    with pytest.raises(Refusal) as refused:
        act(*given)
    return refused.value.status, refused.value.reason
