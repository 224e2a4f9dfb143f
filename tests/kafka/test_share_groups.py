"""Share groups (KIP-932) through the proxy on a broker that has them (docs/protocol_notes.md 3.9)."""

import json
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from broker_fixtures import apart, serving
from cluster_kit import Cluster, fresh
from consuming_kit import holds, rate
from counted_kit import Counted, count_by, full_name, wall_ms
from exam_kit import said
from proxy_kit import Decider, ProxyThread, until
from share_kit import (
    Arrival,
    Member,
    RawMember,
    acquired,
    brokers_own_rate,
    configure,
    console,
    filled,
    go,
    java,
    share_cluster,
)

from enforcer.wire.kafka import definitions
from enforcer.wire.kafka.fields import Fields
from enforcer.wire.kafka.frames import SHARE_ACKNOWLEDGE, SHARE_FETCH
from weir.jars.folders import KAFKA, jars_dir

Start = Callable[..., ProxyThread]
Client = Callable[..., list[str]]


GO = pytest.param(go, marks=pytest.mark.soak)
"""Whoever runs the quick tests need not have Go."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker that has share groups."""
    with share_cluster(tmp_path_factory.mktemp("kafka")) as found:
        yield found


@pytest.mark.parametrize("key", [68, 69, 76, 77, 78, 79, 88, 89, 90, 91, 92])
def test_the_messages_are_the_brokers_own(key: int) -> None:
    """What stands in definitions.py reads as the definitions in Kafka's jar."""
    (jar,) = jars_dir(KAFKA).glob("kafka-clients-*.jar")
    for kind in ("request", "response"):
        name = f"common/message/{definitions.NAMES[key]}{kind.capitalize()}.json"
        with zipfile.ZipFile(jar) as opened:
            lines = opened.read(name).decode().splitlines()
        said = json.loads("\n".join(line for line in lines if not line.strip().startswith("//")))
        first, _, last = said["validVersions"].partition("-")
        assert definitions.DEFINITIONS[key, kind]["validVersions"] == said["validVersions"]
        common = {part["name"]: part["fields"] for part in said.get("commonStructs", ())}
        for version in range(int(first), int(last or first) + 1):
            theirs = present(definitions._fields(said["fields"], common, version))
            assert present(definitions.body(key, version, kind)) == theirs


def present(fields: tuple[definitions.Field, ...]) -> tuple[definitions.Field, ...]:
    """Those that a version has."""
    return tuple(each._replace(fields=present(each.fields)) for each in fields if each.present)


@pytest.mark.parametrize("client", [java, console, GO])
def test_members_read_through_the_proxy(
    cluster: Cluster, proxy_with: Start, client: Client
) -> None:
    """Each record once, by every client: all that it learns of brokers leads through the proxy."""
    topic, group = fresh("shared"), fresh("members")
    filled(cluster.kafka.bootstrap, topic, 1_000, 10)
    configure(cluster.kafka.bootstrap, group)
    proxy = proxy_with()
    got = Member(client(proxy.bootstrap, group, topic, 1_000, 30)).arrivals()
    assert sorted(each.offset for each in got) == list(range(1_000))
    assert {each.delivery for each in got} == {1}


def limited(start: Start, topic: str, group: str, limit: int, size: int = 0) -> tuple[ProxyThread, Counted]:
    """A proxy with a limit of a share group, and what it counts."""
    running = start()
    assert running.proxy is not None
    counted = Counted(wall_ms, subscriptions={(full_name(topic), group): (limit, size)})
    count_by(running.proxy, counted)
    return running, counted


def measured(
    cluster: Cluster, start: Start, client: Client, limit: int, per_batch: int, count: int
) -> float:
    """What a share group gets in a second, each record once and none for the second time."""
    topic, group = fresh("shared"), fresh("members")
    filled(cluster.kafka.bootstrap, topic, count, per_batch)
    configure(cluster.kafka.bootstrap, group)
    proxy, counted = limited(start, topic, group, limit)
    got = Member(client(proxy.bootstrap, group, topic, count, 60)).arrivals()
    assert sorted(each.offset for each in got) == list(range(count))
    assert {each.delivery for each in got} == {1}
    assert {each.place[2] for each in counted.delivered} == {group}
    assert sum(each.msgs for each in counted.delivered) == count
    return rate([(each.at_ms / 1_000, each.partition, each.offset) for each in got])


