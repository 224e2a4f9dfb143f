"""A real Kafka on this machine: KRaft brokers from the jars as child processes (`weir kafka`)."""

import json
import re
import socket
import struct
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from enforcer.host.doors.listening import listen_at
from streaming.contract.errors import WeirError
from streaming.contract.topics import address_text
from weir.foreground import write_ready_file
from weir.jars.folders import KAFKA
from weir.jars.java import java_command
from weir.stack.process import Child
from weir.stack.server import LocalServer

HOST = "127.0.0.1"
_EVERYWHERE = ("0.0.0.0", "::")
FORMAT_LIMIT_S = 60.0
_LOGGING = (
    "org.slf4j.simpleLogger.defaultLogLevel=info",
    "org.slf4j.simpleLogger.showDateTime=true",
    "org.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS",
)
KEPT = ("cluster.json", "broker-", "kafka")
"""What stands in the data folder, by how the names begin."""
# Everything that would wait for other brokers, or make files for them, at its smallest.
_SMALL = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "log.cleaner.dedupe.buffer.size": "8388608",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sasl:
    """Users of the extra SASL_PLAINTEXT listener, name -> password.

    Attributes:
        plain: users who log in with PLAIN.
        scram: users who log in with SCRAM-SHA-256 or SCRAM-SHA-512.
    """

    plain: Mapping[str, str] = field(default_factory=dict)
    scram: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ports:
    plain: int
    controller: int
    sasl: int


