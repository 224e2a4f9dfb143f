"""A short real workload on the running stack, and what it shows: `weir demo`."""

import logging
import queue
import shlex
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from streaming.contract.errors import BadEvent, WeirError
from streaming.contract.events import load_object
from streaming.contract.printable import printable
from streaming.contract.times import clock
from weir.foreground import StopSignal
from weir.jars.folders import is_clone
from weir.jars.java import java_command
from weir.logs.tail_lines import describe, subject_of
from weir.logs.topic_reader import TopicReader
from weir.stack.local import POLL_S, Stack
from weir.stack.process import Child
from weir.stack.serve import reached

JAVA, KAFKA_PYTHON, CONFLUENT = "demo-java", "demo-kafka-python", "demo-confluent"
TOOL_LIMIT_S = 60.0
REQUEST_LIMIT_MS = 30_000
QUOTA_EXCEEDED = 89
_POLL_S = 0.1
WORKLOAD_LIMIT_S = 120.0
LINES_MAX = 10_000
# The decisions of the last requests are still on their way when the clients have their answers.
_LAST_DECISIONS_S = 2.0
_WHO_WIDTH = 16


class Scene:
    """What the clients act in, and the lines of all threads, which only the main thread prints.

    Args:
        proxy: `HOST:PORT` to connect to.
        work_dir: for the Java tool's properties and output.
        stopping: True once the user wants to stop.
    """

    def __init__(self, proxy: str, work_dir: Path, stopping: Callable[[], bool]) -> None:
        self.proxy, self.work_dir, self.stopping = proxy, work_dir, stopping
        self.prefix = f"demo-{int(time.time())}"
        """What the names of this run's topics begin with."""
        self._lines: queue.Queue[str] = queue.Queue(LINES_MAX)

    def say(self, who: str, what: str) -> None:
        """Add a client's line."""
        self._put(f"{clock(int(time.time() * 1000))}  {who:<{_WHO_WIDTH}}  {what}")

    def decision(self, decision: dict[str, Any]) -> None:
        """Add a decision's line."""
        when, _, rest = describe(decision).partition("  ")
        self._put(f"{when}  {'job decides':<{_WHO_WIDTH}}  {rest}")

    def show(self) -> None:
        """Print what has come in."""
        while not self._lines.empty():
            print(self._lines.get_nowait(), flush=True)

    def _put(self, line: str) -> None:
        # A full buffer drops lines rather than hold up a client.
        if not self._lines.full():
            self._lines.put_nowait(printable(line))


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


def play(stack: Stack, stop: StopSignal, data: Path, policies: str) -> list[str]:
    """Let the clients act and show what happens; what went wrong with them, empty if nothing did.

    Raises:
        WeirError: a part of the stack failed.
    """
    failures, over = list[str](), threading.Event()
    proxy = str(stack.addresses()["proxy"])
    scene = Scene(proxy, data / "logs", lambda: stop.asked or over.is_set())

    def act(client: Any) -> None:
        try:
            client(scene)
        except Exception as failure:  # noqa: BLE001  # of a library too: nobody else hears of it
            failures.append(str(failure) if isinstance(failure, WeirError) else repr(failure))
            scene.say(client.__name__.removeprefix("run_"), f"FAILED: {failures[-1]}")

    file = Path(policies).name
    print(f"\nThree clients, each allowed 1 partition a second and a burst of 11 (see {file}):")
    print(f"{'TIME (UTC)':<12}  {'WHO':<{_WHO_WIDTH}}  WHAT", flush=True)
    actors = [threading.Thread(target=act, args=(client,), daemon=True) for client in CLIENTS]
    watcher = threading.Thread(target=_watch_decisions, args=(stack, scene, over), daemon=True)
    watcher.start()
    for actor in actors:
        actor.start()
    end = time.monotonic() + WORKLOAD_LIMIT_S
    while any(actor.is_alive() for actor in actors) and not stop.wait(POLL_S):
        stack.look()
        scene.show()
        if time.monotonic() > end:
            failures.append(f"the workload took longer than {WORKLOAD_LIMIT_S:.0f} s")
            break
    stop.wait(_LAST_DECISIONS_S)
    over.set()
    watcher.join(_LAST_DECISIONS_S)
    scene.show()
    return failures


def _watch_decisions(stack: Stack, scene: Scene, over: threading.Event) -> None:
    cluster = stack.cluster
    reader = TopicReader(cluster.bootstrap, cluster.client)
    mine = {f"user=ANONYMOUS,client-id={name}" for name in (JAVA, KAFKA_PYTHON, CONFLUENT)}
    try:
        spans = [span.at_end() for span in reader.spans(cluster.topics.decisions, 0, None)]
        for batch in reader.follow(spans):
            for record in batch:
                # Anybody may write there: what is no decision is not of these clients.
                with suppress(BadEvent):
                    decision = load_object(record.value)
                    if subject_of(decision) in mine:
                        scene.decision(decision)
            if over.is_set():
                return
    except WeirError as failure:
        scene.say("weir tail", str(failure))
    finally:
        reader.close()


def how_to_go_on(stack: Stack, policies: str, settings: str | None) -> None:
    """Say what to do with the stack that runs on, by the policies of this file."""
    weir = ".venv/bin/weir" if is_clone() else "weir"
    file = shlex.quote(policies.removeprefix(f"{Path.cwd()}/"))
    addresses = stack.addresses()
    proxy, there = addresses["proxy"], reached(addresses["kafka"], settings)
    print("\nEverything runs on. Point a client of your own at the proxy, and watch in a second terminal:")
    print(f"  your client             bootstrap.servers={proxy}")
    print(f"  who waits, and why      {addresses['admin']}/ in a browser, or {weir} top {there}")
    print(f"  the decisions           {weir} tail {there}")
    print(f"  other limits            edit {file}, or a copy of it, then")
    print(f"                          {weir} policy apply {file} {there}")
    print(f"  what was decided        {weir} dump {there} --out events.jsonl")
    print(f"  decide it again         {weir} replay --policies {file} \\")
    print("                            --events events.jsonl --out decisions.jsonl")
    print("  stop                    Ctrl-C", flush=True)
