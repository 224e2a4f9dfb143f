"""What the proxy learns of the cluster's brokers, and the ports that it opens for them."""

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from sample_kit import sample_of

from enforcer.core.settings import ProxySettings
from enforcer.host.server import ProxyConfig
from enforcer.kafka.addresses.brokers import Brokers
from enforcer.kafka.cluster import BROKERS_MS, Address, ClusterView, ClusterWatch, listeners_in
from enforcer.kafka.proxy import KafkaProxy

INSIDE, OUTSIDE = "inside", "outside.example"


class Cluster:
    """An admin client of brokers that a test adds; each has a listener inside and one outside."""

    def __init__(self) -> None:
        self.ids = [1]
        self.asked: list[list[str]] = []
        self.mute: set[str] = set()

    def list_topics(self, topic: str, timeout: float) -> Any:
        """All brokers, at the listener inside."""
        return SimpleNamespace(
            brokers={n: SimpleNamespace(id=n, host=INSIDE, port=9000 + n) for n in self.ids}
        )

    def describe_configs(self, resources: list[Any], request_timeout: float) -> Any:
        """What they say of themselves."""
        self.asked.append([resource.name for resource in resources])
        return {
            resource: SimpleNamespace(result=lambda _s, name=resource.name: self._of(name))
            for resource in resources
        }

    def _of(self, name: str) -> Any:
        if name in self.mute:
            raise KafkaException(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED))
        listeners = f"IN://{INSIDE}:{9000 + int(name)},OUT://{OUTSIDE}:{19000 + int(name)}"
        said = {"advertised.listeners": listeners, "num.partitions": "7"}
        return {key: SimpleNamespace(value=value) for key, value in said.items()}


def watch(cluster: Cluster, elsewhere: bool) -> tuple[ClusterWatch, list[ClusterView]]:
    """A watch that looks when it is told to, and what it delivers."""
    views: list[ClusterView] = []
    watching = ClusterWatch({"bootstrap.servers": "b:1"}, elsewhere, views.append)
    return watching, views


def look(watching: ClusterWatch, cluster: Cluster) -> None:
    """Look once."""
    watching._look(cast(Any, cluster))


def test_brokers_are_looked_at_often_and_their_settings_seldom() -> None:
    """One that joins is known within the 5 s that are promised, at the cost of one small request."""
    cluster = Cluster()
    watching, views = watch(cluster, elsewhere=False)
    assert watching._interval_s == BROKERS_MS / 1000 <= 4
    look(watching, cluster)
    assert [view.default_partitions for view in views] == [None, 7]
    cluster.ids.append(2)
    look(watching, cluster)
    assert views[-1].brokers == ((1, INSIDE, 9001), (2, INSIDE, 9002)) and cluster.asked == [["1"]]
    watching._due_s = 0.0
    look(watching, cluster)
    look(watching, cluster)
    assert cluster.asked == [["1"], ["1"]]


def test_brokers_at_the_listener_of_the_clients() -> None:
    """Each new broker is asked for its listeners, once until all are asked again, whatever it tells."""
    cluster = Cluster()
    watching, views = watch(cluster, elsewhere=True)
    look(watching, cluster)
    cluster.ids += [2, 3]
    cluster.mute = {"3"}
    look(watching, cluster)
    look(watching, cluster)
    assert cluster.asked == [["1"], ["2"], ["3"]]
    outside = [(1, OUTSIDE, 19001), (2, OUTSIDE, 19002)]
    assert views[-1].beside([(OUTSIDE, 19001)]) == outside
    assert views[-1].beside([(OUTSIDE, 1)]) == []
    assert views[-1].beside([(OUTSIDE, 19001), (INSIDE, 9001)]) == []


@pytest.mark.parametrize(
    ("setting", "found"),
    [
        ("", {}),
        ("PLAINTEXT://:9092", {"PLAINTEXT": ("", 9092)}),
        (
            "A://10.0.0.1:1, B-2://[::1]:65535,C://kafka-0.kafka:9092",
            {"A": ("10.0.0.1", 1), "B-2": ("::1", 65535), "C": ("kafka-0.kafka", 9092)},
        ),
    ],
)  # fmt: skip
def test_listeners_of_a_setting(setting: str, found: dict[str, Address]) -> None:
    """As brokers write them."""
    assert listeners_in(setting) == found


@pytest.mark.parametrize("connection", [{}, {"bootstrap.servers": "inside:9001"}])
def test_a_broker_that_joins_has_a_port(connection: dict[str, str]) -> None:
    """Before any client was told of it here: it may have heard of it from another proxy."""
    listeners = {n: {"IN": (INSIDE, 9000 + n), "OUT": (OUTSIDE, 19000 + n)} for n in (1, 2)}
    brokers = tuple(
        (n, INSIDE if connection else OUTSIDE, 9000 + n if connection else 19000 + n) for n in (1, 2)
    )

    async def joined() -> list[tuple[str, int]]:
        config = ProxyConfig(kafka=((OUTSIDE, 19001),), listen=("127.0.0.1", 0), connection=connection)
        proxy = KafkaProxy(config)
        proxy.brokers._serve = lambda listener, _broker: listener.close()
        proxy._take_view(ClusterView(brokers=brokers, listeners=listeners))
        assert set(proxy.brokers.ports) == {1, 2}
        proxy._listener.close()
        return proxy.brokers.addresses

    assert asyncio.run(joined()) == [(OUTSIDE, 19001), (OUTSIDE, 19002)]


