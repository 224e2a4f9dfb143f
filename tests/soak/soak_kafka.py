"""Three brokers, each a controller too, of which any may be killed."""

import json
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from weir.stack.kafka import HOST, LocalKafka, brokers_seen
from weir.stack.process import Child

BROKERS = 3
_REPLICATED = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}


_BATCH = struct.Struct(">qiibIhiqqqhii")
"""The head of a batch in a segment (KIP-98): offset, length, leader epoch, magic, CRC, attributes, last
offset delta, two timestamps, producer id, producer epoch, sequence, records.
"""


class Brokers(LocalKafka):
    """See LocalKafka; a broker that has ended is started again alone.

    Args:
        data_dir: see LocalServer.
        behind: of each broker the ports of further listeners -> the port that clients of each are told.
    """

    start_limit_s = 240.0

    def __init__(self, data_dir: Path, behind: Sequence[Mapping[int, int]]) -> None:
        super().__init__(data_dir, brokers=BROKERS, properties=_REPLICATED)
        self._relays = behind

    def whole(self) -> bool:
        """Whether each knows all of them."""
        return all(brokers_seen(ports.plain) == BROKERS for ports in self._ports)

    def leader(self) -> Child:
        """The process that leads the controllers, as far as the quorum has written that down."""
        states = [{"leaderEpoch": 0, "leaderId": 1}]
        for node in range(BROKERS):
            # One that is killed may leave half a file.
            with suppress(OSError, ValueError):
                states.append(json.loads((self._metadata(node) / "quorum-state").read_text()))
        known = [one for one in states if one["leaderId"] > 0]
        return self.children[max(known, key=lambda one: one["leaderEpoch"])["leaderId"] - 1]

    def epochs(self, topic: str) -> dict[int, tuple[int, int]]:
        """Of each offset of its first partition the id and the epoch of the producer that wrote it."""
        found = {}
        for segment in sorted((self._node_dir(0) / "log" / f"{topic}-0").glob("*.log")):
            data, pos = segment.read_bytes(), 0
            while pos + _BATCH.size <= len(data):
                first, length, _, _, _, _, more, _, _, *producer, _, _ = _BATCH.unpack_from(data, pos)
                if not length:
                    break
                found |= dict.fromkeys(range(first, first + more + 1), tuple(producer))
                pos += struct.calcsize(">qi") + length
        return found

    def _metadata(self, node: int) -> Path:
        return self._node_dir(node) / "log" / "__cluster_metadata-0"

    def _write_properties(self, node: int) -> Path:
        path = super()._write_properties(node)
        relays = {f"BEHIND{at}": ports for at, ports in enumerate(self._relays[node].items())}
        own = {"PLAINTEXT": self._ports[node].plain} | {name: port for name, (port, _) in relays.items()}
        told = {"PLAINTEXT": self._ports[node].plain} | {name: port for name, (_, port) in relays.items()}
        voters = [f"{at + 1}@{HOST}:{ports.controller}" for at, ports in enumerate(self._ports)]
        lines = {
            "process.roles": "broker,controller",
            "controller.quorum.voters": ",".join(voters),
            "listeners": _listeners(own | {"CONTROLLER": self._ports[node].controller}),
            "advertised.listeners": _listeners(told),
            "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in (*own, "CONTROLLER")),
        }
        # What stands later in the file wins.
        with path.open("a") as file:
            file.write("".join(f"{name}={value}\n" for name, value in lines.items()))
        return path


def _listeners(ports: Mapping[str, int]) -> str:
    return ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items())
