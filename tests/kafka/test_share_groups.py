"""Share groups (KIP-932) through the proxy on a broker that has them (docs/protocol_notes.md 3.9)."""

import json
import zipfile
from collections.abc import Callable, Iterator

import pytest
from cluster_kit import Cluster, fresh
from consuming_kit import holds, rate
from counted_kit import Counted, count_by, full_name, wall_ms
from proxy_kit import ProxyThread
from share_kit import KIND, Member, configure, console, filled, go, java, share_cluster

from enforcer.wire.kafka import definitions
from weir.jars.folders import jars_dir

Start = Callable[..., ProxyThread]
Client = Callable[..., list[str]]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker that has share groups."""
    with share_cluster(tmp_path_factory.mktemp("kafka43")) as found:
        yield found


@pytest.mark.parametrize("key", [76, 77, 78, 79, 90, 91, 92])
def test_the_messages_are_the_brokers_own(key: int) -> None:
    """What stands in definitions.py reads as the definitions in Kafka's jar."""
    (jar,) = jars_dir(KIND).glob("kafka-clients-*.jar")
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


@pytest.mark.parametrize("client", [java, console, go])
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
    (java, 100, 1, 1_000), (java, 10, 6, 102), (go, 100, 6, 1_002),
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


@pytest.mark.soak
@pytest.mark.parametrize(("client", "limit", "per_batch", "count"), LONG_RATES)
def test_all_rates(
    cluster: Cluster, proxy_with: Start, client: Client, limit: int, per_batch: int, count: int
) -> None:
    """The same over half a minute, with all clients."""
    holds(lambda: measured(cluster, proxy_with, client, limit, per_batch, count), limit)
