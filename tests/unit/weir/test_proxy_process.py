"""A proxy in the foreground, and what it says of itself."""

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest
from disk_kit import fill

from weir import proxy_process
from weir.foreground import AWAY


class FakeProxy:
    """Serves at once, and decides when it is told to."""

    listen, metrics_url, described = ("h", 1), None, {"brokers": {}}

    def __init__(self) -> None:
        self.serving, self.ready, self.stopped = asyncio.Event(), asyncio.Event(), False
        self.enforcement = self

    async def start(self) -> None:
        """It lets clients in."""
        self.serving.set()

    async def stop(self) -> None:
        """Its clients are gone."""
        self.stopped = True


def test_a_full_disk_does_not_end_one_that_serves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As the job decides, its ready file is written again; that closed all clients' connections."""
    file = tmp_path / "ready.json"
    monkeypatch.setattr("gc.freeze", lambda: None)

    async def scene() -> None:
        stop, proxy = asyncio.Event(), FakeProxy()
        monkeypatch.setattr(proxy_process, "stop_event", lambda: stop)
        given: Any = proxy
        running = asyncio.create_task(proxy_process._serve(lambda: given, file, proxy_process.nothing))
        await proxy.serving.wait()
        await asyncio.sleep(0.1)
        assert file.exists()
        fill(monkeypatch)
        proxy.ready.set()
        await asyncio.sleep(0.1)
        assert not running.done() and not proxy.stopped
        stop.set()
        await running
        assert proxy.stopped

    asyncio.run(scene())
    assert orjson.loads(file.read_bytes())["job"] == AWAY