def free_port() -> int:
    """A TCP port on the loopback address that nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def port_is_free(port: int, host: str = HOST) -> bool:
    """True if a server could listen there now (0 is always free)."""
    try:
        listen_at((host, port)).close()
    except WeirError:
        return False
    return True


def port_for(wanted: int, what: str, say: Callable[[str], None]) -> int:
    """The wanted port, or 0 for any free one if it is taken, which is said of `what`."""
    if port_is_free(wanted):
        return wanted
    say(f"port {wanted} is taken; {what} gets another one")
    return 0


def brokers_seen(port: int, timeout_s: float = 2.0, host: str = HOST, cluster_id: str = "") -> int:
    """How many brokers the one there lists, 0 if it does not answer yet, or is of another cluster than this.

    Asks with Metadata version 2 by hand: an open port alone says nothing yet, a listed broker can
    take topics.
    """
    request = struct.pack(">hhihi", 3, 2, 1, -1, 0)
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            answer = connection.makefile("rb")
            size, _, brokers = struct.unpack(">iii", answer.read(12))
            ours = not cluster_id or cluster_id.encode() in answer.read(size - 8)
    except (OSError, struct.error):
        return 0
    return int(brokers) if ours else 0


class LocalKafka(LocalServer):
    """One Kafka cluster; broker 1 is also the controller.

    Args:
        data_dir: see LocalServer.
        port: port of the first broker's plain listener, 0 = any free one.
        listen: address of the clients' listeners; 0.0.0.0 lets other machines in.
        advertise: host that clients are told; None: that one, or the loopback address if it is all of them.
        brokers: how many.
        sasl: opens a second listener with these users.
        behind: ports of further plain ones, of the only broker -> the port that clients of each are told: of
            what stands before it.
        auto_create_topics: the brokers' auto.create.topics.enable.
        properties: further broker properties, winning over ours.
        options: further options of the brokers' JVM.
        kind: whose jars, as of `jars_dir`.
    """

    name = "Kafka"
    start_limit_s, stop_limit_s = 90.0, 10.0

    def __init__(
        self,
        data_dir: Path | str,
        *,
        port: int = 0,
        listen: str = HOST,
        advertise: str | None = None,
        brokers: int = 1,
        sasl: Sasl | None = None,
        behind: Mapping[int, int] | None = None,
        auto_create_topics: bool = False,
        properties: Mapping[str, str] | None = None,
        options: tuple[str, ...] = (),
        kind: str = KAFKA,
    ) -> None:
        super().__init__(Path(data_dir))
        self._listen, self._host = listen, HOST if listen in _EVERYWHERE else listen
        self._advertise = advertise or self._host
        self._options = options
        self._kind = kind
        self._sasl = sasl
        self._behind = {f"BEHIND{at}": ports for at, ports in enumerate((behind or {}).items())}
        self._properties = {
            "auto.create.topics.enable": str(auto_create_topics).lower(),
            **(properties or {}),
        }
        self._ports = [
            _Ports(
                plain=port if node == 0 and port else free_port(), controller=free_port(), sasl=free_port()
            )
            for node in range(brokers)
        ]

    @property
    def bootstrap(self) -> str:
        """`HOST:PORT` of every broker's plain listener, comma-separated."""
        return ",".join(address_text(self._host, ports.plain) for ports in self._ports)

    @property
    def sasl_bootstrap(self) -> str:
        """`HOST:PORT` of every broker's SASL listener, comma-separated."""
        return ",".join(address_text(self._host, ports.sasl) for ports in self._ports)

    def _begin(self) -> None:
        cluster_id = self.cluster_id()
        for node in range(len(self._ports)):
            self._format(node, self._write_properties(node), cluster_id)
            self.children.append(self._spawn(node))

    def unready(self) -> str:
        # Two who start at once may have drawn the same port, and the other one's broker answers there.
        cluster_id = self.cluster_id()
        for child, ports in zip(self.children, self._ports, strict=True):
            if brokers_seen(ports.plain, host=self._host, cluster_id=cluster_id) < len(self._ports):
                where = address_text(self._host, ports.plain)
                return f"{child.name} does not answer on {where}; see {child.log}"
        return ""

    def cluster_id(self) -> str:
        """The id that it has, or will be given by its first start."""
        note = self.data_dir / "cluster.json"
        if note.exists():
            return str(json.loads(note.read_text())["cluster_id"])
        written = self._node_dir(0) / "log" / "meta.properties"
        # The note was lost, and the broker goes on by its own.
        if written.exists() and (found := re.search(r"^cluster\.id=(.+)$", written.read_text(), re.M)):
            return found[1]
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # Kafka's command line takes a leading dash for an option.
        cluster_id = "W" + cluster_id[1:] if cluster_id.startswith("-") else cluster_id
        write_ready_file(note, {"cluster_id": cluster_id})
        return cluster_id

    def _node_dir(self, node: int) -> Path:
        return self.data_dir / f"broker-{node + 1}"

    def _write_properties(self, node: int) -> Path:
        ports, first = self._ports[node], node == 0
        named = {"PLAINTEXT": ports.plain, **({"SASL": ports.sasl} if self._sasl else {})}
        own = named | {name: port for name, (port, _) in self._behind.items()}
        told = named | {name: port for name, (_, port) in self._behind.items()}
        listeners = [f"{name}://{self._listen}:{port}" for name, port in own.items()]
        controller = [f"CONTROLLER://{HOST}:{ports.controller}"] if first else []
        lines = {
            "process.roles": "broker,controller" if first else "broker",
            "node.id": str(node + 1),
            "controller.quorum.voters": f"1@{HOST}:{self._ports[0].controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join(listeners + controller),
            "advertised.listeners": ",".join(
                f"{name}://{self._advertise}:{port}" for name, port in told.items()
            ),
            "listener.security.protocol.map": "SASL:SASL_PLAINTEXT,"
            + ",".join(f"{name}:PLAINTEXT" for name in ("PLAINTEXT", "CONTROLLER", *self._behind)),
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str((self._node_dir(node) / "log").absolute()),
            **_SMALL,
            **(_sasl_properties(self._sasl) if self._sasl else {}),
            **self._properties,
        }
        path = self._node_dir(node) / "server.properties"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        return path

    def _format(self, node: int, properties: Path, cluster_id: str) -> None:
        if (self._node_dir(node) / "log" / "meta.properties").exists():
            return
        scram = self._sasl.scram if self._sasl else {}
        users = [
            part
            for name, password in scram.items()
            for kind in ("SCRAM-SHA-256", "SCRAM-SHA-512")
            for part in ("--add-scram", f"{kind}=[name={name},password={password}]")
        ]
        command = java_command(
            "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(properties), *users,
            properties=("org.slf4j.simpleLogger.defaultLogLevel=warn",), kind=self._kind,
        )  # fmt: skip
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=FORMAT_LIMIT_S, check=False
            )
        except subprocess.TimeoutExpired as late:
            raise WeirError(f"formatting {self.data_dir} took longer than {FORMAT_LIMIT_S:.0f} s") from late
        if done.returncode:
            raise WeirError(f"kafka could not format {self.data_dir}: {(done.stderr or done.stdout).strip()}")

    def _spawn(self, node: int) -> Child:
        properties = str(self._node_dir(node) / "server.properties")
        name = "kafka" if len(self._ports) == 1 else f"kafka-{node + 1}"
        command = java_command(
            "kafka.Kafka", properties, properties=_LOGGING, options=self._options, kind=self._kind
        )
        child = Child(name, command, log=self.data_dir / f"{name}.log")
        child.start()
        return child


def _sasl_properties(sasl: Sasl) -> dict[str, str]:
    plain = "".join(f' user_{name}="{password}"' for name, password in sasl.plain.items())
    login = "org.apache.kafka.common.security"
    return {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl.plain.sasl.jaas.config": f"{login}.plain.PlainLoginModule required{plain};",
        "listener.name.sasl.scram-sha-256.sasl.jaas.config": f"{login}.scram.ScramLoginModule required;",
        "listener.name.sasl.scram-sha-512.sasl.jaas.config": f"{login}.scram.ScramLoginModule required;",
    }
