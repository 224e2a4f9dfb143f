"""What stands around the one real broker of the session."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from blocked_world import World
from broker_fixtures import proxy_with, topics, way, wire
from cluster_kit import Cluster
from kafka_backlog_kit import Looker

from streaming.contract.topics import Topics

__all__ = ["proxy_with", "topics", "way", "wire"]


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
