"""Weir's own topics through the proxy: what else may be asked of topics, and what real clients see."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from cluster_kit import Cluster, fresh
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ConfigResource
from endings_kit import stored
from kafka import KafkaAdminClient, KafkaConsumer
from kafka.protocol.admin import cluster as cluster_api
from kafka.protocol.admin import configs, topics, transactions
from kafka.protocol.consumer import group, offsets
from kafka.protocol.metadata import find_coordinator, metadata
from kafka.protocol.producer import transaction
from kafka_kit import build
from protected_kit import REFUSED, TRANSACTION_REFUSED, Wire, produce_request
from proxy_kit import ProxyThread, until
from stack_kit import run_java
from traffic_kit import fetch_of
from wire_client import WireClient, metadata_request


def test_changes_of_topics(cluster: Cluster, wire: Wire, policies_id: uuid.UUID) -> None:
    """Create, delete by name and by id, more partitions, fewer records: each refused, others done."""
    client, target, other = wire("attack"), cluster.topics.policies, fresh("other")
    made = client.create({"weir.new": 1, other: 1, target: 1})
    assert {part.name: part.error_code for part in made.topics} == {
        "weir.new": REFUSED, other: 0, target: REFUSED,
    }  # fmt: skip
    for version in (0, 3):
        assert client.grow(target, 9, version).results[0].error_code == REFUSED
    for version in (1, 5):
        found = client.delete([target], version).responses
        assert [(part.name, part.error_code) for part in found] == [(target, REFUSED)]
    found = client.delete_by_id([policies_id]).responses
    assert [(part.topic_id, part.error_code) for part in found] == [(policies_id, REFUSED)]
    assert client.delete([other]).responses[0].error_code == 0
    records = [{"name": target, "partitions": [{"partition_index": 0, "offset": -1}]}]
    answer = client.answer_to(build(topics.DeleteRecordsRequest, 1, topics=records))
    assert answer.topics[0].partitions[0].error_code == REFUSED


def test_settings_of_topics(cluster: Cluster, wire: Wire, mine: str) -> None:
    """Neither read nor written; those of other topics in the same request are."""
    client, target = wire("attack"), cluster.topics.policies
    part = {"resource_type": 2, "configuration_keys": ["retention.ms"]}
    for version in (1, 4):
        parts = [part | {"resource_name": name} for name in (target, mine)]
        message = build(configs.DescribeConfigsRequest, version, resources=parts)
        answer = client.answer_to(message)
        found = {item.resource_name: (item.error_code, len(item.configs)) for item in answer.results}
        assert found == {target: (REFUSED, 0), mine: (0, 1)}
    config = {"name": "retention.ms", "config_operation": 0, "value": "1"}
    part = {"resource_type": 2, "resource_name": target, "configs": [config]}
    message = build(configs.IncrementalAlterConfigsRequest, 1, resources=[part])
    answer = client.answer_to(message)
    assert answer.responses[0].error_code == REFUSED


def test_offsets(cluster: Cluster, wire: Wire, mine: str) -> None:
    """ListOffsets, OffsetCommit and OffsetFetch refuse per partition."""
    client, target = wire("attack"), cluster.topics.requests
    answer = client.answer_to(list_offsets(target, mine))
    assert {item.name: item.partitions[0].error_code for item in answer.topics} == {target: REFUSED, mine: 0}
    group_id = fresh("group")
    part = {"partition_index": 0, "committed_offset": 1}
    parts = [{"name": name, "partitions": [part]} for name in (mine, target)]
    fields = {"group_id": group_id, "generation_id_or_member_epoch": -1, "member_id": "", "topics": parts}
    message = build(group.OffsetCommitRequest, 7, **fields)
    found = until_coordinated(client, message)
    assert {item.name: item.partitions[0].error_code for item in found.topics} == {target: REFUSED, mine: 0}
    one = {"group_id": group_id, "topics": [{"name": target, "partition_indexes": [0]}]}
    for version in (5, 8):
        message = build(group.OffsetFetchRequest, version, groups=[one], **one)
        answer = client.answer_to(message)
        found = (answer.groups[0] if version == 8 else answer).topics
        assert [(item.name, item.partitions[0].error_code) for item in found] == [(target, REFUSED)]


def list_offsets(*names: str) -> Any:
    """A ListOffsets request for the ends of topics."""
    parts = [{"name": name, "partitions": [{"partition_index": 0, "timestamp": -1}]} for name in names]
    return build(offsets.ListOffsetsRequest, 5, replica_id=-1, topics=parts)


def until_coordinated(client: WireClient, message: Any) -> Any:
    """The answer of a group's coordinator, once the broker is one."""
    client.answer_to(build(find_coordinator.FindCoordinatorRequest, 2, key="any", key_type=0))

    def found() -> Any:
        response = client.answer_to(message)
        codes = {part.error_code for topic in response.topics for part in topic.partitions}
        return None if codes & {14, 15, 16} else response

    return until(found, what="a coordinator")


