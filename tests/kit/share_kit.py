"""Share groups on a real broker: real members of them, and what each record that they get says."""

import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final, NamedTuple

from cluster_kit import fresh
from four_clients import BUILD_LIMIT_S, PINS
from reading_kit import fill
from wire_client import WireClient

from enforcer.wire.kafka.codec import request_layout, response_layout
from enforcer.wire.kafka.frames import NO_TAGS, Fields, int16, int32, response_body_offset
from weir.jars.folders import ROOT
from weir.jars.java import java_command

LIMIT_S: Final = 120
MEMBER: Final = "A" * 22
_SOURCES: Final = ROOT / "tests" / "kafka"
_ALTER_CONFIGS, _ALTER_QUOTAS, _GROUP = 44, 49, 32
SHARE_HEARTBEAT: Final = 76
_NOT_YET: Final = (14, 15, 16)
LOCK_MS: Final = 5_000
"""How long a record is locked for whom it was delivered to; Kafka's default is 30 s."""
PROPERTIES: Final[Mapping[str, str]] = {
    "num.partitions": "1", "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": str(LOCK_MS), "group.share.min.heartbeat.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "500",
}  # fmt: skip


class Arrival(NamedTuple):
    """A record that a member got: when (ms), which, and the how manyth delivery of it that was."""

    at_ms: int
    topic: str
    partition: int
    offset: int
    delivery: int


def configure(bootstrap: str, group: str, **settings: str) -> None:
    """Settings of a share group, beside that it begins with the earliest record."""
    settings = {"share.auto.offset.reset": "earliest"} | settings
    configs = [
        {"Name": name.encode(), "ConfigOperation": 0, "Value": value.encode()}
        for name, value in settings.items()
    ]
    resource = {"ResourceType": _GROUP, "ResourceName": group.encode(), "Configs": configs}
    _change(bootstrap, _ALTER_CONFIGS, {"Resources": [resource]}, "Responses")


def shared(bootstrap: str, records: int, **more: int) -> tuple[str, str]:
    """A topic with so many records, more of it as of reading_kit.fill, and a share group; their names."""
    topic, group = fresh("shared"), fresh("members")
    fill(bootstrap, topic, records, **more)
    configure(bootstrap, group)
    return topic, group


def brokers_own_rate(bootstrap: str, client_id: str, rate: int) -> None:
    """Kafka's own consumer_byte_rate of a client id."""
    entity = {"EntityType": b"client-id", "EntityName": client_id.encode()}
    values = [{"Key": b"consumer_byte_rate", "Value": float(rate)}]
    _change(bootstrap, _ALTER_QUOTAS, {"Entries": [{"Entity": [entity], "Ops": values}]}, "Entries")


def _change(bootstrap: str, key: int, body: Fields, said: str) -> None:
    with RawMember(bootstrap) as wire:
        answer = wire.ask(key, 1, body)
    assert [each["ErrorCode"] for each in answer[said]] == [0], answer


def java(bootstrap: str, group: str, topics: str, count: int, limit_s: int, *more: str) -> list[str]:
    """Kafka's own."""
    properties = ("org.slf4j.simpleLogger.defaultLogLevel=error",)
    arguments = (bootstrap, group, topics, str(count), str(limit_s), *more)
    return java_command(str(_SOURCES / "ShareReader.java"), *arguments, properties=properties)


def console(bootstrap: str, group: str, topics: str, count: int, limit_s: int, *more: str) -> list[str]:
    """Kafka's console share consumer."""
    printed = ("offset", "partition", "delivery")
    return java_command(
        "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
        "--bootstrap-server", bootstrap, "--topic", topics, "--group", group,
        "--max-messages", str(count), "--timeout-ms", str(1_000 * limit_s),
        *(part for name in printed for part in ("--formatter-property", f"print.{name}=true")),
        *(part for each in more for part in ("--command-property", each)),
        "--formatter-property", "print.value=false",
    )  # fmt: skip


def go(bootstrap: str, group: str, topics: str, count: int, limit_s: int, *_more: str) -> list[str]:
    """franz-go."""
    return [_built(), bootstrap, group, topics, str(count), str(limit_s)]


@cache
def _built() -> str:
    program = ROOT / ".weir" / "share_reader"
    subprocess.run(
        ["go", "build", "-mod=readonly", "-o", str(program), str(_SOURCES / "share_reader.go")],
        cwd=PINS, check=True, timeout=BUILD_LIMIT_S,
    )  # fmt: skip
    return str(program)


