"""`weir policy mode`, and raises that end by themselves, felt by a client of a real broker."""

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from cluster_kit import Cluster, fresh
from proxy_kit import Decider, PolicyWriter, ProxyThread, until
from stack_kit import put
from wire_client import WireClient, errors

from streaming.contract.names import PROBE_SUFFIX
from streaming.contract.topics import Cluster as Home
from streaming.contract.topics import Topics
from streaming.kafka_io.policy_topic import read_policies

USER = "quotas[user=ANONYMOUS]"
LIMITS = "controller_mutation_rate: 0.001, controller_mutation_burst: 1"
NEVER_AGAIN = {"controller_mutation_rate": 0.001, "controller_mutation_burst": 1}


class World:
    """A proxy of an installation of its own, with its job."""

    def __init__(self, cluster: Cluster, topics: Topics, proxy: ProxyThread, decider: Decider) -> None:
        self.cluster, self.topics, self.proxy, self.decider = cluster, topics, proxy, decider
        self.policies = PolicyWriter(cluster.kafka.bootstrap, topics)
        self.asked = 0

    def create(self) -> int:
        """Ask for a topic of three partitions; the error."""
        self.asked += 1
        with WireClient(self.proxy.bootstrap, "terraform") as client:
            (error,) = errors(client.create({fresh("mode"): 3})).values()
            return error

    def admissions(self) -> list[dict[str, Any]]:
        """What the job has decided of the client, in order."""
        return [
            one
            for one in self.decider.decisions
            if one["type"] == "admission" and not one["id"].endswith(PROBE_SUFFIX)
        ]

    def until_limited(self) -> int:
        """Ask until a limit is in force that allows it; how many were decided until then."""

        def limited() -> int:
            assert self.create() == 0
            found = self.admissions()
            return len(found) if found and found[-1]["limit"] else 0

        asked = until(limited, what="a limit in force")
        return int(asked)


@pytest.fixture
def world(cluster: Cluster, topics: Topics) -> Iterator[World]:
    """See there."""
    config = cluster.config(id=fresh("mode"), topics=topics)
    with Decider(cluster.kafka.bootstrap, topics) as decider, ProxyThread(config) as proxy:
        yield World(cluster, topics, proxy, decider)


def test_a_throttled_client_is_let_go_and_held_again(
    world: World, weir: Callable[..., list[str]], tmp_path: Path
) -> None:
    """Tracked it is decided in shadow, off not at all; who changed it, and why, is told; files leave it."""
    world.policies.put(USER, NEVER_AGAIN)
    until(lambda: world.create() == 89, what="a limit in force")
    (told,) = weir("policy", "mode", "track", "--reason", "incident 7")
    assert told.startswith("mode track: version 3, in force from ")
    until(lambda: world.create() == 0, what="nothing held back")
    until(lambda: world.admissions()[-1]["shadow"], what="a decision in shadow")
    assert world.admissions()[-1]["outcome"] == "reject"
    assert weir("policy", "mode", "track") == ["mode track: version 3 already"]
    file = tmp_path / "policies.yaml"
    file.write_text(f"version: 1\nquotas: [{{entity: {{user: ANONYMOUS}}, {LIMITS}}}]\n")
    assert "left   mode (not set by a file)" in weir("policy", "apply", str(file))
    assert {"# set by `weir policy mode`: mode", "mode: track"} <= set(weir("policy", "get"))

    weir("policy", "mode", "off")
    until(lambda: world.create() == 0 and world.admissions()[-1]["limit"] is None, what="an undecided one")
    weir("policy", "mode", "enforce")
    # What was off is no debt: the bucket begins full.
    until(lambda: world.create() == 89, what="a limit in force again")
    said = [orjson.loads(line) for line in weir("policy", "log", "--entry", "mode", "--json")]
    assert [(one["old"], one["new"], one["reason"]) for one in said] == [
        (None, "track", "incident 7"), ("track", "off", ""), ("off", "enforce", ""),
    ]  # fmt: skip
    assert all(one["actor"].startswith("mode:") for one in said)


def test_nobody_is_limited_by_policies_that_are_only_tried(world: World) -> None:
    """A statement of theirs says of no balance what it is."""
    world.policies.put(USER, {"controller_mutation_rate": 1, "controller_mutation_burst": 100})

    world.until_limited()
    own = world.admissions()[-1]
    tried = {**own, "tokens": -1e6, "outcome": "reject", "throttle_time_ms": 10**6, "candidate": "stricter"}
    said = [{**tried, "id": f"tried-{at_ms}", "ts": own["ts"] + at_ms} for at_ms in range(3)]
    put(world.cluster.kafka.bootstrap, world.topics.decisions, *said, key=own["subject"])
    assert world.create() == 0
    # Decisions are read in order: once its own is read, those are too.
    until(lambda: not world.proxy.proxy.coordinator.local_decisions.tail, what="nothing undecided")
    assert world.create() == 0
    assert {one["outcome"] for one in world.admissions()} == {"allow"}


@pytest.mark.soak
def test_a_raise_ends_without_a_record(world: World, weir: Callable[..., list[str]]) -> None:
    """Until then the raised values count, at the proxy and in the job, and from then on the entry's own."""
    end = datetime.now(UTC) + timedelta(seconds=4)
    raised = {"controller_mutation_burst": 1000, "until": end.isoformat()}
    world.policies.put(USER, {**NEVER_AGAIN, "raise": raised})
    assert any(line.startswith("# raised until ") and line.endswith(USER) for line in weir("policy", "get"))
    before = world.until_limited()
    while time.time() < end.timestamp() - 0.5:
        assert world.create() == 0
    assert world.asked > before + 1
    time.sleep(max(0.0, end.timestamp() + 0.1 - time.time()))
    assert (world.create(), world.create()) == (0, 89)
    until(lambda: len(world.admissions()) == world.asked, what="all decided")
    said = world.admissions()[before:]
    assert {one["policy_version"] for one in said} == {2}
    assert [one["outcome"] for one in said] == ["allow"] * (len(said) - 1) + ["reject"]
    assert not any("law" in one for one in said)
    assert read_policies(Home(world.cluster.kafka.bootstrap, world.topics)).records == 1
