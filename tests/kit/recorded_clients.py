"""What each client does for `record_corpus.py`: as many of its APIs as it has."""

import asyncio
import contextlib
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

import kafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions
from aiokafka.admin import NewTopic as AioTopic
from confluent_kafka import Consumer, ElectionType, IsolationLevel, Producer, TopicCollection, TopicPartition
from confluent_kafka import admin as rd
from kafka.admin import ConfigResource, ConfigResourceType
from stack_kit import run_java

TOOL_LIMIT_S = 15


class Place(NamedTuple):
    """Where the clients go: plain and SASL addresses, and a folder for files."""

    plain: str
    sasl: str
    folder: Path


Command = Sequence[str]
_TOOLS = "org.apache.kafka.tools."
_JAVA_TOPIC = ("--topic", "acme.orders.j")


def _java_tools(place: Place) -> None:
    server = ("--bootstrap-server", place.plain)
    commands = (*_data_commands(place, server), *_group_commands(server), *_cluster_commands(place, server))
    for command in (*commands, (f"{_TOOLS}TopicCommand", *server, "--delete", *_JAVA_TOPIC)):
        with contextlib.suppress(subprocess.TimeoutExpired):
            run_java(*command, stdin="one\ntwo\n", limit_s=TOOL_LIMIT_S)


def _data_commands(place: Place, server: Command) -> Iterator[Command]:
    """Topics made, written and read."""
    topics = (f"{_TOOLS}TopicCommand", *server)
    perf = (f"{_TOOLS}ProducerPerformance", *_JAVA_TOPIC, "--record-size", "20", "--throughput", "-1")
    props = ("--command-property", f"bootstrap.servers={place.plain}")
    yield (*topics, "--create", *_JAVA_TOPIC, "--partitions", "2", "--config", "retention.ms=100000")
    yield (*topics, "--alter", *_JAVA_TOPIC, "--partitions", "3")
    yield (*topics, "--describe")
    yield (f"{_TOOLS}ConsoleProducer", *server, *_JAVA_TOPIC)
    transaction = ("--transactional-id", "jt", "--transaction-duration-ms", "10")
    yield (*perf, "--num-records", "20", *transaction, *props, "compression.type=gzip")
    yield (*perf, "--num-records", "2", *props, "acks=0")
    for name in ("classic", "consumer"):
        yield (
            f"{_TOOLS}consumer.ConsoleConsumer", *server, *_JAVA_TOPIC, "--from-beginning", "--group", name,
            "--max-messages", "5", "--timeout-ms", "8000", "--command-property", f"group.protocol={name}",
            "--isolation-level", "read_committed",
        )  # fmt: skip
    share = ("--group", "shared", "--max-messages", "1", "--timeout-ms", "3000")
    yield (f"{_TOOLS}consumer.ConsoleShareConsumer", *server, *_JAVA_TOPIC, *share)
    # It began with what was written after it had come.
    shared = (f"{_TOOLS}consumer.group.ShareGroupCommand", *server, "--group", "shared")
    yield (*shared, *_JAVA_TOPIC, "--reset-offsets", "--to-earliest", "--execute")
    yield (f"{_TOOLS}consumer.ConsoleShareConsumer", *server, *_JAVA_TOPIC, *share)
    yield (*shared, "--describe", "--members")
    yield (*shared, "--describe", "--offsets")
    yield (*shared, *_JAVA_TOPIC, "--delete-offsets")


def _group_commands(server: Command) -> Iterator[Command]:
    """Groups and settings, of topics and users."""
    group = (f"{_TOOLS}consumer.group.ConsumerGroupCommand", *server)
    configs = ("kafka.admin.ConfigCommand", *server)
    of_topic = ("--entity-type", "topics", "--entity-name", "acme.orders.j")
    yield (*group, "--list", "--state")
    yield (*group, "--describe", "--all-groups")
    yield (*group, "--group", "classic", *_JAVA_TOPIC, "--reset-offsets", "--to-earliest", "--execute")
    yield (*group, "--group", "classic", *_JAVA_TOPIC, "--delete-offsets")
    yield (*group, "--group", "classic", "--delete")
    yield (*configs, "--alter", *of_topic, "--add-config", "retention.ms=9")
    quota_and_login = "producer_byte_rate=1000000,SCRAM-SHA-256=[password=jane-secret]"
    of_jane = ("--entity-type", "users", "--entity-name", "jane")
    yield (*configs, "--alter", *of_jane, "--add-config", quota_and_login)
    yield (*configs, "--describe", "--all", *of_topic)
    yield (*configs, "--describe", "--entity-type", "users")


