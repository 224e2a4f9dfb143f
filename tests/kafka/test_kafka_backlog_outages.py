"""Backlogs of a cluster of which a broker is down: slow, since brokers stop and start."""

import gc
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka_backlog_kit import Lagging, Looker, full_name, plans
from proxy_kit import until

from streaming.collect.backlog.cluster import CannotEvict
from streaming.contract.errors import WeirError
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


def test_a_broker_that_is_down_costs_its_topics(tmp_path: Path) -> None:
    """The others' are read, nobody's groups become fewer, nothing is evicted; all is well when it is back."""
    with LocalKafka(tmp_path / "kafka", brokers=2) as kafka:
        topic = Lagging(kafka.bootstrap, "acme.orders.spread", 6)
        for number in range(6):
            topic.write(10, partition=number)
            topic.commit("slow", 1, partition=number)
            topic.commit("fast", 8, partition=number)
        with Looker(kafka.bootstrap, request_timeout_ms=3_000) as looker:
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
            with pytest.raises(CannotEvict):
                looker.prepare(before[gone[0]], planned[0])
            # Both, since the one that was killed is not started alone.
            kafka.stop()
            kafka.start()
            until(lambda: -1 not in leaders(topic), what="all leaders", limit_s=60)
            until(lambda: looker.look().unread == 0, what="a check that reads all", limit_s=60)
            after = {one.topic: one for one in looker.look().reports}
            assert {name: len(one.subscriptions) for name, one in after.items()} == dict.fromkeys(names, 2)
            eviction = looker.prepare(after[gone[0]], plans(after[gone[0]], size=0)[0])
            assert eviction is not None
            looker.carry_out(eviction)


def test_without_any_broker_a_check_fails_in_time(tmp_path: Path) -> None:
    """And works again as soon as one is there."""
    kafka = LocalKafka(tmp_path / "kafka")
    with kafka:
        topic = Lagging(kafka.bootstrap, "acme.orders.one")
        topic.write(3)
        topic.commit("slow", 1)
        with Looker(kafka.bootstrap, request_timeout_ms=2_000) as looker:
            assert looker.report(topic.topic).ledgers[0].entries == 3
            kafka.stop()
            for _ in range(2):
                with pytest.raises(WeirError):
                    looker.look()
            kafka.start()
            until(lambda: looker.look().unread == 0, what="a check", limit_s=60)
            assert looker.report(topic.topic).ledgers[0].entries == 3
