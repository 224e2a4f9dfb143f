"""Kafka's own Java clients and tools through the proxy (docs/protocol_notes.md 2.2)."""

from pathlib import Path

import pytest
from cluster_kit import Cluster, fresh
from proxy_kit import ProxyThread
from stack_kit import run_java

ADMIN = Path(__file__).with_name("CreateTopics.java")


def create(proxy: ProxyThread, name: str, retry: bool, *topics: str) -> dict[str, list[str]]:
    """Create topics with the Java AdminClient; topic (or `took`) -> what it printed."""
    done = run_java(str(ADMIN), proxy.bootstrap, name, str(retry).lower(), *topics)
    assert done.returncode == 0, done.stderr
    return {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}


def test_the_default_client_retries_by_itself(cluster: Cluster, proxy: ProxyThread) -> None:
    """Java's default client waits out the throttle and gets all its topics without an error."""
    name = fresh("java")
    cluster.limit(proxy, name, controller_mutation_rate=5)
    said = create(proxy, name, True, f"{name}-a=60", f"{name}-b=5", f"{name}-c=5")
    assert [said[f"{name}-{part}"] for part in "abc"] == [["ok"], ["ok"], ["ok"]]
    assert 1_500 < int(said["took"][0]) < 8_000


@pytest.mark.soak
def test_without_retry_it_fails_with_the_throttle_time(cluster: Cluster, proxy: ProxyThread) -> None:
    """With retryOnQuotaViolation off the exception carries the throttle time."""
    name = fresh("java")
    cluster.limit(proxy, name, controller_mutation_rate=5)
    said = create(proxy, name, False, f"{name}-a=75", f"{name}-b=5")
    # Kafka's client sends topics in the order of a hash map.
    outcomes = sorted(said[f"{name}-{part}"] for part in "ab")
    assert outcomes[0] == ["ok"]
    if outcomes[1] != ["ok"]:
        assert outcomes[1][0] == "throttled" and 3_000 < int(outcomes[1][1]) <= 4_000


@pytest.mark.soak
def test_the_topic_command_shows_the_message(cluster: Cluster, proxy: ProxyThread) -> None:
    """kafka-topics does not retry: it prints our explanation and fails."""
    cluster.policies.put("quotas[client-id=admin-cli]", {"controller_mutation_rate": 1})
    cluster.await_quota(proxy, "ANONYMOUS", "admin-cli", 1)
    name = fresh("cli")
    config = ADMIN.parent / "cli.properties"
    tool = "org.apache.kafka.tools.TopicCommand"
    common = ("--bootstrap-server", proxy.bootstrap, "--command-config", str(config))
    first = run_java(tool, *common, "--create", "--topic", f"{name}-a", "--partitions", "40")
    assert first.returncode == 0, first.stderr
    second = run_java(tool, *common, "--create", "--topic", f"{name}-b", "--partitions", "1")
    assert second.returncode == 1
    assert "retry after" in second.stdout + second.stderr


def test_transactions_and_fetch_sessions(cluster: Cluster, proxy: ProxyThread) -> None:
    """A transactional Java producer and a Java consumer group work unharmed, addresses rewritten."""
    name = fresh("perf")
    produced = run_java(
        "org.apache.kafka.tools.ProducerPerformance",
        "--topic", name, "--num-records", "20000", "--record-size", "200", "--throughput", "-1",
        "--transactional-id", name, "--transaction-duration-ms", "200",
        "--command-property", f"bootstrap.servers={proxy.bootstrap}",
    )  # fmt: skip
    assert produced.returncode == 0 and "20000 records sent" in produced.stdout, produced.stderr
    consumed = run_java(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        "--bootstrap-server", proxy.bootstrap, "--topic", name, "--from-beginning", "--group", name,
        "--isolation-level", "read_committed", "--max-messages", "20000", "--timeout-ms", "20000",
    )  # fmt: skip
    assert len(consumed.stdout.splitlines()) == 20_000, consumed.stderr
