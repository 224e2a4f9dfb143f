"""Pulsar's Java tools and its own proxy on the local Pulsar, before anything of ours stands between."""

from pathlib import Path

import pytest
from pulsar_kit import Admin, fresh
from pulsar_tools import java_consume, java_produce

from benchmarks.load.pulsar_perf import perf
from benchmarks.peers.pulsar_proxy import own_proxy
from weir.stack.pulsar import LocalPulsar

pytestmark = pytest.mark.soak


def test_messages_of_the_command_line_client_come_back(
    pulsar: LocalPulsar, admin: Admin, tmp_path: Path
) -> None:
    """Also through Pulsar's own proxy."""
    topic = admin.topic(fresh("java"))
    java_produce(pulsar.service, topic, ["one", "two"], tmp_path)
    with own_proxy(pulsar, tmp_path) as (_, service):
        java_produce(service, topic, ["three"], tmp_path)
        assert java_consume(service, topic, 3, tmp_path) == ["one", "two", "three"]


def test_figures_of_pulsar_perf_are_read(pulsar: LocalPulsar, admin: Admin, tmp_path: Path) -> None:
    """Messages, rate and latency, of both kinds."""
    topic = admin.topic(fresh("perf"))
    sent = perf("produce", pulsar.service, topic, tmp_path, "-r", "2000", "-m", "4000", "-s", "100")
    assert sent.messages >= 4_000 and 0 < sent.p50_ms <= sent.p99_ms
    got = perf("consume", pulsar.service, topic, tmp_path, "-m", "4000", "-sp", "Earliest")
    assert got.messages >= 4_000 and got.rate > 0
