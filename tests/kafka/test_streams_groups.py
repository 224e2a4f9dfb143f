"""Streams groups (KIP-1071) through the proxy on a broker that has them (docs/protocol_notes.md 3.10)."""

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import pytest
from acl_kit import ACLS, run_tools
from broker_fixtures import apart, installed, serving
from cluster_kit import USERS, Cluster, fresh
from confluent_kafka.admin import AdminClient, NewTopic
from login_kit import Login
from proxy_kit import ProxyThread, until
from share_kit import LIMIT_S, PROPERTIES, RawMember
from stack_kit import new_topics
from streams_kit import charged, counting, heartbeat, topic
from wire_client import Closed

from enforcer.wire.kafka.frames import STREAMS_DESCRIBE, STREAMS_HEARTBEAT, Fields
from streaming.contract.topics import Topics
from weir.jars.java import java_command
from weir.stack.kafka import LocalKafka

PARTITIONS = 6
API = {"streams": "StreamsGroupHeartbeat", "classic": "CreateTopics"}
QUOTA = {"controller_mutation_rate": 2, "controller_mutation_burst": 11}
RULES = {
    "group.initial.rebalance.delay.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.min.heartbeat.interval.ms": "500",
    "group.streams.heartbeat.interval.ms": "500",
    "group.streams.min.session.timeout.ms": "6000",
    "group.streams.session.timeout.ms": "6000",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # The listener without logins is the brokers' own here, the administrator's, and that of most tests.
    "super.users": "User:ANONYMOUS",
}
FENCED, MISSING, FULL = 110, 3, 11.0
NOT_YET = (14, 15, 16)
START_S = 60.0
# Under the classic protocol an application does not leave its group when it ends.
SETTINGS = {"classic": {"session.timeout.ms": "6000", "heartbeat.interval.ms": "500"}, "streams": {}}


class App(AbstractContextManager[Any]):
    """An application of Kafka Streams in a process of its own, until the end of its context.

    Args:
        bootstrap: where it connects to.
        name: of the application, and its group.
        source: the topic that it reads.
        protocol: classic or streams.
        stores: how many it counts in, each behind a repartition topic.
        folder: takes its state, and what it says.
    """

    def __init__(
        self, bootstrap: str, name: str, source: str, protocol: str, stores: int, folder: Path
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._log = folder / "log"
        settings = {"group.protocol": protocol, "state.dir": str(folder), **SETTINGS[protocol]}
        command = java_command(
            str(Path(__file__).with_name("StreamsApp.java")), bootstrap, name, source, str(stores),
            *(f"{key}={value}" for key, value in settings.items()), kind="streams43",
            properties=("org.slf4j.simpleLogger.defaultLogLevel=warn",),
        )  # fmt: skip
        with self._log.open("w") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)

    def await_running(self) -> None:
        """Wait until it has its tasks."""
        until(lambda: " RUNNING" in self._log.read_text(), START_S, f"a running application: {self._log}")

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(START_S)
        finally:
            self._process.kill()


