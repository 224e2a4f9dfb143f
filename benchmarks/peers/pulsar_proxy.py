"""Pulsar's own proxy, at its defaults: what stands before Pulsar brokers otherwise."""

import urllib.request
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from benchmarks.load.pulsar_perf import QUIET, tool_command
from benchmarks.peers.build import listening
from weir.stack.kafka import HOST, free_port
from weir.stack.process import Child
from weir.stack.pulsar import LocalPulsar

START_LIMIT_S: Final = 60.0
_MAIN: Final = "org.apache.pulsar.proxy.server.ProxyServiceStarter"
_ANSWER_LIMIT_S: Final = 5.0


def own_proxy(pulsar: LocalPulsar, folder: Path) -> AbstractContextManager[tuple[int, str]]:
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
        "Pulsar's own proxy", tool_command(_MAIN, folder, "-c", str(conf)), log=folder / "own.log", env=QUIET
    )

    def ask() -> None:
        urllib.request.urlopen(f"http://{HOST}:{web_port}/admin/v2/clusters", timeout=_ANSWER_LIMIT_S).close()

    return listening(child, f"{HOST}:{port}", ask, START_LIMIT_S)