def _cluster_commands(place: Place, server: Command) -> Iterator[Command]:
    """What an operator looks at, moves and allows."""
    moves = _file(
        place, "moves.json",
        '{"version": 1, "partitions": [{"topic": "acme.orders.j", "partition": 0, "replicas": [1],'
        ' "log_dirs": ["any"]}]}',
    )  # fmt: skip
    gone = _file(
        place, "gone.json",
        '{"version": 1, "partitions": [{"topic": "acme.orders.j", "partition": 0, "offset": 1}]}',
    )  # fmt: skip
    login = _file(
        place, "login.properties",
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config="
        "org.apache.kafka.common.security.scram.ScramLoginModule required"
        ' username="carol" password="carol-secret";\n',
    )  # fmt: skip
    moving = (f"{_TOOLS}reassign.ReassignPartitionsCommand", *server)
    yield (f"{_TOOLS}GetOffsetShell", *server)
    yield (f"{_TOOLS}DeleteRecordsCommand", *server, "--offset-json-file", gone)
    election = ("--election-type", "preferred", "--all-topic-partitions")
    yield (f"{_TOOLS}LeaderElectionCommand", *server, *election)
    yield (*moving, "--execute", "--reassignment-json-file", moves)
    yield (*moving, "--list")
    transactions = (f"{_TOOLS}TransactionsCommand", *server)
    yield (*transactions, "list")
    yield (*transactions, "describe", "--transactional-id", "jt")
    yield (*transactions, "describe-producers", *_JAVA_TOPIC, "--partition", "0")
    yield (f"{_TOOLS}MetadataQuorumCommand", *server, "describe", "--status")
    yield (f"{_TOOLS}LogDirsCommand", *server, "--describe")
    yield (f"{_TOOLS}FeatureCommand", *server, "describe")
    yield (f"{_TOOLS}ClusterTool", "cluster-id", *server)
    yield (f"{_TOOLS}BrokerApiVersionsCommand", *server)
    acls = (f"{_TOOLS}AclCommand", *server)
    yield (*acls, "--list")
    yield (*acls, "--add", "--allow-principal", "User:x", "--operation", "All", *_JAVA_TOPIC, "--force")
    sasl = ("--bootstrap-server", place.sasl, "--command-config", login)
    yield (f"{_TOOLS}TopicCommand", *sasl, "--list")


def _file(place: Place, name: str, text: str) -> str:
    path = place.folder / name
    path.write_text(text)
    return str(path)


def _python_clients(place: Place) -> None:
    admin = kafka.KafkaAdminClient(bootstrap_servers=place.plain)
    admin.create_topics({"acme.orders.p": {"num_partitions": 2, "replication_factor": 1}})
    for more in ({}, {"acks": 0}, {"transactional_id": "pt"}):
        producer = kafka.KafkaProducer(bootstrap_servers=place.plain, **more)
        if "transactional_id" in more:
            producer.init_transactions()
            producer.begin_transaction()
        for number in range(5):
            producer.send("acme.orders.p", b"%d" % number, key=b"k", headers=[("h", b"v")])
        if "transactional_id" in more:
            producer.send_offsets_to_transaction(
                {kafka.TopicPartition("acme.orders.p", 0): kafka.OffsetAndMetadata(1, "", -1)}, "pg"
            )
            producer.commit_transaction()
        producer.close()
    consumer = kafka.KafkaConsumer(
        "acme.orders.p", bootstrap_servers=place.plain, group_id="pg", auto_offset_reset="earliest",
        consumer_timeout_ms=3_000,
    )  # fmt: skip
    list(zip(range(8), consumer, strict=False))
    consumer.commit()
    consumer.close()
    admin.close()