def test_transactional_ids(cluster: Cluster, wire: Wire, mine: str) -> None:
    """The id by which writers of policies take turns is nobody else's: no fencing, no look at it."""
    client, target = wire("attack"), cluster.topics.policies
    for version in (0, 4):
        message = build(
            transaction.InitProducerIdRequest, version, transactional_id=target, transaction_timeout_ms=9
        )
        assert client.answer_to(message).error_code == TRANSACTION_REFUSED
    for version in (2, 4):
        keys = {"key": target} if version < 4 else {"coordinator_keys": [target, mine]}
        message = build(find_coordinator.FindCoordinatorRequest, version, key_type=1, **keys)
        answer = client.answer_to(message)
        found = [answer] if version < 4 else answer.coordinators
        assert {getattr(one, "key", target): one.error_code for one in found}[target] == TRANSACTION_REFUSED
        assert len(found) == (1 if version < 4 else 2)
    message = build(transaction.EndTxnRequest, 3, transactional_id=target, producer_id=1, producer_epoch=0)
    assert client.answer_to(message).error_code == TRANSACTION_REFUSED
    message = build(transactions.DescribeTransactionsRequest, 0, transactional_ids=[target])
    found = client.answer_to(message).transaction_states
    assert [(one.transactional_id, one.error_code) for one in found] == [(target, TRANSACTION_REFUSED)]
    answer = client.answer_to(produce_request(9, [mine], -1, target))
    assert answer.responses[0].partition_responses[0].error_code == TRANSACTION_REFUSED
    fencer = Producer(
        {"bootstrap.servers": client_address(client), "transactional.id": target, "log_level": "0"}
    )
    with pytest.raises(KafkaException):
        fencer.init_transactions(5)


def client_address(client: WireClient) -> str:
    """Where a raw client is connected to."""
    host, port = client.socket.getpeername()[:2]
    return f"{host}:{port}"


def test_lists_of_topics(cluster: Cluster, wire: Wire, mine: str) -> None:
    """DescribeLogDirs and DescribeTopicPartitions leave Weir's topics out."""
    client = wire("attack")
    message = build(cluster_api.DescribeLogDirsRequest, 1, topics=None)
    answer = client.answer_to(message)
    names = {topic.name for result in answer.results for topic in result.topics}
    assert mine in names and not names & set(cluster.topics.all())
    cls = topics.DescribeTopicPartitionsRequest
    # Of very many topics an answer has the first ones only.
    message = build(cls, 0, topics=[], cursor={"topic_name": mine, "partition_index": 0})
    answer = client.answer_to(message)
    names = {topic.name for topic in answer.topics}
    assert mine in names and not names & set(cluster.topics.all())
    message = build(cls, 0, topics=[{"name": cluster.topics.usage}])
    answer = client.answer_to(message)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [(cluster.topics.usage, REFUSED)]


def test_ids_are_looked_up(cluster: Cluster, proxy_with: Callable[..., ProxyThread]) -> None:
    """A proxy that no answer has taught knows the ids of all five, and of others under the prefix."""
    with WireClient(cluster.kafka.bootstrap) as straight:
        straight.create({"weir.sixth": 1})
        names = [*cluster.topics.all(), "weir.sixth"]

        def ids() -> set[bytes]:
            found = straight.answer_to(metadata_request(names, 12)).topics
            return {topic.topic_id.bytes for topic in found if topic.error_code == 0}

        wanted = until(lambda: found if len(found := ids()) == len(names) else None)
        running = proxy_with()
        protected = running.proxy.protected
        until(lambda: protected.ids == wanted, what="six ids")
        straight.delete(["weir.sixth"])
        until(lambda: len(protected.ids) == len(names) - 1, what="five ids")