class RawMember(WireClient):
    """A connection that says what a test wants, in Kafka's own fields."""

    def tell(self, key: int, version: int, body: Fields) -> None:
        """Send a flexible request."""
        name = self.client_id.encode()
        head = int16(key) + int16(version) + int32(1) + int16(len(name)) + name + NO_TAGS
        self.send_frame(head + request_layout(key, version).write(body))

    def hear(self, key: int, version: int) -> Fields:
        """The next answer."""
        answer = self.receive_frame()
        return response_layout(key, version).read(answer, response_body_offset(key, version, answer))

    def ask(self, key: int, version: int, body: Fields) -> Fields:
        """The answer to a request."""
        self.tell(key, version, body)
        return self.hear(key, version)

    def join(self, group: str, member: str, topic: str) -> bytes:
        """Become the group's only member, with one partition of a topic; returns the topic's id."""
        body: Fields = {"GroupId": group.encode(), "MemberId": member.encode(), "MemberEpoch": 0}
        body["SubscribedTopicNames"] = [topic.encode()]
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            said = self.ask(SHARE_HEARTBEAT, 1, body)
            assert said["ErrorCode"] in (0, *_NOT_YET), said
            if said["ErrorCode"] == 0:
                body["MemberEpoch"] = said["MemberEpoch"]
                body["SubscribedTopicNames"] = None
                if said["Assignment"] and said["Assignment"]["TopicPartitions"]:
                    topic_id: bytes = said["Assignment"]["TopicPartitions"][0]["TopicId"]
                    return topic_id
            time.sleep(0.1)
        raise AssertionError("nothing was assigned")


class Session:
    """What a member asks for its records by, in order: each request has the next epoch.

    Attributes:
        epoch: of the next request; -1 ends the session.
        topic_id: of its only topic.

    Args:
        wire: by which it joins the group.
        group: its group.
        topic: what it reads.
        member: its id.
    """

    def __init__(self, wire: RawMember, group: str, topic: str, member: str = MEMBER) -> None:
        self._group, self._member, self.epoch = group, member, 0
        self.topic_id = wire.join(group, member, topic)

    def fetch(self, *accepted: tuple[int, int], **more: int) -> Fields:
        """A ShareFetch, of which the first names the topic and others acknowledge records; see below."""
        whole: Fields = {"TopicId": self.topic_id, "Partitions": [{"PartitionIndex": 0}]}
        asked = {"MaxWaitMs": 10_000, "MinBytes": 1, "MaxBytes": 1 << 20, "MaxRecords": 500, "BatchSize": 500}
        begun = self._request(accepted) if self.epoch else self._request(()) | {"Topics": [whole]}
        return {**begun, **asked, **more}

    def acknowledge(self, *accepted: tuple[int, int]) -> Fields:
        """A ShareAcknowledge that accepts records, each from a first to a last offset of partition 0."""
        return self._request(accepted)

    def _request(self, accepted: Sequence[tuple[int, int]]) -> Fields:
        batches = [{"FirstOffset": one, "LastOffset": end, "AcknowledgeTypes": [1]} for one, end in accepted]
        parts = [{"PartitionIndex": 0, "AcknowledgementBatches": batches}]
        body: Fields = {"GroupId": self._group.encode(), "MemberId": self._member.encode()}
        topics = [{"TopicId": self.topic_id, "Partitions": parts}] if batches else []
        body |= {"ShareSessionEpoch": self.epoch, "Topics": topics}
        self.epoch += 1
        return body


def codes(answer: Fields, field: str = "ErrorCode") -> list[int]:
    """An error of each partition."""
    return [part[field] for each in answer["Responses"] for part in each["Partitions"]]


def acquired(answer: Fields) -> list[tuple[int, int, int]]:
    """The ranges that a ShareFetch has brought: first and last offset, deliveries."""
    return [
        (each["FirstOffset"], each["LastOffset"], each["DeliveryCount"])
        for topic in answer["Responses"]
        for part in topic["Partitions"]
        for each in part["AcquiredRecords"]
    ]


class Member:
    """A member of a share group in a process of its own."""

    def __init__(self, command: list[str]) -> None:
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._said, text=True)
        self._arrivals: list[Arrival] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        """Take its lines as they come: not all of them say when that was."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if (arrival := _arrival(line)) is not None:
                self._arrivals.append(arrival)

    def arrivals(self) -> list[Arrival]:
        """What it got, when it has ended."""
        self._reader.join(LIMIT_S)
        if self._reader.is_alive():
            self._process.kill()
            raise TimeoutError(f"{self._process.args!r} has not ended in {LIMIT_S} s")
        with self._process as ended, self._said as said:
            code = ended.wait(LIMIT_S)
            said.seek(0)
            assert code == 0, said.read()
        return self._arrivals


def _arrival(line: str) -> Arrival | None:
    parts = line.split()
    if len(parts) == len(Arrival._fields) and parts[0].isdigit():
        return Arrival(int(parts[0]), parts[1], *map(int, parts[2:]))
    # The console's.
    said = dict(re.findall(r"(Partition|Offset|Delivery):\s*(\d+)", line))
    if not said:
        return None
    at_ms = time.time_ns() // 1_000_000
    return Arrival(at_ms, "", *(int(said[name]) for name in ("Partition", "Offset", "Delivery")))
