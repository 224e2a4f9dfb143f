"""Three real clients that create topics over their quota, and what each of them sees."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streaming.contract.errors import WeirError
from weir.jars.java import java_command
from weir.stack.process import Child

JAVA, KAFKA_PYTHON, CONFLUENT = "demo-java", "demo-kafka-python", "demo-confluent"
TOOL_LIMIT_S = 60.0
REQUEST_LIMIT_MS = 30_000
QUOTA_EXCEEDED = 89
_POLL_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What the clients act in.

    Attributes:
        proxy: `HOST:PORT` to connect to.
        prefix: what the names of this run's topics begin with.
        work_dir: for the Java tool's properties and output.
        say: takes (client, what it saw).
        stopping: True once the user wants to stop.
    """

    proxy: str
    prefix: str
    work_dir: Path
    say: Callable[[str, str], None]
    stopping: Callable[[], bool]


def run_java(scene: Scene) -> None:
    """kafka-topics twice: the first create overdraws the bucket, the second is refused with the time."""
    properties = scene.work_dir / "demo-java.properties"
    properties.parent.mkdir(parents=True, exist_ok=True)
    properties.write_text(f"client.id={JAVA}\n")
    for number in (1, 2):
        name = f"{scene.prefix}-java-{number}"
        begun = time.monotonic()
        output = _kafka_topics(
            scene,
            properties,
            ("--create", "--topic", name, "--partitions", "30", "--replication-factor", "1"),
        )
        told = next((line for line in output if "rror" in line or "reated" in line), "no answer")
        scene.say("kafka-topics", f"create {name}, 30 partitions: {told} ({time.monotonic() - begun:.1f} s)")


def _kafka_topics(scene: Scene, properties: Path, words: tuple[str, ...]) -> list[str]:
    log = scene.work_dir / "demo-java.log"
    log.unlink(missing_ok=True)
    command = java_command(
        "org.apache.kafka.tools.TopicCommand",
        "--bootstrap-server", scene.proxy, "--command-config", str(properties), *words,
        heap_mb=128, properties=("org.slf4j.simpleLogger.defaultLogLevel=error",),
    )  # fmt: skip
    tool = Child("kafka-topics", command, log=log)
    tool.start()
    deadline = time.monotonic() + TOOL_LIMIT_S
    while tool.alive():
        if scene.stopping() or time.monotonic() > deadline:
            tool.kill()
            raise WeirError("kafka-topics was stopped before it had an answer")
        time.sleep(_POLL_S)
    return tool.last_lines()


def run_kafka_python(scene: Scene) -> None:
    """Four topics in one request: three fit, the fourth is refused and succeeds after the told time."""
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaError

    # Its own log repeats, as errors, what is shown as the client's experience.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    names = [f"{scene.prefix}-python-{number}" for number in (1, 2, 3, 4)]
    try:
        admin = KafkaAdminClient(
            bootstrap_servers=scene.proxy, client_id=KAFKA_PYTHON, request_timeout_ms=REQUEST_LIMIT_MS
        )
    except KafkaError as failure:
        raise WeirError(f"kafka-python: {failure}") from failure
    try:
        answers = _create(admin, names)
        scene.say("kafka-python", f"create 4 topics of 5 partitions: {', '.join(map(_outcome, answers))}")
        refused = [answer for answer in answers if answer["error_code"] == QUOTA_EXCEEDED]
        if not refused:
            return
        scene.say("kafka-python", f"was told: {refused[0]['error_message']}")
        # The library pauses the connection for the told time, so the next request has to wait first.
        deadline = time.monotonic() + REQUEST_LIMIT_MS / 1000
        while not scene.stopping() and time.monotonic() < deadline:
            time.sleep(1.0)
            try:
                again = _create(admin, [answer["name"] for answer in refused])
            except KafkaError:
                continue
            if all(answer["error_code"] != QUOTA_EXCEEDED for answer in again):
                scene.say("kafka-python", f"waited and tried again: {', '.join(map(_outcome, again))}")
                return
        raise WeirError("kafka-python was still refused after the told time")
    finally:
        admin.close()


def _create(admin: Any, names: list[str]) -> list[dict[str, Any]]:
    wanted = {name: {"num_partitions": 5, "replication_factor": 1} for name in names}
    answer = admin.create_topics(wanted, raise_errors=False)
    found = {topic["name"]: topic for topic in answer["topics"]}
    return [found[name] for name in names]


def _outcome(answer: dict[str, Any]) -> str:
    code = answer["error_code"]
    return "created" if code == 0 else f"error {code}"


def run_confluent(scene: Scene) -> None:
    """An older protocol version, which is never refused: it succeeds, and its connection then waits."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": scene.proxy, "client.id": CONFLUENT, "log_level": 0})
    for number, partitions in ((1, 15), (2, 1)):
        name = f"{scene.prefix}-confluent-{number}"
        begun = time.monotonic()
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1)
        future = admin.create_topics([topic], request_timeout=REQUEST_LIMIT_MS / 1000)[name]
        try:
            future.result(REQUEST_LIMIT_MS / 1000)
        except KafkaException as refused:
            raise WeirError(f"confluent-kafka: {refused.args[0].str()}") from refused
        scene.say(
            "confluent-kafka",
            f"create {name}, {partitions} partitions: created after {time.monotonic() - begun:.1f} s",
        )


CLIENTS = (run_kafka_python, run_confluent, run_java)
