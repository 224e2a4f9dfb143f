"""`weir policy apply` and `get` on a real broker."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import orjson
import pytest
from admin_process_kit import Admin
from cluster_kit import Cluster, fresh
from confluent_kafka import Producer
from proxy_kit import ProxyThread, until
from relay_kit import CommitRelay
from threaded import together

from streaming.contract.errors import WeirError
from streaming.contract.topics import Cluster as Home
from streaming.contract.topics import Topics
from streaming.kafka_io.policy_topic import (
    Author,
    PolicyLog,
    PolicyReader,
    Update,
    differences,
    read_policies,
)
from streaming.kafka_io.policy_turn import (
    EFFECTIVE_AFTER_MS,
    OutcomeUnknown,
    Turn,
    TurnLost,
    change_policies,
    changes_of,
    records,
)
from streaming.kafka_io.writer import Transactions
from streaming.policy.files import load_policies
from weir.stack.kafka import free_port

RELAY_HOST = "127.0.0.2"
FIRST = """\
version: 1
quotas:
  - entity: {user: alice, client-id: ""}
    controller_mutation_rate: 5
  - entity: {user: null}
    controller_mutation_rate: 0.5
tenants: {acme: {resourcegroup: rg1}}
resourcegroups: {rg1: {publishRateInMsgs: 100}}
"""
SECOND = """\
version: 1
quotas:
  - entity: {user: alice, client-id: ""}
    controller_mutation_rate: 6
  - entity: {user: bob}
    controller_mutation_rate: 2
resourcegroups: {rg1: {publishRateInMsgs: 100}}
"""


def written(tmp_path: Path, text: str) -> str:
    """A policy file."""
    file = tmp_path / "policies.yaml"
    file.write_text(text)
    return str(file)


def test_apply_publishes_differences_and_get_prints_what_is_in_force(
    cluster: Cluster, topics: Topics, weir: Callable[..., list[str]], tmp_path: Path
) -> None:
    """First fill at once, changes two seconds later, versions one up a record; get gives the file back."""
    assert weir("policy", "get") == [
        f"# version 1 of {topics.policies} on {cluster.kafka.bootstrap}",
        "version: 1",
    ]
    file = written(tmp_path, FIRST)
    assert weir("policy", "apply", file)[-1].startswith("version 5, in force from ")
    assert weir("policy", "apply", file)[-1].startswith("no difference: version 5 ")
    printed = written(tmp_path, "\n".join(weir("policy", "get")))
    assert load_policies(printed) == load_policies(written(tmp_path, FIRST))

    before_ms = time.time_ns() // 1_000_000
    lines = weir("policy", "apply", written(tmp_path, SECOND))
    assert lines[:-1] == [
        "change quotas[user=alice,client-id=]", "add    quotas[user=bob]", "remove quotas[user=<default>]",
        "remove tenants.acme",
    ]  # fmt: skip
    log = read_policies(Home(cluster.kafka.bootstrap, topics))
    changed_ms = log.effective["quotas[user=bob]"]
    assert before_ms + EFFECTIVE_AFTER_MS <= changed_ms <= time.time_ns() // 1_000_000 + EFFECTIVE_AFTER_MS
    assert dict(log.timeline.at(changed_ms - 1).entries) == load_policies(written(tmp_path, FIRST))
    assert dict(log.timeline.at(changed_ms).entries) == load_policies(written(tmp_path, SECOND))
    assert (log.timeline.at(changed_ms - 1).version, log.newest_version) == (5, 9)


def test_quotas_of_the_cluster_are_left_unless_a_file_names_them(
    cluster: Cluster, topics: Topics, weir: Callable[..., list[str]], tmp_path: Path
) -> None:
    """And a file's entries are left by the collector."""
    bootstrap = cluster.kafka.bootstrap
    found = {f"quotas[user={name}]": {"controller_mutation_rate": 9} for name in ("bob", "carol")}
    home = Home(bootstrap, topics)
    change_policies(home, lambda log: differences(log, found, ("kafka",), override=False), origin="kafka")
    lines = weir("policy", "apply", written(tmp_path, SECOND))
    assert "left   quotas[user=carol] (not set by a file)" in lines
    assert "change quotas[user=bob]" in lines
    log = read_policies(Home(bootstrap, topics))
    assert log.entries["quotas[user=bob]"] == {"controller_mutation_rate": 2}
    assert differences(log, found, ("kafka",), override=False) == []
    assert "# read from the cluster: quotas[user=carol]" in weir("policy", "get")


