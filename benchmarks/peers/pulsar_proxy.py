"""Pulsar's own proxy, at its defaults: what stands before Pulsar brokers otherwise."""

import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.load.pulsar_perf import QUIET, tool_command
from benchmarks.peers.build import Unavailable
from weir.stack.kafka import HOST, free_port
from weir.stack.process import Child
from weir.stack.pulsar import LocalPulsar

START_LIMIT_S: Final = 60.0
STOP_LIMIT_S: Final = 10.0
_MAIN: Final = "org.apache.pulsar.proxy.server.ProxyServiceStarter"
_ANSWER_LIMIT_S: Final = 5.0
_POLL_S: Final = 0.1


@contextmanager
def own_proxy(pulsar: LocalPulsar, folder: Path) -> Iterator[tuple[int, str]]:
    """Run it in front of a local Pulsar.

    Args:
        pulsar: runs.
        folder: for its configuration and log.

    Returns:
        Its process id, and HOST:PORT for clients.

    Raises:
        Unavailable: it ended at its start, or did not answer in time.
    """
    port, web_port = free_port(), free_port()
    lines = {
        "clusterName": "standalone",
        "brokerServiceURL": f"pulsar://{pulsar.service}",
        "brokerWebServiceURL": pulsar.admin,
        "servicePort": port,
        "webServicePort": web_port,
        "bindAddress": HOST,
        "advertisedAddress": HOST,
        # By default it connects to brokers on 6650 and 6651 only.
        "brokerProxyAllowedTargetPorts": "*",
    }
    conf = folder / "proxy.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    child = Child(
        "own proxy", tool_command(_MAIN, folder, "-c", str(conf)), log=folder / "own.log", env=QUIET
    )
    child.start()
    try:
        _wait(child, f"http://{HOST}:{web_port}/admin/v2/clusters")
        yield child.pid, f"{HOST}:{port}"
    finally:
        child.stop(STOP_LIMIT_S)


def _wait(child: Child, url: str) -> None:
    until = time.monotonic() + START_LIMIT_S
    while child.alive() and time.monotonic() < until:
        try:
            with urllib.request.urlopen(url, timeout=_ANSWER_LIMIT_S) as answer:
                if answer.status == 200:
                    return
        except OSError:
            pass
        time.sleep(_POLL_S)
    raise Unavailable("Pulsar's own proxy did not start: " + " | ".join(child.last_lines(5)))
