"""Clients that leave to escape: what reached the broker is charged, what waits is bounded and counted."""

import socket
import time
from collections.abc import Callable

import pytest
from cluster_kit import Cluster, address, fresh
from endings_kit import End, created, creation, framed, produced, reset, settled, stored
from proxy_kit import ProxyThread, until
from wire_client import WireClient

from enforcer.core import bounds

QUOTA = {"controller_mutation_rate": 0.1, "controller_mutation_burst": 5}
COUNT = 30
"""Partitions: a debt of minutes."""


def bad_frame(client: socket.socket) -> None:
    """Have the proxy end the connection."""
    client.sendall(b"\xff\xff\xff\xff")
    client.recv(1)
    client.close()


def leave(proxy: ProxyThread, sent: bytes, end: End) -> None:
    """Connect, send and end."""
    client = socket.create_connection(address(proxy.bootstrap), timeout=20)
    if end is bad_frame:
        # It would be seen before anything is forwarded, were there no broker connection yet.
        client.sendall(framed(b"\0\x10\0\0\0\0\0\7\xff\xff"))
        client.recv(1_000)
    client.sendall(sent)
    end(client)


def owes(proxy: ProxyThread) -> bool:
    """Whether a request was decided that makes the next ones wait, and nobody is connected.

    Times until which others must wait may be known from the log of decisions.
    """
    throttled = proxy.metric("requests_total", api="CreateTopics", outcome="throttle")
    return throttled == 1 and proxy.metric("connections") == 0


def charged(cluster: Cluster, client_id: str, kind: str = "request") -> int:
    """Mutations in all request events of a client, or in its refunds."""
    return sum(
        item["mutations"]
        for event in list(cluster.decider.events)
        if event.get("client_id") == client_id and event["type"] == kind
        for item in event["items"]
    )


@pytest.mark.parametrize("quota", ["limit", "shadow", "none"])
@pytest.mark.parametrize("end", [socket.socket.close, reset, bad_frame])
def test_forwarded_is_charged(cluster: Cluster, proxy: ProxyThread, end: End, quota: str) -> None:
    """Create with an old version and leave: all that was created is charged, or reported without quota."""
    client_id = fresh("leaves")
    if quota != "none":
        cluster.limit(proxy, client_id, **QUOTA, shadow=quota == "shadow")
    leave(proxy, creation(client_id, client_id, COUNT, 4), end)
    until(lambda: charged(cluster, client_id), what="an event")
    assert charged(cluster, client_id) == COUNT
    with WireClient(cluster.kafka.bootstrap, "direct") as direct:
        found = until(lambda: direct.metadata([client_id]).topics[0].partitions)
    assert len(found) == COUNT
    until(lambda: proxy.metric("connections") == 0)


@pytest.mark.parametrize("end", [socket.socket.close, reset])
def test_what_was_not_admitted_is_dropped(cluster: Cluster, proxy: ProxyThread, end: End) -> None:
    """A request whose client left before its decision is not carried out; what it sent beside it is."""
    client_id = fresh("leaves")
    topic = created(cluster, fresh("beside"))
    cluster.limit(proxy, client_id, **QUOTA, decide="strict")
    before = proxy.metric("dropped_requests_total", reason="strict")
    silent = produced(topic, 0, client_id=client_id)
    with cluster.decider.paused():
        leave(proxy, silent + creation(client_id, client_id, 3, 7) + silent, end)
        assert settled(cluster, topic, 2) == 2
    assert proxy.metric("dropped_requests_total", reason="strict") == before + 1
    # Whoever resets is known to have left before anybody is asked.
    until(lambda: charged(cluster, client_id) == charged(cluster, client_id, "refund"))
    with WireClient(cluster.kafka.bootstrap, "direct") as direct:
        assert direct.metadata([client_id]).topics[0].error_code == 3


def test_a_debt_holds_back_who_has_left(
    cluster: Cluster, proxy_with: Callable[..., ProxyThread], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests left behind wait like any, for a time: then they are dropped, and nothing is kept."""
    monkeypatch.setattr(bounds, "DEPARTED_MAX_MS", 1_500)
    proxy = proxy_with()
    client_id = fresh("leaves")
    cluster.limit(proxy, client_id, **QUOTA)
    leave(proxy, creation(client_id, f"{client_id}-0", COUNT, 4), reset)
    until(lambda: owes(proxy), what="a debt")
    for number in range(1, 6):
        leave(proxy, creation(client_id, f"{client_id}-{number}", COUNT, 4), reset)
    until(lambda: proxy.metric("departed_connections") == 5, 4)
    until(lambda: proxy.metric("connections") == 0, 5)
    assert proxy.metric("dropped_requests_total", reason="departed") == 5
    assert charged(cluster, client_id) == COUNT


def test_metered_data_left_behind_waits(cluster: Cluster, proxy: ProxyThread) -> None:
    """Without acks, past a byte rate, then gone: all arrives, no sooner than of a client that stays.

    A proxy alone has all of the rate without a share, and half a second of it in stock.
    """
    client_id, topic = fresh("leaves"), created(cluster, fresh("slow"))
    cluster.policies.put(f"quotas[user=ANONYMOUS,client-id={client_id}]", {"producer_byte_rate": 10_000})
    time.sleep(0.3)
    begun = time.monotonic()
    leave(proxy, produced(topic, 0, size=5_000, client_id=client_id) * 6, reset)
    time.sleep(0.2)
    assert stored(cluster, topic) < 6
    assert settled(cluster, topic, 6) == 6
    assert time.monotonic() - begun > 1.5
    until(lambda: proxy.metric("connections") == 0)


def test_the_departed_count(cluster: Cluster, proxy_with: Callable[..., ProxyThread]) -> None:
    """Leaving makes no room for more connections while there is still work, and a stop does not wait long."""
    proxy = proxy_with(connections_max=3, stop_timeout_ms=300)
    client_id = fresh("leaves")
    cluster.limit(proxy, client_id, **QUOTA)
    leave(proxy, creation(client_id, f"{client_id}-0", COUNT, 4), reset)
    until(lambda: owes(proxy), what="a debt")
    for number in range(1, 4):
        leave(proxy, creation(client_id, f"{client_id}-{number}", 1, 4), reset)
    until(lambda: proxy.metric("departed_connections") == 3)
    with WireClient(proxy.bootstrap, "late") as late:
        assert late.closed_within(3)
    begun = time.monotonic()
    proxy.begin_stop()
    until(lambda: proxy.metric("dropped_requests_total", reason="stop") == 3)
    assert time.monotonic() - begun < 3