RATES = [
    # Client, limit a second, records in a batch, records: the first second's and those of whole turns.
    (java, 100, 1, 1_000),
    *(pytest.param(*case, marks=pytest.mark.soak) for case in ((java, 10, 6, 102), (go, 100, 6, 1_002))),
]  # fmt: skip
LONG_RATES = [
    (client, *case)
    for client in (java, console, go)
    for case in (
        (10, 1, 310), (10, 6, 312), (100, 1, 3_100), (100, 6, 3_102), (1_000, 1, 31_000), (1_000, 6, 31_002),
    )
]  # fmt: skip


@pytest.mark.parametrize(("client", "limit", "per_batch", "count"), RATES)
def test_rates(
    cluster: Cluster, proxy_with: Start, client: Client, limit: int, per_batch: int, count: int
) -> None:
    """Within 2 % of the limit, and nothing is delivered twice for having waited."""
    holds(lambda: measured(cluster, proxy_with, client, limit, per_batch, count), limit)


def test_several_topics_of_one_member(cluster: Cluster, proxy_with: Start) -> None:
    """They do not wait for each other under one rate of their broker: it is theirs, within 2 %."""

    def together() -> float:
        topics, group = [fresh("shared") for _ in range(3)], fresh("members")
        for topic, count in zip(topics, (334, 333, 333), strict=True):
            filled(cluster.kafka.bootstrap, topic, count)
        configure(cluster.kafka.bootstrap, group)
        proxy = proxy_with()
        assert proxy.proxy is not None
        count_by(proxy.proxy, Counted(wall_ms, broker=(100, 0)))
        got = Member(java(proxy.bootstrap, group, ",".join(topics), 1_000, 60)).arrivals()
        assert len({(each.topic, each.offset) for each in got}) == len(got) == 1_000
        return rate([(each.at_ms / 1_000, each.partition, each.offset) for each in got])

    holds(together, 100)


@pytest.mark.soak
@pytest.mark.parametrize(("client", "limit", "per_batch", "count"), LONG_RATES)
def test_all_rates(
    cluster: Cluster, proxy_with: Start, client: Client, limit: int, per_batch: int, count: int
) -> None:
    """The same over half a minute, with all clients."""
    holds(lambda: measured(cluster, proxy_with, client, limit, per_batch, count), limit)


def fetching(group: str, member: str, epoch: int, topics: list[Fields], **more: int) -> Fields:
    """A ShareFetch."""
    asked = {"MaxWaitMs": 10_000, "MinBytes": 1, "MaxBytes": 1 << 20, "MaxRecords": 500, "BatchSize": 500}
    session = {"GroupId": group.encode(), "MemberId": member.encode(), "ShareSessionEpoch": epoch}
    return {**session, **asked, **more, "Topics": topics}


def accepting(topic_id: bytes, first: int, last: int) -> Fields:
    """Acknowledgements of partition 0, one for all of a range."""
    batch = {"FirstOffset": first, "LastOffset": last, "AcknowledgeTypes": [1]}
    return {"TopicId": topic_id, "Partitions": [{"PartitionIndex": 0, "AcknowledgementBatches": [batch]}]}


def codes(answer: Fields, field: str) -> list[int]:
    """An error of each partition."""
    return [part[field] for each in answer["Responses"] for part in each["Partitions"]]


