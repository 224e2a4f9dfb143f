"""The connection to a cluster that is read: one, however many wait for it."""

import asyncio
import contextlib
import time
from typing import Any

import pytest

from streaming.collect.kafka import connection as connection_module
from streaming.collect.kafka.connection import Connection
from streaming.contract.topics import Cluster


def test_of_many_that_could_not_connect_one_connects_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each client has a thread and connections, which nobody would close of one that is left behind."""
    made: list[object] = []

    def connect(**options: Any) -> object:
        time.sleep(0.02)
        made.append(object())
        if len(made) == 1:
            raise OSError("nobody is there")
        return made[-1]

    async def opened(connection: Connection) -> object:
        with contextlib.suppress(OSError):
            return await connection._opened()
        return await connection._opened()

    async def work() -> list[object]:
        connection = Connection(Cluster("127.0.0.1:1"))
        return await asyncio.gather(*(opened(connection) for _ in range(3)))

    monkeypatch.setattr(connection_module, "AdminClient", connect)
    assert asyncio.run(work()) == made[1:] * 3