def test_records_that_cannot_be_used_do_not_stop_a_reader(
    cluster: Cluster, topics: Topics, weir: Callable[..., list[str]]
) -> None:
    """They are counted and shown; more records than one fetch holds are read to the end."""
    producer = Producer({"bootstrap.servers": cluster.kafka.bootstrap})
    for number in range(2_500):
        path = f"quotas[user=u{number}]"
        event = {"type": "policy", "path": path, "value": {"controller_mutation_rate": 1}}
        producer.produce(topics.policies, key=path, value=orjson.dumps(event))
    producer.produce(topics.policies, key=b"x", value=b"{")
    producer.produce(topics.policies, key=b"x", value=None)
    assert producer.flush(20) == 0
    log = read_policies(Home(cluster.kafka.bootstrap, topics))
    assert (len(log.entries), log.records, log.bad_records, log.newest_version) == (2_500, 2_502, 2, 2_501)
    assert any(line.startswith("# 2 records could not be used, such as: ") for line in weir("policy", "get"))


def test_asking_does_not_create_the_topic(cluster: Cluster) -> None:
    """Though the broker creates topics by itself."""
    for _ in range(2):
        with pytest.raises(WeirError, match=r"there is no topic none\.policies"):
            read_policies(Home(cluster.kafka.bootstrap, Topics("none.")))


def test_waits_have_a_limit() -> None:
    """Nobody listens there."""
    bootstrap, topics = f"127.0.0.1:{free_port()}", Topics()
    start = time.monotonic()
    with pytest.raises(WeirError, match=r"cannot read weir\.policies"):
        read_policies(Home(bootstrap, topics), timeout_s=1.0)
    with pytest.raises(WeirError, match=r"cannot write to weir\.policies"):
        Turn(Home(bootstrap, topics), 1.0)
    assert time.monotonic() - start < 15


def counted(log: PolicyLog) -> list[Update]:
    """One more than what stands there: lost if somebody else writes in between and nobody notices."""
    before = log.entries.get("resourcegroups.rg1", {}).get("publishRateInMsgs", 0)
    return [Update(path="resourcegroups.rg1", value={"publishRateInMsgs": before + 1})]


def test_writers_at_a_time_lose_nothing(cluster: Cluster, topics: Topics) -> None:
    """Two of them add one each, again and again; every addition counts."""
    home = Home(cluster.kafka.bootstrap, topics)

    def write(origin: str) -> None:
        for _ in range(3):
            change_policies(home, counted, origin=origin)

    together(lambda: write("apply"), lambda: write("kafka"))
    log = read_policies(home)
    assert log.entries["resourcegroups.rg1"]["publishRateInMsgs"] == 6
    assert (log.records, log.newest_version, log.bad_records) == (6, 7, 0)


def test_a_reader_goes_on_where_it_ended(cluster: Cluster, topics: Topics) -> None:
    """What it has read is not read again, and where nothing has come it sees the end again."""
    bootstrap = cluster.kafka.bootstrap
    with PolicyReader(Home(bootstrap, topics)) as reader:
        assert [reader.read(10.0).records for _ in range(2)] == [0, 0]
        for number in (1, 2):
            change_policies(Home(bootstrap, topics), counted, origin="apply")
            assert [reader.read(10.0).records for _ in range(2)] == [number, number]
        assert (reader.log.newest_version, reader.log.bad_records) == (3, 0)


@pytest.fixture
def relayed(
    cluster: Cluster, proxy_with: Callable[..., ProxyThread]
) -> Iterator[Callable[[bool], tuple[str, CommitRelay]]]:
    """A way to the cluster on which the first commit is answered with an error, whether it is made or not."""
    with ExitStack() as running:

        def start(made: bool) -> tuple[str, CommitRelay]:
            # The proxy names an address of its broker on which not it but the relay listens.
            proxy = proxy_with(id=fresh("relayed"), advertise=RELAY_HOST)
            ports = proxy.proxy.brokers.ports
            until(lambda: ports, what="the broker's port")
            (port,) = ports.values()
            relay = CommitRelay((RELAY_HOST, port), ("127.0.0.1", port), made=made)
            return proxy.bootstrap, running.enter_context(relay)

        yield start


