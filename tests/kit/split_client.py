"""A client that joins and commits under one client id, and fetches under others."""

import struct
import time
from contextlib import ExitStack
from typing import Any, Final, NamedTuple, Self

from cluster_kit import fresh
from kafka.protocol import consumer
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.metadata import find_coordinator
from kafka_kit import build
from proxy_kit import until
from traffic_kit import fetch_of
from wire_client import WireClient

_SESSION_MS: Final = 120_000
"""So long a member needs no heartbeat."""
_SEEN_S: Final = 0.02
"""In that time the proxy has seen what was asked."""
_JOIN, _SYNC, _COMMIT = 3, 2, 7


class Member:
    """The only member of a classic group, which reads partition 0 of a topic; a context manager.

    Args:
        bootstrap: where it connects.
        client_id: under which.
        group: its group.
        topic: what it reads.
    """

    def __init__(self, bootstrap: str, client_id: str, group: str, topic: str) -> None:
        self._client = WireClient(bootstrap, client_id)
        self._group, self._topic = group, topic
        self._generation, self._member = -1, ""

    def __enter__(self) -> Self:
        ask: Any = build(find_coordinator.FindCoordinatorRequest, 2, key=self._group, key_type=0)
        self._client.answer_to(ask)
        metadata = build(consumer.ConsumerProtocolSubscription, 0, topics=[self._topic]).encode(version=0)
        protocol = {"name": "range", "metadata": metadata}

        def joined() -> Any:
            answer = self._client.answer_to(build(
                consumer.JoinGroupRequest, _JOIN, group_id=self._group, session_timeout_ms=_SESSION_MS,
                rebalance_timeout_ms=_SESSION_MS, member_id=self._member, protocol_type="consumer",
                protocols=[protocol],
            ))  # fmt: skip
            # The broker may not be ready to coordinate yet.
            return answer if answer.error_code == 0 else None

        answer = until(joined, what="a group")
        self._generation, self._member = answer.generation_id, answer.member_id
        part = {"topic": self._topic, "partitions": [0]}
        told = build(consumer.ConsumerProtocolAssignment, 0, assigned_partitions=[part]).encode(version=0)
        ask = build(
            consumer.SyncGroupRequest, _SYNC, group_id=self._group, generation_id=self._generation,
            member_id=self._member, assignments=[{"member_id": self._member, "assignment": told}],
        )  # fmt: skip
        assert self._client.answer_to(ask).error_code == 0
        return self

    def __exit__(self, *_: object) -> None:
        self._client.socket.close()

    def commit(self, offset: int) -> None:
        """The group has read all before it."""
        part = {"partition_index": 0, "committed_offset": offset}
        ask = build(
            consumer.OffsetCommitRequest, _COMMIT, group_id=self._group, member_id=self._member,
            generation_id_or_member_epoch=self._generation,
            topics=[{"name": self._topic, "partitions": [part]}],
        )  # fmt: skip
        answer = self._client.answer_to(ask)
        assert answer.topics[0].partitions[0].error_code == 0


def ask(topic: str, offset: int) -> ApiMessage:
    """A request for partition 0 of a topic from an offset on, 64 KiB at most."""
    return fetch_of(12, topic, offset=offset, most=1 << 16)


def fetched(client: WireClient, topic: str, offset: int) -> int:
    """Ask and take the answer; the offset behind the whole batches that came."""
    (answer,) = client.answer_to(ask(topic, offset)).responses[0].partitions
    assert answer.error_code == 0
    content, pos = bytes(answer.records or b""), 0
    while pos + 27 <= len(content):
        first, length = struct.unpack_from(">qi", content, pos)
        if pos + 12 + length > len(content):
            break
        (last,) = struct.unpack_from(">i", content, pos + 23)
        offset, pos = first + last + 1, pos + 12 + length
    return offset


class Way(NamedTuple):
    """How a client of two faces reads.

    Attributes:
        beside: its fetches have the client id of a member of a free group with the same partition.
        both_commit: that group commits the same offsets.
        anew: it fetches on a new connection after each commit.
        shift: there it begins so many records behind what it has committed.
        lag: its commits are so many fetches late.
        decoy: a connection with the client id that commits has asked for the last record before.
        decoys: another one asks, before each commit, for what comes behind it.
        pause_s: it waits so long after each fetch.
    """

    beside: bool = False
    both_commit: bool = False
    anew: bool = False
    shift: int = 0
    lag: int = 0
    decoy: bool = False
    decoys: bool = False
    pause_s: float = 0.0


class Loot(NamedTuple):
    """What it has read and committed.

    Attributes:
        first: records read until its first commit was answered.
        most: in one fetch.
        total: records read and committed after the first commit.
        seconds: from then on.
    """

    first: int
    most: int
    total: int
    seconds: float


def split(bootstrap: str, group: str, topic: str, way: Way, seconds: float, records: int) -> Loot:
    """Read a topic for a group for so long, as fast as it goes.

    Args:
        bootstrap: where it connects.
        group: for which it commits, under a client id under which it never fetches.
        topic: read from its beginning.
        way: how.
        seconds: from the first commit on.
        records: of the topic; with the last one it ends.
    """
    reads_as, commits_as = fresh("reads"), fresh("commits")
    with ExitStack() as stack:
        members = [stack.enter_context(Member(bootstrap, commits_as, group, topic))]
        if way.beside:
            members.append(stack.enter_context(Member(bootstrap, reads_as, fresh("free"), topic)))
        if way.decoy:
            decoy = stack.enter_context(WireClient(bootstrap, commits_as))
            for offset in (0, records - 1):
                fetched(decoy, topic, offset)
        reader = WireClient(bootstrap, reads_as)
        position = start = read = committed = first = most = 0
        due: list[tuple[int, int]] = []
        began: float | None = None
        while position < records and (began is None or time.monotonic() < began + seconds):
            behind = fetched(reader, topic, start)
            if behind <= position:
                continue
            time.sleep(way.pause_s)
            # What it reads again is nothing new to it.
            new = behind - max(start, position)
            read, most, position, start = read + new, max(most, new), behind, behind
            due.append((position, read))
            if len(due) <= way.lag:
                continue
            offset, committed = due.pop(0)
            if way.decoys:
                decoy = WireClient(bootstrap, commits_as)
                stack.callback(decoy.socket.close)
                decoy.send(ask(topic, offset))
                time.sleep(_SEEN_S)
            for member in members if way.both_commit else members[:1]:
                member.commit(offset)
            if began is None:
                began, first = time.monotonic(), read
            if way.anew:
                reader.socket.close()
                reader = WireClient(bootstrap, reads_as)
                start = max(0, position + way.shift)
        reader.socket.close()
    assert began is not None
    return Loot(first, most, max(0, committed - first), time.monotonic() - began)
