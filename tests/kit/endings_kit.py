"""Clients that end early, in every way that TCP has, and what became of what they sent."""

import fcntl
import socket
import struct
import termios
import time
from collections.abc import Callable
from contextlib import closing

from cluster_kit import Cluster
from confluent_kafka import Consumer, TopicPartition
from kafka_kit import framed, request
from proxy_kit import until
from traffic_kit import batch, produce
from wire_client import Closed, WireClient, create_request

End = Callable[[socket.socket], None]
"""Ends a connection from the client's side."""

_RESET = struct.pack("ii", 1, 0)


def produced(topic: str, acks: int, size: int = 10, client_id: str = "ends") -> bytes:
    """A Produce request of one record, as it is on the wire."""
    return framed(produce(9, {topic: [batch(1, size=size)]}, acks=acks, client_id=client_id)[0])


def creation(client_id: str, name: str, partitions: int, version: int) -> bytes:
    """A CreateTopics request, as it is on the wire."""
    return framed(request(create_request({name: partitions}, version), client_id)[0])


def arrived(client: socket.socket) -> None:
    """Wait until all that it sent has left it: what has not is lost with who closes with answers unread."""
    until(lambda: not struct.unpack("i", fcntl.ioctl(client, termios.TIOCOUTQ, bytes(4)))[0])


def reset(client: socket.socket) -> None:
    """Abort a connection: the other side gets an RST, whatever was sent before."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    client.close()


def answers_until_end(wire: WireClient) -> int:
    """How many answers come before the other side ends the connection in order."""
    count = 0
    while True:
        try:
            wire.receive_frame()
        except Closed:
            return count
        count += 1


def created(cluster: Cluster, name: str, partitions: int = 1) -> str:
    """A new topic, made at the broker itself."""
    with WireClient(cluster.kafka.bootstrap, "direct") as direct:
        direct.create({name: partitions})
        until(lambda: direct.metadata([name]).topics[0].partitions, what=f"topic {name}")
    return name


def stored(cluster: Cluster, topic: str) -> int:
    """How many records the first partition of a topic has now."""
    consumer = Consumer({"bootstrap.servers": cluster.kafka.bootstrap, "group.id": "count", "log_level": "0"})
    with closing(consumer):
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10, cached=False)[1])


def settled(cluster: Cluster, topic: str, wanted: int) -> int:
    """How many records a topic has once they are as many as wanted, or after 10 s."""
    deadline = time.monotonic() + 10.0
    while (found := stored(cluster, topic)) < wanted and time.monotonic() < deadline:
        time.sleep(0.1)
    return found
