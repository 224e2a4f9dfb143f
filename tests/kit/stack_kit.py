"""`weir` as a user starts it, for end-to-end tests: child processes, ready files, real clients."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self
from urllib.request import urlopen

import orjson
import threaded
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from weir.jars.java import java_command
from weir.logs.topic_reader import Record, TopicReader
from weir.stack.process import running

WEIR = Path(sys.executable).with_name("weir")
START_LIMIT_S = 150.0
STOP_LIMIT_S = 20.0
COMMAND_LIMIT_S = 60.0
until = partial(threaded.until, limit_s=30.0, poll_s=0.1)


def weir(*words: str, limit_s: float = COMMAND_LIMIT_S) -> subprocess.CompletedProcess[str]:
    """Run one command of the installed `weir` to its end."""
    return subprocess.run([str(WEIR), *words], capture_output=True, text=True, timeout=limit_s, check=False)


def did(*words: str, limit_s: float = COMMAND_LIMIT_S) -> str:
    """What a command says, which must succeed."""
    done = weir(*words, limit_s=limit_s)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def replayed(
    bootstrap: str, folder: Path, dump: str = "dump.jsonl", limit_s: float = COMMAND_LIMIT_S
) -> list[bytes]:
    """What a dump of all that stands on the topics is decided to, from no policies at all: lines."""
    events, policies, out = folder / dump, folder / "none.yaml", folder / "decisions.jsonl"
    policies.write_text("version: 1\n")
    did("dump", "--kafka", bootstrap, "--out", str(events))
    words = ("--policies", str(policies), "--events", str(events), "--out", str(out))
    did("replay", *words, limit_s=limit_s)
    return out.read_bytes().splitlines()


@contextmanager
def part(folder: Path, *words: str, **environment: str) -> Iterator[Path]:
    """A command of Weir's until the end; its ready file."""
    ready = folder / f"{words[0]}.json"
    command = [str(WEIR), *words, "--ready-file", str(ready)]
    process = subprocess.Popen(command, env=os.environ | environment)
    try:
        yield ready
        process.terminate()
        process.wait(STOP_LIMIT_S)
    finally:
        process.kill()
        process.wait()


class Up:
    """One `weir up` in a folder of its own, on free ports; a context manager that leaves nothing behind.

    Args:
        folder: for its data, output, ready file, settings and policies.
        words: further options.
        settings: the file of them, which has to ask for any port of Kafka.
        policies: the file of them; empty: none.
    """

    def __init__(
        self, folder: Path, *words: str, settings: str = "local: {kafka_port: 0}\n", policies: str = ""
    ) -> None:
        self.folder = folder
        self.ready_file = folder / "ready.json"
        self.output = folder / "output.txt"
        self.settings, self.policies = folder / "weir.yaml", folder / "policies.yaml"
        self.settings.write_text(settings)
        if policies:
            self.policies.write_text(policies)
            words = ("--policies", str(self.policies), *words)
        self._words = [
            "up", "--data", str(folder / "data"), "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0",
            "--admin", "127.0.0.1:0", "--ready-file", str(self.ready_file), "--settings",
            str(self.settings), *words,
        ]  # fmt: skip
        self.process: subprocess.Popen[bytes] | None = None
        self.ready: dict[str, Any] = {}
        self._pids: set[int] = set()

    def start(self) -> Self:
        """Start it and wait for the ready file."""
        self.launch()
        self.wait_ready()
        return self

    def launch(self) -> None:
        """Start it without waiting."""
        with self.output.open("ab") as output:
            self.process = subprocess.Popen([str(WEIR), *self._words], stdout=output, stderr=output)

    def wait_ready(self, newer_than: dict[str, Any] | None = None) -> None:
        """Wait for the ready file, or for one that says something else than `newer_than`."""

        def read() -> bool:
            assert self.process is not None and self.process.poll() is None, self.text()
            try:
                self.ready = json.loads(self.ready_file.read_text())
            except OSError:
                return False
            return self.ready != newer_than

        until(read, what=f"the ready file; it says in {self.output} why", limit_s=START_LIMIT_S)
        self._pids.update(pid for pid in self.ready["pids"].values() if pid)

    def text(self) -> str:
        """What it printed so far."""
        return self.output.read_text()

    def signal(self, number: int) -> None:
        """Send it a signal."""
        assert self.process is not None
        self.process.send_signal(number)

    def wait(self, limit_s: float = STOP_LIMIT_S) -> int:
        """Its exit status; fails the test if it does not end in time."""
        assert self.process is not None
        return self.process.wait(timeout=limit_s)

    def pid(self, part: str) -> int:
        """Process id of a part, as the ready file says."""
        return int(self.ready["pids"][part])

    def metrics(self) -> str:
        """What the metrics port serves."""
        with urlopen(self.ready["metrics"], timeout=10) as answer:
            return str(answer.read().decode())

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout=STOP_LIMIT_S)
            finally:
                self.process.kill()
                self.process.wait(timeout=5)
        for pid in self._pids:
            if running(pid):
                os.kill(pid, signal.SIGKILL)


