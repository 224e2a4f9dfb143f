"""Messages of many frames through the proxy while limits of frames and of bytes hold for them."""

import time

import pulsar as client_library
import pytest
from pulsar_dispatch_kit import rate
from pulsar_kit import Admin, client, send_all
from pulsar_proxy_kit import bare_proxy, limited

from weir.stack.pulsar import LocalPulsar

pytestmark = pytest.mark.soak
LARGE = 12 << 20
CHUNKS = 3
"""Of each such message: a frame holds five MiB."""
MESSAGES = 4


def content(number: int) -> bytes:
    """Of one message; no two chunks are alike."""
    return b"".join(b"%016d" % (number << 32 | place) for place in range(LARGE >> 4))


@pytest.mark.parametrize(
    ("publish", "dispatch"),
    [({"publishRateInMsgs": 3}, rate(3)), ({"publishRateInBytes": LARGE}, rate(size=LARGE))],
    ids=["chunks", "bytes"],
)
@pytest.mark.parametrize("kind", ["Exclusive", "Shared"])
def test_chunks_are_charged_one_by_one_and_arrive_whole(
    pulsar: LocalPulsar, admin: Admin, kind: str, publish: dict[str, int], dispatch: dict[str, int]
) -> None:
    """A second for each message, both ways, and the group pays for what the broker counts."""
    with bare_proxy(pulsar.service, joining_fraction=1.0) as proxy, client(proxy.bootstrap) as made:
        namespace, group = limited(proxy, admin, publish, subscriptionDispatchRate=dispatch)
        topic = f"{namespace}/large"
        producer = made.create_producer(
            topic, batching_enabled=False, chunking_enabled=True, block_if_queue_full=True
        )
        began = time.monotonic()
        send_all(producer, map(content, range(MESSAGES)))
        # Half of a second's rate may go at once, and a group may owe for one chunk.
        assert time.monotonic() - began > MESSAGES - 2
        stats = admin.stats(topic)
        assert proxy.used(group) == (stats["msgInCounter"], stats["bytesInCounter"])
        assert stats["msgInCounter"] == MESSAGES * CHUNKS
        began = time.monotonic()
        consumer = made.subscribe(
            topic, "s", getattr(client_library.ConsumerType, kind),
            initial_position=client_library.InitialPosition.Earliest,
        )  # fmt: skip
        for number in range(MESSAGES):
            message = consumer.receive(20_000)
            assert message.data() == content(number)
            consumer.acknowledge(message)
        assert time.monotonic() - began > MESSAGES - 2
        place = {"broker": f"pulsar-{pulsar.service}", "topic": topic, "subscription": "s"}
        assert proxy.sample("weir_dispatch_delivered_msgs_total", **place) == MESSAGES * CHUNKS
