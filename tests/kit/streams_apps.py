"""Applications of Kafka Streams in processes of their own, and what their topics cost."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import AdminClient
from proxy_kit import Decider, until

from weir.jars.folders import ROOT
from weir.jars.java import java_command

STREAMS: Final = "streams43"
_SOURCE: Final = ROOT / "tests" / "kafka" / "StreamsApp.java"
_LIMIT_S: Final = 60.0


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
        settings = {"group.protocol": protocol, "state.dir": str(folder), **more}
        command = java_command(
            str(_SOURCE), bootstrap, name, source, str(stores), str(int(_LIMIT_S)),
            *(f"{key}={value}" for key, value in settings.items()), kind=STREAMS,
            properties=("org.slf4j.simpleLogger.defaultLogLevel=warn",),
        )  # fmt: skip
        with self._log.open("w") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, text=True)

    @property
    def said(self) -> str:
        """All that it has printed."""
        return self._log.read_text()

    def await_running(self) -> None:
        """Wait until it has its tasks."""
        until(lambda: " RUNNING" in self.said, _LIMIT_S, what=f"a running application: {self._log}")

    def stop(self) -> None:
        """As if it were killed."""
        self._process.kill()
        self._process.wait(_LIMIT_S)


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


def charged(decider: Decider, api: str) -> int:
    """Partition mutations that stay charged to an API's requests."""
    total = 0
    for event in list(decider.events):
        items = event.get("items", ())
        if event["type"] == "refund":
            total -= sum(each["mutations"] for each in items)
        elif event["type"] == "request" and event["api"] == api:
            rejected = event.get("decided", {}).get("rejected", ())
            total += sum(each["mutations"] for each in items if each["name"] not in rejected)
    return total