def test_a_topic_that_is_made_again(cluster: Cluster, proxy: ProxyThread, wire: Wire) -> None:
    """A topic under the prefix is known by its new id, too, as soon as it is seen or looked up."""
    name = "weir.again"
    with WireClient(cluster.kafka.bootstrap) as straight:
        for _ in range(2):
            made = straight.create({name: 1}).topics[0].topic_id
            # It takes a moment until the broker knows it, too.
            until(lambda: straight.metadata([name]).topics[0].error_code == 0, what="the new topic")
            everything = build(metadata.MetadataRequest, 12, topics=None)
            wire("attack").answer_to(everything)
            answer = wire("attack").answer_to(fetch_of(13, made))
            assert [part.partitions[0].error_code for part in answer.responses] == [REFUSED]
            straight.delete([name])


@pytest.mark.soak
def test_the_consumers_of_three_clients(cluster: Cluster, proxy: ProxyThread, mine: str) -> None:
    """Whoever subscribes to everything gets his own; whoever names Weir's is told."""
    seen: set[str] = set()
    consumer = Consumer({
        "bootstrap.servers": proxy.bootstrap, "group.id": fresh("all"), "auto.offset.reset": "earliest",
        "log_level": "0",
    })  # fmt: skip
    consumer.subscribe(["^(weir|mine).*"])
    until(lambda: (message := consumer.poll(0.2)) and (seen.add(message.topic()) or mine in seen))
    assert not any(place.topic.startswith("weir.") for place in consumer.assignment())
    consumer.close()
    incremental = Consumer({
        "bootstrap.servers": proxy.bootstrap, "group.id": fresh("new"), "auto.offset.reset": "earliest",
        "group.protocol": "consumer", "log_level": "0",
    })  # fmt: skip
    incremental.subscribe(["^(weir|mine).*"])
    until(lambda: (message := incremental.poll(0.2)) and message.error() is None and message.topic() == mine)
    assert not any(place.topic.startswith("weir.") for place in incremental.assignment())
    incremental.close()
    python = KafkaConsumer(bootstrap_servers=proxy.bootstrap)
    assert not python.topics() & set(cluster.topics.all())
    python.close()
    python_admin = KafkaAdminClient(bootstrap_servers=proxy.bootstrap)
    assert not set(python_admin.list_topics()) & set(cluster.topics.all())
    python_admin.close()
    listed = AdminClient({"bootstrap.servers": proxy.bootstrap}).list_topics(timeout=10).topics
    assert mine in listed and not set(listed) & set(cluster.topics.all())


@pytest.mark.parametrize(
    ("tool", "more"),
    [
        pytest.param("TopicCommand", ("--describe", "--topic", "weir.policies"), marks=pytest.mark.soak),
        ("TopicCommand", ("--delete", "--topic", "weir.policies")),
        pytest.param("GetOffsetShell", ("--topic", "weir.policies"), marks=pytest.mark.soak),
    ],
)
def test_java_tools(cluster: Cluster, proxy: ProxyThread, tool: str, more: tuple[str, ...]) -> None:
    """They see nothing of the topic and do nothing to it."""
    before = stored(cluster, cluster.topics.policies)
    done = run_java(f"org.apache.kafka.tools.{tool}", "--bootstrap-server", proxy.bootstrap, *more)
    missed = "does not exist as" if tool == "TopicCommand" else "Could not match any topic-partitions"
    assert done.returncode == 1 and missed in done.stdout + done.stderr
    assert stored(cluster, cluster.topics.policies) == before


def test_who_wants_it_otherwise(cluster: Cluster, proxy_with: Callable[..., ProxyThread]) -> None:
    """Without protect_topics everything is as the broker has it."""
    running = proxy_with(protect_topics=False)
    with WireClient(running.bootstrap) as client:
        assert client.metadata([cluster.topics.policies]).topics[0].error_code == 0
        answer = client.answer_to(fetch_of(11, cluster.topics.policies))
        assert answer.responses[0].partitions[0].error_code == 0
    resource = ConfigResource(ConfigResource.Type.TOPIC, cluster.topics.policies)
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    assert admin.describe_configs([resource])[resource].result(10)["cleanup.policy"].value == "compact"


def test_what_is_refused_is_counted(proxy: ProxyThread, cluster: Cluster, wire: Wire) -> None:
    """By the API's name."""
    before = proxy.metric("refused_topics_total", api="ListOffsets")
    wire("attack").answer_to(list_offsets(*cluster.topics.all()))
    assert proxy.metric("refused_topics_total", api="ListOffsets") == before + 5
