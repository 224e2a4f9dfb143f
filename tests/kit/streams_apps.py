"""Applications of Kafka Streams in processes of their own, and what their topics cost."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import AdminClient
from proxy_kit import until

from weir.jars.folders import ROOT
from weir.jars.java import java_command

STREAMS: Final = "streams43"
_SOURCE: Final = ROOT / "tests" / "kafka" / "StreamsApp.java"
_LIMIT_S: Final = 60.0
# Under the classic protocol an application does not leave its group when it ends.
_SETTINGS: Final = {"classic": {"session.timeout.ms": "6000", "heartbeat.interval.ms": "500"}, "streams": {}}


class App:
    """One that runs.

    Args:
        bootstrap: where it connects to.
        name: of the application, and its group.
        source: the topic that it reads.
        protocol: classic or streams.
        stores: how many it counts in, each behind a repartition topic.
        folder: takes its state, and what it says.
        more: settings.
    """

    def __init__(
        self, bootstrap: str, name: str, source: str, protocol: str, stores: int, folder: Path, **more: str
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._log = folder / "log"
        settings = {"group.protocol": protocol, "state.dir": str(folder), **_SETTINGS[protocol], **more}
        command = java_command(
            str(_SOURCE), bootstrap, name, source, str(stores),
            *(f"{key}={value}" for key, value in settings.items()), kind=STREAMS,
            properties=("org.slf4j.simpleLogger.defaultLogLevel=warn",),
        )  # fmt: skip
        with self._log.open("w") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)

    @property
    def said(self) -> str:
        """All that it has printed."""
        return self._log.read_text()

    def await_running(self) -> None:
        """Wait until it has its tasks."""
        until(lambda: " RUNNING" in self.said, _LIMIT_S, what=f"a running application: {self._log}")

    def stop(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_LIMIT_S)
        finally:
            self._process.kill()


@contextmanager
def running(*args: Any, **more: str) -> Iterator[App]:
    """An application until the end of the block; see App."""
    app = App(*args, **more)
    try:
        yield app
    finally:
        app.stop()


def internal(bootstrap: str, name: str) -> dict[str, int]:
    """The internal topics of an application, with their partitions."""
    listed = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=_LIMIT_S).topics
    return {
        topic.removeprefix(f"{name}-"): len(its.partitions)
        for topic, its in listed.items()
        if topic.startswith(f"{name}-")
    }
