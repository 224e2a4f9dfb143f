"""Blocks that come and go under any requests: each is answered once, in order, and says what became of it."""

import random
import struct
from collections import deque
from collections.abc import Iterator

from blocked_rig import HELD, REFUSED, Blocked
from connection_kit import framed, frames_of, opaque
from each_kit import each
from kafka.protocol.metadata.metadata import MetadataResponse
from kafka.protocol.producer import ProduceRequest, ProduceResponse
from kafka_kit import build, decode, response
from traffic_kit import batch, produce, produce_response

TOPICS = ("acme.held.a", "acme.held.b", "acme.refused.c", "acme.free.d")
STEPS = 120


class Story:
    """A client, a broker that answers late, and topics that are blocked now and then."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.rig = Blocked()
        for topic in (HELD, REFUSED):
            self.rig.say(topic, 0)
        self.blocked: set[str] = set()
        self.asked: dict[int, dict[str, int]] = {}
        self.written: dict[int, set[tuple[str, int]]] = {}
        self.seen = 0
        self.others: list[int] = []
        # What the broker has to answer: number and API.
        self.due: deque[tuple[int, int]] = deque()

    def run(self) -> None:
        """Anything happens, then all comes to an end."""
        for number in range(1, STEPS):
            self._step(number)
            self._look()
        for topic in TOPICS:
            self._say(topic, 0)
        for _ in range(STEPS):
            self.rig.run_timers()
            self._look()
            self._answer()

    def _step(self, number: int) -> None:
        kind = self.random.choice(["produce"] * 6 + ["other", "block", "lift", "later", "answer", "answer"])
        if kind == "produce":
            chosen = self.random.sample(TOPICS, self.random.choice((1, 1, 1, 2, 3)))
            self.asked[number] = {topic: self.random.randint(1, 2) for topic in chosen}
            named = {topic: [batch(1)] * count for topic, count in self.asked[number].items()}
            frame = produce(9, named)[0]
            self.rig.connection.data_received(framed(frame[:4] + struct.pack(">i", number) + frame[8:]))
        elif kind == "other":
            self.others.append(number)
            self.rig.connection.data_received(opaque(number))
        elif kind in ("block", "lift"):
            self._say(self.random.choice(TOPICS), 10_000 if kind == "block" else 0)
        elif kind == "later":
            self.rig.desk.pass_ms(self.random.choice((0, 10, 300, 950)))
            self.rig.run_timers()
        else:
            self._answer()

    def _say(self, topic: str, size: float) -> None:
        for number in (0, 1):
            self.rig.say(topic, size, f"-partition-{number}")
        if size and not topic.startswith("acme.free"):
            self.blocked.add(topic)
        else:
            self.blocked.discard(topic)
        self.rig.run_timers()

    def _look(self) -> None:
        """What has come to the broker since was free."""
        for number, frame in self._since():
            if frame[:2] == b"\0\0":
                places = {
                    (topic.name, part.index)
                    for topic in decode(ProduceRequest, 9, frame).topic_data
                    for part in topic.partition_data
                }
                assert places and not {topic for topic, _ in places} & self.blocked
                assert number not in self.written
                self.written[number] = places

    def _since(self) -> Iterator[tuple[int, bytes]]:
        sent = self.rig.upstream.sent
        for frame in sent[self.seen :]:
            key, _, number = struct.unpack(">hhi", frame[:8])
            self.due.append((number, key))
            yield number, frame
        self.seen = len(sent)

    def _answer(self) -> None:
        """The broker answers the request that waits longest."""
        self._look()
        if not self.due:
            return
        number, key = self.due.popleft()
        if key == 3:
            said = response(build(MetadataResponse, 4, topics=[]))
        elif key == 0:
            topics = sorted({topic for topic, _ in self.written[number]})
            said = produce_response(9, {topic: [0] * self.asked[number][topic] for topic in topics})
        else:
            said = bytes(8)
        self.rig.answer([struct.pack(">i", number) + said[4:]])
        self.rig.run_timers()


@each("seed", range(12))
def test_each_request_is_answered_once_and_truly(seed: int) -> None:
    """Nothing blocked reaches the broker; what is answered without an error did, and nothing else."""
    story = Story(seed)
    story.run()
    answers = frames_of(story.rig.client.data)
    numbers = [struct.unpack(">i", frame[:4])[0] for frame in answers]
    assert numbers == sorted([*story.asked, *story.others])
    for number, frame in zip(numbers, answers, strict=True):
        if number in story.others:
            continue
        said = {
            (topic.name, part.index): part.error_code
            for topic in decode(ProduceResponse, 9, frame).responses
            for part in topic.partition_responses
        }
        assert set(said) == {(topic, n) for topic, count in story.asked[number].items() for n in range(count)}
        assert {place for place, code in said.items() if not code} == story.written.get(number, set())
        assert set(said.values()) <= {0, 7, 44}