@pytest.mark.parametrize("version", [1, 2])
def test_acknowledgements_never_wait(cluster: Cluster, proxy_with: Start, version: int) -> None:
    """Neither those that a ShareFetch carries nor those behind one that is held: it then acquires nothing."""
    topic, group = fresh("shared"), fresh("members")
    filled(cluster.kafka.bootstrap, topic, 100)
    configure(cluster.kafka.bootstrap, group)
    proxy, _ = limited(partial(proxy_with, dispatch_hold_ms=10_000), topic, group, 2)
    member = "A" * 22
    with RawMember(proxy.bootstrap) as wire:
        topic_id = wire.join(group, member, topic)
        whole = {"TopicId": topic_id, "Partitions": [{"PartitionIndex": 0}]}
        epochs = iter(range(100))
        asked = (fetching(group, member, each, [] if each else [whole], MaxRecords=8) for each in epochs)
        # A limited request waits at the broker for a moment only; a share that is new takes its time.
        began = next(filter(acquired, (wire.ask(SHARE_FETCH, version, each) for each in asked)))
        # One batch at least, and what is beyond the limit is paid off: two a second.
        (first, last, delivery), *_ = acquired(began)
        assert (first, delivery) == (0, 1) and began["ErrorCode"] == 0
        owed_s = (last + 1) // 2
        asked_at = time.monotonic()
        first_one = [accepting(topic_id, 0, 0)]
        some = wire.ask(SHARE_FETCH, version, fetching(group, member, next(epochs), first_one))
        assert acquired(some) == [] and some["ErrorCode"] == 0
        assert set(codes(some, "AcknowledgeErrorCode")) <= {0}
        wire.tell(SHARE_FETCH, version, fetching(group, member, next(epochs), []))
        rest = {"GroupId": group.encode(), "MemberId": member.encode(), "ShareSessionEpoch": next(epochs)}
        wire.tell(SHARE_ACKNOWLEDGE, version, {**rest, "Topics": [accepting(topic_id, 1, last)]})
        held, ended = wire.hear(SHARE_FETCH, version), wire.hear(SHARE_ACKNOWLEDGE, version)
        assert acquired(held) == [] and (held["ErrorCode"], ended["ErrorCode"]) == (0, 0)
        assert codes(ended, "ErrorCode") == [0]
        if last:
            assert time.monotonic() - asked_at < owed_s
        # Nothing stands behind the next one: it is kept until its time has come, and brings what follows.
        following = wire.ask(SHARE_FETCH, version, fetching(group, member, next(epochs), []))
        assert acquired(following)[0][::2] == (last + 1, 1)


def test_what_is_delivered_again_counts_again(cluster: Cluster, proxy_with: Start) -> None:
    """By the limit, and by a metric of its own: a member that lets its locks run out gets all once more."""
    topic, group = fresh("shared"), fresh("members")
    filled(cluster.kafka.bootstrap, topic, 10, 10)
    configure(cluster.kafka.bootstrap, group, **{"share.record.lock.duration.ms": "1000"})
    proxy, counted = limited(proxy_with, topic, group, 1_000)
    with RawMember(proxy.bootstrap) as wire:
        topic_id = wire.join(group, "A" * 22, topic)
        whole = {"TopicId": topic_id, "Partitions": [{"PartitionIndex": 0}]}
        # A limited request waits at the broker for a moment only.
        asked = (fetching(group, "A" * 22, each, [] if each else [whole]) for each in range(100))
        found = filter(None, (acquired(wire.ask(SHARE_FETCH, 2, each)) for each in asked))
        assert [next(found), next(found)] == [[(0, 9, 1)], [(0, 9, 2)]]
    assert [each.msgs for each in counted.delivered] == [10, 10]
    assert proxy.proxy is not None
    sample = proxy.proxy.metrics.registry.get_sample_value
    assert sample("weir_dispatch_redelivered_msgs_total") == 10


@pytest.mark.soak
@pytest.mark.parametrize("other", [java, go])
def test_two_members_share_the_limit(cluster: Cluster, proxy_with: Start, other: Client) -> None:
    """Both get some of it, together no more than it."""
    topic, group, count = fresh("shared"), fresh("members"), 1_500

    def together() -> float:
        filled(cluster.kafka.bootstrap, topic, count)
        configure(cluster.kafka.bootstrap, group)
        proxy, _ = limited(proxy_with, topic, group, 100)
        commands = [each(proxy.bootstrap, group, topic, count, 17) for each in (java, other)]
        got = [member.arrivals() for member in [Member(command) for command in commands]]
        arrivals = sorted(each for its in got for each in its)
        assert [len({each.offset for each in arrivals}), min(map(len, got)) > 0] == [len(arrivals), True]
        middle = [each for each in arrivals if each.at_ms < arrivals[0].at_ms + 10_000]
        return rate([(each.at_ms / 1_000, each.partition, each.offset) for each in middle])

    holds(together, 100)


