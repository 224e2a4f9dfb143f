"""Backlogs of a cluster of which a broker is down: slow, since brokers stop and start."""

import asyncio
import gc
import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from collector_kit import EVICTS, Desk, orders_last, policies
from kafka.protocol.consumer import OffsetCommitRequest
from kafka_backlog_kit import PATTERN, Lagging, Looker, full_name, plans
from proxy_kit import until

from streaming.collect.kafka import actor, connection
from streaming.collect.kafka.cluster import KafkaCluster
from streaming.collect.kafka.connection import Connection, Unanswered
from streaming.contract.errors import WeirError
from streaming.contract.namespaces import Namespaces
from streaming.contract.topics import Cluster
from weir.stack.kafka import LocalKafka

pytestmark = [
    pytest.mark.soak,
    # kafka-python drops the sockets of failed attempts without closing them.
    pytest.mark.filterwarnings("ignore:unclosed <socket.socket:ResourceWarning"),
]


@pytest.fixture(autouse=True)
def _dropped_sockets(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """None outlives its test: what is logged would keep them."""
    caplog.set_level(logging.CRITICAL, "kafka")
    yield
    gc.collect()


def leaders(topic: Lagging) -> list[int]:
    """The leader of each partition; -1: none."""
    found = topic.admin.list_topics(topic.topic, timeout=20).topics[topic.topic].partitions
    return [found[number].leader for number in sorted(found)]


def test_a_broker_that_is_down_costs_its_topics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others' are read, nobody's groups become fewer, nothing is evicted; all is well when it is back."""
    monkeypatch.setattr(connection, "REQUEST_MS", 3_000)
    with LocalKafka(tmp_path / "kafka", brokers=2) as kafka:
        topic = Lagging(kafka.bootstrap, "acme.orders.spread", 6)
        for number in range(6):
            topic.write(10, partition=number)
            topic.commit("slow", 1, partition=number)
            topic.commit("fast", 8, partition=number)
        with Looker(kafka.bootstrap) as looker:
            before = {one.topic: one for one in looker.look().reports}
            assert len(before) == 6
            names = [f"{full_name(topic.topic)}-partition-{number}" for number in range(6)]
            down = 1
            gone = [name for name, leader in zip(names, leaders(topic), strict=True) if leader == down + 1]
            assert 0 < len(gone) < 6
            kafka.kill(down)
            looked = looker.look()
            assert looked.unread >= len(gone) and looked.failures
            for report in looked.reports:
                assert report.topic not in gone
                assert len(report.subscriptions) == 2
            planned = plans(before[gone[0]], size=0)
            with pytest.raises(Unanswered):
                looker.prepare(before[gone[0]], planned[0])
            # Both, since the one that was killed is not started alone.
            kafka.stop()
            kafka.start()
            until(lambda: -1 not in leaders(topic), what="all leaders", limit_s=60)

            def reads_all() -> bool:
                try:
                    return looker.look().unread == 0
                except WeirError:
                    # Nobody answers yet whom it knew.
                    return False

            until(reads_all, what="a check that reads all", limit_s=60)
            after = {one.topic: one for one in looker.look().reports}
            assert {name: len(one.subscriptions) for name, one in after.items()} == dict.fromkeys(names, 2)
            eviction = looker.prepare(after[gone[0]], plans(after[gone[0]], size=0)[0])
            assert eviction is not None
            looker.carry_out(eviction)


def test_without_any_broker_a_check_fails_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And works again as soon as one is there."""
    monkeypatch.setattr(connection, "REQUEST_MS", 2_000)
    kafka = LocalKafka(tmp_path / "kafka")
    with kafka:
        topic = Lagging(kafka.bootstrap, "acme.orders.one")
        topic.write(3)
        topic.commit("slow", 1)
        with Looker(kafka.bootstrap) as looker:
            assert looker.report(topic.topic).ledgers[0].entries == 3
            kafka.stop()
            for _ in range(2):
                with pytest.raises(WeirError):
                    looker.look()
            kafka.start()
            until(lambda: looker.look().unread == 0, what="a check", limit_s=60)
            assert looker.report(topic.topic).ledgers[0].entries == 3


@pytest.mark.parametrize("takes", [True, False])
def test_what_a_broker_carries_out_late_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, takes: bool
) -> None:
    """It stands still as it gets the order, and goes on after everybody has given up waiting.

    Or it never gets it, and all that was waiting was in vain.
    """
    with LocalKafka(tmp_path / "kafka") as kafka:
        topic = Lagging(kafka.bootstrap, "acme.orders.late")
        topic.write(20)
        topic.commit("slow", 1)
        for module in (connection, actor):
            monkeypatch.setattr(module, "REQUEST_MS", 1_000)
        orders_last(monkeypatch, 1_500)
        held = KafkaCluster(Cluster(kafka.bootstrap), Namespaces(PATTERN))
        send = Connection.send

        async def stopped(self: Connection, request: Any, node: int | None = None) -> Any:
            if isinstance(request, OffsetCommitRequest):
                for pid in kafka.pids:
                    os.kill(pid, signal.SIGSTOP)
                if not takes:
                    raise Unanswered("the order is lost")
            return await send(self, request, node)

        async def run() -> None:
            name = full_name(topic.topic)
            desk = Desk(held, policies({**EVICTS, "limitSize": 100}, topic=name))
            reports = await desk.check()
            monkeypatch.setattr(Connection, "send", stopped)
            await desk.decide(reports)
            monkeypatch.setattr(Connection, "send", send)
            assert desk.steps() == [("slow", "begun")]
            await asyncio.sleep(1.6)
            # Nobody answers yet.
            await desk.settle()
            assert desk.steps() == [("slow", "begun")]
            for pid in kafka.pids:
                os.kill(pid, signal.SIGCONT)
            async with asyncio.timeout(60):
                while len(desk.steps()) < 2:
                    await desk.settle()
                    await asyncio.sleep(0.1)
            assert desk.steps() == [("slow", "begun"), ("slow", "done" if takes else "failed")]
            lost = desk.value("weir_backlog_evicted_messages_total", quota_type="size")
            assert lost == (topic.committed("slow") - 1 if takes else 0)
            assert (topic.committed("slow") > 1) == takes

        try:
            asyncio.run(run())
        finally:
            for pid in kafka.pids:
                os.kill(pid, signal.SIGCONT)
            held.close()
