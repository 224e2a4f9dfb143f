"""`weir admin` as a process of its own, clients for it, and Pulsar's own command line."""

import json
import subprocess
from atexit import register
from collections.abc import Mapping, Sequence
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, Self
from urllib.parse import urlsplit

from process_kit import Command
from stack_kit import run_java

START_LIMIT_S = 30.0
STOP_LIMIT_S = 15.0
ASK_LIMIT_S = 20.0


class Admin:
    """A `weir admin` that is started; a context manager within which it is ready.

    Args:
        bootstrap: the cluster.
        folder: for its ready file, settings and log; one per process.
        prefix: of Weir's topics.
        words: further options.
        kafka: more of section `kafka`.
        module: by which Python finds `weir`.
        settings: section `admin`.
    """

    def __init__(
        self,
        bootstrap: str,
        folder: Path,
        prefix: str,
        *words: str,
        kafka: Mapping[str, Any] | None = None,
        module: Sequence[str] = ("-m", "weir"),
        **settings: Any,
    ) -> None:
        folder.mkdir()
        given = ("--kafka", bootstrap, "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", *words)
        sections: dict[str, Any] = {"kafka": {"topic_prefix": prefix, **(kafka or {})}, "admin": settings}
        self._folder = folder
        self._running = Command(folder / "admin", "admin", *given, module=module, **sections)
        self.ready: dict[str, Any] = {}

    @property
    def url(self) -> str:
        """Where it answers."""
        return str(self.ready["admin"])

    @property
    def log(self) -> str:
        """What it said."""
        return self._running.log.read_text()

    def ask(
        self, method: str, path: str, body: Any = None, token: str | None = None,
        more: Mapping[str, str] | None = None,
    ) -> tuple[int, Any]:  # fmt: skip
        """One request, with more headers; status and body, as JSON where it is."""
        address = urlsplit(self.url)
        connection = HTTPConnection(address.hostname or "", address.port, timeout=ASK_LIMIT_S)
        with closing(connection):
            headers = {"Content-Type": "application/json", **(more or {})}
            headers |= {"Authorization": f"Bearer {token}"} if token else {}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            content = response.read()
            is_json = response.headers.get("content-type") == "application/json"
            return response.status, json.loads(content) if is_json else content.decode()

    def run(self, *words: str) -> str:
        """What `pulsar_admin` says, or that and why it failed."""
        done = pulsar_admin(self._folder, self.url, *words)
        return done.stdout.strip() if done.returncode == 0 else f"failed: {done.stderr}"

    def __enter__(self) -> Self:
        self.ready = self._running.ready(START_LIMIT_S)
        return self

    def __exit__(self, *_: object) -> None:
        with self._running:
            self._running.process.terminate()
            assert self._running.process.wait(STOP_LIMIT_S) == 0, self.log


_TOOLS_CLASSES = Path(mkdtemp(prefix="weir-pulsar-admin-")) / "classes.jsa"
register(rmtree, _TOOLS_CLASSES.parent, ignore_errors=True)


def pulsar_admin(folder: Path, url: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Pulsar's own `pulsar-admin`, run to its end; what the first one loads is archived for the others."""
    config = folder / "client.conf"
    config.touch()
    archived = _TOOLS_CLASSES.exists()
    classes = "-XX:SharedArchiveFile" if archived else "-XX:ArchiveClassesAtExit"
    return run_java(
        "org.apache.pulsar.admin.cli.PulsarAdminTool", str(config), "--admin-url", url, *words,
        heap_mb=128, kind="pulsar", options=(f"{classes}={_TOOLS_CLASSES}", "-Xlog:disable"),
    )  # fmt: skip
