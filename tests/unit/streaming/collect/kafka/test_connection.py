"""The connection to a cluster that is read: one, however many wait for it."""

import asyncio
import contextlib
import time
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.future import Future as KafkaFuture

from streaming.collect.backlog.cluster import RoundQuestion
from streaming.collect.kafka import connection as connection_module
from streaming.collect.kafka.cluster import KafkaCluster
from streaming.collect.kafka.connection import Connection, Unanswered
from streaming.contract.namespaces import Namespaces
from streaming.contract.topics import Cluster


@pytest.mark.parametrize(("interval_s", "limit_s"), [(0, 0.1), (1, 0.5)])
def test_a_look_at_a_cluster_that_is_silent_has_its_limit(
    monkeypatch: pytest.MonkeyPatch, interval_s: int, limit_s: float
) -> None:
    """Whatever each of its requests may take; a long interval leaves more time."""
    silent = SimpleNamespace(call_soon=lambda *_: KafkaFuture())
    admin = SimpleNamespace(_manager=silent, close=lambda: None)
    monkeypatch.setattr(connection_module, "AdminClient", lambda **_: admin)
    monkeypatch.setattr("streaming.collect.kafka.cluster.LOOK_S", 0.1)
    cluster = KafkaCluster(Cluster("127.0.0.1:1"), Namespaces("tenant.namespace.topic"))
    begun = time.monotonic()
    wants = RoundQuestion(precise_age=False, expires=lambda _topic: False, interval_s=interval_s)
    with pytest.raises(Unanswered, match="the cluster did not answer"):
        asyncio.run(cluster.look(wants))
    assert limit_s <= time.monotonic() - begun < connection_module.GRACE_S
    cluster.close()


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
