"""Heartbeats of streams groups: none goes on that would have its coordinator make topics.

A coordinator makes what a topology lacks with whatever heartbeat comes next. So under a quota the group's
topology and its topics are looked at first. What is missing is asked for by CreateTopics in the client's
name, as Streams does it under the classic protocol, through the same admission. The heartbeat is answered as
by a coordinator that waits for internal topics, and the member joins anew.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from enforcer.kafka.mutations.mutation import GatedLink
from enforcer.kafka.mutations.topology import (
    LARGE_BYTES,
    InternalTopic,
    KnownTopology,
    NothingMade,
    TooManySteps,
    absent,
    known_topology,
    missing_topics,
    only_group,
    places,
)
from enforcer.kafka.part import Link, Request
from enforcer.wire.kafka import frames
from enforcer.wire.kafka.codec import ASKED_MAX, answer, asked, request_layout, told
from enforcer.wire.kafka.frames import (
    CREATE_TOPICS,
    STREAMS_DESCRIBE,
    STREAMS_HEARTBEAT,
    BadFrame,
    Fields,
    RequestHeader,
    TooManyRows,
    parse_header,
)
from enforcer.wire.kafka.messages import TopicCounts
from enforcer.wire.kafka.mutations import (
    ANSWER_ROOM,
    TooManyItems,
    decode_request,
    is_legal_name,
    topics_of,
)

if TYPE_CHECKING:
    from enforcer.kafka.mutations.part import MutationsPart

CREATION_VERSION: Final = 7
"""Of CreateTopics: whoever has streams groups has it."""
_CREATION_TIMEOUT_MS: Final = 30_000  # what a coordinator allows, request.timeout.ms
_INCORRECTLY_PARTITIONED: Final = 2  # a status
_MISSING_INTERNAL_TOPICS: Final = 3  # another
_HEARTBEAT_MS: Final = 5_000  # group.streams.heartbeat.interval.ms, by default
# A member that joins asks again at once, so its connection waits: until metadata show what was made, or so
# long that refusals cost little. Never for long, since it could not leave meanwhile.
_SOON_MS: Final = 100.0
_REFUSED_MS: Final = (1_000.0, float(_HEARTBEAT_MS))
_TOLD_MAX: Final = 3  # topics that a coordinator names
FRESH_MS: Final = 1_000.0
"""What was seen is good for so long: a client that does not read keeps answers waiting; groups change."""
LOOKS_MAX: Final = 3
"""So often a heartbeat's group is looked at."""
WATCHED_MAX: Final = 10
"""Heartbeats of a connection by which a coordinator makes topics, until these can be counted."""
_SHOWN_MS: Final = 1_000.0  # until metadata show what a coordinator has made

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
_CREATED: Final = told(CREATE_TOPICS, "Topics(Name:text? ErrorCode ErrorMessage:text?)", room=ANSWER_ROOM)
_STATUS: Final = told(STREAMS_HEARTBEAT, "Status(StatusCode)")
_NEEDED: Final = ("GroupId", "MemberId", "MemberEpoch", "EndpointInformationEpoch")


