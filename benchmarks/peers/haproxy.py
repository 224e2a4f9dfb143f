"""HAProxy in TCP mode, which reads nothing of what passes: what any proxy must cost."""

import re
import shutil
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from benchmarks.peers.build import Unavailable, listening
from weir.stack.kafka import HOST
from weir.stack.process import Child

_COMMAND: Final = "haproxy"
_VERSION_LIMIT_S: Final = 10.0
_CONFIGURATION: Final = """\
defaults
    mode tcp
    option splice-auto
    timeout connect 5s
    timeout client 60s
    timeout server 60s
listen kafka
    bind {listen}
    server broker {kafka}
"""


def version() -> str:
    """Of the one that is installed.

    Raises:
        Unavailable: there is none.
    """
    if shutil.which(_COMMAND) is None:
        raise Unavailable(f"haproxy: there is no {_COMMAND} command")
    told = subprocess.run(
        [_COMMAND, "-v"], capture_output=True, text=True, timeout=_VERSION_LIMIT_S, check=False
    ).stdout
    found = re.search(r"version (\S+)", told)
    return found[1] if found else "unknown"


def haproxy(broker: int, port: int, folder: Path) -> AbstractContextManager[tuple[int, str]]:
    """Run it in front of one broker, which tells clients of it: answers pass as they are.

    Args:
        broker: port of its listener behind this.
        port: where clients are expected.
        folder: for its configuration and log.

    Returns:
        Its process id, and HOST:PORT for clients.

    Raises:
        Unavailable: it ended at its start, or did not listen in time.
    """
    kafka, listen = f"{HOST}:{broker}", f"{HOST}:{port}"
    configuration = folder / "haproxy.cfg"
    configuration.write_text(_CONFIGURATION.format(listen=listen, kafka=kafka))
    child = Child("haproxy", [_COMMAND, "-db", "-f", str(configuration)], log=folder / "haproxy.log")
    return listening(child, listen)
