"""Three brokers, each a controller too, of which any may be killed."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from kafka.record import MemoryRecords

from weir.stack.kafka import HOST, LocalKafka, brokers_seen
from weir.stack.process import Child

BROKERS = 3
_REPLICATED = {
    "default.replication.factor": "3", "min.insync.replicas": "2", "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3", "transaction.state.log.min.isr": "2",
}  # fmt: skip


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
            records = MemoryRecords(segment.read_bytes())
            while (batch := records.next_batch()) is not None:
                places = range(batch.base_offset, batch.next_offset)
                found |= dict.fromkeys(places, (batch.producer_id, batch.producer_epoch))
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
