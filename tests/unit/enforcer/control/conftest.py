"""The admin API on this machine."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import fastapi.applications
import pytest
from admin_api_kit import client, parts
from fastapi.testclient import TestClient


@pytest.fixture(scope="session", autouse=True)
def described_once() -> Iterator[None]:
    """Each application describes itself when it is made, for most of that time: here once of each kind."""
    known: dict[int, dict[str, Any]] = {}
    describe = fastapi.applications.get_openapi

    def again(**own: Any) -> dict[str, Any]:
        """Those with another API behind them have fewer routes."""
        count = len(own["routes"])
        if count not in known:
            known[count] = describe(**own)
        return deepcopy(known[count])

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(fastapi.applications, "get_openapi", again)
        yield


@pytest.fixture
def api() -> TestClient:
    """A client of it, nothing set yet."""
    return client(parts())