def _python_admin(place: Place) -> None:
    admin = kafka.KafkaAdminClient(bootstrap_servers=place.plain)
    topic = ConfigResource(ConfigResourceType.TOPIC, "acme.orders.p", {"retention.ms": "99999"})
    partition = kafka.TopicPartition("acme.orders.p", 0)
    offset = kafka.OffsetAndMetadata(1, "", -1)
    for call in (
        lambda: admin.create_partitions({"acme.orders.p": 3}),
        lambda: admin.describe_topics(["acme.orders.p"]),
        lambda: admin.describe_topic_partitions(["acme.orders.p"]),
        lambda: admin.describe_cluster(),
        lambda: admin.describe_configs([topic]),
        lambda: admin.alter_configs([topic]),
        lambda: admin.alter_configs([topic], incremental=False),
        lambda: admin.list_config_resources(),
        lambda: admin.list_groups(),
        lambda: admin.describe_groups(["pg"]),
        lambda: admin.list_group_offsets({"pg": None}),
        lambda: admin.alter_group_offsets("pg", {partition: offset}),
        lambda: admin.delete_group_offsets("pg", [partition]),
        lambda: admin.remove_group_members("pg", ["nobody"]),
        lambda: admin.delete_groups(["pg"]),
        lambda: admin.list_partition_offsets({partition: -1}),
        lambda: admin.delete_records({partition: 1}),
        lambda: admin.elect_leaders(0, [partition]),
        lambda: admin.alter_partition_reassignments({partition: [1]}),
        lambda: admin.list_partition_reassignments(),
        lambda: admin.describe_log_dirs(),
        lambda: admin.alter_replica_log_dirs(
            {kafka.TopicPartitionReplica("acme.orders.p", 0, 1): "/nowhere"}
        ),
        lambda: admin.describe_producers([partition]),
        lambda: admin.list_transactions(),
        lambda: admin.describe_transactions(["pt"]),
        lambda: admin.describe_user_scram_credentials(["carol"]),
        lambda: admin.describe_features(),
        lambda: admin.describe_metadata_quorum(),
        lambda: admin.delete_topics(["acme.orders.p"]),
    ):
        try:
            call()
        except Exception:  # noqa: BLE001  # a broker's refusal is recorded like any other answer
            continue
    admin.close()


def _python_sasl(place: Place) -> None:
    for mechanism, user in (("PLAIN", "alice"), ("SCRAM-SHA-256", "carol"), ("SCRAM-SHA-512", "carol")):
        kafka.KafkaAdminClient(
            bootstrap_servers=place.sasl, security_protocol="SASL_PLAINTEXT", sasl_mechanism=mechanism,
            sasl_plain_username=user, sasl_plain_password=f"{user}-secret",
        ).close()  # fmt: skip


def _confluent_clients(place: Place) -> None:
    common = {"bootstrap.servers": place.plain}
    for more in ({"acks": "all"}, {"acks": "0"}, {"transactional.id": "ct", "compression.type": "lz4"}):
        producer = Producer({**common, **more})
        if "transactional.id" in more:
            producer.init_transactions(10)
            producer.begin_transaction()
        for number in range(5):
            producer.produce("acme.orders.c", b"%d" % number)
        producer.flush(10)
        if "transactional.id" in more:
            producer.commit_transaction(10)
    for protocol in ("classic", "consumer"):
        own = {"group.id": f"c-{protocol}", "auto.offset.reset": "earliest", "group.protocol": protocol}
        consumer = Consumer({**common, **own})
        consumer.subscribe(["acme.orders.c"])
        for _ in range(50):
            if consumer.poll(0.1) is not None:
                break
        consumer.commit(asynchronous=False)
        consumer.close()
    for mechanism, user in (("PLAIN", "bob"), ("SCRAM-SHA-256", "carol")):
        rd.AdminClient({
            "bootstrap.servers": place.sasl, "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": f"{user}-secret",
        }).list_topics(timeout=10)  # fmt: skip


