"""Consumers under a limit far below what they ask for at once: they read evenly, at a real broker."""

import time
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from broker_fixtures import own_cluster, serving
from cluster_kit import Cluster, fresh
from confluent_kafka import Consumer
from consuming_kit import filled
from proxy_kit import ProxyThread, until
from threaded import together
from traffic_kit import batch

RATE = 100_000
ASKED = 1_048_576
"""What the consumers ask for at once, bytes: ten seconds of their rate."""
GAP_MAX_S = 2.0
BEGUN_S, MEASURED_S = 2.0, 12.0
"""The stock of half a second is used up when it is measured."""
cluster = own_cluster("pace")


@pytest.fixture(scope="module")
def proxy(cluster: Cluster) -> Iterator[ProxyThread]:
    """The one proxy that is alive."""
    with serving(cluster, id="pace") as running:
        running.await_part(1.0)
        yield running


def arrivals(bootstrap: str, topic: str, client_id: str, **settings: Any) -> list[tuple[float, int]]:
    """When a consumer got how many bytes, from its first record on."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap, "client.id": client_id, "group.id": fresh("pace"),
            "auto.offset.reset": "earliest", "fetch.max.bytes": ASKED, "fetch.message.max.bytes": ASKED,
            "message.max.bytes": ASKED, **settings,
        }
    )  # fmt: skip
    consumer.subscribe([topic])
    found: list[tuple[float, int]] = []
    while not found or time.monotonic() - found[0][0] < BEGUN_S + MEASURED_S:
        messages = [message for message in consumer.consume(1_000, 0.05) if message.error() is None]
        if messages:
            found.append((time.monotonic(), sum(len(message.value()) for message in messages)))
    consumer.close()
    return found


def limited(cluster: Cluster, proxy: ProxyThread, by: str) -> str:
    """A new name: of a client, and of its namespace; the rate is its user's or its group's, as `by` says."""
    name = fresh(f"even-{by}")
    last = f"quotas[client-id={name}]" if by == "user" else f"namespaces.acme/{name}"
    if by == "user":
        cluster.policies.put(last, {"consumer_byte_rate": RATE})
    else:
        cluster.policies.group(name, dispatchRateInBytes=RATE)
    # Twice of what is read of it; two and a half batches fill a slice of the rate.
    batches = int(RATE * MEASURED_S / len(batch(20, size=500)))
    filled(cluster.kafka.bootstrap, 20 * batches, 20, partitions=2, size=500, name=f"acme.{name}.t")
    until(lambda: last in proxy.entries, what="the policy")
    return name


@pytest.mark.parametrize("settings", [
    pytest.param({}, id="any"),
    pytest.param({"fetch.min.bytes": ASKED // 2, "fetch.wait.max.ms": 5_000}, id="much"),
])  # fmt: skip
@pytest.mark.soak
def test_consumers_that_ask_for_much_read_evenly(
    cluster: Cluster, proxy: ProxyThread, settings: dict[str, Any]
) -> None:
    """No gap of seconds, and all of the rate, whatever they ask for at once or wait for: both at a time."""
    names = [limited(cluster, proxy, by) for by in ("user", "group")]
    reads = (partial(arrivals, proxy.bootstrap, f"acme.{name}.t", name, **settings) for name in names)
    for found in together(*reads):
        began = found[0][0]
        gaps = [later - earlier for (earlier, _), (later, _) in pairwise(found)]
        size = sum(size for at, size in found if at - began >= BEGUN_S)
        assert max(gaps) < GAP_MAX_S
        # Values are nearly all of what is metered: a record of 500 bytes takes 7 more.
        assert 0.95 * RATE < size / MEASURED_S * 507 / 500 < 1.05 * RATE
