"""`weir up --pulsar local` as a user starts it: both proxies, one admin API, one brain."""

import os
import signal
from collections.abc import Iterator

import pytest
from pulsar.exceptions import NotAllowedError
from pulsar_kit import Admin, client, fresh, receive, send_all
from stack_kit import STOP_LIMIT_S, Up, running, until

pytestmark = pytest.mark.soak

SETTINGS = """\
proxy:
  decision_timeout_ms: 10000
local:
  kafka_port: 0
  pulsar_port: 0
  pulsar_admin_port: 0
"""
POLICIES = """\
version: 1
quotas:
  - entity: {user: null, client-id: null}
    controller_mutation_rate: 1
    controller_mutation_burst: 11
"""


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """With a Pulsar of its own, parts started again when they end."""
    words = ("--pulsar", "local", "--pulsar-listen", "127.0.0.1:0", "--restart")
    with Up(tmp_path_factory.mktemp("up-pulsar"), *words, settings=SETTINGS, policies=POLICIES) as stack:
        yield stack


def passes(up: Up) -> bool:
    """Whether a message comes back through the proxy of Pulsar."""
    topic = fresh("passing")
    with client(up.ready["pulsar_proxy"]) as connected:
        consumer = connected.subscribe(topic, "s")
        send_all(connected.create_producer(topic), [b"message"])
        return [one.data for one in receive(consumer, most=1)] == [b"message"]


def test_the_ready_file_names_pulsar_too(up: Up) -> None:
    """The broker, the proxy, the broker's own admin API, and their processes."""
    assert {"pulsar", "pulsar_proxy", "pulsar_admin"} <= set(up.ready)
    assert {"pulsar", "pulsar_proxy"} <= set(up.ready["pids"])
    assert all(running(pid) for pid in up.ready["pids"].values())
    assert f"pulsar://{up.ready['pulsar_proxy']}" in up.text()


def test_clients_and_tools_of_pulsar_work_through_weir(up: Up) -> None:
    """Messages pass; the admin API passes on what is Pulsar's and refuses what is over the quota."""
    assert passes(up)
    behind, before = Admin(up.ready["pulsar_admin"]), Admin(up.ready["admin"])
    assert before.do("GET", "tenants") == behind.do("GET", "tenants")
    first, second = (f"persistent://public/default/{fresh('over')}" for _ in range(2))
    before.topic(first, partitions=30)
    refused = before.ask("PUT", f"{second.replace('://', '/')}/partitions", 30)
    assert refused.status == 429 and int(refused.headers["retry-after"]) > 1
    assert refused.body["reason"]
    assert behind.exists(first) and not behind.exists(second)


def test_one_page_has_the_metrics_of_both_proxies(up: Up) -> None:
    """Each family once; the series of Pulsar's proxy have its name."""
    text = up.metrics()
    assert 'weir_part_up{part="pulsar_proxy"} 1' in text
    assert 'weir_proxy_policy_version{part="pulsar_proxy"}' in text
    families = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(families) == len(set(families))


@pytest.mark.parametrize("part", ["pulsar_proxy", "pulsar"])
def test_a_part_of_pulsar_is_started_again(up: Up, part: str) -> None:
    """And clients find it where it was."""
    before = dict(up.ready)
    pid = up.pid(part)
    os.kill(pid, signal.SIGKILL)
    up.wait_ready(newer_than=before)
    assert up.pid(part) != pid

    def passes_again() -> bool:
        try:
            return passes(up)
        except NotAllowedError:
            # A new topic, and the quota is still paying for the thirty partitions.
            return False

    until(passes_again, what="a message through the proxy", limit_s=60)


def test_it_all_stops_in_time(up: Up) -> None:
    """Within the limit, status 0, no process left."""
    pids = [pid for pid in up.ready["pids"].values() if pid]
    up.signal(signal.SIGTERM)
    assert up.wait(STOP_LIMIT_S) == 0
    assert not any(running(pid) for pid in pids)
