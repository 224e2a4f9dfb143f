"""The admin API on this machine."""

from collections.abc import Iterator
from typing import Any

import fastapi._compat.v2
import pytest
from admin_api_kit import MemoryStore, client, parts
from anyio.from_thread import start_blocking_portal
from fastapi.testclient import TestClient


@pytest.fixture(scope="session", autouse=True)
def compiled_once() -> Iterator[None]:
    """What takes applications most of the time in which they are made, here once of each kind.

    And one loop is enough for all requests of their clients.
    """
    compiled: dict[str, Any] = {}
    compile_it = fastapi._compat.v2.TypeAdapter

    def compiled_again(kind: Any, config: Any = None) -> Any:
        key = f"{kind!r} {config!r}"
        if " at 0x" in key:  # of one application alone
            return compile_it(kind, config=config)
        if key not in compiled:
            compiled[key] = compile_it(kind, config=config)
        return compiled[key]

    with pytest.MonkeyPatch.context() as patched, start_blocking_portal() as portal:
        patched.setattr(fastapi._compat.v2, "TypeAdapter", compiled_again)
        patched.setattr(TestClient, "portal", portal)
        yield


@pytest.fixture(scope="session")
def made_once(compiled_once: None) -> tuple[MemoryStore, TestClient]:
    """Where its policies are, and a client of it."""
    own = parts()
    return own.store, client(own)


@pytest.fixture
def api(made_once: tuple[MemoryStore, TestClient]) -> TestClient:
    """A client of it, nothing set yet."""
    store, api = made_once
    vars(store).update(vars(MemoryStore()))
    return api
