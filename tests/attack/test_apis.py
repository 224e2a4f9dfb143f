"""APIs that no client needs: neither offered nor carried out (docs/protocol_notes.md 7)."""

from collections.abc import Callable

import pytest
from cluster_kit import Cluster
from kafka.protocol.metadata.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafka_kit import build
from wire_client import WireClient

from enforcer.kafka.guard.apis import APIS, HIDDEN

SHARE_GROUP_STATE, ENVELOPE, WRITE_TXN_MARKERS = 85, 58, 27


def offered(client: WireClient) -> dict[int, tuple[int, int]]:
    """API -> versions, as ApiVersions has them."""
    client.send(build(ApiVersionsRequest, 3, client_software_name="attack", client_software_version="1"))
    rows = client.receive(ApiVersionsResponse, 3).api_keys
    return {row.api_key: (row.min_version, row.max_version) for row in rows}


def test_all_that_a_broker_offers_has_a_line(cluster: Cluster, wire: Callable[..., WireClient]) -> None:
    """What this broker offers is in the table; what is hidden is gone, all else is there."""
    straight = offered(wire("attack", cluster.kafka.bootstrap))
    seen = offered(wire("attack"))
    assert set(straight) <= set(APIS)
    assert set(seen) == set(straight) - HIDDEN
    assert HIDDEN & set(straight)


@pytest.mark.parametrize("key", [SHARE_GROUP_STATE, ENVELOPE, WRITE_TXN_MARKERS])
def test_what_is_hidden_ends_the_connection(wire: Callable[..., WireClient], key: int) -> None:
    """A client that sends one all the same is cut off before the broker hears of it."""
    client = wire("attack")
    client.send_frame(key.to_bytes(2, "big") + b"\0\0" + bytes(4) + b"\0\1x\0" + bytes(20))
    assert client.closed_within(5)