@pytest.mark.parametrize("made", [False, True])
def test_a_commit_of_which_nothing_is_known_is_looked_up(
    cluster: Cluster, topics: Topics, relayed: Callable[[bool], tuple[str, CommitRelay]], made: bool
) -> None:
    """The broker answers with an error that says nothing; one that counts up counts once all the same."""
    bootstrap, relay = relayed(made)
    written = change_policies(Home(bootstrap, topics), counted, origin="apply")
    log = read_policies(Home(cluster.kafka.bootstrap, topics))
    assert (relay.failed, log.records, written.version) == (1, 1, 2)
    assert log.entries["resourcegroups.rg1"]["publishRateInMsgs"] == 1


@pytest.mark.soak
@pytest.mark.parametrize("made", [False, True])
def test_the_admin_api_looks_such_a_commit_up(
    cluster: Cluster,
    topics: Topics,
    tmp_path: Path,
    relayed: Callable[[bool], tuple[str, CommitRelay]],
    made: bool,
) -> None:
    """A group is deleted once: were it tried again after it was made, the answer would be 404."""
    change_policies(Home(cluster.kafka.bootstrap, topics), counted, origin="apply")
    bootstrap, relay = relayed(made)
    with Admin(bootstrap, tmp_path / "admin", topics.prefix) as admin:
        assert admin.ask("DELETE", "/admin/v2/resourcegroups/rg1") == (204, "")
    log = read_policies(Home(cluster.kafka.bootstrap, topics))
    assert (relay.failed, log.records, log.entries) == (1, 2, {})


def test_what_kafka_takes_too_late_is_published_anew(
    cluster: Cluster, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would be in force before its readers have it; the next time it has four seconds."""
    home, produce, slow = Home(cluster.kafka.bootstrap, topics), Transactions._produce, [1.1]
    change_policies(home, counted, origin="apply")

    def late(*given: Any) -> None:
        produce(*given)
        time.sleep(slow.pop() if slow else 0)

    monkeypatch.setattr(Transactions, "_produce", late)
    begun_ms = time.time_ns() // 1_000_000
    written = change_policies(home, counted, origin="apply")
    assert 5_100 <= written.effective_ts - begun_ms < 15_000
    log = read_policies(home)
    assert (log.records, log.entries["resourcegroups.rg1"]) == (2, {"publishRateInMsgs": 2})


def on_nothing(updates: Sequence[Update], effective_ts: int, origin: str) -> list[tuple[str, bytes]]:
    """The records of whoever takes the topic to be empty."""
    log, author = PolicyLog(), Author(origin)
    return records(log, changes_of(log, updates, author), effective_ts, author)


def test_a_turn_ends_when_another_begins(cluster: Cluster, topics: Topics) -> None:
    """What the first one still writes is seen by nobody, even if it had begun to."""
    bootstrap = cluster.kafka.bootstrap
    lines = on_nothing(counted(PolicyLog()), 1, "admin")
    first = Turn(Home(bootstrap, topics), 10.0)
    first.write(lines, 10.0)
    second = Turn(Home(bootstrap, topics), 10.0)
    with pytest.raises((TurnLost, OutcomeUnknown)):
        first.write(lines, 10.0, 1.0)
    second.write(lines, 10.0)
    # A commit is answered a moment before readers may see it.
    until(lambda: read_policies(Home(bootstrap, topics)).records > 1)
    log = read_policies(Home(bootstrap, topics))
    assert (log.records, log.origins) == (2, {"resourcegroups.rg1": "admin"})


def test_a_later_record_is_the_one_in_force(cluster: Cluster, topics: Topics) -> None:
    """Though the clock of the writer before was a minute fast."""
    ahead = time.time_ns() // 1_000_000 + 60_000
    turn = Turn(Home(cluster.kafka.bootstrap, topics), 10.0)
    turn.write(on_nothing(counted(PolicyLog()), ahead, "apply"), 10.0)
    written = change_policies(Home(cluster.kafka.bootstrap, topics), counted, origin="apply")
    assert written.effective_ts == ahead
    log = read_policies(Home(cluster.kafka.bootstrap, topics))
    assert log.entries["resourcegroups.rg1"] == {"publishRateInMsgs": 2}


def test_many_changes_are_one_transaction(cluster: Cluster, topics: Topics) -> None:
    """More than librdkafka's queue holds."""
    updates = [Update(path=f"tenants.t{n}", value={"resourcegroup": "rg1"}) for n in range(300)]
    client = {"queue.buffering.max.messages": 100}
    Turn(Home(cluster.kafka.bootstrap, topics, client), 10.0).write(on_nothing(updates, 1, "apply"), 10.0)
    assert len(read_policies(Home(cluster.kafka.bootstrap, topics)).entries) == 300
