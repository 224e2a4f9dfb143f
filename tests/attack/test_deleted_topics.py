"""Weir's topics deleted under it, on a broker that makes topics by itself: nothing comes back unnoticed."""

import logging
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.request import urlopen

import pytest
import with_constant
from admin_process_kit import Admin
from cluster_kit import Cluster
from confluent_kafka.admin import AdminClient
from prometheus_client import Gauge
from proxy_kit import PolicyWriter, ProxyThread, until
from stack_kit import put, weir

from streaming.contract.errors import WeirError
from streaming.contract.topics import Cluster as Home
from streaming.contract.topics import Topics
from streaming.job.process.ticker import HostClock, Ticker
from streaming.kafka_io import topic_watch
from streaming.kafka_io.policy_topic import Update
from streaming.kafka_io.policy_turn import change_policies
from streaming.kafka_io.weir_topics import look
from weir.stack.topics import ensure_topics

LIMIT_S = 10.0
CHECK_MS = 200
GROUPS = "/admin/v2/resourcegroups"


@pytest.fixture
def broker(cluster: Cluster) -> AdminClient:
    """Straight to the broker, as whoever may delete there."""
    return AdminClient({"bootstrap.servers": cluster.kafka.bootstrap})


@pytest.fixture
def guarding(cluster: Cluster, topics: Topics, monkeypatch: pytest.MonkeyPatch) -> Iterator[ProxyThread]:
    """A proxy of its own installation that looks often."""
    monkeypatch.setattr(topic_watch, "CHECK_MS", CHECK_MS)
    with ProxyThread(replace(cluster.config(id="deleted"), topics=topics)) as proxy:
        yield proxy


@pytest.fixture
def api(cluster: Cluster, topics: Topics, tmp_path: Path) -> Iterator[Admin]:
    """An admin API that looks as often."""
    often = with_constant.at("streaming.kafka_io.topic_watch", "CHECK_MS", CHECK_MS)
    with Admin(cluster.kafka.bootstrap, tmp_path / "admin", topics.prefix, module=often) as admin:
        yield admin


def delete(broker: AdminClient, *names: str) -> None:
    """Delete topics, and wait until they are gone."""
    for future in broker.delete_topics(list(names)).values():
        future.result(LIMIT_S)
    until(lambda: not set(names) & set(broker.list_topics(timeout=LIMIT_S).topics), what="topics gone")


def admin_faults(api: Admin) -> set[tuple[str, str]]:
    """What the admin API's metrics say, as (topic, fault)."""
    with urlopen(api.ready["metrics"], timeout=LIMIT_S) as answer:
        text = answer.read().decode()
    return set(re.findall(r'^weir_admin_topic_faults\{fault="(\w+)",topic="([^"]+)"\} 1\.0$', text, re.M))


def test_our_own_parts_bring_no_topic_back(
    cluster: Cluster, topics: Topics, guarding: ProxyThread, api: Admin, broker: AdminClient
) -> None:
    """All that run go on, try to write, and make nothing; each says what is missing."""
    where = cluster.kafka.bootstrap
    ticker = Ticker(Home(where, topics), 1000, HostClock(Gauge("ahead", "s", registry=None)), {})
    delete(broker, *topics.all())
    guarding.call(lambda: guarding.proxy.enforcement.context.send_usage({"type": "tick"}, ""))
    ticker._in_use, ticker._assigned = True, True
    ticker.poll(1e9)
    with pytest.raises(WeirError, match="there is no topic"):
        change_policies(Home(where, topics), lambda _log: [Update(path="broker", value=None)], origin="apply")
    gone = {("missing", name) for name in topics.all()}
    until(lambda: admin_faults(api) == gone, what="the admin API's metric")
    for name in topics.all():
        until(lambda name=name: guarding.metric("topic_faults", topic=name, fault="missing") == 1)
    code, told = api.ask("PUT", f"{GROUPS}/rg1", {"publishRateInMsgs": 1})
    assert code == 503 and f"topic {topics.policies} is not there" in str(told)
    time.sleep(1.0)  # as long as a producer of ours would need to bring one back
    assert look(broker, Home(where, topics), LIMIT_S).ids == {}
    ticker.close(leaving=True)


@pytest.mark.soak
def test_a_topic_that_others_bring_back_is_told_loudly(
    cluster: Cluster,
    topics: Topics,
    guarding: ProxyThread,
    api: Admin,
    broker: AdminClient,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Decisions and policies come back with the broker's settings: errors, metrics, 503, refusal to start."""
    delete(broker, topics.decisions, topics.policies)
    for name in (topics.decisions, topics.policies):
        put(cluster.kafka.bootstrap, name, b"x")
    wrong = {
        ("broker_defaults", topics.decisions), ("timestamp_type", topics.policies),
        ("cleanup_policy", topics.policies), ("partitions", topics.policies),
    }  # fmt: skip
    with caplog.at_level(logging.ERROR):
        for fault, name in wrong:
            until(lambda fault=fault, name=name: guarding.metric("topic_faults", topic=name, fault=fault))
        until(lambda: "has 3 partitions; Weir needs 1" in caplog.text)
        # That it was made again may be seen with a later look than what is wrong with it.
        until(lambda: f"{topics.policies} was deleted and made again" in caplog.text)
    assert guarding.metric("topics_replaced_total", topic=topics.decisions) == 1
    until(lambda: admin_faults(api) == wrong, what="the admin API's metric")
    code, told = api.ask("PUT", f"{GROUPS}/rg1", {"publishRateInMsgs": 1})
    assert code == 503 and "has 3 partitions" in str(told)
    assert "--add-config cleanup.policy=compact" in api.log
    with pytest.raises(WeirError, match="has 3 partitions"):
        home = Home(cluster.kafka.bootstrap, topics)
        change_policies(home, lambda _log: [Update(path="broker", value={})], origin="apply")
    words = ["--settings", str(api._folder / "admin.yaml"), "--listen", "127.0.0.1:0"]
    done = weir("admin", "--kafka", cluster.kafka.bootstrap, *words, limit_s=30)
    assert done.returncode == 1 and "has 3 partitions; Weir needs 1" in done.stderr


def await_groups(api: Admin, names: list[str]) -> None:
    """Wait until an admin API lists exactly these groups."""
    until(lambda: api.ask("GET", GROUPS) == (200, names), what=f"{names}")


@pytest.mark.soak
def test_a_topic_made_again_is_read_from_its_start(
    cluster: Cluster, topics: Topics, guarding: ProxyThread, api: Admin, broker: AdminClient
) -> None:
    """More records than the old one had: none of the first is passed over, by proxy and admin API."""
    writer = PolicyWriter(cluster.kafka.bootstrap, topics)
    for number in range(3):
        writer.put(f"resourcegroups.old{number}", {"publishRateInMsgs": 1})
    await_groups(api, ["old0", "old1", "old2"])
    delete(broker, topics.policies)
    ensure_topics(Home(cluster.kafka.bootstrap, topics))
    for number in range(6):
        writer.put(f"resourcegroups.new{number}", {"publishRateInMsgs": 1})
    await_groups(api, [f"new{number}" for number in range(6)])
    held = guarding.proxy.coordinator.policies

    def known() -> set[str]:
        return {path.partition(".")[2] for path in held.at(2**62).entries}

    # A proxy keeps the limits that it knew beside those that it reads: it does not open because of this.
    until(lambda: known() == {f"old{n}" for n in range(3)} | {f"new{n}" for n in range(6)}, what="policies")
    until(lambda: admin_faults(api) == set())
