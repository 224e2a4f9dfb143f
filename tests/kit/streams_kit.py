"""Streams groups: frames of their members, and the coordinator that a test plays."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from connection_kit import Rig, framed, frames_of

from enforcer.wire.kafka.codec import asked, layout, request_layout, response_layout
from enforcer.wire.kafka.frames import (
    CREATE_TOPICS,
    FLEXIBLE_FROM,
    METADATA,
    STREAMS_DESCRIBE,
    STREAMS_HEARTBEAT,
    BadFrame,
    Fields,
    int16,
    int32,
    parse_header,
    response_body_offset,
)

GROUP_ID_NOT_FOUND = 69
_EPOCH = asked(STREAMS_HEARTBEAT, "MemberEpoch")


def topic(name: str, partitions: int = 0, factor: int = 0, **configs: str) -> Fields:
    """An internal topic of a topology."""
    settings = [{"Key": key.encode(), "Value": value.encode()} for key, value in configs.items()]
    said = {"Name": name.encode(), "Partitions": partitions, "ReplicationFactor": factor}
    return {**said, "TopicConfigs": settings}


def counting(source: str, *changelogs: str, epoch: int = 0, repartition: str = "") -> Fields:
    """A topology that reads a topic, perhaps through a repartition topic, and keeps what it counts."""
    keeps = {"StateChangelogTopics": [topic(name, **{"cleanup.policy": "compact"}) for name in changelogs]}
    if not repartition:
        parts = [{"SubtopologyId": b"0", "SourceTopics": [source.encode()], **keeps}]
    else:
        sinks = [repartition.encode()]
        parts = [
            {"SubtopologyId": b"0", "SourceTopics": [source.encode()], "RepartitionSinkTopics": sinks},
            {"SubtopologyId": b"1", "RepartitionSourceTopics": [topic(repartition)], **keeps},
        ]
    return {"Epoch": epoch, "Subtopologies": parts}


def heartbeat(topology: Fields | None, group: str = "app", epoch: int = 0, **more: Any) -> Fields:
    """What a member says: it joins if it has a topology, else it is in its group."""
    body: Fields = {"GroupId": group.encode(), "MemberId": b"m" * 22, "MemberEpoch": epoch}
    tasks: Any = [] if topology else None
    body |= dict.fromkeys(("ActiveTasks", "StandbyTasks", "WarmupTasks"), tasks)
    body |= dict.fromkeys(("ClientTags", "TaskOffsets", "TaskEndOffsets"))
    return body | {"RebalanceTimeoutMs": 1_000, "ProcessId": b"p" * 22, "Topology": topology, **more}


def request(key: int, version: int, body: Fields, correlation_id: int = 7, client_id: bytes = b"c") -> bytes:
    """A flexible request."""
    head = int16(key) + int16(version) + int32(correlation_id) + int16(len(client_id)) + client_id
    return head + b"\0" + request_layout(key, version).write(body)


def charged(events: Iterable[Mapping[str, Any]], api: str = "StreamsGroupHeartbeat") -> int:
    """Partition mutations that stay charged to an API's requests."""
    total = 0
    for event in events:
        items = event.get("items", ())
        if event["type"] == "refund":
            total -= sum(each["mutations"] for each in items)
        elif event["type"] == "request" and event["api"] == api:
            rejected = event.get("decided", {}).get("rejected", ())
            total += sum(each["mutations"] for each in items if each["name"] not in rejected)
    return total


