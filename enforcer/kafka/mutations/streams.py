"""Heartbeats of streams groups: none goes on that would have its coordinator make topics.

A coordinator makes what a topology lacks with whatever heartbeat comes next. So under a quota the group's
topology and its topics are looked at first. What is missing is asked for by CreateTopics in the client's
name, as Streams does it under the classic protocol, through the same admission. The heartbeat is answered as
by a coordinator that waits for internal topics, and the member joins anew.
"""

from collections.abc import Callable, MutableMapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from enforcer.core.settings import ProxySettings
from enforcer.kafka.mutations.gated_link import GatedLink
from enforcer.kafka.mutations.topology import InternalTopic, NothingMade, TooManySteps, missing_topics
from enforcer.kafka.part import Link, Request, Slot
from enforcer.wire.kafka import fields
from enforcer.wire.kafka.codec import ASKED_MAX, Reader, answer, asked, request_layout, told
from enforcer.wire.kafka.fields import Fields
from enforcer.wire.kafka.frames import (
    CREATE_TOPICS,
    STREAMS_DESCRIBE,
    STREAMS_HEARTBEAT,
    BadFrame,
    Reason,
    RequestHeader,
    TooManyRows,
    client_id_field,
    parse_header,
)
from enforcer.wire.kafka.messages import TopicCounts
from enforcer.wire.kafka.mutations import (
    MutationRequest,
    TooManyItems,
    decode_request,
    is_legal_name,
    topics_of,
)

CREATION_VERSION: Final = 7
"""Of CreateTopics: whoever has streams groups has it."""
_CREATION_TIMEOUT_MS: Final = 30_000  # what a coordinator allows, request.timeout.ms
_MISSING_INTERNAL_TOPICS: Final = 3  # a status
_HEARTBEAT_MS: Final = 5_000  # group.streams.heartbeat.interval.ms, by default
# A member that joins asks again at once, so its connection waits: until metadata show what was made, or so
# long that refusals cost little. Never for long, since it could not leave meanwhile.
_SOON_MS: Final = 100.0
_REFUSED_MS: Final = (1_000.0, float(_HEARTBEAT_MS))
_TOLD_MAX: Final = 3  # topics that a coordinator names

_TOPIC_AUTHORIZATION_FAILED: Final = 29
_TOPIC_ALREADY_EXISTS: Final = 36
_INVALID_REQUEST: Final = 42
_GROUP_ID_NOT_FOUND: Final = 69
_FENCED_MEMBER_EPOCH: Final = 110
STREAMS_INVALID_TOPOLOGY: Final = 130

# No list of tasks at all: an empty one would be an assignment.
_NULL: Final = (
    "ErrorMessage", "Status", "ActiveTasks", "StandbyTasks", "WarmupTasks", "PartitionsByUserEndpoint",
)  # fmt: skip

_HEAD: Final = asked(STREAMS_HEARTBEAT, "MemberEpoch")
_GROUPS: Final = told(STREAMS_DESCRIBE, "of:Groups Groups:count")
# Only what stands before its members, of which there may be thousands.
_GROUP: Final = Reader(
    STREAMS_DESCRIBE, "response.Groups()",
    "ErrorCode ErrorMessage:text? Topology(Epoch Subtopologies(SourceTopics(Text:text)"
    " StateChangelogTopics(Name:text) RepartitionSourceTopics(Name:text)))",
)  # fmt: skip
_CREATED: Final = told(CREATE_TOPICS, "Topics(Name:text? ErrorCode ErrorMessage:text?)")


class KnownTopology(NamedTuple):
    """What a coordinator says of a group.

    Attributes:
        epoch: of its topology.
        sources: names of the topics that it reads.
        internal: names of its internal topics.
    """

    epoch: int
    sources: Sequence[str]
    internal: Sequence[str]


Remembered = MutableMapping[bytes, KnownTopology]
"""Groups by name, for REMEMBERED_MS."""
LARGE_BYTES: Final = 65_536
"""What is said of a group grows with its members, each of whom would ask: beyond this one asks for all."""
REMEMBERED_MS: Final = 1_000.0
REMEMBERED_MAX: Final = 100


