"""Weir's own topics as an attacker sees them: a topic beside them, an id, and frames that name any."""

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cluster_kit import Cluster, fresh
from proxy_kit import ProxyThread, until
from stack_kit import put
from traffic_kit import batch, produce_of
from wire_client import WireClient, metadata_request

REFUSED, TRANSACTION_REFUSED = 29, 53
Wire = Callable[..., WireClient]


@pytest.fixture(scope="module")
def mine(cluster: Cluster, proxy: ProxyThread) -> Iterator[str]:
    """A topic of the attacker's own, with a record in it."""
    name = fresh("mine")
    with WireClient(proxy.bootstrap) as client:
        client.create({name: 1})
    put(cluster.kafka.bootstrap, name, b"mine")
    yield name


@pytest.fixture(scope="module")
def policies_id(cluster: Cluster, proxy: ProxyThread) -> uuid.UUID:
    """The id of weir.policies, once the proxy knows it too."""
    with WireClient(cluster.kafka.bootstrap) as client:
        found = client.answer_to(metadata_request([cluster.topics.policies], 12)).topics[0].topic_id
    protected = proxy.proxy.protected
    until(lambda: found.bytes in protected.ids, what="the id of weir.policies")
    return found


def produce_request(
    version: int, names: list[Any], acks: int = 1, txn: str | None = None, size: int = 10
) -> Any:
    """A record for partition 0 of each topic, by name or id; with a key, which a compacted one demands."""
    return produce_of(version, *names, records=batch(1, size=size, key=b"k"), acks=acks, txn=txn)