class Coordinator:
    """A connection of client c whose broker the test plays: it has topics and one group.

    Args:
        there: its topics, with their partitions.
        settings: of the proxy.

    Attributes:
        group: what it says of the group; None: there is none.
        refuses: topic -> error and text with which it makes none.
        beats: heartbeats that reached it.
        made: topics that were created.
        makes: what it makes itself with the next heartbeat, in spite of us.
        configs: settings that it tells of each topic that it created.
    """

    def __init__(self, there: Mapping[str, int], **settings: Any) -> None:
        self.rig = Rig(**settings)
        self.there = dict(there)
        self.group: Fields | None = None
        self.error = 0
        self.refuses: dict[str, tuple[int, bytes | None]] = {}
        self.beats: list[Fields] = []
        self.made: dict[str, int] = {}
        self.makes: dict[str, int] = {}
        self.configs = 0
        self._seen = self._written = 0
        self.rig.desk.stand_alone()

    def limit(self, **quota: Any) -> None:
        """Give everybody a quota."""
        self.rig.desk.limit("quotas[user=<default>]", **quota)

    def charged(self) -> int:
        """Mutations that stay charged."""
        return charged(event for _, event in self.rig.desk.events)

    def send(self, body: Fields) -> None:
        """A heartbeat comes."""
        self.rig.connection.data_received(framed(request(STREAMS_HEARTBEAT, 0, body)))

    def beat(self, body: Fields | None) -> Fields | None:
        """A heartbeat, or the one that waits, and its answer; None if there is none."""
        written = self._written
        if body is not None:
            self.send(body)
        while self.answer_one():
            pass
        self._written = len(self.rig.client.data)
        frames = frames_of(self.rig.client.data[written:])
        if not frames:
            return None
        (frame,) = frames
        found: Fields = response_layout(STREAMS_HEARTBEAT, 0).read(frame, response_body_offset(88, 0, frame))
        return found

    def answer_one(self) -> bool:
        """Answer the next request that reached the broker; False: there is none."""
        sent = self.rig.upstream.sent
        if self._seen == len(sent):
            return False
        frame = sent[self._seen]
        self._seen += 1
        header = parse_header(frame)
        key, version = header.api_key, header.api_version
        try:
            body = request_layout(key, version).read(frame, header.body_offset)
        except BadFrame:
            # Who leaves passes unread; of what it cannot read a broker does nothing, but closes.
            assert key == STREAMS_HEARTBEAT and _EPOCH(frame, header) < 0
            self.rig.connection.upstream_failed("lost")
            return True
        answers: dict[int, Callable[[Fields], Fields]] = {
            METADATA: self._metadata, CREATE_TOPICS: self._create, STREAMS_DESCRIBE: self._describe,
            STREAMS_HEARTBEAT: self._beat,
        }  # fmt: skip
        tags = b"\0" if version >= FLEXIBLE_FROM[key] else b""
        said = layout(key, version, "response").write(answers[key](body))
        self.rig.answer([int32(header.correlation_id) + tags + said])
        return True

    def _metadata(self, body: Fields) -> Fields:
        assert not body["AllowAutoTopicCreation"]
        topics = []
        for each in body["Topics"]:
            count = self.there.get(each["Name"].decode(), 0)
            parts = [{"PartitionIndex": number} for number in range(count)]
            topics.append({"Name": each["Name"], "ErrorCode": 0 if count else 3, "Partitions": parts})
        return {"Brokers": [], "Topics": topics}

    def _create(self, body: Fields) -> Fields:
        said = []
        for each in body["Topics"]:
            name = each["Name"].decode()
            code, why = self.refuses.get(name, (36 if name in self.there else 0, None))
            if not code:
                self.there[name] = self.made[name] = each["NumPartitions"]
            count = -1 if code else each["NumPartitions"]
            configs = [{"Name": b"k%d" % number, "Value": b"v"} for number in range(self.configs)]
            about = {"ErrorCode": code, "ErrorMessage": why, "NumPartitions": count, "Configs": configs}
            said.append({"Name": each["Name"], **about})
        return {"Topics": said}

    def _describe(self, body: Fields) -> Fields:
        (name,) = body["GroupIds"]
        code = self.error or (0 if self.group else GROUP_ID_NOT_FOUND)
        group = self.group or {"Topology": None}
        return {"Groups": [{"GroupId": name, "ErrorCode": code, "ErrorMessage": None, **group}]}

    def _beat(self, body: Fields) -> Fields:
        self.beats.append(body)
        status = [{"StatusCode": 3, "StatusDetail": b""}] if self.makes else []
        self.there |= self.makes
        self.makes = {}
        return {"MemberId": body["MemberId"], "MemberEpoch": 1, "Status": status, "ErrorMessage": None}
