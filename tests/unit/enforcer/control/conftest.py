"""The admin API on this machine."""

import pytest
from admin_api_kit import client, parts
from fastapi.testclient import TestClient


@pytest.fixture
def api() -> TestClient:
    """A client of it, nothing set yet."""
    return client(parts())
