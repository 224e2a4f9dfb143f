"""Of all tests on a real broker: what starts the session's (tests/conftest.py), and fixtures around it.

Imported by the conftest of each folder that needs them.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from cluster_kit import DEFAULT_PARTITIONS, USERS, Cluster, fresh
from proxy_kit import Decider, PolicyWriter, ProxyThread, until
from share_kit import PROPERTIES
from tls_kit import PLAIN, Authority, Way
from wire_client import WireClient

from streaming.contract.topics import Cluster as Home
from streaming.contract.topics import Topics
from weir.stack.kafka import LocalKafka
from weir.stack.topics import ensure_topics


@contextmanager
def installed(kafka: LocalKafka, topics: Topics) -> Iterator[Cluster]:
    """Weir's topics at a broker, and the law running on them."""
    ensure_topics(Home(kafka.bootstrap, topics))
    with Decider(kafka.bootstrap, topics) as decider:
        yield Cluster(kafka, topics, decider, PolicyWriter(kafka.bootstrap, topics))


@contextmanager
def running(folder: Path, kind: str) -> Iterator[Cluster]:
    """A broker with auto-creation on, Weir's topics, and the law running on them."""
    properties = {**PROPERTIES, "num.partitions": str(DEFAULT_PARTITIONS)}
    kafka = LocalKafka(folder, sasl=USERS, auto_create_topics=True, kind=kind, properties=properties)
    with kafka, installed(kafka, Topics()) as cluster:
        yield cluster


def apart(cluster: Cluster, name: str) -> AbstractContextManager[Cluster]:
    """An installation of its own on the same broker, for who counts the proxies alive.

    Those of other tests do, also for 15 s after they were killed, and each has a part of what there is.
    """
    return installed(cluster.kafka, Topics(f"{fresh(name)}."))


def own_cluster(name: str) -> Any:
    """A module's fixture: an installation of its own, where no proxy of other tests has a part of limits."""

    @pytest.fixture(scope="module")
    def made(cluster: Cluster) -> Iterator[Cluster]:
        with apart(cluster, name) as own:
            yield own

    return made


@contextmanager
def serving(cluster: Cluster, **settings: Any) -> Iterator[ProxyThread]:
    """A proxy whose job answers."""
    with ProxyThread(cluster.config(**settings)) as running:
        until(running.proxy.enforcement.ready.is_set, what="a decided probe")
        yield running


@pytest.fixture
def topics(cluster: Cluster, request: pytest.FixtureRequest) -> Topics:
    """Topics of an installation of its own, so that tests do not see each other's policies."""
    own = Topics(f"{fresh(request.node.originalname)}.")
    ensure_topics(Home(cluster.kafka.bootstrap, own))
    return own


@pytest.fixture
def options(cluster: Cluster, topics: Topics, tmp_path: Path) -> list[str]:
    """Options that lead a command to that installation."""
    settings = tmp_path / "weir.yaml"
    settings.write_text(f"kafka: {{topic_prefix: {topics.prefix}}}\n")
    return ["--kafka", cluster.kafka.bootstrap, "--settings", str(settings)]


@pytest.fixture
def proxy_with(cluster: Cluster) -> Iterator[Callable[..., ProxyThread]]:
    """Start proxies with other settings."""
    with ExitStack() as stack:

        def start(**settings: Any) -> ProxyThread:
            return stack.enter_context(ProxyThread(cluster.config(**settings)))

        yield start


@pytest.fixture(params=[pytest.param("plain", marks=pytest.mark.soak), "tls"])
def way(request: pytest.FixtureRequest, tmp_path: Path) -> Way:
    """How clients come: by the longer way, before a release by both, unless a test names one."""
    if request.param == "plain":
        return PLAIN
    return Way.secured(Authority(tmp_path), "carol", USERS.scram["carol"])


@pytest.fixture
def wire(proxy: ProxyThread) -> Iterator[Callable[..., WireClient]]:
    """Open raw connections, to the shared proxy or another address."""
    with ExitStack() as stack:

        def connect(client_id: str, to: str = "") -> WireClient:
            return stack.enter_context(WireClient(to or proxy.bootstrap, client_id))

        yield connect
