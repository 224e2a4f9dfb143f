"""A real Kafka on this machine: KRaft brokers from the jars as child processes (`weir kafka`)."""

import json
import socket
import struct
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from streaming.contract.errors import WeirError
from weir.jars.java import java_command
from weir.stack.process import Child

HOST = "127.0.0.1"
START_LIMIT_S = 90.0
FORMAT_LIMIT_S = 60.0
STOP_LIMIT_S = 10.0
_POLL_S = 0.1
_LOGGING = (
    "org.slf4j.simpleLogger.defaultLogLevel=info",
    "org.slf4j.simpleLogger.showDateTime=true",
    "org.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
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
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        # As servers do, or a connection that has just ended would count as taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def brokers_seen(port: int, timeout_s: float = 2.0) -> int:
    """How many brokers the one at `port` lists, 0 if it does not answer yet.

    Asks with Metadata version 1 by hand: an open port alone says nothing yet, a listed broker can
    take topics.
    """
    request = struct.pack(">hhihi", 3, 1, 1, -1, 0)
    try:
        with socket.create_connection((HOST, port), timeout=timeout_s) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            answer = connection.makefile("rb").read(12)
    except OSError:
        return 0
    return int(struct.unpack(">iii", answer)[2]) if len(answer) == 12 else 0


class LocalKafka:
    """One Kafka cluster of child processes; a context manager.

    Broker 1 is also the controller. Ports stay the same when it is stopped and started again.

    Args:
        data_dir: logs, metadata and the brokers' output; used again if it holds a cluster.
        port: port of the first broker's plain listener, 0 = any free one.
        listen: address of the clients' listeners; 0.0.0.0 lets other machines in.
        advertise: host that clients are told; None: the loopback address.
        brokers: how many.
        sasl: opens a second listener with these users.
        auto_create_topics: the brokers' auto.create.topics.enable.
        properties: further broker properties, winning over ours.
        options: further options of the brokers' JVM.
    """

    def __init__(
        self,
        data_dir: Path | str,
        *,
        port: int = 0,
        listen: str = HOST,
        advertise: str | None = None,
        brokers: int = 1,
        sasl: Sasl | None = None,
        auto_create_topics: bool = False,
        properties: Mapping[str, str] | None = None,
        options: tuple[str, ...] = (),
    ) -> None:
        self._dir = Path(data_dir)
        self._listen, self._advertise = listen, advertise or HOST
        self._options = options
        self._sasl = sasl
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
        self._children: list[Child] = []

    @property
    def bootstrap(self) -> str:
        """`HOST:PORT` of every broker's plain listener, comma-separated."""
        return ",".join(f"{HOST}:{ports.plain}" for ports in self._ports)

    @property
    def sasl_bootstrap(self) -> str:
        """`HOST:PORT` of every broker's SASL listener, comma-separated."""
        return ",".join(f"{HOST}:{ports.sasl}" for ports in self._ports)

    @property
    def data_dir(self) -> Path:
        """Folder of logs, metadata and the brokers' output."""
        return self._dir

    @property
    def pids(self) -> list[int]:
        """Process ids, in the order of the brokers."""
        return [child.pid for child in self._children]

    @property
    def children(self) -> list[Child]:
        """The brokers' processes."""
        return list(self._children)

    def start(self, limit_s: float = START_LIMIT_S, stopping: Callable[[], bool] = lambda: False) -> None:
        """Format the data folder if it is new, start the brokers and wait until all are registered.

        Args:
            limit_s: for all of it.
            stopping: asked while waiting; True gives up.

        Raises:
            WeirError: a broker ended or did not answer within `limit_s`; with its last log lines.
        """
        deadline = time.monotonic() + limit_s
        self._children = []
        cluster_id = self._cluster_id()
        try:
            for node in range(len(self._ports)):
                self._format(node, self._write_properties(node), cluster_id)
                self._children.append(self._spawn(node))
            self._wait_ready(deadline, stopping)
        except BaseException:
            self.stop(0.0)
            raise

    def stop(self, term_s: float = STOP_LIMIT_S) -> None:
        """Stop all brokers: TERM, then KILL to those that still run after `term_s`."""
        for child in self._children:
            child.terminate()
        deadline = time.monotonic() + term_s
        # The brokers before the controller: without it they would wait for it in vain.
        for child in reversed(self._children):
            child.stop(deadline - time.monotonic())

    def kill(self, broker: int = 0) -> None:
        """kill -9 one broker, numbered from 0."""
        self._children[broker].kill()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _cluster_id(self) -> str:
        note = self._dir / "cluster.json"
        if note.exists():
            return str(json.loads(note.read_text())["cluster_id"])
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # Kafka's command line takes a leading dash for an option.
        cluster_id = "W" + cluster_id[1:] if cluster_id.startswith("-") else cluster_id
        self._dir.mkdir(parents=True, exist_ok=True)
        note.write_text(json.dumps({"cluster_id": cluster_id}))
        return cluster_id

    def _node_dir(self, node: int) -> Path:
        return self._dir / f"broker-{node + 1}"

    def _write_properties(self, node: int) -> Path:
        ports, first = self._ports[node], node == 0
        named = {"PLAINTEXT": ports.plain, **({"SASL": ports.sasl} if self._sasl else {})}
        listeners = [f"{name}://{self._listen}:{port}" for name, port in named.items()]
        controller = [f"CONTROLLER://{HOST}:{ports.controller}"] if first else []
        lines = {
            "process.roles": "broker,controller" if first else "broker",
            "node.id": str(node + 1),
            "controller.quorum.voters": f"1@{HOST}:{self._ports[0].controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join(listeners + controller),
            "advertised.listeners": ",".join(
                f"{name}://{self._advertise}:{port}" for name, port in named.items()
            ),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT",
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
            properties=("org.slf4j.simpleLogger.defaultLogLevel=warn",),
        )  # fmt: skip
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=FORMAT_LIMIT_S, check=False
            )
        except subprocess.TimeoutExpired as late:
            raise WeirError(f"formatting {self._dir} took longer than {FORMAT_LIMIT_S:.0f} s") from late
        if done.returncode:
            raise WeirError(f"kafka could not format {self._dir}: {(done.stderr or done.stdout).strip()}")

    def _spawn(self, node: int) -> Child:
        properties = str(self._node_dir(node) / "server.properties")
        name = "kafka" if len(self._ports) == 1 else f"kafka-{node + 1}"
        command = java_command("kafka.Kafka", properties, properties=_LOGGING, options=self._options)
        child = Child(name, command, log=self._dir / f"{name}.log")
        child.start()
        return child

    def _wait_ready(self, deadline: float, stopping: Callable[[], bool]) -> None:
        for child, ports in zip(self._children, self._ports, strict=True):
            while brokers_seen(ports.plain) < len(self._ports):
                self._check_alive()
                if stopping():
                    raise WeirError("stopped while Kafka was starting")
                if time.monotonic() > deadline:
                    raise WeirError(f"{child.name} does not answer on {HOST}:{ports.plain}; see {child.log}")
                time.sleep(_POLL_S)
        self._check_alive()

    def _check_alive(self) -> None:
        # Every broker, not only the one waited for: a foreign listener on the port answers too.
        for child in self._children:
            if not child.alive():
                raise WeirError(
                    f"{child.name} ended with status {child.poll()}: " + " | ".join(child.last_lines(5))
                )


def _sasl_properties(sasl: Sasl) -> dict[str, str]:
    plain = "".join(f' user_{name}="{password}"' for name, password in sasl.plain.items())
    login = "org.apache.kafka.common.security"
    return {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl.plain.sasl.jaas.config": f"{login}.plain.PlainLoginModule required{plain};",
        "listener.name.sasl.scram-sha-256.sasl.jaas.config": f"{login}.scram.ScramLoginModule required;",
        "listener.name.sasl.scram-sha-512.sasl.jaas.config": f"{login}.scram.ScramLoginModule required;",
    }
