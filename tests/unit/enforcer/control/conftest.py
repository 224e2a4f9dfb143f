"""The admin API on this machine."""

import pickle
from collections.abc import Iterator
from typing import Any

import fastapi._compat.v2
import fastapi.applications
import pytest
from admin_api_kit import MemoryStore, client, parts
from anyio.from_thread import start_blocking_portal
from fastapi.testclient import TestClient


@pytest.fixture(scope="session", autouse=True)
def described_once() -> Iterator[None]:
    """Applications describe themselves, and compile what they take, when they are made, for most of that
    time: here once of each kind. And one loop is enough for all requests of their clients.
    """
    described: dict[int, bytes] = {}
    compiled: dict[str, Any] = {}
    describe, compile_it = fastapi.applications.get_openapi, fastapi._compat.v2.TypeAdapter

    def described_again(**own: Any) -> Any:
        """Those with another API behind them have fewer routes."""
        count = len(own["routes"])
        if count not in described:
            described[count] = pickle.dumps(describe(**own))
        return pickle.loads(described[count])

    def compiled_again(kind: Any, config: Any = None) -> Any:
        key = f"{kind!r} {config!r}"
        if " at 0x" in key:  # of one application alone
            return compile_it(kind, config=config)
        if key not in compiled:
            compiled[key] = compile_it(kind, config=config)
        return compiled[key]

    with pytest.MonkeyPatch.context() as patched, start_blocking_portal() as portal:
        patched.setattr(fastapi.applications, "get_openapi", described_again)
        patched.setattr(fastapi._compat.v2, "TypeAdapter", compiled_again)
        patched.setattr(TestClient, "portal", portal)
        yield


@pytest.fixture(scope="session")
def made_once(described_once: None) -> tuple[MemoryStore, TestClient]:
    """Where its policies are, and a client of it."""
    own = parts()
    assert isinstance(own.store, MemoryStore)
    return own.store, client(own)


@pytest.fixture
def api(made_once: tuple[MemoryStore, TestClient]) -> TestClient:
    """A client of it, nothing set yet."""
    store, api = made_once
    vars(store).update(vars(MemoryStore()))
    return api
