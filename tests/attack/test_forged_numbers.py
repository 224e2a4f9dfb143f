"""Numbers on Weir's own topics that nobody's law has made: not used, counted, and nobody notices."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from cluster_kit import Cluster, fresh
from kafka.protocol.admin import topics
from proxy_kit import ProxyThread, until
from stack_kit import put
from wire_client import WireClient, create_request, errors

Connect = Callable[..., WireClient]
INT32_MAX = 2**31 - 1
NUMBERS = (b"1.7e308", b"NaN", b"-1", b"9223372036854775808", b"Infinity", b"1e999", b'"7"', b"null", b"[]")


def forge(cluster: Cluster, topic: str, values: list[bytes]) -> None:
    """Write records as whoever may write to the topic can."""
    put(cluster.kafka.bootstrap, topic, *values, key=b"x")


def with_numbers(fields: dict[str, Any], *keys: str) -> list[bytes]:
    """The object as JSON with each of these keys once as each of the numbers."""
    found = []
    for key in keys:
        whole = orjson.dumps({**fields, key: "HERE"})
        found += [whole.replace(b'"HERE"', number) for number in NUMBERS]
    return found


def admission(ask_id: str, proxy_id: str, subject: str, **fields: Any) -> dict[str, Any]:
    """A decision for somebody's question."""
    return {
        "type": "admission", "id": ask_id, "ts": 1_795_166_668_000, "proxy": proxy_id, "subject": subject,
        "throttle_time_ms": 0, "rejected": [], "limit": 1.0, "tokens": 1.0, "rate": 1.0, "shadow": False,
        **fields,
    }  # fmt: skip


@pytest.fixture
def asked(cluster: Cluster, proxy_with: Callable[..., ProxyThread]) -> Any:
    """A client that waits for its decision while the job is down: proxy, subject, connection, topic."""
    proxy = proxy_with(id=fresh("forged"), decide="strict", decision_timeout_ms=8_000)
    name = fresh("victim")
    subject = cluster.limit(proxy, name, controller_mutation_rate=1)
    until(proxy.proxy.enforcement.ready.is_set, what="a decided probe")
    with WireClient(proxy.bootstrap, name) as client, cluster.decider.paused():
        client.send(create_request({f"{name}-a": 1}))
        until(lambda: proxy.waiting(name))
        yield proxy, subject, client, f"{name}-a"


def test_forged_decisions_are_not_used(cluster: Cluster, asked: Any) -> None:
    """Their numbers are no throttle times, nor balances: the client gets its own decision."""
    proxy, subject, client, topic = asked
    (ask,) = proxy.waiting(client.client_id)
    fields = admission(ask.id, proxy.proxy.coordinator.proxy_id, subject)
    forged = with_numbers(fields, "throttle_time_ms", "ts")
    usable = {b"null", b"-1"}
    forged += [
        value
        for key in ("tokens", "rate", "limit")
        for number, value in zip(NUMBERS, with_numbers(fields, key), strict=True)
        if number not in usable | {b"9223372036854775808", b"1.7e308"}
    ]
    share = {"type": "share", "group": "g", "broker": "b", "ts": 5, "ttl_ms": 5, "limits": {}, "usage": {}}
    forged += with_numbers(share, "ts", "ttl_ms")
    forged += [
        orjson.dumps({**share, "limits": {"publishRateInMsgs": "HERE"}}).replace(b'"HERE"', number)
        for number in NUMBERS
        if number not in (b"9223372036854775808", b"1.7e308")
    ]
    name = cluster.topics.decisions
    before = proxy.metric("unusable_records_total", topic=name)
    forge(cluster, name, forged)
    until(lambda: proxy.metric("unusable_records_total", topic=name) >= before + len(forged))
    assert proxy.waiting(client.client_id) == [ask]
    cluster.decider.resume()
    assert errors(client.receive(topics.CreateTopicsResponse, 7)) == {topic: 0}


def test_forged_balances_are_not_used(cluster: Cluster, proxy: ProxyThread, wire: Connect) -> None:
    """Nobody gets out of debt by a statement whose numbers no law has made."""
    name = fresh("debtor")
    subject = cluster.limit(proxy, name, controller_mutation_rate=0.01, decide="local")
    assert errors(wire(name).create({f"{name}-a": 20})) == {f"{name}-a": 0}
    assert errors(wire(name).create({f"{name}-b": 1})) == {f"{name}-b": 89}
    now_ms = proxy.proxy.enforcement.context.clock.wall_ms()
    fields = admission(fresh("statement"), "another", subject, ts=now_ms)
    forged = with_numbers(fields, "ts", "throttle_time_ms")
    finite = {b"null", b"-1", b"9223372036854775808", b"1.7e308"}
    forged += [
        value
        for number, value in zip(NUMBERS, with_numbers(fields, "tokens"), strict=True)
        if number not in finite
    ]
    before = proxy.metric("unusable_records_total", topic=cluster.topics.decisions)
    forge(cluster, cluster.topics.decisions, forged)
    until(
        lambda: proxy.metric("unusable_records_total", topic=cluster.topics.decisions) >= before + len(forged)
    )
    assert errors(wire(name).create({f"{name}-b": 1})) == {f"{name}-b": 89}


def test_the_longest_wait_is_what_an_answer_can_say(cluster: Cluster, asked: Any) -> None:
    """A law may say 2^63 - 1 ms; 32 bits hold 24.8 days, and nothing ends with an error."""
    proxy, subject, client, topic = asked
    (ask,) = proxy.waiting(client.client_id)
    now_ms = proxy.proxy.enforcement.context.clock.wall_ms()
    fields = admission(ask.id, proxy.proxy.coordinator.proxy_id, subject, ts=now_ms, rejected=[topic])
    forge(cluster, cluster.topics.decisions, [orjson.dumps({**fields, "throttle_time_ms": 2**63 - 1})])
    answer = client.receive(topics.CreateTopicsResponse, 7)
    assert errors(answer) == {topic: 89}
    assert INT32_MAX - 60_000 < answer.throttle_time_ms <= INT32_MAX
    assert not client.closed_within(0.2)


def test_forged_policies_are_counted(cluster: Cluster, proxy: ProxyThread) -> None:
    """A rate that is no rate, a time that is no time: what was in force stays."""
    name = fresh("policed")
    cluster.limit(proxy, name, controller_mutation_rate=7)
    path = f"quotas[user=ANONYMOUS,client-id={name}]"
    event = {"type": "policy", "path": path, "value": {"controller_mutation_rate": 1}}
    forged = with_numbers(event, "effective_ts", "version", "ts")
    nested = orjson.dumps({**event, "value": {"controller_mutation_rate": "HERE"}})
    odd = (b"NaN", b"Infinity", b"1e999", b"0", b"-2", b"1e-300", b'"7"', b"[]")
    forged += [nested.replace(b'"HERE"', number) for number in odd]
    before = proxy.metric("unusable_records_total", topic=cluster.topics.policies)
    forge(cluster, cluster.topics.policies, forged)
    until(
        lambda: proxy.metric("unusable_records_total", topic=cluster.topics.policies) >= before + len(forged)
    )
    quota = proxy.proxy.coordinator.quota("ANONYMOUS", name)
    assert quota is not None and quota.rate == 7
