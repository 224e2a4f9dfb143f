"""Many consumer groups that read many topics, in a process of their own, and what they have got."""

import subprocess
import sys
import threading
import time
from typing import Final, Self

import orjson
from confluent_kafka import Consumer

_LIMIT_S: Final = 120.0
_AT_ONCE: Final = 1_000
"""Records that are taken from a consumer at once."""


class Subscribers:
    """Consumers, each a group of its own that reads all topics; a context manager.

    Args:
        bootstrap: where they connect.
        groups: their names.
        topics: that each reads.
    """

    def __init__(self, bootstrap: str, groups: list[str], topics: list[str]) -> None:
        self._told = orjson.dumps({"bootstrap": bootstrap, "groups": groups, "topics": topics}) + b"\n"

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", __name__]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._ask(self._told)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def counts(self) -> list[int]:
        """Records that each group has got so far."""
        counts: list[int] = self._ask(b"{}\n")
        return counts

    def _ask(self, line: bytes) -> list[int]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()
        said: list[int] = orjson.loads(self._process.stdout.readline())
        return said


class _Reader:
    """One group."""

    def __init__(self, bootstrap: str, group: str, topics: list[str], stopping: threading.Event) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap, "group.id": group, "client.id": group, "log_level": 0,
                "auto.offset.reset": "earliest", "enable.auto.commit": False,
                "queued.max.messages.kbytes": 4_096,
            }
        )  # fmt: skip
        self._consumer.subscribe(topics)
        self._stopping = stopping
        self.count = 0
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self.count += sum(each.error() is None for each in self._consumer.consume(_AT_ONCE, 0.1))
        self._consumer.close()


def main() -> None:
    """Read until the standard input ends."""
    told = orjson.loads(sys.stdin.buffer.readline())
    stopping = threading.Event()
    readers = [_Reader(told["bootstrap"], group, told["topics"], stopping) for group in told["groups"]]
    while True:
        sys.stdout.buffer.write(orjson.dumps([reader.count for reader in readers]) + b"\n")
        sys.stdout.buffer.flush()
        if not sys.stdin.buffer.readline():
            break
    stopping.set()
    deadline = time.monotonic() + _LIMIT_S / 2
    for reader in readers:
        reader.thread.join(max(0.0, deadline - time.monotonic()))


if __name__ == "__main__":
    main()
