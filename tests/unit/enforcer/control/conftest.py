"""The admin API on this machine."""

from collections.abc import Iterator
from typing import Any

import fastapi._compat.v2
import pytest
from admin_api_kit import client, parts
from fastapi.testclient import TestClient


@pytest.fixture(scope="session", autouse=True)
def compiled_once() -> Iterator[None]:
    """What takes applications most of the time in which they are made, here once of each kind."""
    compiled: dict[str, Any] = {}
    compile_it = fastapi._compat.v2.TypeAdapter

    def compiled_again(kind: Any, config: Any = None) -> Any:
        key = f"{kind!r} {config!r}"
        if " at 0x" in key:  # of one application alone
            return compile_it(kind, config=config)
        if key not in compiled:
            compiled[key] = compile_it(kind, config=config)
        return compiled[key]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(fastapi._compat.v2, "TypeAdapter", compiled_again)
        yield


@pytest.fixture
def api() -> TestClient:
    """A client of it, nothing set yet."""
    return client(parts())
