"""Decided where they are asked: at once, exactly, and with nothing forgotten (docs/contract.md 3.1)."""

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from cluster_kit import Cluster, fresh
from process_kit import proxy_process
from proxy_kit import ProxyThread, until
from threaded import Threaded, together
from wire_client import Closed, WireClient, errors

from enforcer.laws.mutation.local_decisions import LocalDecisions

Connect = Callable[..., WireClient]
Event = dict[str, Any]
RATE, BURST = 3.0, 22.0
ASKED_S = 5.0


def own_events(cluster: Cluster, client_id: str) -> list[Event]:
    """The request events of a client, in order."""
    return [e for e in cluster.decider.events if e.get("client_id") == client_id and e["type"] == "request"]


def admissions(cluster: Cluster, subject: str) -> list[Event]:
    """The admissions of a subject, in order."""
    return [made for made in cluster.decider.decisions if made.get("subject") == subject]


def test_the_job_is_away_and_agrees_when_it_is_back(
    cluster: Cluster, proxy: ProxyThread, wire: Connect
) -> None:
    """A lone proxy goes on as the law says; back again, the job takes all in and has nothing to correct."""
    name = fresh("away")
    subject = cluster.limit(proxy, name, controller_mutation_rate=1)
    client = wire(name)
    with cluster.decider.paused():
        began = time.monotonic()
        answer = client.create({f"{name}-{i}": 5 for i in range(4)})
        assert errors(answer) == {f"{name}-0": 0, f"{name}-1": 0, f"{name}-2": 0, f"{name}-3": 89}
        assert 3_000 < answer.throttle_time_ms <= 4_000
        assert time.monotonic() - began < 1.5
        again = wire(name).create({f"{name}-4": 1})
        assert errors(again) == {f"{name}-4": 89}
    until(lambda: len(admissions(cluster, subject)) >= 2, what="the job has decided")
    made = admissions(cluster, subject)
    sent = own_events(cluster, name)
    assert [e["decided"]["tokens"] for e in sent] == [d["tokens"] for d in made]
    assert [e["decided"]["outcome"] for e in sent] == [d["outcome"] for d in made] == ["reject", "reject"]
    assert not any("law" in d for d in made)
    until(lambda: local_of(proxy).tail == 0, what="nothing is left to be decided")


def local_of(proxy: ProxyThread) -> LocalDecisions:
    """What a proxy knows."""
    return proxy.proxy.coordinator.local_decisions


def test_a_killed_proxy_has_answered_nothing_that_is_forgotten(cluster: Cluster, tmp_path: Path) -> None:
    """kill -9 while the job is away: each answer has its event, and the next proxy knows them all."""
    name = fresh("killed")
    quota = {"controller_mutation_rate": 0.01, "controller_mutation_burst": 1_000}
    cluster.policies.put(f"quotas[user=ANONYMOUS,client-id={name}]", quota)
    admitted: list[str] = []

    def ask(bootstrap: str, number: int) -> None:
        with suppress(Closed, OSError), WireClient(bootstrap, name) as client:
            for count in range(200):
                topic = f"{name}-{number}-{count}"
                if errors(client.create({topic: 1}))[topic] == 0:
                    admitted.append(topic)

    with cluster.decider.paused():
        with (
            proxy_process(cluster, tmp_path, cluster.topics, name) as running,
            Threaded(*(partial(ask, running.bootstrap, n) for n in range(4))),
        ):
            until(lambda: len(admitted) >= 20, what="some are answered")
            running.process.kill()
        with ProxyThread(cluster.config(id=f"{name}-next")) as after:
            tokens = after.balance(name)
    until(lambda: len(own_events(cluster, name)) >= len(admitted), what="the events")
    sent = {item["name"] for event in own_events(cluster, name) for item in event["items"]}
    assert set(admitted) <= sent
    # What was on its way, and nobody has been answered, may be written after the next has read.
    assert 1_000 - len(sent) <= tokens <= 1_000 - len(admitted) + 1


def test_two_proxies_hold_the_quota_together(cluster: Cluster) -> None:
    """A client on each without pause: the law and one item for each proxy; the modest one at once."""
    name, modest = fresh("pair"), fresh("modest")
    for client_id in (name, modest):
        cluster.policies.put(
            f"quotas[user=ANONYMOUS,client-id={client_id}]",
            {"controller_mutation_rate": RATE, "controller_mutation_burst": BURST},
        )
    first, second = (cluster.config(id=f"{name}-{n}") for n in range(2))
    with ProxyThread(first) as one, ProxyThread(second) as two:
        until(lambda: local_of(one).proxies >= 2 and local_of(two).proxies >= 2, what="they know each other")
        ends = time.monotonic() + ASKED_S

        def ask(bootstrap: str) -> None:
            count = 0
            while time.monotonic() < ends:
                # A connection that was told to wait is not read: a client in a hurry makes another one.
                with WireClient(bootstrap, name) as client:
                    client.create({f"{name}-{bootstrap.rpartition(chr(58))[2]}-{count}": 1})
                count += 1

        def pass_some() -> None:
            for number in range(4):
                for proxy in (one, two):
                    pass_one(proxy, modest, number)

        together(pass_some, lambda: ask(one.bootstrap), lambda: ask(two.bootstrap))
        subject = f"user=ANONYMOUS,client-id={name}"
        until(lambda: not local_of(one).tail and not local_of(two).tail, what="all is decided")
    made = [d for d in admissions(cluster, subject) if d["outcome"] != "late"]
    spent, started = 0, made[0].get("applied_ts", made[0]["ts"])
    for decision in made:
        spent += decision["mutations"]
        passed_s = (decision.get("applied_ts", decision["ts"]) - started) / 1000
        # Each item is admitted while the balance is not negative: one goes beyond, and one for each proxy.
        assert spent <= BURST + RATE * passed_s + 1 + 2
    assert spent >= BURST + RATE * (ASKED_S - 3)
    # Within its quota nobody is asked.
    assert len(own_events(cluster, modest)) == 8
    assert all("decided" in event for event in own_events(cluster, modest))


def pass_one(proxy: ProxyThread, client_id: str, number: int) -> None:
    """A request that is within its quota."""
    with WireClient(proxy.bootstrap, client_id) as client:
        topic = f"{client_id}-{proxy.bootstrap.rpartition(':')[2]}-{number}"
        assert errors(client.create({topic: 1})) == {topic: 0}
