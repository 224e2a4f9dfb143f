"""What happens when a part is missing: the job, the topics, the broker."""

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cluster_kit import DEFAULT_PARTITIONS, Cluster, fresh
from kafka.protocol.admin import topics
from proxy_kit import Decider, ProxyThread, until
from wire_client import WireClient, create_request, errors

from enforcer.core.settings import OnLate, ProxySettings
from enforcer.host import dial
from enforcer.host.server import ProxyConfig
from streaming.contract.topics import Cluster as Home
from streaming.contract.topics import Topics
from weir.stack.kafka import LocalKafka
from weir.stack.topics import ensure_topics

Start = Callable[..., ProxyThread]


@pytest.fixture
def job_down(cluster: Cluster) -> Any:
    """Nothing is decided while the test runs, unless it resumes."""
    with cluster.decider.paused():
        yield cluster.decider


def test_late_and_allowed(cluster: Cluster, proxy_with: Start, job_down: Decider) -> None:
    """With on_late_decision allow the request passes after the time limit, and is charged when decided."""
    proxy = proxy_with(decide="strict", decision_timeout_ms=400)
    name = fresh("late")
    subject = cluster.limit(proxy, name, controller_mutation_rate=1)
    with WireClient(proxy.bootstrap, name) as client:
        begun = time.monotonic()
        answer = client.create({f"{name}-a": 50})
        assert 0.4 <= time.monotonic() - begun < 1.9
        assert (answer.throttle_time_ms, errors(answer)) == (0, {f"{name}-a": 0})
        event = {"on_late": "allow", "deadline_ms": 400, "strict": True}
        # The job goes by the record's time, which is a little after the question's.
        time.sleep(0.3)
        job_down.resume()
        assert event.items() <= cluster.event_of(name).items()
        until(lambda: proxy.metric("late_decisions_total") == 1)
        (late,) = [made for made in job_down.decisions if made.get("subject") == subject]
        assert late["late"] is True and late["rejected"] == []
        # The charge is real: the next one must wait.
        refused = client.create({f"{name}-b": 1})
        assert errors(refused) == {f"{name}-b": 89} and refused.throttle_time_ms > 30_000
    assert proxy.metric("requests_total", api="CreateTopics", outcome="late_allow") == 1


def test_late_and_rejected(cluster: Cluster, proxy_with: Start, job_down: Decider) -> None:
    """With on_late_decision reject the request gets 89, and nothing is charged for it."""
    proxy = proxy_with(decide="strict", decision_timeout_ms=400, on_late_decision=OnLate.REJECT)
    name = fresh("closed")
    cluster.limit(proxy, name, controller_mutation_rate=1)
    with WireClient(proxy.bootstrap, name) as client:
        answer = client.create({f"{name}-a": 50})
        assert errors(answer) == {f"{name}-a": 89} and answer.throttle_time_ms == 400
        job_down.resume()
        until(lambda: proxy.metric("late_decisions_total") == 1)
        assert errors(client.create({f"{name}-a": 11})) == {f"{name}-a": 0}


def test_permissive_requests_do_not_wait_longer(
    cluster: Cluster, proxy_with: Start, job_down: Decider
) -> None:
    """A permissive request is answered without throttle after the time limit; its debt is held later."""
    proxy = proxy_with(decide="strict", decision_timeout_ms=400)
    name = fresh("open")
    cluster.limit(proxy, name, controller_mutation_rate=1)
    with WireClient(proxy.bootstrap, name) as client:
        answer = client.create({f"{name}-a": 50}, 5)
        assert (answer.throttle_time_ms, errors(answer)) == (0, {f"{name}-a": 0})
        job_down.resume()
        until(lambda: proxy.metric("late_decisions_total") == 1)
        assert errors(client.create({f"{name}-b": 1})) == {f"{name}-b": 89}


def test_a_decision_that_comes_late_but_was_made_in_time(
    cluster: Cluster, proxy_with: Start, job_down: Decider
) -> None:
    """Items let through by the time limit but rejected by a decision made in time are charged after all."""
    proxy = proxy_with(decide="strict", decision_timeout_ms=5_000)
    name = fresh("slow")
    subject = cluster.limit(proxy, name, controller_mutation_rate=1)
    with WireClient(proxy.bootstrap, name) as client:
        # The answer is forced early, as if the decision had been lost on its way for so long.
        client.send(create_request({f"{name}-a": 12, f"{name}-b": 3}))
        ask = until(lambda: proxy.waiting(name))[0]
        proxy.call(ask.told.__self__.late)  # type: ignore[union-attr]  # a bound method
        assert errors(client.receive(topics.CreateTopicsResponse, 7)) == {f"{name}-a": 0, f"{name}-b": 0}
        job_down.resume()
        charge = cluster.event_of(name, strict=False)
        assert charge["id"].endswith("-late") and charge["subject"] == subject
        assert charge["items"] == [{"name": f"{name}-b", "mutations": 3}]