class StreamsHeartbeat(GatedLink):
    """One heartbeat under a quota, and the connection as the creation of its topics sees it.

    Args:
        link: the connection.
        request: the heartbeat.
        settings: bound the topics of a topology.
        finished: called before the client is answered.
        create: has topics created: told the request, and this link.
        remembered: what was said of large groups a moment ago.
        enforced: its quota is acted on; if not, it goes on whatever is missing.
    """

    def __init__(
        self, link: Link, request: Request, settings: ProxySettings, finished: Callable[[Slot], None],
        create: Callable[[MutationRequest, "StreamsHeartbeat"], None], *, remembered: Remembered,
        enforced: bool,
    ) -> None:  # fmt: skip
        self._topology: Fields | None = None
        self._body: Fields = {}
        super().__init__(link, request, finished)
        self._frame = request.frame
        self._id = client_id_field(request.frame)
        self._max_items = settings.max_items
        self._create = create
        self._remembered = remembered
        self._enforced = enforced
        self._missing: list[str] = []
        self._gone = False

    def start(self) -> None:
        """Look at the group, then at its topics.

        Raises:
            BadFrame: it cannot be read.
        """
        header = self._header
        layout = request_layout(*header[:2])
        try:
            self._body = layout.read(self._frame, header.body_offset, ASKED_MAX)
        except TooManyRows:
            self._too_large()
            return
        self._topology = topology = self._body["Topology"]
        # What a coordinator gets is what was judged.
        self._frame = self._frame[: header.body_offset] + layout.write(self._body)
        if topology is not None and len(topics_of(topology)) > self._max_items:
            self._too_large()
        elif topology is not None and any(part["SourceTopicRegex"] for part in topology["Subtopologies"]):
            # No coordinator takes them so far, and nobody could say what they cost.
            self._refuse(_INVALID_REQUEST, "Regular expressions for source topics are not supported.")
        elif topology is None and (known := self._remembered.get(self._body["GroupId"])) is not None:
            self._go_by(known)
        else:
            self._remembered.pop(self._body["GroupId"], None)
            self._send(STREAMS_DESCRIBE, 0, {"GroupIds": [self._body["GroupId"]]}, self._described)

    def leave(self) -> None:
        """Nobody hears the answer: do nothing more."""
        self._gone = True

    def complete(self, response: bytes, mute_ms: float) -> None:
        """The topics were created, or were not (mutation.Link)."""
        failed = [
            f"{name} ({message or f'error {code}'})"
            for name, code, message in _CREATED(response, CREATION_VERSION)
            if code not in (0, _TOPIC_ALREADY_EXISTS)
        ]
        why = f"; Creation failed: {_some(failed, 'more')}." if failed else ""
        least_ms, most_ms = _REFUSED_MS
        self._wait(why, min(max(mute_ms, least_ms), most_ms) if failed else _SOON_MS)

    # -------------------------------------------------------------------------------------------------------

    def _described(self, response: bytes) -> None:
        if self._gone:
            return
        start, count = _GROUPS(response, 0)
        if count != 1:
            raise BadFrame(Reason.BAD_VALUE)
        code, message, stored = _GROUP(response, 0, start)
        joins = self._topology
        if code == _GROUP_ID_NOT_FOUND and joins is not None:
            stored = None
        elif code:
            self._refuse(code, message or "")
            return
        known = None if stored is None else _known(*stored)
        if known is not None and joins is None and len(response) > LARGE_BYTES:
            self._remembered[self._body["GroupId"]] = known
        if joins is None or (known is not None and known.epoch > joins["Epoch"]):
            # It goes by the group's topology, not by one of its own.
            self._go_by(known)
            return
        names = topics_of(joins)
        if all(is_legal_name(str(name, "utf-8", "replace")) for name in names):
            self.look_up([name.decode() for name in names], (), self._counted)
        else:
            # A coordinator refuses it before it looks at anything.
            self._pass_on()

    def _go_by(self, known: KnownTopology | None) -> None:
        if known is None or len(known.internal) > self._max_items:
            self._anew(())
        elif not known.internal:
            self._pass_on()
        else:
            self.look_up([*known.sources, *known.internal], (), partial(self._verified, known))

    def _verified(self, known: KnownTopology, topics: TopicCounts) -> None:
        there = topics.by_name
        missing = [name for name in known.internal if there.get(name) is None]
        # Without its sources nothing is made.
        if missing and all(there.get(name, 1) for name in known.sources):
            self._anew(missing)
        else:
            self._pass_on()

    def _counted(self, topics: TopicCounts) -> None:
        topology = self._topology
        if self._gone or topology is None:
            return
        there = {name.encode(): count for name, count in topics.by_name.items()}
        if not topics_of(topology) <= there.keys():
            self._refuse(_TOPIC_AUTHORIZATION_FAILED, "")
            return
        try:
            missing = missing_topics(topology, there)
        except NothingMade:
            missing = []
        except TooManySteps:
            self._too_large()
            return
        if not missing:
            self._pass_on()
            return
        self._missing = [topic.name.decode() for topic in missing]
        body = {"Topics": list(map(_creation, missing)), "timeoutMs": _CREATION_TIMEOUT_MS}
        frame = self._question(CREATE_TOPICS, CREATION_VERSION, body)
        try:
            creation = decode_request(frame, parse_header(frame), self._max_items)
        except TooManyItems:
            self._too_large()
        else:
            self._create(creation, self)

    # -------------------------------------------------------------------------------------------------------

    def _pass_on(self) -> None:
        """Nothing is missing, or nothing would be made: it is the coordinator's to answer."""
        if not self._gone:
            self.forward(self._frame, self._passed)

    def _passed(self, response: bytes) -> None:
        self._link.respond(self.slot, response)
        super().complete(self.slot.response or response, 0)

    def _anew(self, missing: Sequence[str]) -> None:
        """The group's own topology lacks something: its members shall bring theirs, by joining."""
        self._missing = list(missing)
        if self._topology is None:
            self._refuse(_FENCED_MEMBER_EPOCH, "Internal topics of the group are missing; join it again.")
        else:
            self._wait("; the group waits for members with its newest topology.", _REFUSED_MS[0])

    def wait_in_line(self) -> None:
        """Too many questions of its subject are open."""
        self._wait("; Creation waits for other requests.", _REFUSED_MS[0])

    def _wait(self, why: str, mute_ms: float) -> None:
        """Tell a member that joins what its group waits for; it goes on joining."""
        detail = f"Internal topics are missing: {_some(self._missing, 'additional topics')}{why}"
        status = {"StatusCode": _MISSING_INTERNAL_TOPICS, "StatusDetail": detail.encode("utf-8", "replace")}
        self._answer(mute_ms, HeartbeatIntervalMs=_HEARTBEAT_MS, Status=[status])

    def _too_large(self) -> None:
        text = f"A topology may have {self._max_items} topics, and {ASKED_MAX} parts in all."
        self._refuse(STREAMS_INVALID_TOPOLOGY, text, _REFUSED_MS[0])

    def _refuse(self, code: int, message: str, mute_ms: float = _SOON_MS) -> None:
        self._answer(mute_ms, ErrorCode=code, ErrorMessage=message.encode("utf-8", "replace") or None)

    def _answer(self, mute_ms: float, **said: object) -> None:
        if self._gone:
            return
        if not self._enforced:
            self._pass_on()
            return
        body = {name: self._body.get(name, 0) for name in ("MemberEpoch", "EndpointInformationEpoch")}
        nothing = dict.fromkeys(_NULL)
        body |= {"MemberId": self._body.get("MemberId", b""), "ThrottleTimeMs": int(mute_ms)}
        super().complete(answer(self._header, nothing | body | said), mute_ms)

    def _send(self, key: int, version: int, body: Fields, done: Callable[[bytes], None]) -> None:
        self.forward(self._question(key, version, body), done)

    def _question(self, key: int, version: int, body: Fields) -> bytes:
        """A request of the client's own, as far as the broker can tell."""
        head = fields.int16(key) + fields.int16(version) + fields.int32(self._header.correlation_id)
        return head + self._id + fields.NO_TAGS + request_layout(key, version).write(body)


def leaves(frame: bytes, header: RequestHeader) -> bool:
    """Whether a heartbeat takes its member out of the group.

    Raises:
        BadFrame: it cannot be read.
    """
    epoch: int = _HEAD(frame, header)
    return epoch < 0


def _known(epoch: int, parts: Sequence[Sequence[Sequence[str]]]) -> KnownTopology:
    sources = dict.fromkeys(name for part in parts for name in part[0])
    internal = dict.fromkeys(name for part in parts for topics in part[1:] for name in topics)
    return KnownTopology(epoch, list(sources), list(internal))


def _creation(topic: InternalTopic) -> Fields:
    """A topic of CreateTopics, as a coordinator asks for it."""
    return {
        "Name": topic.name,
        "NumPartitions": topic.partitions,
        "ReplicationFactor": topic.asked["ReplicationFactor"] or -1,
        "Configs": [{"Name": each["Key"], "Value": each["Value"]} for each in topic.asked["TopicConfigs"]],
    }


def _some(names: Sequence[str], others: str) -> str:
    """The first of them, in a coordinator's words."""
    left = len(names) - _TOLD_MAX
    shown = ", ".join(names[:_TOLD_MAX]) or "<none>"
    return f"{shown} and {left} {others}" if left > 0 else shown
