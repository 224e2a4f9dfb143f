"""What stands around the one real broker of the session."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from blocked_world import World
from broker_fixtures import options, proxy_with, topics, way, wire
from cluster_kit import Cluster
from kafka_backlog_kit import Looker

from streaming.contract.topics import Topics
from weir.cli import main

__all__ = ["options", "proxy_with", "topics", "way", "wire"]


@pytest.fixture
def looker(cluster: Cluster) -> Iterator[Looker]:
    """One that looks at the session's cluster."""
    with Looker(cluster.kafka.bootstrap) as own:
        yield own


@pytest.fixture
def world(cluster: Cluster, topics: Topics) -> Iterator[World]:
    """Producers of topics beyond their backlog quota."""
    with ExitStack() as stack:
        yield World(cluster, topics, stack)


@pytest.fixture
def weir(options: list[str], capsys: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    """Run a command against that installation; gives its lines of output."""

    def run(*words: str) -> list[str]:
        assert main([*words, *options]) == 0
        return capsys.readouterr().out.splitlines()

    return run
