"""SIGTERM for one of two proxies while clients write: nothing acknowledged is lost; how long it takes.

Measured figures are printed; docs/operate/kubernetes.md has them.
"""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

import pytest
from cluster_kit import Cluster, fresh
from draining_clients import Confluent, Java, Python, Reader, Writer
from exam_kit import Say
from process_kit import Command
from proxy_kit import until
from stack_kit import new_topics
from wire_client import WireClient

from enforcer.core.settings import ProxySettings
from weir.stack.kafka import free_port

pytestmark = pytest.mark.soak
WRITERS: Final[dict[str, type[Writer]]] = {"7": Java, "librdkafka": Confluent, "kafka-python": Python}
"""By the names that their values begin with; Java's tool wants a number."""
IDLE = 200
"""Connections beside, on which nothing happens."""
STEADY_S = 5.0
STOP_MORE_S = 5.0
"""Beside proxy.stop_timeout_ms: what is left to be said to Kafka."""
BACK_S = 20.0
"""After so long without an acknowledgement a client has not found the other proxy."""


class Proxies:
    """Two of one cluster: each at an address of its own, or both behind one, as behind a Service.

    Args:
        cluster: which.
        folder: for their logs and ready files.
        shared: whether behind one.
    """

    def __init__(self, cluster: Cluster, folder: Path, *, shared: bool) -> None:
        self._folder = folder
        self._section = {"topic_prefix": cluster.topics.prefix}
        self._words = ["proxy", "--kafka", cluster.kafka.bootstrap, *(["--worker"] if shared else [])]
        port = free_port()
        self._listen = {name: f"127.0.0.1:{port if shared else free_port()}" for name in ("first", "second")}
        self._running: dict[str, Command] = {}

    @property
    def bootstrap(self) -> str:
        """All their addresses."""
        return ",".join(dict.fromkeys(self._listen.values()))

    def address(self, name: str) -> str:
        """Of one of them."""
        return self._listen[name]

    def start(self, name: str) -> None:
        """Until it is ready."""
        words = (*self._words, "--id", name, "--listen", self._listen[name])
        self._running[name] = Command(self._folder / name, *words, kafka=self._section)
        self._running[name].ready()

    def drain(self, name: str) -> tuple[int, float]:
        """SIGTERM; its exit status, and how long it took, s."""
        began = time.monotonic()
        command = self._running[name]
        command.process.terminate()
        status = command.process.wait(ProxySettings().stop_timeout_ms / 1000 + STOP_MORE_S)
        return status, time.monotonic() - began

    def __enter__(self) -> Self:
        for name in self._listen:
            self.start(name)
        return self

    def __exit__(self, *_: object) -> None:
        for command in self._running.values():
            command.__exit__()


@pytest.mark.parametrize(
    ("shared", "names"),
    [
        pytest.param(True, list(WRITERS), id="one address"),
        # kafka-python asks those brokers only that it was told of: the proxy that is gone.
        pytest.param(False, ["7", "librdkafka"], id="a list"),
    ],
)
def test_proxies_are_restarted_one_by_one(
    cluster: Cluster, tmp_path: Path, say: Say, shared: bool, names: Sequence[str]
) -> None:
    """Each ends in time and with status 0, clients go on at the other, all that was acknowledged is there."""
    topic = fresh("drained")
    new_topics(cluster.kafka.bootstrap, topic, partitions=4)
    with Proxies(cluster, tmp_path, shared=shared) as proxies, ExitStack() as reading:
        reader = reading.enter_context(Reader(proxies.bootstrap, topic))
        with ExitStack() as writing:
            made = [WRITERS[name](name, proxies.bootstrap, topic) for name in names]
            writers = [writing.enter_context(writer) for writer in made]
            until(lambda: all(len(writer.acked) > 50 for writer in writers), 60, "all clients write")
            # At the second turn all clients are where it happens.
            for leaving in ("first", "second"):
                idle = [reading.enter_context(WireClient(proxies.address(leaving))) for _ in range(IDLE)]
                time.sleep(STEADY_S)
                began = time.monotonic()
                status, took = proxies.drain(leaving)
                assert status == 0
                assert shared or all(client.closed_within(1.0) for client in idle)
                waiting = [writer for writer in writers if not writer.goes_on(began + took, BACK_S)]
                assert not waiting, [type(writer).__name__ for writer in waiting]
                say(f"{leaving} of {proxies.bootstrap}: ended after {took:.2f} s")
                for writer in writers:
                    wait = writer.longest_wait(began - 1)
                    say(f"  {type(writer).__name__}: {wait:.2f} s without an answer")
                proxies.start(leaving)
        every = {value for writer in writers for value in writer.acked}
        until(lambda: every <= reader.values, 30, "all that was acknowledged is read")
    say(f"{len(every)} records")
    assert {type(writer).__name__: writer.failed for writer in writers if writer.failed} == {}
