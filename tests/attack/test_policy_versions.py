"""Forged policy records must not stand in the way of whoever changes policies next."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from admin_process_kit import Admin
from cluster_kit import Cluster
from proxy_kit import Decider, ProxyThread, until
from stack_kit import put

from streaming.contract.topics import Cluster as Home
from streaming.contract.topics import Topics
from streaming.kafka_io import policy_turn
from streaming.kafka_io.policy_topic import read_policies
from weir.cli import main

PATH = "quotas[user=mallory]"
GROUP = "/admin/v2/resourcegroups/rg1"
FAR_MS = 253_402_300_799_999
"""The last ms of the year 9999, the latest time that an event may say."""
LAST = 2**63 - 1


def forge(cluster: Cluster, topics: Topics, path: str = PATH, rate: float = 1_000_000, **fields: Any) -> None:
    """Write a policy as whoever may write to the topic can."""
    value = {"controller_mutation_rate": rate} if path == PATH else {"publishRateInMsgs": rate}
    event = {"type": "policy", "path": path, "value": value, **fields}
    put(cluster.kafka.bootstrap, topics.policies, event, key=path)


@pytest.fixture
def apply(options: list[str], tmp_path: Path) -> Callable[[float], int]:
    """Run `weir policy apply` with this rate for mallory; gives the exit status."""
    policies = tmp_path / "policies.yaml"

    def run(rate: float) -> int:
        policies.write_text(
            f"version: 1\nquotas: [{{entity: {{user: mallory}}, controller_mutation_rate: {rate}}}]\n"
        )
        return main(["policy", "apply", str(policies), *options])

    return run


def rate_at(proxy: ProxyThread) -> float | None:
    """What limits mallory at a proxy now."""
    quota = proxy.proxy.coordinator.quota("mallory", "")
    return None if quota is None else quota.rate


@pytest.mark.soak
def test_a_version_at_the_end_of_all_numbers_is_refused(
    cluster: Cluster, topics: Topics, tmp_path: Path, apply: Callable[[float], int]
) -> None:
    """Also where an older release was stuck behind it: the job, proxies, apply and the API all go on."""
    forge(cluster, topics, version=LAST)
    # What a writer of an older release made of it, which nobody read.
    forge(cluster, topics, rate=5, version=LAST + 1)
    forge(cluster, topics, version=2**48 + 1)
    with (
        Decider(cluster.kafka.bootstrap, topics) as decider,
        ProxyThread(cluster.config(topics=topics)) as proxy,
    ):
        assert rate_at(proxy) is None
        assert apply(3) == 0
        until(lambda: rate_at(proxy) == 3, what="the proxy goes by the applied policy")
        letters = until(lambda: [d for d in decider.decisions if d["type"] == "dead_letter"])
        assert [letter["reason"].split(":")[0] for letter in letters] == ["version"] * 3
        # The greatest that may be stated is no end either.
        forge(cluster, topics, version=2**48)
        assert apply(4) == 0
        until(lambda: rate_at(proxy) == 4, what="the proxy goes by the next one")
        with Admin(cluster.kafka.bootstrap, tmp_path / "admin", topics.prefix) as admin:
            assert admin.ask("PUT", GROUP, {"publishRateInMsgs": 7}) == (204, "")
            assert admin.ask("GET", GROUP)[1]["publishRateInMsgs"] == 7
    log = read_policies(Home(cluster.kafka.bootstrap, topics))
    assert (log.bad_records, log.newest_version) == (3, 2**48 + 2)
    assert log.entries["resourcegroups.rg1"]["publishRateInMsgs"] == 7


@pytest.mark.soak
def test_a_change_dated_to_the_year_9999_is_overruled(
    cluster: Cluster, topics: Topics, tmp_path: Path, apply: Callable[[float], int]
) -> None:
    """What is written next is in force in two seconds, stays in force then, and compaction keeps it."""
    for path in (PATH, "resourcegroups.rg1"):
        forge(cluster, topics, path, effective_ts=FAR_MS)
        forge(cluster, topics, path, rate=10, effective_ts=time.time_ns() // 1_000_000 + 3_600_000)
    assert apply(3) == 0
    with Admin(cluster.kafka.bootstrap, tmp_path / "admin", topics.prefix) as admin:
        assert admin.ask("PUT", GROUP, {"publishRateInMsgs": 7}) == (204, "")
        assert admin.ask("GET", GROUP)[1]["publishRateInMsgs"] == 7
    log = read_policies(Home(cluster.kafka.bootstrap, topics))
    soon = time.time_ns() // 1_000_000 + policy_turn.EFFECTIVE_AFTER_MS
    for ts in (soon, soon + 3_600_000, FAR_MS):
        entries = log.timeline.at(ts).entries
        assert entries[PATH] == {"controller_mutation_rate": 3}
        assert entries["resourcegroups.rg1"]["publishRateInMsgs"] == 7


def test_a_writer_says_what_stands_in_the_way(
    cluster: Cluster, topics: Topics, apply: Callable[[float], int],
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """It reads back what it wrote: what readers refuse is not said to be in force."""
    written = policy_turn.records

    def of_an_older_release(*arguments: Any) -> list[tuple[str, bytes]]:
        lines = [(key, orjson.loads(value)) for key, value in written(*arguments)]
        return [(key, orjson.dumps(event | {"version": LAST + 1})) for key, event in lines]

    monkeypatch.setattr(policy_turn, "records", of_an_older_release)
    assert apply(3) == 1
    said = capsys.readouterr()
    assert "readers do not go by them: version: 9223372036854775808 is out of range" in said.err
    assert "in force from" not in said.out
    monkeypatch.undo()
    assert apply(3) == 0
    assert "in force from" in capsys.readouterr().out