def internal(bootstrap: str, name: str) -> dict[str, int]:
    """The internal topics of an application, with their partitions."""
    listed = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=START_S).topics
    return {
        topic.removeprefix(f"{name}-"): len(its.partitions)
        for topic, its in listed.items()
        if topic.startswith(f"{name}-")
    }


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker that has streams groups, and whose users may do only what they were granted."""
    folder = tmp_path_factory.mktemp("streams43")
    kafka = LocalKafka(folder, properties={**PROPERTIES, **RULES}, sasl=USERS)
    with kafka, installed(kafka, Topics()) as found:
        yield found


def limited(cluster: Cluster, proxy: ProxyThread, user: str = "ANONYMOUS") -> None:
    """Two partition mutations a second, and a burst of 11."""
    cluster.policies.put(f"quotas[user={user}]", QUOTA)
    cluster.await_quota(proxy, user, "any", QUOTA["controller_mutation_rate"])


def source(cluster: Cluster, partitions: int = PARTITIONS) -> str:
    """A topic to read."""
    name = fresh("read")
    new_topics(cluster.kafka.bootstrap, name, partitions=partitions)
    return name


@pytest.mark.soak
@pytest.mark.parametrize("protocol", ["streams", "classic"])
def test_both_ways_cost_the_same(cluster: Cluster, tmp_path: Path, protocol: str) -> None:
    """Four internal topics, 24 partitions under a burst of 11."""
    reads, name = source(cluster), fresh("app")
    with apart(cluster, protocol) as own, serving(own) as proxy:
        limited(own, proxy)
        began = time.monotonic()
        with App(proxy.bootstrap, name, reads, protocol, 2, tmp_path) as app:
            app.await_running()
            # The last one waits until the three before it are paid off: 18 - 11 at 2 a second.
            assert time.monotonic() - began > (3 * PARTITIONS - FULL) / 2
        made = internal(cluster.kafka.bootstrap, name)
        assert len(made) == 4 and set(made.values()) == {PARTITIONS}
        until(lambda: charged(list(own.decider.events), API[protocol]) == 4 * PARTITIONS)
        apis = {event["api"] for event in own.decider.events if event["type"] == "request"}
        assert apis - {"Probe"} == {API[protocol]}


def ask(wire: RawMember, body: Fields) -> Fields:
    """The answer to a heartbeat."""
    return wire.ask(STREAMS_HEARTBEAT, 0, body)


def joined(wire: RawMember, body: Fields) -> Fields:
    """The answer to a heartbeat of a member that joins, once none of its topics is missing."""

    def answer() -> Fields | None:
        said = ask(wire, body)
        waits = any(each["StatusCode"] == MISSING for each in said["Status"] or ())
        return None if waits or said["ErrorCode"] in NOT_YET else said

    return until(answer, LIMIT_S)  # type: ignore[no-any-return]


def described(wire: RawMember, group: str) -> str:
    """The state of a group."""
    (said,) = wire.ask(STREAMS_DESCRIBE, 0, {"GroupIds": [group.encode()]})["Groups"]
    return str(said["GroupState"], "utf-8")


def test_an_application_keeps_its_own_address(cluster: Cluster) -> None:
    """Where its members ask each other is no broker's address; other answers name none."""
    reads, group = source(cluster, 2), fresh("app")
    with apart(cluster, "endpoint") as own, serving(own) as proxy:
        limited(own, proxy)
        with RawMember(proxy.bootstrap) as wire:
            endpoint = {"Host": b"app.example", "Port": 65_535}
            body = heartbeat(counting(reads, f"{group}-c"), group, UserEndpoint=endpoint)
            said = joined(wire, body)
            assert said["MemberEpoch"] > 0 and described(wire, group) != "NotReady"
            after = heartbeat(None, group, said["MemberEpoch"])
            after |= {"ActiveTasks": said["ActiveTasks"], "StandbyTasks": [], "WarmupTasks": []}
            told = [said, ask(wire, after)]
            shown = [each["UserEndpoint"] for one in told for each in one["PartitionsByUserEndpoint"] or ()]
            assert shown and all((each["Host"], each["Port"]) == (b"app.example", 65_535) for each in shown)


def test_nothing_is_made_past_the_charge(cluster: Cluster) -> None:
    """By sources that appear later, by topics that are deleted under a group, by an older topology."""
    bootstrap, late, group = cluster.kafka.bootstrap, fresh("late"), fresh("app")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    changelog = f"{group}-c"
    with apart(cluster, "later") as own, serving(own) as proxy:
        limited(own, proxy)
        with RawMember(proxy.bootstrap) as wire:
            joins = heartbeat(counting(late, changelog, epoch=1), group)
            said = joined(wire, joins)
            assert [each["StatusCode"] for each in said["Status"]] == [1]
            admin.create_topics([NewTopic(late, 7, 1)])[late].result(LIMIT_S)
            time.sleep(1.0)
            after = heartbeat(None, group, said["MemberEpoch"])
            assert ask(wire, after)["ErrorCode"] == FENCED
            old = heartbeat(counting(late, epoch=0), group)
            assert ask(wire, old)["Status"][0]["StatusCode"] == MISSING
            assert internal(bootstrap, group) == {} and charged(list(own.decider.events), API["streams"]) == 0
            said = joined(wire, joins)
            until(lambda: charged(list(own.decider.events), API["streams"]) == 7)
            admin.delete_topics([changelog])[changelog].result(LIMIT_S)
            until(lambda: internal(bootstrap, group) == {})
            after["MemberEpoch"] = said["MemberEpoch"]
            assert ask(wire, after)["ErrorCode"] == FENCED
            joined(wire, joins)
            until(lambda: charged(list(own.decider.events), API["streams"]) == 14)
            assert internal(bootstrap, group) == {"c": 7}


