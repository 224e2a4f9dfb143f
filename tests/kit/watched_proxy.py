"""A proxy as a process of its own that says how it is: for tests that must not share its interpreter.

On each line of its input it answers with a line of JSON: memory, the longest turn of its loop since the last
line, and whatever the loop or the log complained of.
"""

import asyncio
import gc
import logging
import sys
import time
import traceback
from typing import Any, Self

import uvloop
from cluster_kit import address

from benchmarks.load.asked import Asked, say
from enforcer.core.settings import ProxySettings
from enforcer.host.budget import resident_bytes
from enforcer.host.server import ProxyConfig
from enforcer.kafka.proxy import KafkaProxy
from streaming.contract.topics import Topics

_BEAT_S = 0.002


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

    def report(self) -> dict[str, Any]:
        """What was seen since the last one."""
        found = {
            "resident_bytes": resident_bytes(),
            "longest_ms": 1000 * self.longest_s,
            "errors": self.errors[:3],
        }
        self.errors, self.longest_s = [], 0.0
        return found


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
    say("{}:{}".format(*proxy.listen))
    while await loop.run_in_executor(None, sys.stdin.readline):
        say(watch.report())
    beat.cancel()
    await proxy.stop()


class WatchedProxy(Asked):
    """The process.

    Args:
        upstream: where it sends its clients.
        own: the cluster that holds Weir's topics.
        prefix: of their names.
    """

    stop_s = 30.0

    def __init__(self, upstream: str, own: str, prefix: str) -> None:
        super().__init__(__file__, upstream, own, prefix)
        self.bootstrap = ""

    def __enter__(self) -> Self:
        super().__enter__()
        self.bootstrap = self.said()
        return self

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        assert self.status == 0

    def report(self) -> dict[str, Any]:
        """How it is; see the module."""
        found: dict[str, Any] = self.ask(None)
        return found


if __name__ == "__main__":
    uvloop.run(_serve(*sys.argv[1:4]))