RATE, SIZE, FOR_S = 20_000, 1_000, 30


@pytest.mark.soak
def test_a_byte_rate_spends_no_deliveries(
    cluster: Cluster, proxy_with: Start, pytestconfig: pytest.Config
) -> None:
    """Kafka's own throttle acquires first and answers empty; ours waits before. The same rate of both."""
    proxy, rated = proxy_with(), fresh("rated")
    path = f"quotas[user=ANONYMOUS,client-id={rated}]"
    cluster.policies.put(path, {"consumer_byte_rate": RATE})
    assert proxy.proxy is not None
    entries = proxy.proxy.meter
    until(lambda: path in entries._policies.entries, what="the quota")
    proxy.await_part(1.0)
    throttled = fresh("throttled")
    brokers_own_rate(cluster.kafka.bootstrap, throttled, RATE)
    found: dict[str, list[Arrival]] = {}
    for client_id, bootstrap in ((throttled, cluster.kafka.bootstrap), (rated, proxy.bootstrap)):
        topic, group = fresh("shared"), fresh("members")
        filled(cluster.kafka.bootstrap, topic, 2_000, 10, SIZE)
        configure(cluster.kafka.bootstrap, group)
        command = java(bootstrap, group, topic, 2_000, FOR_S, f"client.id={client_id}")
        found[client_id] = Member(command).arrivals()
    for name, got in found.items():
        said(pytestconfig, f"{name}: {len(got)} records, deliveries {Counter(each.delivery for each in got)}")
    assert {each.delivery for each in found[rated]} == {1}
    assert len({each.offset for each in found[rated]}) == len(found[rated])
    assert len(found[rated]) * SIZE < RATE * (FOR_S + 3)
    assert max(each.delivery for each in found[throttled]) > 1
    assert len(found[rated]) > len(found[throttled])


def test_two_proxies_hold_one_limit(cluster: Cluster) -> None:
    """A member at each of two proxies, with the real law: together at the rate, within 5 %."""
    topic, group, count, limit = fresh("shared"), fresh("members"), 2_000, 100
    filled(cluster.kafka.bootstrap, topic, count)
    configure(cluster.kafka.bootstrap, group)
    rates = {"subscriptionDispatchRate": {"dispatchThrottlingRateInMsg": limit}}
    with apart(cluster, "two") as own, Decider(own.kafka.bootstrap, own.topics, "dispatch"):
        own.policies.put(f"topics.{full_name(topic)}", rates)
        with serving(own, id="one") as one, serving(own, id="two") as two:
            for each in (one, two):
                until(lambda each=each: knows(each, topic, group), what="the limit, and the other proxy")
            got = [
                Member(java(each.bootstrap, group, topic, count, 20)) for each in (one, two)
            ]
            arrivals = sorted(each for its in got for each in its.arrivals())
    assert len({each.offset for each in arrivals}) == len(arrivals)
    whole = {each.at_ms // 1_000 for each in arrivals}
    # Without the first seconds, in which one of them is alone, and the last.
    first, last = min(whole) + 5, max(whole) - 2
    middle = sum(first <= each.at_ms // 1_000 < last for each in arrivals)
    assert middle / (last - first) == pytest.approx(limit, rel=0.05)


def knows(running: ProxyThread, topic: str, group: str) -> bool:
    """Whether a proxy knows a group's limit and one other proxy."""
    assert running.proxy is not None
    dispatch = running.proxy.fetch_context.dispatch
    return dispatch.limits_group(full_name(topic), group) and dispatch.proxies == 2
