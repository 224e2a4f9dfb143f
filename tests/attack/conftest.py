"""The ground that attackers get: a real broker, and proxies before it (docs/security.md)."""

import gc

import pytest
from broker_fixtures import proxy_with, topics, wire
from protected_kit import mine, policies_id
from proxy_kit import ProxyThread, until

__all__ = ["mine", "policies_id", "proxy_with", "topics", "wire"]


@pytest.fixture
def nobody_else(proxy: ProxyThread) -> None:
    """Clients that other tests left are garbage, and connected until that is collected."""
    gc.collect()
    until(lambda: proxy.metric("connections") == 0)
