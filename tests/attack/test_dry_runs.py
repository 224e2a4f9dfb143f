"""What is not charged is not free of all bounds: dry runs, refusals, and questions asked at the same time."""

import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from cluster_kit import Cluster, fresh
from kafka.protocol.admin import topics
from proxy_kit import ProxyThread, until
from wire_client import WireClient, create_request, errors

from enforcer.core import bounds

Connect = Callable[..., WireClient]
CONNECTIONS, EACH = 30, 10
TEN_A_SECOND = {"controller_mutation_rate": 0.01, "controller_mutation_burst": 0.011}
"""By `proxy.dry_run_factor` (1,000) dry runs of ten mutations a second are free, and of eleven at once."""
LATE_MS = 2_000.0
"""`proxy.decision_timeout_ms`: a bystander that waits longer was not decided."""


def flood(stack: ExitStack, proxy: ProxyThread, name: str, *, dry: bool) -> list[WireClient]:
    """Connections of one client that send all they have at once."""
    clients = [stack.enter_context(WireClient(proxy.bootstrap, name)) for _ in range(CONNECTIONS)]
    for number, client in enumerate(clients):
        for _ in range(EACH):
            client.send(create_request({f"{name}-{number}": 1}, validate_only=dry))
    return clients


def waited_ms(client: WireClient, topic: str) -> float:
    """How long a dry run takes."""
    began = time.monotonic()
    assert errors(client.create({topic: 1}, validate_only=True)) == {topic: 0}
    return (time.monotonic() - began) * 1000


def events_of(cluster: Cluster, name: str) -> int:
    """Requests of a client that the job was told of."""
    return sum(event.get("client_id") == name for event in list(cluster.decider.events))


@pytest.mark.parametrize("decide", ["local", "strict"])
def test_dry_runs_have_a_rate_of_their_own(
    cluster: Cluster, proxy: ProxyThread, wire: Connect, decide: str
) -> None:
    """300 at once at ten a second, burst 11: some are answered, the rest waits; a bystander does not."""
    name, other = fresh("dryflood"), fresh("bystander")
    cluster.limit(proxy, name, **TEN_A_SECOND, decide=decide)
    cluster.limit(proxy, other, controller_mutation_rate=100)
    bystander = wire(other)
    with ExitStack() as stack:
        clients = flood(stack, proxy, name, dry=True)
        began = time.monotonic()
        # The first of each connection may all have been under way before one was counted.
        answers = [client.receive(topics.CreateTopicsResponse, 7) for client in 2 * clients]
        waits = [waited_ms(bystander, f"{other}-{number}") for number in range(5)]
        refused = [part for answer in answers for part in answer.topics if part.error_code == 89]
        assert refused and "Dry runs of client-id=" in refused[0].error_message.replace("user=ANONYMOUS,", "")
        # As many as came before the first was counted, one a connection, and ten a second from then on.
        passed_s = time.monotonic() - began
        assert events_of(cluster, name) <= 11 + CONNECTIONS + 10 * (passed_s + 1)
    assert sorted(waits)[len(waits) // 2] < LATE_MS
    assert proxy.metric("unreported_requests_total") > 0
    assert proxy.metric("requests_total", api="CreateTopics", outcome="dry_run") > 0


@pytest.mark.parametrize("decide", ["local", "strict"])
def test_old_dry_runs_wait_instead(cluster: Cluster, proxy: ProxyThread, wire: Connect, decide: str) -> None:
    """An old version knows no refusal: it is held until its rate allows it, and then carried out."""
    name = fresh("olddry")
    cluster.limit(proxy, name, **TEN_A_SECOND, decide=decide)
    client = wire(name)
    many = {f"{name}-{number}": 1 for number in range(31)}
    assert set(errors(client.create(many, 5, validate_only=True)).values()) == {0}
    began = time.monotonic()
    assert set(errors(client.create({f"{name}-a": 1}, 5, validate_only=True)).values()) == {0}
    # 11 - 31 = -20, at ten a second.
    assert 1.5 < time.monotonic() - began < 5


def test_refusals_are_not_reported_without_end(cluster: Cluster, proxy: ProxyThread, wire: Connect) -> None:
    """A client that goes on while it must wait is told so, and the job only of some of it."""
    name = fresh("hammer")
    cluster.limit(proxy, name, controller_mutation_rate=0.1, controller_mutation_burst=11)
    client = wire(name)
    assert errors(client.create({f"{name}-a": 100})) == {f"{name}-a": 0}
    assert errors(client.create({f"{name}-b": 1})) == {f"{name}-b": 89}
    with ExitStack() as stack:
        clients = flood(stack, proxy, name, dry=False)
        for flooder in clients:
            assert set(errors(flooder.receive(topics.CreateTopicsResponse, 7)).values()) == {89}
        time.sleep(0.5)
        assert events_of(cluster, name) <= 2 + 11 + 5


def test_a_subject_has_so_many_questions_open(
    cluster: Cluster, proxy_with: Callable[..., ProxyThread], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At two a subject five connections ask in turn; nobody else waits for them, and none is let through."""
    monkeypatch.setattr(bounds, "OPEN_QUESTIONS_MAX", 2)
    proxy = proxy_with(id=fresh("turns"), decide="strict", decision_timeout_ms=8_000)
    name, other = fresh("crowd"), fresh("bystander")
    for client_id in (name, other):
        cluster.limit(proxy, client_id, controller_mutation_rate=100)
    until(proxy.proxy.enforcement.ready.is_set, what="a decided probe")
    with ExitStack() as stack:
        clients = [stack.enter_context(WireClient(proxy.bootstrap, name)) for _ in range(5)]
        bystander = stack.enter_context(WireClient(proxy.bootstrap, other))
        with cluster.decider.paused():
            for number, client in enumerate(clients):
                client.send(create_request({f"{name}-{number}": 1}))
            until(lambda: len(proxy.waiting(name)) == 2)
            bystander.send(create_request({f"{other}-a": 1}))
            until(lambda: len(proxy.waiting(other)) == 1)
            assert len(proxy.waiting(name)) == 2
            # One that leaves makes room for the next in line.
            clients[0].socket.close()
            clients[4].socket.close()
            time.sleep(0.3)
            assert len(proxy.waiting(name)) == 2
        for number, client in enumerate(clients[1:4], 1):
            answer = client.receive(topics.CreateTopicsResponse, 7)
            assert errors(answer) == {f"{name}-{number}": 0}
        assert errors(bystander.receive(topics.CreateTopicsResponse, 7)) == {f"{other}-a": 0}
        assert proxy.waiting(name) == []
