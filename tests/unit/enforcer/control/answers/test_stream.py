"""`GET /weir/v1/stream`: what comes, when it ends, and how many there may be."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import orjson
import pytest
from admin_api_kit import parts, scope_of
from entity_kit import admission, decided, dispatch, share
from fastapi import FastAPI
from sample_kit import sample_of
from waiting_kit import until

from enforcer.control.access.tokens import Grant, Role, digest_of
from enforcer.control.answers import stream
from enforcer.control.api import create_app
from enforcer.control.connections import LASTS
from enforcer.control.parts import Parts

LOOK = Grant(name="look", role=Role.VIEWER, digest=digest_of("look"))
TEAM = Grant(name="acme", role=Role.TENANT, digest=digest_of("acme"), tenants=frozenset({"acme"}))


class Listener:
    """One client: what it was sent, and whether it is still there."""

    def __init__(self, query: str = "", token: str = "look") -> None:
        token_shown = (b"authorization", b"Bearer " + token.encode())
        self.scope = scope_of(f"/weir/v1/stream?{query}", "GET", token_shown, address="192.0.2.1")
        self.status = 0
        self.body = b""
        self.left = asyncio.Event()
        self.takes = asyncio.Event()
        self.takes.set()

    async def receive(self) -> dict[str, Any]:
        """Nothing, until it leaves."""
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        """Take what comes, at its own pace."""
        await self.takes.wait()
        self.status = message.get("status", self.status)
        self.body += message.get("body", b"")

    @property
    def events(self) -> list[tuple[str, Any]]:
        """What came, by name."""
        found = []
        for block in self.body.decode().split("\n\n")[:-1]:
            name, data = block.split("\n")
            found.append((name.removeprefix("event: "), orjson.loads(data.removeprefix("data: "))))
        return found


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Parts]:
    """Parts of an API with a viewer and a tenant."""
    monkeypatch.setattr(stream, "EVERY_S", 0.02)
    monkeypatch.setattr(stream, "_SPACING_S", 0.0)
    yield parts(LOOK, TEAM)


def opened(made: Parts, listener: Listener, app: FastAPI | None = None) -> "asyncio.Task[None]":
    """Begin."""
    app = app or create_app(made)
    return asyncio.ensure_future(app(listener.scope, listener.receive, listener.send))  # type: ignore[arg-type]


async def listening(made: Parts, *asked: str) -> tuple[Listener, "asyncio.Task[None]"]:
    """A client that has been told something; see there."""
    listener = Listener(*asked)
    task = opened(made, listener)
    await until(lambda: bool(listener.events))
    return listener, task


def ended(made: Parts, reason: str) -> float:
    """How many have ended so."""
    return sample_of(made.metrics.registry, "weir_admin_streams_ended_total", {"reason": reason})


async def test_it_tells_how_all_is_and_the_first_page(made: Parts) -> None:
    """Again and again, until the process ends."""
    listener = Listener("by=wait&limit=1")
    now = stream.now_ms()
    decided(made.view, admission(now, tokens=-9.0, throttle_time_ms=60_000), dispatch(now, 1, 0))
    task = opened(made, listener)
    await until(lambda: len(listener.events) >= 4)
    assert [name for name, _ in listener.events[:4]] == ["summary", "entities"] * 2
    assert listener.events[0][1]["waiting"] == 1
    assert [row["entity"] for row in listener.events[1][1]] == ["user=alice"]
    assert listener.scope[LASTS] is True and made.streams.open == 1
    made.streams.stopping.set()
    await asyncio.wait_for(task, 20)
    assert (ended(made, "stopped"), made.streams.open) == (1, 0)


async def test_decisions_of_one_entity_come_as_they_are_made(made: Parts) -> None:
    """Those of others do not."""
    listener, task = await listening(made, "law=mutation&entity=user%3Dalice")
    decided(made.view, admission(1), admission(2, subject="user=bob"), admission(3))
    await until(lambda: sum(name == "decision" for name, _ in listener.events) == 2)
    assert [said["ts"] for name, said in listener.events if name == "decision"] == [1, 3]
    listener.left.set()
    await asyncio.wait_for(task, 20)
    assert ended(made, "gone") == 1 and not made.view.watch


async def test_a_slow_reader_is_dropped(made: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once it has taken what it was sent it gets the end."""
    monkeypatch.setattr(stream, "SLOW_S", 0.05)
    listener, task = await listening(made)
    listener.takes.clear()
    await asyncio.sleep(0.2)
    listener.takes.set()
    await asyncio.wait_for(task, 20)
    assert ended(made, "slow") == 1


async def test_there_are_few_and_a_tenant_sees_its_own(made: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    """503 for one too many, 403 for another's entity, 400 for what cannot be asked."""
    app = create_app(made)
    monkeypatch.setattr(stream, "STREAMS_MAX", 0)
    for query, token, status in (
        ("", "look", 503), ("law=mutation&entity=user%3Dalice", "acme", 403),
        ("entity=user%3Dalice", "look", 400), ("by=name", "look", 400), ("", "none", 401),
    ):
        listener = Listener(query, token)
        await opened(made, listener, app)
        assert listener.status == status, query
    assert ended(made, "full") == 1


async def test_streams_that_come_at_once_have_the_same_bound(
    made: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else they could be all requests that may be under way, and nobody else would ever be answered."""
    monkeypatch.setattr(stream, "STREAMS_MAX", 2)
    listeners, app = [Listener() for _ in range(5)], create_app(made)
    tasks = [opened(made, listener, app) for listener in listeners]
    await until(lambda: all(listener.status for listener in listeners))
    assert sorted(listener.status for listener in listeners) == [200, 200, 503, 503, 503]
    for listener in listeners:
        listener.left.set()
    await asyncio.gather(*tasks)
    assert made.streams.open == 0


async def test_nothing_of_it_stays_when_its_client_leaves(made: Parts) -> None:
    """Each that has waited would wait for the end of the process."""
    before = asyncio.all_tasks()
    listener, task = await listening(made)
    listener.left.set()
    await asyncio.wait_for(task, 20)
    await until(lambda: asyncio.all_tasks() <= before)


@pytest.mark.parametrize(
    ("token", "in_force"), [("look", [TEAM]), ("acme", [LOOK, replace(TEAM, tenants=frozenset({"other"}))])]
)
async def test_it_goes_by_what_its_token_allows_now(
    made: Parts, token: str, in_force: list[Grant], monkeypatch: pytest.MonkeyPatch
) -> None:
    """None any more ends it, and fewer tenants than when it began: it would go on telling of the others."""
    _, task = await listening(made, "", token)
    monkeypatch.setattr(made.tokens, "in_force", lambda _reads: in_force)
    await asyncio.wait_for(task, 20)
    assert ended(made, "stopped") == 1


async def test_decisions_end_where_an_entity_is_not_its_tenants_any_more(made: Parts) -> None:
    """A group that it is detached from: what others use of it is theirs."""
    held = made.store.held
    held |= {"resourcegroups.rg1": {}, "tenants.acme": {"resourcegroup": "rg1"}}
    listener, task = await listening(made, "law=shares&entity=rg1", "acme")
    del held["tenants.acme"]
    count = len(listener.events)
    await until(lambda: len(listener.events) > count + 3)
    decided(made.view, share(1, "p1", 5.0))
    count = len(listener.events)
    await until(lambda: len(listener.events) > count + 3)
    assert "decision" not in [name for name, _ in listener.events]
    listener.left.set()
    await asyncio.wait_for(task, 20)
