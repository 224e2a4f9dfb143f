"""Share groups (KIP-932) through the proxy on a broker that has them (docs/protocol_notes.md 3.9)."""

import json
import zipfile
from collections.abc import Callable, Iterator

import pytest
from cluster_kit import Cluster, fresh
from proxy_kit import ProxyThread
from share_kit import KIND, Member, configure, console, filled, go, java, share_cluster

from enforcer.wire.kafka import definitions
from weir.jars.folders import jars_dir

Start = Callable[..., ProxyThread]


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
    cluster: Cluster, proxy_with: Start, client: Callable[..., list[str]]
) -> None:
    """Each record once, by every client: all that it learns of brokers leads through the proxy."""
    topic, group = fresh("shared"), fresh("members")
    filled(cluster.kafka.bootstrap, topic, 1_000, 10)
    configure(cluster.kafka.bootstrap, group)
    proxy = proxy_with()
    got = Member(client(proxy.bootstrap, group, topic, 1_000, 30)).arrivals()
    assert sorted(each.offset for each in got) == list(range(1_000))
    assert {each.delivery for each in got} == {1}
