"""Processes that come and go: under a name that is taken, after kill -9, and while the job is away."""

import signal
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from broker_fixtures import apart, serving
from cluster_kit import Cluster, fresh
from process_kit import Command
from proxy_kit import Decider, ProxyThread, until
from stack_kit import series_at
from wire_client import WireClient, errors

from enforcer.core.feeds import membership
from enforcer.laws.mutation import law
from weir.cli import DONE, main
from weir.foreground import AWAY, HERE
from weir.stack.kafka import free_port

QUOTA = {"controller_mutation_rate": 0.05, "controller_mutation_burst": 20}
START_S = 60.0


class Proxy(Command):
    """`weir proxy` of a cluster.

    Attributes:
        listen: where clients connect to.
    """

    def __init__(self, cluster: Cluster, path: Path, name: str) -> None:
        self.listen = f"127.0.0.1:{free_port()}"
        words = ["--kafka", cluster.kafka.bootstrap, "--listen", self.listen, "--metrics", "127.0.0.1:0"]
        super().__init__(path, "proxy", *words, "--id", name, kafka={"topic_prefix": cluster.topics.prefix})

    def metric(self, name: str) -> float:
        """One of its series."""
        return series_at(self.ready()["metrics"])[f"weir_proxy_{name}"]


@pytest.mark.soak
def test_a_name_that_is_taken(cluster: Cluster, tmp_path: Path) -> None:
    """Who has it goes on, who comes later ends and says what to do; who was killed comes back under it."""
    with apart(cluster, "taken") as own, ExitStack() as running:
        first = running.enter_context(Proxy(own, tmp_path / "first", "edge"))
        assert first.ready()["job"] == HERE and first.metric("same_name_total") == 0
        with Proxy(own, tmp_path / "second", "edge") as second:
            assert second.process.wait(START_S) == 1
            last = second.log.read_text().splitlines()[-1]
            assert "another process is 'edge'" in last and "--id" in last
            assert not second.ready_file.exists()
        until(lambda: first.metric("same_name_total") > 0, what="the first one counts it")
        assert "another process is 'edge' too" in first.log.read_text()
        until(lambda: first.metric("proxies_alive") == 1, what="it has left")
        first.process.send_signal(signal.SIGKILL)
        first.process.wait(5)
        again = running.enter_context(Proxy(own, tmp_path / "again", "edge"))
        assert again.ready()["job"] == HERE and again.metric("same_name_total") == 0
        until(lambda: again.metric("proxies_alive") == 1, what="it counts itself once")


def test_who_is_alone_waits_for_nobody_to_hear_of_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who comes later hears of it; that one lets nothing be decided before it has been heard of."""
    monkeypatch.setattr(membership, "_HEARD_S", 60.0)
    with apart(cluster, "heard") as own, ProxyThread(own.config(id="first")) as first:
        assert first.proxy.coordinator.reading is None
        with ProxyThread(own.config(id="second", start_timeout_ms=2_000)) as second:
            assert second.proxy.coordinator.reading is not None
            until(lambda: first.metric("proxies_alive") == 2, what="it has heard of the second")


@pytest.mark.soak
def test_a_proxy_that_starts_while_the_job_is_away(cluster: Cluster, tmp_path: Path, capsys: Any) -> None:
    """It goes by what was decided before, and says that it is alone until the job is there."""
    name = fresh("alone")
    with (
        apart(cluster, "alone") as own,
        ProxyThread(own.config(id="before")) as before,
        WireClient(before.bootstrap, name) as client,
    ):
        own.limit(before, name, **QUOTA)
        assert set(errors(client.create({f"{name}-{n}": 1 for n in range(15)})).values()) == {0}
        until(lambda: own.decider.decisions, what="it is decided")
    with Proxy(own, tmp_path / "proxy", "after") as proxy:
        assert proxy.ready()["job"] == AWAY and proxy.metric("alone") == 1
        assert main(["healthy", str(proxy.ready_file)]) == DONE
        assert "without the job" in capsys.readouterr().out
        begun = time.monotonic()
        with WireClient(proxy.listen, name) as client:
            codes = errors(client.create({f"{name}-{n}": 1 for n in range(15, 30)}))
        # 5 of the burst are left, and what has come since: 1 in 20 s; one item makes the balance negative.
        admitted = list(codes.values()).count(0)
        assert 6 <= admitted <= 11 and set(codes.values()) == {0, 89}
        assert time.monotonic() - begun < 2.0
        with Decider(own.kafka.bootstrap, own.topics):
            until(lambda: proxy.ready()["job"] == HERE, START_S, "a decided probe")
            assert proxy.metric("alone") == 0


@pytest.mark.soak
def test_what_was_decided_while_the_job_is_long_away(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read back from when the job last spoke, though that was of nobody's balance and is long ago."""
    monkeypatch.setattr(law, "BACK_MS", 1)
    monkeypatch.setattr(law, "BACK_MAX_MS", 1)
    name = fresh("silent")
    with (
        apart(cluster, "silent") as own,
        serving(own, id="first") as first,
        WireClient(first.bootstrap, name) as client,
    ):
        own.limit(first, name, **QUOTA)
        with own.decider.paused():
            assert set(errors(client.create({f"{name}-{n}": 1 for n in range(15)})).values()) == {0}
            # So long does a start look back at least, with what it adds for clocks that disagree.
            time.sleep(3.0)
            with ProxyThread(own.config(id="second")) as second:
                assert 5.0 <= second.balance(name) <= 6.0
