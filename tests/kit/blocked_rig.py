"""A connection whose Produce requests meet blocks, without sockets."""

import struct
from collections.abc import Mapping
from typing import Any

from backlog_kit import EXCEPTION, HOLD, decision, quota
from connection_kit import Rig, framed, frames_of
from kafka.protocol.metadata.metadata import MetadataResponse
from kafka.protocol.producer import ProduceResponse
from kafka_backlog_kit import full_name as full
from kafka_kit import build, decode, response
from sample_kit import sample_of
from traffic_kit import batch, produce

from benchmarks.kit.lone_proxy import enforce
from enforcer.kafka.backlog.part import BlocksLimit

HELD, REFUSED, FREE = "acme.held.t", "acme.refused.t", "acme.free.t"
QUESTION = 3  # Metadata


class Blocked(Rig):
    """A connection of somebody whom the broker has let in; HELD and REFUSED are beyond their quotas."""

    def __init__(self, proven: bool = True, **settings: Any) -> None:
        super().__init__(**settings)
        policies = self.coordinator.policies
        for topic, policy in ((HELD, HOLD), (REFUSED, EXCEPTION)):
            path = f"namespaces.{full(topic).split('//')[1].rpartition('/')[0]}"
            enforce(policies, self.desk.wall_ms, {path: quota(policy)})
            self.say(topic, 10_240)
        self.proven = proven

    def say(self, topic: str, size: float, part: str = "") -> None:
        """A decision comes."""
        self.blocks.blocks.take([decision(full(topic) + part, size, ts=self.desk.wall_ms)])

    def produce(self, number: int, topics: Mapping[str, int], acks: int = 1, version: int = 9) -> bytes:
        """A client asks to write one record to so many partitions of some topics; returns the request."""
        named = {name: [batch(1)] * count for name, count in topics.items()}
        return self._send(number, produce(version, named, acks=acks)[0])

    def patient(self, number: int) -> None:
        """The same to HELD, by a client that waits for half a minute."""
        frame, _ = produce(9, {HELD: [batch(1)]})
        self._send(number, frame.replace(struct.pack(">hi", 1, 1_000), struct.pack(">hi", 1, 30_000)))

    def _send(self, number: int, frame: bytes) -> bytes:
        frame = frame[:4] + struct.pack(">i", number) + frame[8:]
        self.connection.data_received(framed(frame))
        producing = self.part(BlocksLimit)
        if self.proven and producing is not None and not producing._naming.proven:
            # Nobody has been asked yet who it is.
            assert self.upstream.sent[-1][:2] == struct.pack(">h", QUESTION)
            self.name({})
        return frame

    def name(self, topics: Mapping[str, Any]) -> None:
        """The broker answers the question for names that was sent last."""
        (number,) = struct.unpack(">i", self.upstream.sent[-1][4:8])
        told = [{"name": name, "topic_id": known} for name, known in topics.items()]
        said = response(build(MetadataResponse, 12 if told else 4, topics=told))
        self.answer([struct.pack(">i", number) + said[4:]])
        self.upstream.broker.data = self.upstream.data[: -4 - len(self.upstream.sent[-1])]
        self.run_timers()

    def later(self, ms: float) -> None:
        """Time goes on, and what was to be done is."""
        self.desk.pass_ms(ms)
        self.run_timers()
        self.run_timers()

    @property
    def numbers(self) -> list[int]:
        """Correlation ids of what the broker got."""
        return [struct.unpack(">i", frame[4:8])[0] for frame in self.upstream.sent]

    def errors(self) -> list[tuple[int, dict[str, list[int]]]]:
        """What the client was told of Produce requests v9, in order."""
        found = []
        for frame in frames_of(self.client.data):
            read = decode(ProduceResponse, 9, frame)
            said = {
                topic.name: [part.error_code for part in topic.partition_responses]
                for topic in read.responses
            }
            found.append((struct.unpack(">i", frame[:4])[0], said))
        return found

    def counted(self, outcome: str, policy: str = HOLD) -> float:
        """How many requests came to this."""
        labels = {"quota_type": "size", "policy": policy, "outcome": outcome}
        name = "weir_producer_block_requests_total"
        return sample_of(self.metrics.registry, name, labels)

    @property
    def held_now(self) -> float:
        """Requests that are held."""
        return sample_of(self.metrics.registry, "weir_producer_block_held", {})
