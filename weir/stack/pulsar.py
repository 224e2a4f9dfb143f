"""A real Pulsar on this machine: broker, storage and metadata in one child process (`weir pulsar`)."""

import json
import tempfile
from collections.abc import Callable, Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Final
from urllib.request import Request

from streaming.contract.errors import WeirError
from streaming.job.spark.class_archive import archiving, forget, keep, shared_classes
from weir.jars.folders import PULSAR, jars_dir
from weir.jars.installation import fetch_jars
from weir.jars.java import java_command
from weir.jars.wait import Wait, never
from weir.stack.kafka import HOST, free_port
from weir.stack.process import Child
from weir.stack.server import LocalServer

HEAP_MB: Final = 1024
KEPT: Final = ("bookkeeper", "metadata", "standalone.conf", "log4j2.properties", "pulsar")
"""What stands in the data folder, by how the names begin."""
_ANSWER_LIMIT_S: Final = 10.0
_ARCHIVED: Final = ".archived"
_ARCHIVE_LIMIT_S: Final = 120.0
"""For it to end when it writes the archive of its classes, which takes as long as a start."""
_NAMESPACES: Final = "/admin/v2/namespaces/public"
_HEALTH: Final = "/admin/v2/brokers/health"
_MAIN: Final = "org.apache.pulsar.PulsarStandaloneStarter"
# Alone on a loopback address: one copy of everything, nothing to balance, no waiting for the disk.
_SMALL: Final = {
    "clusterName": "standalone",
    "bindAddress": HOST,
    "advertisedAddress": HOST,
    "managedLedgerDefaultEnsembleSize": "1",
    "managedLedgerDefaultWriteQuorum": "1",
    "managedLedgerDefaultAckQuorum": "1",
    "allowLoopback": "true",
    # Its storage would listen on all addresses.
    "listeningInterface": "lo",
    "journalSyncData": "false",
    # As large as what brokers take of clients, and some: else a largest message is never stored.
    "nettyMaxFrameSizeBytes": "5253120",
    "loadBalancerEnabled": "false",
    # Of a stop, a quarter is spent waiting for connections that nobody opens any more.
    "brokerShutdownTimeoutMs": "5000",
}
_LOGGING: Final = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss.SSS} [%t] %-5level %c{1} - %msg%n
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
logger.requests.name = org.eclipse.jetty.server.RequestLog
logger.requests.level = ${sys:weir.requests:-warn}
"""
# What Pulsar's own start script opens to it.
_OPTIONS: Final = (
    "-XX:MaxDirectMemorySize=1g",
    *(
        part
        for name in (
            "java.base/java.nio", "java.base/jdk.internal.misc", "java.base/jdk.internal.platform",
            "java.base/sun.net", "java.base/java.util.zip", "java.management/sun.management",
        )
        for part in ("--add-opens", f"{name}=ALL-UNNAMED")
    ),
)  # fmt: skip


class LocalPulsar(LocalServer):
    """One standalone Pulsar; it is ready when it has stored and delivered a message of its own.

    Args:
        data_dir: see LocalServer.
        port: of the binary protocol, 0 = any free one.
        admin_port: of the admin API, 0 = any free one.
        properties: further broker settings, winning over ours.
        token: sent as bearer with the questions whether it is ready, for brokers with authentication.
        heap_mb: limit of its heap, MiB; its direct memory may be 1 GiB besides.
        options: further options of its JVM.

    Attributes:
        service: `HOST:PORT` of the binary protocol.
        admin: URL of the admin API, without a slash at its end.
        log: what it says.
    """

    name = "Pulsar"
    start_limit_s, stop_limit_s = 120.0, 15.0

    def __init__(
        self, data_dir: Path | str, *, port: int = 0, admin_port: int = 0,
        properties: Mapping[str, str] | None = None, token: str = "", heap_mb: int = HEAP_MB,
        options: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        super().__init__(Path(data_dir).absolute())
        self._port, self._admin_port = port or free_port(), admin_port or free_port()
        self.service, self.admin = f"{HOST}:{self._port}", f"http://{HOST}:{self._admin_port}"
        self.log = self.data_dir / "pulsar.log"
        self._properties = dict(properties or {})
        self._token = token
        self._heap_mb = heap_mb
        self._options = options

    def _begin(self) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        lines = {
            "brokerServicePort": str(self._port),
            "webServicePort": str(self._admin_port),
            **_SMALL,
            **self._properties,
        }
        conf, logging = self.data_dir / "standalone.conf", self.data_dir / "log4j2.properties"
        conf.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        logging.write_text(_LOGGING)
        command = java_command(
            _MAIN, "-c", str(conf), "-nfw", "-nss", "-a", HOST,
            "--metadata-dir", str(self.data_dir / "metadata"),
            "--bookkeeper-dir", str(self.data_dir / "bookkeeper"),
            heap_mb=self._heap_mb, properties=(f"log4j2.configurationFile={logging}",), kind=PULSAR,
            options=(*_OPTIONS, *self._options),
        )  # fmt: skip
        child = Child("pulsar", command, log=self.log, env={"OTEL_SDK_DISABLED": "true"})
        child.start()
        self.children = [child]

    def unready(self) -> str:
        why = f"pulsar is not ready on {self.service} and {self.admin}; see {self.log}"
        return "" if self._ready() else why

    def _ready(self) -> bool:
        """Whether the namespace of short topic names is there, which is made last, and messages pass."""
        try:
            namespaces = json.loads(self._get(_NAMESPACES))
            return "public/default" in namespaces and self._get(_HEALTH).strip() == b"ok"
        except (OSError, ValueError, HTTPException):
            return False

    def _get(self, path: str) -> bytes:
        # Here and not above: `weir --help` must not load an HTTP client.
        from weir.stack.scrape import OPENER

        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        request = Request(f"{self.admin}{path}", headers=headers)
        with OPENER.open(request, timeout=_ANSWER_LIMIT_S) as answer:
            body: bytes = answer.read()
        return body


def prepare(say: Callable[[str], None], stopping: Callable[[], bool] = never) -> None:
    """Fetch Pulsar's jars and archive their classes, unless both has been done.

    Args:
        say: takes lines for people.
        stopping: asked while waiting; True gives up.

    Raises:
        WeirError: the jars could not be fetched, or it was stopped.
    """
    fetch_jars(PULSAR, say, stopping)
    stamp = jars_dir(PULSAR) / _ARCHIVED
    # Set-up leaves an archive, and no stamp.
    if not stamp.exists() and not shared_classes(stamp.parent):
        archive_classes(say, stopping)
        stamp.touch()


def archive_classes(say: Callable[[str], None], stopping: Callable[[], bool]) -> bool:
    """Run a Pulsar once and archive the classes that it has loaded; arguments as of `prepare`.

    Returns:
        True: something was done.

    Raises:
        WeirError: it was stopped. Without an archive it only starts slower, which is said.
    """
    say("archiving the classes of Pulsar (half a minute)")
    jars = jars_dir(PULSAR)
    try:
        forget(jars)
        with tempfile.TemporaryDirectory() as folder:
            pulsar = LocalPulsar(folder, options=tuple(archiving(jars)))
            pulsar.start(stopping=stopping)
            try:
                pulsar.terminate()
                end = Wait("classes of Pulsar", say, stopping, "archiving")
                end.until(lambda: not any(child.alive() for child in pulsar.children), _ARCHIVE_LIMIT_S)
            finally:
                pulsar.stop(0.0)
        if not keep(jars):
            raise WeirError(f"Java wrote none for {jars}")
    except (OSError, WeirError) as error:
        if stopping():
            raise
        say(f"going on without an archive, starts take half as long again: {error}")
    return True
