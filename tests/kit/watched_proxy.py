"""A proxy as a process of its own that says how it is: for tests that must not share its interpreter.

On each line of its input it answers with a line of JSON: memory, the longest turn of its loop since the last
line, and whatever the loop or the log complained of.
"""

import asyncio
import gc
import json
import logging
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any, Self

import uvloop
from cluster_kit import address

from enforcer.core.settings import ProxySettings
from enforcer.host.budget import resident_bytes
from enforcer.host.server import ProxyConfig
from enforcer.kafka.proxy import KafkaProxy
from streaming.contract.topics import Topics

_BEAT_S = 0.002
_LIMIT_S = 30.0


class _Watch(logging.Handler):
    """Counts what should never be said, and how long the loop was busy."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.errors: list[str] = []
        self.longest_s = 0.0
        self._before = time.thread_time()

    def emit(self, record: logging.LogRecord) -> None:
        """A log record with a traceback, or an error of asyncio's."""
        if record.exc_info or record.levelno >= logging.ERROR:
            self.errors.append(self.format(record))

    def caught(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """The loop's exception handler."""
        error = context.get("exception")
        lines = traceback.format_exception(error) if error is not None else []
        self.errors.append(f"{context.get('message')}\n{''.join(lines)}")

    async def beat(self) -> None:
        """Processor time between two beats is at least the longest turn, whoever else works here."""
        while True:
            await asyncio.sleep(_BEAT_S)
            now = time.thread_time()
            self.longest_s = max(self.longest_s, now - self._before)
            self._before = now

    def report(self) -> str:
        """What was seen since the last one."""
        found = {
            "resident_bytes": resident_bytes(),
            "longest_ms": 1000 * self.longest_s,
            "errors": self.errors[:3],
        }
        self.errors, self.longest_s = [], 0.0
        return json.dumps(found)


async def _serve(upstream: str, own: str, prefix: str) -> None:
    loop, watch = asyncio.get_running_loop(), _Watch()
    logging.getLogger().addHandler(watch)
    loop.set_exception_handler(watch.caught)
    config = ProxyConfig(
        kafka=(address(upstream),), listen=("127.0.0.1", 0), topics=Topics(prefix),
        connection={"bootstrap.servers": own},
        settings=ProxySettings(id="watched", decision_timeout_ms=200),
    )  # fmt: skip
    proxy = KafkaProxy(config)
    await proxy.start()
    # As `weir proxy` does; and here lie the test kit's own modules too.
    gc.collect()
    gc.freeze()
    beat = loop.create_task(watch.beat())
    _say("{}:{}".format(*proxy.listen))
    while await loop.run_in_executor(None, sys.stdin.readline):
        _say(watch.report())
    beat.cancel()
    await proxy.stop()


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class WatchedProxy:
    """The process; a context manager.

    Args:
        upstream: where it sends its clients.
        own: the cluster that holds Weir's topics.
        prefix: of their names.
    """

    def __init__(self, upstream: str, own: str, prefix: str) -> None:
        command = [sys.executable, str(Path(__file__)), upstream, own, prefix]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._killer = threading.Timer(2 * _LIMIT_S, self._process.kill)
        self.bootstrap = ""

    def __enter__(self) -> Self:
        self._killer.start()
        self.bootstrap = self._line()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            assert self._process.wait(_LIMIT_S) == 0
        finally:
            self._killer.cancel()
            self._process.kill()
            self._process.stdout.close()

    def report(self) -> dict[str, Any]:
        """How it is; see the module."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return json.loads(self._line())  # type: ignore[no-any-return]

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line, f"the proxy ended with status {self._process.poll()}"
        return line


if __name__ == "__main__":
    uvloop.run(_serve(*sys.argv[1:4]))
