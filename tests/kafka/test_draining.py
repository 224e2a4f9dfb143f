"""SIGTERM for one of two proxies while clients write: nothing acknowledged is lost; how long it takes.

Measured figures are printed; docs/operate/kubernetes.md has them.
"""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import yaml
from cluster_kit import Cluster, fresh
from confluent_kafka.admin import AdminClient, NewTopic
from draining_clients import Confluent, Java, Python, Reader, Writer
from exam_kit import said
from proxy_kit import until

from enforcer.core.settings import ProxySettings
from weir.stack.kafka import free_port

pytestmark = pytest.mark.soak
WRITERS = {"7": Java, "librdkafka": Confluent, "kafka-python": Python}
"""By the names that their values begin with; Java's tool wants a number."""
STEADY_S = 5.0
STOP_MORE_S = 5.0
"""Beside proxy.stop_timeout_ms: what is left to be said to Kafka."""
BACK_S = 15.0
"""After so long without an acknowledgement a client has not found the other proxy."""


@contextmanager
def two_proxies(
    cluster: Cluster, folder: Path, *, shared: bool
) -> Iterator[list[tuple[subprocess.Popen[bytes], str]]]:
    """Two of one cluster, ready: each at an address of its own, or both behind one, as behind a Service."""
    settings = folder / "weir.yaml"
    settings.write_text(yaml.safe_dump({"kafka": {"topic_prefix": cluster.topics.prefix}}))
    # A port with free ones behind it, for the brokers.
    one_port = free_port()
    with ExitStack() as running:
        started = []
        for name in ("first", "second"):
            port = one_port if shared else free_port()
            ready = folder / f"{name}.json"
            words = ["--kafka", cluster.kafka.bootstrap, "--settings", str(settings), "--id", name]
            words += [
                "--listen",
                f"127.0.0.1:{port}",
                "--ready-file",
                str(ready),
                *(["--worker"] if shared else []),
            ]
            log = running.enter_context((folder / f"{name}.log").open("wb"))
            process = subprocess.Popen(
                [sys.executable, "-m", "weir", "proxy", *words], stdout=log, stderr=log
            )
            running.callback(process.wait, 5)
            running.callback(process.kill)
            started.append((process, ready))
        for _, ready in started:
            until(ready.exists, 60, "a proxy is ready")
        yield [(process, str(json.loads(ready.read_text())["listen"])) for process, ready in started]


@pytest.mark.parametrize("shared", [True, False], ids=["one address", "a list"])
def test_a_proxy_drains(cluster: Cluster, tmp_path: Path, pytestconfig: pytest.Config, shared: bool) -> None:
    """It ends in time and with status 0; all clients go on at the other; what was acknowledged is there."""
    topic = fresh("drained")
    admin = AdminClient({"bootstrap.servers": cluster.kafka.bootstrap})
    admin.create_topics([NewTopic(topic, 4, 1)])[topic].result(20)
    with two_proxies(cluster, tmp_path, shared=shared) as proxies, ExitStack() as running:
        (leaving, _), _ = proxies
        # Clients begin at the one that leaves, if it has an address of its own.
        bootstrap = ",".join(dict.fromkeys(listen for _, listen in proxies))
        reader = running.enter_context(Reader(bootstrap, topic))
        with ExitStack() as writing:
            writers = [writing.enter_context(kind(name, bootstrap, topic)) for name, kind in WRITERS.items()]
            until(lambda: all(len(writer.acked) > 50 for writer in writers), 60, "all clients write")
            time.sleep(STEADY_S)
            began = time.monotonic()
            leaving.send_signal(signal.SIGTERM)
            status = leaving.wait(ProxySettings().stop_timeout_ms / 1000 + STOP_MORE_S)
            took = time.monotonic() - began
            until(
                lambda: all(went_on(writer, began + took) for writer in writers), BACK_S, "all clients go on"
            )
            time.sleep(STEADY_S)
        every = {value for writer in writers for value in writer.acked}
        until(lambda: every <= reader.values, 30, "all that was acknowledged is read")
    said(
        pytestconfig,
        f"{'one address' if shared else 'a list'}: it ended after {took:.2f} s; {len(every)} records",
    )
    for writer in writers:
        wait = writer.longest_wait(began - 1)
        said(
            pytestconfig,
            f"  {type(writer).__name__}: {wait:.2f} s without an answer, {len(writer.failed)} given up",
        )
    assert status == 0
    assert not any(writer.failed for writer in writers)


def went_on(writer: Writer, since: float) -> bool:
    """Whether something was acknowledged well after that."""
    return any(at > since + 1 for at in list(writer.acked.values()))