def _confluent_admin(place: Place) -> None:
    admin = rd.AdminClient({"bootstrap.servers": place.plain})
    topic = rd.ConfigResource(
        rd.ConfigResource.Type.TOPIC, "acme.orders.ca", set_config={"retention.ms": "9999"}
    )
    one = rd.ConfigEntry("retention.ms", "99", incremental_operation=rd.AlterConfigOpType.SET)
    entry = rd.ConfigResource(rd.ConfigResource.Type.TOPIC, "acme.orders.ca", incremental_configs=[one])
    partition = TopicPartition("acme.orders.ca", 0, 1)
    anyone = rd.AclBinding(
        rd.ResourceType.TOPIC, "acme.orders.ca", rd.ResourcePatternType.LITERAL, "User:x", "*",
        rd.AclOperation.READ, rd.AclPermissionType.ALLOW,
    )  # fmt: skip
    for call in (
        lambda: admin.create_topics([rd.NewTopic("acme.orders.ca", 2, 1, config={"retention.ms": "5000"})]),
        lambda: admin.create_partitions([rd.NewPartitions("acme.orders.ca", 3)]),
        lambda: admin.describe_configs([topic]),
        lambda: admin.alter_configs([topic]),
        lambda: admin.incremental_alter_configs([entry]),
        lambda: admin.describe_topics(TopicCollection(["acme.orders.ca"])),
        lambda: admin.describe_cluster(),
        lambda: admin.list_consumer_groups(),
        lambda: admin.describe_consumer_groups(["c-classic"]),
        lambda: admin.describe_consumer_groups(["c-consumer"]),
        lambda: admin.list_offsets(
            {partition: rd.OffsetSpec.latest()}, isolation_level=IsolationLevel.READ_COMMITTED
        ),
        lambda: admin.delete_records([partition]),
        lambda: admin.elect_leaders(ElectionType.PREFERRED, [partition]),
        lambda: admin.create_acls([anyone]),
        lambda: admin.describe_user_scram_credentials(["carol"]),
        lambda: admin.delete_consumer_groups(["c-classic"]),
        lambda: admin.delete_topics(["acme.orders.ca"]),
    ):  # fmt: skip
        try:
            _wait(call())
        except Exception:  # noqa: BLE001  # a broker's refusal is recorded like any other answer
            continue


def _wait(answer: Any) -> None:
    for future in answer.values() if isinstance(answer, Mapping) else [answer]:
        if isinstance(future, Future):
            future.result(10)


def _aiokafka(place: Place) -> None:
    async def work() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=place.plain)
        await admin.start()
        await admin.create_topics([AioTopic("acme.orders.a", 1, 1)])
        for more in ({}, {"acks": 0}, {"transactional_id": "at"}):
            producer = AIOKafkaProducer(bootstrap_servers=place.plain, **more)
            await producer.start()
            if "transactional_id" in more:
                await producer.begin_transaction()
            await producer.send_and_wait("acme.orders.a", b"1")
            if "transactional_id" in more:
                await producer.commit_transaction()
            await producer.stop()
        consumer = AIOKafkaConsumer(
            "acme.orders.a", bootstrap_servers=place.plain, group_id="ag", auto_offset_reset="earliest"
        )
        await consumer.start()
        async with asyncio.timeout(10):
            await consumer.getone()
        await consumer.commit()
        await consumer.stop()
        await admin.create_partitions({"acme.orders.a": NewPartitions(2)})
        await admin.list_consumer_groups()
        await admin.describe_consumer_groups(["ag"])
        await admin.list_consumer_group_offsets("ag")
        await admin.delete_topics(["acme.orders.a"])
        await admin.close()

    asyncio.run(work())


CLIENTS: Mapping[str, Sequence[Callable[[Place], None]]] = {
    "java": (_java_tools,),
    "kafka-python": (_python_clients, _python_admin, _python_sasl),
    "confluent": (_confluent_clients, _confluent_admin),
    "aiokafka": (_aiokafka,),
}
