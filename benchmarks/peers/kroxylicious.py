"""Kroxylicious, a Kafka proxy in Java, without filters: what a proxy costs that only passes on."""

import shutil
import socket
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import yaml

from benchmarks.kit.sides import Tls
from benchmarks.peers.build import FOLDER, Unavailable, listening
from streaming.contract.errors import WeirError
from streaming.job.spark.java import find_java
from weir.stack.kafka import HOST, free_port
from weir.stack.process import Child

VERSION: Final = "0.12.0"
HEAP_MB: Final = 512
_POM: Final = Path(__file__).with_name("kroxylicious_jars")
_SOURCE: Final = Path(__file__).resolve().parent / "Kroxylicious.java"
_JARS: Final = FOLDER / "kroxylicious"
_CLASSES: Final = FOLDER / "kroxylicious-classes"
_FETCH_LIMIT_S: Final = 300.0
_COMPILE_LIMIT_S: Final = 60.0
_BROKER_PORTS: Final = 3
"""Ports behind its bootstrap port that it takes too, whether there are so many brokers or not."""


def built() -> bool:
    """Whether its jars are here and our main class is compiled."""
    made = _CLASSES / "Kroxylicious.class"
    return (_JARS / ".fetched").exists() and made.exists() and _SOURCE.stat().st_mtime <= made.stat().st_mtime


def build() -> None:
    """Fetch its jars, those pinned in kroxylicious_jars only, and compile our main class.

    Raises:
        Unavailable: that cannot be done here; with the reason.
    """
    if built():
        return
    compiler = shutil.which("javac")
    if compiler is None:
        raise Unavailable("kroxylicious: there is no javac command")
    FOLDER.mkdir(parents=True, exist_ok=True)
    _run([sys.executable, "-m", "weir.jars", "fetch", str(_POM), str(_JARS)], _FETCH_LIMIT_S)
    _run([compiler, "-cp", f"{_JARS}/*", "-d", str(_CLASSES), str(_SOURCE)], _COMPILE_LIMIT_S)


def kroxylicious(kafka: str, folder: Path, tls: Tls | None = None) -> AbstractContextManager[tuple[int, str]]:
    """Run it in front of a cluster.

    Args:
        kafka: HOST:PORT of the cluster.
        folder: for its configuration and log.
        tls: to clients and to the cluster.

    Returns:
        Its process id, and HOST:PORT for clients.

    Raises:
        Unavailable: it ended at its start, or did not listen in time.
    """
    listen = f"{HOST}:{_free_block()}"
    gateway: dict[str, Any] = {"name": "default", "portIdentifiesNode": {"bootstrapAddress": listen}}
    target: dict[str, Any] = {"bootstrapServers": kafka}
    if tls is not None:
        gateway["tls"] = {"key": {"privateKeyFile": tls.key, "certificateFile": tls.certificate}}
        target["tls"] = {"trust": {"storeFile": tls.ca, "storeType": "PEM"}}
    cluster = {"name": "bench", "targetCluster": target, "gateways": [gateway]}
    configuration = folder / "kroxylicious.yaml"
    configuration.write_text(yaml.safe_dump({"virtualClusters": [cluster]}))
    try:
        java = str(find_java() / "bin" / "java")
        command = [java, f"-Xmx{HEAP_MB}m", "-cp", f"{_CLASSES}:{_JARS}/*", "Kroxylicious"]
    except WeirError as error:
        raise Unavailable(f"kroxylicious: {error}") from error
    child = Child("kroxylicious", [*command, str(configuration)], log=folder / "kroxylicious.log")
    return listening(child, listen)


def _free_block() -> int:
    """A free port with free ones behind it: without them it listens for a moment, and ends."""
    while True:
        port = free_port()
        try:
            for number in range(port, port + _BROKER_PORTS + 1):
                with socket.socket() as each:
                    each.bind((HOST, number))
        except (OSError, OverflowError):
            continue
        return port


def _run(command: list[str], limit_s: float) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"kroxylicious: {error}") from error
    if done.returncode:
        raise Unavailable(f"kroxylicious: {(done.stderr or done.stdout).strip()[-300:]}")