def test_the_default_partition_count_is_corrected(
    cluster: Cluster, proxy_with: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic created with -1 is charged what it really got."""
    monkeypatch.setattr("enforcer.kafka.cluster.DEFAULT_PARTITIONS_REFRESH_MS", 3_600_000)
    proxy = proxy_with()
    recent = proxy.proxy.recent_topics
    until(lambda: recent.default_partitions == DEFAULT_PARTITIONS, what="num.partitions is read")
    recent.default_partitions = 7
    name = fresh("default")
    cluster.limit(proxy, name, controller_mutation_rate=10)
    with WireClient(proxy.bootstrap, name) as client:
        assert errors(client.create({f"{name}-a": -1})) == {f"{name}-a": 0}
        refund = cluster.event_of(name, type="refund")
        assert refund["items"] == [{"name": f"{name}-a", "mutations": 7 - DEFAULT_PARTITIONS}]
        recent.default_partitions = 1
        assert errors(client.create({f"{name}-b": -1})) == {f"{name}-b": 0}
        charge = cluster.event_of(name, strict=False)
        assert charge["items"] == [{"name": f"{name}-b", "mutations": DEFAULT_PARTITIONS - 1}]


def test_no_broker_is_an_error_not_a_hang(cluster: Cluster, proxy_with: Start) -> None:
    """A client whose broker cannot be reached is closed and counted."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        proxy = proxy_with(kafka=f"127.0.0.1:{unused.getsockname()[1]}")
        with WireClient(proxy.bootstrap) as client:
            assert client.closed_within(3)
    assert proxy.metric("upstream_failures_total", reason="refused") == 1


def test_a_silent_broker_is_an_error_not_a_hang(
    cluster: Cluster, proxy_with: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that does not take the connection in time: closed and counted."""
    monkeypatch.setattr(dial, "CONNECT_TIMEOUT_MS", 300)
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        fillers = [socket.socket() for _ in range(3)]
        try:
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex(full.getsockname())
            time.sleep(0.1)
            proxy = proxy_with(kafka=f"127.0.0.1:{full.getsockname()[1]}")
            with WireClient(proxy.bootstrap) as client:
                assert client.closed_within(3)
        finally:
            for filler in fillers:
                filler.close()
    assert proxy.metric("upstream_failures_total", reason="timeout") == 1


@pytest.mark.soak
def test_the_cluster_goes_away_and_comes_back(tmp_path: Path) -> None:
    """Kafka killed: clients are closed; Kafka back: traffic, events, decisions and policies flow again."""
    # A broker that was killed is taken back once its old session has ended.
    quick = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500"}
    kafka = LocalKafka(tmp_path / "kafka", properties=quick)
    names = Topics()
    with kafka:
        ensure_topics(Home(kafka.bootstrap, names))
        host, port = kafka.bootstrap.split(":")
        config = ProxyConfig(
            kafka=((host, int(port)),), listen=("127.0.0.1", 0), topics=names, settings=ProxySettings(id="p")
        )
        with ProxyThread(config) as proxy, WireClient(proxy.bootstrap) as client:
            assert client.metadata([]).brokers
            kafka.kill()
            assert client.closed_within(3)
            with WireClient(proxy.bootstrap) as second:
                assert second.closed_within(3)
            kafka.start()
            with WireClient(proxy.bootstrap) as third:
                assert third.metadata([]).brokers
            with Decider(kafka.bootstrap, names):
                until(proxy.proxy.enforcement.ready.is_set, what="a probe decided after the outage")


def test_a_stop_answers_what_is_under_way(cluster: Cluster, job_down: Decider) -> None:
    """Stopping waits for answers that are due, and ends within its limit when they do not come."""
    name = fresh("stop")
    with ProxyThread(cluster.config(decide="strict", decision_timeout_ms=600)) as proxy:
        cluster.limit(proxy, name, controller_mutation_rate=100)
        busy, idle = WireClient(proxy.bootstrap, name), WireClient(proxy.bootstrap, name)
        busy.send(create_request({f"{name}-a": 1}))
        until(lambda: proxy.waiting(name))
        begun = time.monotonic()
        proxy.begin_stop()
        assert idle.closed_within(2)
        assert errors(busy.receive(topics.CreateTopicsResponse, 7)) == {f"{name}-a": 0}
        assert busy.closed_within(2)
    assert time.monotonic() - begun < 8
    busy.socket.close()
    idle.socket.close()
