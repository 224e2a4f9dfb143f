"""Whether a part on this machine is well, by its ready file: its processes live and it answers in time."""

import http.client
import ssl
import time
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from streaming.contract.errors import WeirError
from weir.foreground import AWAY, host_port
from weir.stack.kafka import brokers_seen
from weir.stack.process import running

_PROCESSES: Final = ("pid", "jvm_pid")
_SIZE_MAX: Final = 1024 * 1024
_HERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def check_health(ready_file: Path, limit_s: float) -> str:
    """What is to be said of the part that wrote this file, which is well; empty as a rule.

    Args:
        ready_file: as the part writes it once it is ready, and removes it when it is started anew.
        limit_s: for all of its answers.

    Raises:
        WeirError: it is not, in one line.
    """
    deadline = time.monotonic() + limit_s
    said = _read(ready_file)
    try:
        # Of several processes that share a port each is a part of its own.
        for part in (said, *said.get("workers", ())):
            for name in _PROCESSES:
                pid = part.get(name)
                if pid is not None and not running(int(pid)):
                    raise WeirError(f"process {pid} ({name}) has ended")
        for part in said.get("workers") or (said,):
            if url := part.get("metrics"):
                if (status := _status(url, deadline)) != http.client.OK:
                    raise WeirError(f"{url} answers with status {status}; expected 200")
            elif "kafka" in part:
                for address in part["kafka"].split(","):
                    host, port = host_port(address)
                    if not brokers_seen(port, _left(deadline), host):
                        raise WeirError(f"the broker at {address} does not answer")
            elif "pulsar_admin" in part:
                # Whatever it says: it may want a login.
                _status(part["pulsar_admin"], deadline)
    except (TypeError, ValueError, AttributeError, OverflowError) as wrong:
        expected = "expected what --ready-file writes"
        raise WeirError(f"{ready_file} is no ready file: {wrong}; {expected}") from wrong
    away = any(part.get("job") == AWAY for part in (said, *said.get("workers", ())))
    return "serves without the job, which has decided nothing since the start" if away else ""


def here(host: str) -> str:
    """Where to connect to who listens on a host: who listens everywhere listens here too."""
    return _HERE.get(host, host)


def unverified() -> ssl.SSLContext:
    """TLS for who only looks: a part of this machine has a certificate for another name."""
    return ssl._create_unverified_context()


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            said = orjson.loads(file.read(_SIZE_MAX))
    except FileNotFoundError as missing:
        raise WeirError(f"not ready yet: {path} is not there") from missing
    except (OSError, ValueError) as wrong:
        raise WeirError(f"{path} cannot be read: {wrong}") from wrong
    if not isinstance(said, dict):
        raise WeirError(f"{path} is no ready file; expected what --ready-file writes")
    return said


def _status(url: str, deadline: float) -> int:
    parts = urlsplit(url)
    host = here(parts.hostname or "")
    made: Any = http.client.HTTPConnection
    if parts.scheme == "https":
        made = partial(http.client.HTTPSConnection, context=unverified())
    connection = made(host, parts.port, timeout=_left(deadline))
    try:
        connection.request("GET", parts.path)
        return int(connection.getresponse().status)
    except (OSError, http.client.HTTPException) as error:
        raise WeirError(f"{url} does not answer: {error or type(error).__name__}") from error
    finally:
        connection.close()


def _left(deadline: float) -> float:
    return max(0.1, deadline - time.monotonic())