def run_java(
    main: str, *words: str, stdin: str = "", limit_s: float = COMMAND_LIMIT_S, **more: Any
) -> subprocess.CompletedProcess[str]:
    """Run a class, or a source file, to its end; more as of java_command."""
    return subprocess.run(
        java_command(main, *words, **more), input=stdin, capture_output=True, encoding="utf-8",
        timeout=limit_s, check=False,
    )  # fmt: skip


def java_topics(bootstrap: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Kafka's own kafka-topics."""
    return run_java(
        "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", bootstrap, *words,
        heap_mb=128, properties=("org.slf4j.simpleLogger.defaultLogLevel=error",),
    )  # fmt: skip


def create(admin: Any, topics: dict[str, int]) -> dict[str, tuple[int, str | None]]:
    """Create topics (name -> partitions) with kafka-python; name -> (error code, message)."""
    wanted = {name: {"num_partitions": count, "replication_factor": 1} for name, count in topics.items()}
    answer = admin.create_topics(wanted, raise_errors=False)
    return {topic["name"]: (topic["error_code"], topic["error_message"]) for topic in answer["topics"]}


def new_topics(where: str | Mapping[str, Any], *names: str, partitions: int = 1, replicas: int = 1) -> None:
    """Create topics with confluent_kafka; where is a bootstrap address, or all properties of the client."""
    admin = AdminClient({"bootstrap.servers": where} if isinstance(where, str) else dict(where))
    for made in admin.create_topics([NewTopic(name, partitions, replicas) for name in names]).values():
        made.result(COMMAND_LIMIT_S)


def alter(
    admin: AdminClient, name: str, settings: Mapping[str, Any], kind: Any = ResourceType.TOPIC, **more: Any
) -> Any:
    """Set settings of a topic, or of another kind of thing; the future of it."""
    entries = [
        ConfigEntry(key, str(value), incremental_operation=AlterConfigOpType.SET)
        for key, value in settings.items()
    ]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    return admin.incremental_alter_configs([resource], **more)[resource]


def put(bootstrap: str, topic: str, *values: Any, **more: Any) -> None:
    """Write bytes, or what JSON says of something, and wait for it; more of a record as produce() has it."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": "0"})
    for value in values:
        producer.produce(topic, value if isinstance(value, bytes) else orjson.dumps(value), **more)
    assert producer.flush(20.0) == 0


def series_at(url: str, limit_s: float = 20.0) -> dict[str, float]:
    """Every series of a page of metrics, by its name with labels; OSError after the limit."""
    with urlopen(url, timeout=limit_s) as page:
        lines = page.read().decode().splitlines()
    rows = (line.rpartition(" ") for line in lines if line[:1] not in "#")
    return {name: float(value) for name, _, value in rows}


def records(bootstrap: str, topic: str, client: Mapping[str, Any] | None = None) -> Iterator[Record]:
    """All that stands on a topic, of packed records the rows."""
    with closing(TopicReader(bootstrap, client or {})) as reader:
        for span in reader.spans(topic, 0, None):
            yield from reader.read(span)


def read_all(bootstrap: str, topic: str, client: Mapping[str, Any] | None = None) -> list[bytes]:
    """The values of these."""
    return [record.value for record in records(bootstrap, topic, client)]


def decisions(values: Sequence[bytes]) -> dict[tuple[str, str], dict[str, Any]]:
    """Decisions by (type, id), repeats aside; fails if a repeated one says something else.

    Actions are none: all steps of one have the same id.
    """
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for value in values:
        decision = orjson.loads(value)
        if decision["type"] == "backlog_action":
            continue
        decision.pop("repeat", None)
        key = (decision["type"], decision["id"])
        assert found.setdefault(key, decision) == decision, f"two different decisions for {key}"
    return found