@pytest.mark.soak
def test_names_that_are_not_theirs(cluster: Cluster) -> None:
    """A topology with a topic of Weir's is refused; one whose topics its user may not make is told so."""
    reads, group = source(cluster, 2), fresh("app")
    grants = f"{ACLS} --add --allow-principal User:alice --operation"
    run_tools(
        cluster.kafka.bootstrap, f"{grants} Read --group {group}", f"{grants} Describe --topic *",
    )  # fmt: skip
    with apart(cluster, "mine") as own, serving(own) as proxy:
        limited(own, proxy)
        with RawMember(proxy.bootstrap) as wire:
            said = ask(wire, heartbeat(counting(reads, own.topics.prefix + "mine"), group))
            assert said["ErrorCode"] == 29
        with serving(own, sasl=True) as guarded:
            limited(own, guarded, "alice")
            with RawMember(guarded.bootstrap) as wire:
                login = Login(wire)
                login.handshake("PLAIN")
                assert login.tell(b"\0alice\0alice-secret").error_code == 0
                said = ask(wire, heartbeat(counting(reads, f"{group}-c"), group))
                ((code, detail),) = [(each["StatusCode"], each["StatusDetail"]) for each in said["Status"]]
                assert code == MISSING and b"Creation failed" in detail and b"uthoriz" in detail
        assert internal(cluster.kafka.bootstrap, group) == {}
        until(lambda: charged(list(own.decider.events), API["streams"]) == 0)


ODD: list[Callable[[str], Fields]] = [
    lambda reads: counting(reads, "a/b"),
    lambda reads: counting(reads, "\u00e9\n"),
    lambda reads: counting(reads, "x" * 250),
    lambda reads: counting(reads, *(f"odd-{n}" for n in range(2_500))),
    lambda reads: counting(reads, "__consumer_offsets"),
    lambda reads: counting(reads, reads),
    lambda reads: {"Epoch": -1, "Subtopologies": []},
    lambda reads: counted_with(reads, topic("odd-r", -5)),
    lambda reads: counted_with(reads, topic("odd-r", 2**31 - 1)),
    lambda reads: counted_with(reads, topic("odd-r", 3, -7)),
    lambda reads: counted_with(reads, topic("odd-r", 3, 1, **{"no.such.setting": "x"})),
]


def counted_with(reads: str, repartition: Fields) -> Fields:
    """A topology with this repartition topic."""
    found = counting(reads, "odd-c", repartition="odd-r")
    found["Subtopologies"][1]["RepartitionSourceTopics"] = [repartition]
    return found


def test_odd_topologies_make_nothing_uncharged(cluster: Cluster) -> None:
    """Each is answered or ends its own connection; what is refused of it is given back."""
    reads = source(cluster, 2)
    with apart(cluster, "forms") as own, serving(own) as proxy:
        limited(own, proxy)
        for make in ODD:
            with RawMember(proxy.bootstrap) as wire, suppress(Closed, ConnectionError):
                ask(wire, heartbeat(make(reads), fresh("app")))
        # Of a topology of which one topic is refused the other one is made, as its coordinator would.
        made = internal(cluster.kafka.bootstrap, "odd")
        assert made.keys() <= {"c"}
        until(lambda: charged(list(own.decider.events), API["streams"]) == sum(made.values()))
        with RawMember(proxy.bootstrap) as wire:
            assert described(wire, "none") == ""


@pytest.mark.soak
@pytest.mark.parametrize("protocol", API)
def test_only_new_topics_cost(cluster: Cluster, tmp_path: Path, protocol: str) -> None:
    """Not a second member, nor a second start; a topology with another store costs that one's topics."""
    reads, name = source(cluster, 2), fresh("app")
    admin = AdminClient({"bootstrap.servers": cluster.kafka.bootstrap})
    with apart(cluster, f"new-{protocol}") as own, serving(own) as proxy:
        limited(own, proxy)

        def start(stores: int, folder: str) -> App:
            return App(proxy.bootstrap, name, reads, protocol, stores, tmp_path / folder)

        with start(1, "one") as first, start(1, "two") as second:
            first.await_running()
            second.await_running()
        with start(1, "one") as first:
            first.await_running()
        until(lambda: charged(list(own.decider.events), API[protocol]) == 4)

        def deleted() -> bool:
            done = admin.delete_consumer_groups([name])[name]
            return done.exception(LIMIT_S) is None

        # Kafka 4.3 takes no other topology in a group that has one.
        until(deleted, LIMIT_S)
        with start(2, "three") as third:
            third.await_running()
        until(lambda: charged(list(own.decider.events), API[protocol]) == 8)
        assert len(internal(cluster.kafka.bootstrap, name)) == 4