class StreamsHeartbeat(GatedLink):
    """One heartbeat under a quota, and the connection as the creation of its topics sees it.

    Args:
        part: has topics created, and charges what its coordinator has made all the same.
        finished: called before the client is answered.
    """

    def __init__(
        self, part: "MutationsPart", link: Link, request: Request, finished: Callable[[GatedLink], None]
    ) -> None:
        self._topology: Fields | None = None
        self._body: Fields = {}
        super().__init__(link, request, finished)
        self._part, self._coordinator = part, part.concern.coordinator
        self._remembered = part.concern.streams_groups
        self._max_items = self._coordinator.settings.max_items
        self._now_ms = self._coordinator.clock.steady_ms
        self._frame = request.frame
        self._looks = 0
        self._looked_ms = 0.0
        self._seen: set[str] = set()
        self._most = 1
        self._missing: list[str] = []
        self._gone = False

    def start(self) -> None:
        """Look at the group, then at its topics.

        Raises:
            BadFrame: it cannot be read.
        """
        header = self.header
        layout = request_layout(*header[:2])
        try:
            body = layout.read(self._frame, header.body_offset, ASKED_MAX)
        except TooManyRows:
            self._too_large()
            return
        # Of the rest nothing is kept: numbers take many times the bytes that they came as.
        self._body = {name: body[name] for name in _NEEDED}
        topology = body["Topology"]
        if topology is not None and places(topology) > ASKED_MAX:
            self._too_large()
            return
        self._topology = topology
        # What a coordinator gets is what was judged.
        self._frame = self._frame[: header.body_offset] + layout.write(body)
        if topology is not None and len(topics_of(topology)) > self._max_items:
            self._too_large()
        elif topology is not None and any(part["SourceTopicRegex"] for part in topology["Subtopologies"]):
            # No coordinator takes them so far, and nobody could say what they cost.
            self._refuse(_INVALID_REQUEST, "Regular expressions for source topics are not supported.")
        else:
            self._look()

    def leave(self) -> bool:
        """See GatedLink."""
        self._gone = True
        return bool(self._frame)

    def complete(self, response: bytes, mute_ms: float) -> None:
        """The topics were created, or were not (mutation.GatedLink)."""
        try:
            created = _CREATED(response, CREATION_VERSION)
        except BadFrame:
            # A decision's own news bring us here, too: there nobody would end the connection.
            self._link.end("bad_response")
            return
        failed = [
            f"{name} ({message or f'error {code}'})"
            for name, code, message in created
            if code not in (0, _TOPIC_ALREADY_EXISTS)
        ]
        why = f"; Creation failed: {_some(failed, 'more')}." if failed else ""
        least_ms, most_ms = _REFUSED_MS
        self._wait(why, min(max(mute_ms, least_ms), most_ms) if failed else _SOON_MS)

    # -------------------------------------------------------------------------------------------------------

    @property
    def _enforced(self) -> bool:
        """Whether its quota is acted on now; if not, it goes on whatever is missing."""
        return self._coordinator.enforces(self.user, self.header.client_id or "")

    @property
    def _group(self) -> tuple[str, bytes]:
        return self._link.user, self._body["GroupId"]

    def _look(self) -> None:
        """Look at the group, unless that was done for another member a moment ago."""
        self._looks += 1
        self._looked_ms = self._now_ms()
        known = None if self._topology is not None else self._remembered.get(self._group)
        if known is not None:
            self._go_by(known)
        else:
            self._remembered.pop(self._group, None)
            self._describe(self._described)

    def _describe(self, done: Callable[[bytes], None]) -> bool:
        question = self._question(STREAMS_DESCRIBE, 0, {"GroupIds": [self._body["GroupId"]]})
        return self.forward(question, done)

    def _described(self, response: bytes) -> None:
        if self._gone:
            return
        code, message, stored = only_group(response)
        joins = self._topology
        if code == _GROUP_ID_NOT_FOUND and joins is not None:
            stored = None
        elif code:
            self._refuse(code, message or "")
            return
        known = None if stored is None else known_topology(*stored)
        if known is not None and joins is None and len(response) > LARGE_BYTES:
            self._remembered[self._group] = known
        if joins is None or (known is not None and known.epoch > joins["Epoch"]):
            # It goes by the group's topology, not by one of its own.
            self._go_by(known)
            return
        names = topics_of(joins)
        if all(is_legal_name(str(name, "utf-8", "replace")) for name in names):
            self.look_up([name.decode() for name in names], self._counted)
        else:
            # A coordinator refuses it before it looks at anything.
            self._pass_on()

    def _go_by(self, known: KnownTopology | None) -> None:
        if known is None or len(known.internal) > self._max_items:
            self._anew(())
        elif not known.internal:
            self._pass_on()
        else:
            self.look_up([*known.sources, *known.internal], partial(self._verified, known))

    def _verified(self, known: KnownTopology, topics: TopicCounts) -> None:
        there = topics.by_name
        self._see(topics)
        self._missing = missing = [name for name in known.internal if there.get(name) is None]
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
        self._see(topics)
        if not topics_of(topology) <= there.keys():
            self._refuse(_TOPIC_AUTHORIZATION_FAILED, "")
            return
        try:
            missing = missing_topics(topology, there)
        except NothingMade:
            sources, internal = absent(topology, there)
            self._missing = [name.decode() for name in internal]
            if internal and not sources:
                # The coordinator may see it otherwise, by the order in which its parts lie there.
                detail = "The numbers of partitions of its topics do not fit."
                self._tell(_INCORRECTLY_PARTITIONED, detail, _REFUSED_MS[0])
                return
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
            self._part.create(creation, self)

    # -------------------------------------------------------------------------------------------------------

    def _pass_on(self) -> None:
        """Nothing is missing, or nothing would be made: it is the coordinator's to answer."""
        if self._gone:
            return
        if not self._enforced or self._now_ms() - self._looked_ms <= FRESH_MS:
            frame, self._frame, self._topology = self._frame, b"", None
            self.forward(frame, self._passed)
        elif self._looks < LOOKS_MAX:
            self._look()
        else:
            self._wait("; its group could not be looked at in time.", _REFUSED_MS[0])

    def _passed(self, response: bytes) -> None:
        made = _MISSING_INTERNAL_TOPICS in _STATUS(response, self.header.api_version)
        if made:
            self._part.watch.add(self)
        self._link.respond(self.slot, response)
        super().complete(self.slot.response or response, 0)
        if made and (len(self._part.watch) > WATCHED_MAX or not self._describe(self._makes)):
            self.over()

    def over(self) -> None:
        """What its coordinator makes will not be seen: charge what was missing, by what was seen."""
        if self in self._part.watch:
            self._part.watch.remove(self)
            self._part.appeared(self, dict.fromkeys(self._missing, self._most))

    def _makes(self, response: bytes) -> None:
        """Its coordinator makes topics all the same: charge what of the group's comes that was not there."""
        code, _, stored = only_group(response)
        names = [] if code or stored is None else known_topology(*stored).internal
        self._missing = [name for name in names if name not in self._seen][: self._max_items]
        self.call_later(_SHOWN_MS, partial(self.look_up, self._missing, self._made))

    def _made(self, topics: TopicCounts) -> None:
        self._part.watch.discard(self)
        self._part.appeared(self, {name: count for name, count in topics.by_name.items() if count})

    def _see(self, topics: TopicCounts) -> None:
        self._seen = {name for name, count in topics.by_name.items() if count}
        self._most = max((count for count in topics.by_name.values() if count), default=1)

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
        self._tell(_MISSING_INTERNAL_TOPICS, detail, mute_ms)

    def _tell(self, code: int, detail: str, mute_ms: float) -> None:
        status = {"StatusCode": code, "StatusDetail": detail.encode("utf-8", "replace")}
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
        super().complete(answer(self.header, nothing | body | said), mute_ms)

    def _question(self, key: int, version: int, body: Fields) -> bytes:
        """A request of the client's own, as far as the broker can tell."""
        head = frames.int16(key) + frames.int16(version) + frames.int32(self.header.correlation_id)
        return head + self._client_id + frames.NO_TAGS + request_layout(key, version).write(body)


def leaves(frame: bytes, header: RequestHeader) -> bool:
    """Whether a heartbeat takes its member out of the group.

    Raises:
        BadFrame: it cannot be read.
    """
    epoch: int = _HEAD(frame, header)
    return epoch < 0


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