def test_who_asks_for_a_broker_that_nobody_knows_is_sent_away_until_somebody_does() -> None:
    """Behind its handshake: an alert in that is no reason for Java's clients to come again."""

    async def come(*names: str) -> list[str]:
        proxy = KafkaProxy(ProxyConfig(kafka=((OUTSIDE, 19001),), listen=("127.0.0.1", 0)))
        proxy._listener.close()
        proxy.brokers = Brokers(
            listen_host="", advertise="", port_base=0, brokers_max=1, serve=print, domain="kafka.test"
        )
        refused = []
        for name in names:
            connection = proxy.accept()
            connection.server_name = name
            refused.append(proxy.admit(connection))
            proxy.brokers.address(7, OUTSIDE, 19007)
        failures = "weir_proxy_tls_failures_total"
        assert sample_of(proxy.metrics.registry, failures, {"reason": "unknown_name"}) == 1
        # Until it has ended it counts; it was not let in.
        counted = [f"weir_proxy_{name}" for name in ("connections", "accepted_connections_total")]
        assert [sample_of(proxy.metrics.registry, name, {}) for name in counted] == [4, 3]
        return refused

    names = "broker-7.kafka.test", "broker-7.kafka.test", "kafka.test", ""
    assert asyncio.run(come(*names)) == ["unknown_name", "", "", ""]


@pytest.mark.parametrize("until", ["started", "stopped"])
def test_clients_of_a_brokers_port_wait_for_the_start(until: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of the bootstrap: who knows the port from before would find a proxy without policies."""
    # No Kafka is there to take what waits to be sent.
    for name in ("control._FLUSH_S", "control._STOP_S", "feeds.membership._STOP_S"):
        monkeypatch.setattr(f"enforcer.core.{name}", 0.05)

    async def run() -> None:
        settings = ProxySettings(start_timeout_ms=0, stop_timeout_ms=10)
        proxy = KafkaProxy(ProxyConfig(kafka=(("127.0.0.1", 1),), listen=("127.0.0.1", 0), settings=settings))
        begin, read = proxy.enforcement.start, asyncio.Event()

        async def start() -> None:
            await read.wait()
            await begin()

        proxy.enforcement.start = start  # type: ignore[method-assign]  # what takes as long as Kafka does
        starting = asyncio.create_task(proxy.start())
        proxy._take_view(ClusterView(brokers=((1, "127.0.0.1", 1),), listeners={}))
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.brokers.ports[1])
        # Who is let in is sent away, as there is no broker.
        gone = asyncio.create_task(reader.read())
        assert not (await asyncio.wait((gone,), timeout=0.2))[0]
        if until == "started":
            read.set()
            await starting
        else:
            starting.cancel()
            await proxy.stop()
        with contextlib.suppress(ConnectionError):
            assert not await asyncio.wait_for(gone, 5)
        writer.close()
        if until == "started":
            await proxy.stop()

    asyncio.run(run())


def test_a_look_that_fails_is_not_the_last_one(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer that nobody expected ended the thread: brokers that joined later had no port for ever."""
    monkeypatch.setattr("streaming.kafka_io.weir_topics.AdminClient", lambda _properties, logger: Cluster())
    monkeypatch.setattr("enforcer.kafka.cluster.BROKERS_MS", 1)
    watching, _ = watch(Cluster(), elsewhere=False)
    looks = iter((ValueError("odd"), None))

    def deliver(_view: ClusterView) -> None:
        if (error := next(looks)) is not None:
            raise error
        watching.stop()

    monkeypatch.setattr(watching, "_deliver", deliver)
    monkeypatch.setattr(watching, "_settings", lambda *_: watching.stop())
    watching._run()
    assert "ClusterWatch failed" in caplog.text


def test_a_client_that_cannot_be_made_is_made_at_the_next_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the limit of threads the watch ended: no broker had a port, and none that joined ever got one."""
    watching, views = watch(Cluster(), elsewhere=False)
    none_left = [KafkaException(KafkaError(KafkaError._CRIT_SYS_RESOURCE))]

    def made(_properties: object, logger: object) -> Cluster:
        if none_left:
            raise none_left.pop()
        return Cluster()

    monkeypatch.setattr("streaming.kafka_io.weir_topics.AdminClient", made)
    assert [(watching.look(), bool(views)) for _ in range(2)] == [(False, False), (True, True)]
