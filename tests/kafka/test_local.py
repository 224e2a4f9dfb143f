"""Decided where they are asked: at once, exactly, and with nothing forgotten (docs/contract.md 3.1)."""

import time
from collections.abc import Callable

from cluster_kit import Cluster, fresh
from proxy_kit import ProxyThread, until
from wire_client import WireClient, errors

Connect = Callable[..., WireClient]


def own_events(cluster: Cluster, client_id: str) -> list[dict]:  # type: ignore[type-arg]
    """The request events of a client, in order."""
    return [e for e in cluster.decider.events if e.get("client_id") == client_id and e["type"] == "request"]


def admissions(cluster: Cluster, subject: str) -> list[dict]:  # type: ignore[type-arg]
    """The admissions of a subject, in order."""
    return [made for made in cluster.decider.decisions if made.get("subject") == subject]


def test_the_job_is_away_and_agrees_when_it_is_back(
    cluster: Cluster, proxy: ProxyThread, wire: Connect
) -> None:
    """A lone proxy goes on as the law says; back again, the job takes all in and has nothing to correct."""
    name = fresh("away")
    subject = cluster.limit(proxy, name, controller_mutation_rate=1)
    client = wire(name)
    cluster.decider.pause()
    try:
        began = time.monotonic()
        answer = client.create({f"{name}-{i}": 5 for i in range(4)})
        assert errors(answer) == {f"{name}-0": 0, f"{name}-1": 0, f"{name}-2": 0, f"{name}-3": 89}
        assert 3_000 < answer.throttle_time_ms <= 4_000
        assert time.monotonic() - began < 1.5
        again = wire(name).create({f"{name}-4": 1})
        assert errors(again) == {f"{name}-4": 89}
    finally:
        cluster.decider.resume()
    until(lambda: len(admissions(cluster, subject)) >= 2, what="the job has decided")
    made = admissions(cluster, subject)
    sent = own_events(cluster, name)
    assert [e["decided"]["tokens"] for e in sent] == [d["tokens"] for d in made]
    assert [e["decided"]["outcome"] for e in sent] == [d["outcome"] for d in made] == ["reject", "reject"]
    assert not any("law" in d for d in made)
    assert proxy.proxy is not None
    until(lambda: proxy.proxy.coordinator.local.book.tail == 0, what="nothing is left to be decided")  # type: ignore[union-attr]
