"""What becomes of a client is noted (tests/soak)."""

import os
import resource
import socket
import threading
from pathlib import Path

from soak_clients import Client, Crowd
from soak_history import History, Recorder


class Failing(Client):
    """Ends by an error."""

    def run(self) -> None:
        """See Client."""
        raise ValueError("broken\noff")


def test_a_client_that_fails_is_noted(tmp_path: Path) -> None:
    """Its thread's end alone would look like that of any other."""
    file = tmp_path / "history.jsonl"
    with Recorder(file) as told, Failing(told, "who"):
        pass

    failed = {"kind": "failed", "who": "who", "why": "ValueError('broken\\noff')"}
    assert History.read(file)["failed"] == [failed]


def test_a_crowd_leaves_descriptors_to_others() -> None:
    """Relays and logs are in its process."""
    there: list[int] = []

    class Watched(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            there.append(len(os.listdir("/dev/fd")))
            return True

    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        before = len(os.listdir("/dev/fd"))
        crowd = Crowd("{}:{}".format(*server.getsockname()), 50)
        crowd._stopping = Watched()
        resource.setrlimit(resource.RLIMIT_NOFILE, (before + 40, limits[1]))
        try:
            crowd._run()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert there == [before + 20]
