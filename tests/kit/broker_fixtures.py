"""Fixtures of all tests on a real broker: one for the session, and what stands around it.

Imported by the conftest of each folder that needs them.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from cluster_kit import DEFAULT_PARTITIONS, USERS, Cluster, fresh
from proxy_kit import Decider, PolicyWriter, ProxyThread, until
from wire_client import WireClient

from streaming.contract.topics import Topics
from weir.stack.kafka import LocalKafka
from weir.stack.topics import ensure_topics


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker with auto-creation on, Weir's topics, and the law running on them."""
    kafka = LocalKafka(
        tmp_path_factory.mktemp("kafka"),
        sasl=USERS,
        auto_create_topics=True,
        properties={"num.partitions": str(DEFAULT_PARTITIONS)},
    )
    with kafka:
        topics = Topics()
        ensure_topics(kafka.bootstrap, topics)
        with Decider(kafka.bootstrap, topics) as decider:
            yield Cluster(kafka, topics, decider, PolicyWriter(kafka.bootstrap, topics))


@pytest.fixture
def topics(cluster: Cluster, request: pytest.FixtureRequest) -> Topics:
    """Topics of an installation of its own, so that tests do not see each other's policies."""
    own = Topics(f"{fresh(request.node.originalname)}.")
    ensure_topics(cluster.kafka.bootstrap, own)
    return own


@pytest.fixture(scope="session")
def proxy(cluster: Cluster) -> Iterator[ProxyThread]:
    """A proxy with the default settings."""
    with ProxyThread(cluster.config(id="shared")) as running:
        assert running.proxy is not None
        until(running.proxy.ready.is_set, what="a decided probe")
        yield running


@pytest.fixture
def proxy_with(cluster: Cluster) -> Iterator[Callable[..., ProxyThread]]:
    """Start proxies with other settings."""
    with ExitStack() as stack:

        def start(**settings: Any) -> ProxyThread:
            return stack.enter_context(ProxyThread(cluster.config(**settings)))

        yield start


@pytest.fixture
def wire(proxy: ProxyThread) -> Iterator[Callable[..., WireClient]]:
    """Open raw connections, to the shared proxy or another address."""
    with ExitStack() as stack:

        def connect(client_id: str, to: str = "") -> WireClient:
            return stack.enter_context(WireClient(to or proxy.bootstrap, client_id))

        yield connect
