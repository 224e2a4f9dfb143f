"""A Pulsar that may be killed, and what stands before it."""

import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pulsar
from cluster_kit import address
from pulsar_kit import Admin, client

from enforcer.wire.pulsar.commands import command
from enforcer.wire.pulsar.frames import CONNECT
from weir.stack.pulsar import LocalPulsar

_HEAP_MB = 512
_LAST_S = 20.0
"""A reader that is told that there is more gets it within that."""


class Pulsar(LocalPulsar):
    """See LocalPulsar; it is started again in its place.

    Args:
        data_dir: see LocalServer.
    """

    def __init__(self, data_dir: Path) -> None:
        # What a producer sends once more, since its connection was over, is stored once.
        once = {"brokerDeduplicationEnabled": "true"}
        # A topic is made before anybody comes, and its records are read when all have gone.
        for_ever = {"defaultRetentionTimeInMinutes": "-1", "defaultRetentionSizeInMB": "-1"}
        kept = {"brokerDeleteInactiveTopicsEnabled": "false", **for_ever}
        super().__init__(data_dir, properties={**once, **kept}, heap_mb=_HEAP_MB)

    def whole(self, limit_s: float) -> bool:
        """Whether it stores and delivers."""
        try:
            with urllib.request.urlopen(f"{self.admin}/admin/v2/brokers/health", timeout=limit_s) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def make(self, topic: str) -> None:
        """A topic, with its namespace and tenant."""
        admin = Admin(self.admin)
        admin.namespace(topic.partition("://")[2].rpartition("/")[0])
        admin.topic(topic)

    def records(self, topic: str) -> Iterator[tuple[int, str]]:
        """All that a topic holds: where, and what."""
        with client(self.service) as made:
            reader = made.create_reader(topic, pulsar.MessageId.earliest)
            while reader.has_message_available():
                message = reader.read_next(round(1000 * _LAST_S))
                yield place(message.message_id()), message.data().decode().rstrip()


def place(message: pulsar.MessageId) -> int:
    """Where it stands, in the order of these; -1: its receipt does not say (it was there already)."""
    return -1 if message.ledger_id() < 0 else message.ledger_id() << 32 | message.entry_id()


def answers(service: str, limit_s: float) -> bool:
    """Whether who connects is let in, which takes its broker too."""
    try:
        with socket.create_connection(address(service), limit_s) as one:
            one.sendall(command(CONNECT, client_version=b"soak", protocol_version=21))
            return bool(one.recv(1))
    except OSError:
        return False
