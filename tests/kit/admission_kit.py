"""One request for partition mutations, its connection and its broker played by the test."""

from collections.abc import Callable, Sequence
from typing import Any

from clock_kit import Timer
from kafka.protocol.admin import topics
from kafka_kit import build, decode, request, response
from mutation_kit import Desk
from wire_client import create_request

from enforcer.kafka.mutations.mutation import Mutation, RecentTopics
from enforcer.laws.mutation.admission import Admission
from enforcer.laws.mutation.request import Action, Verdict
from enforcer.wire.kafka.frames import RequestHeader
from enforcer.wire.kafka.messages import TopicCounts
from enforcer.wire.kafka.mutations import MutationRequest, decode_request

CREATED = topics.CreateTopicsResponse


class FakeLink:
    """A connection of user a, client c, that keeps what it is given."""

    def __init__(self, existing: dict[str, int], request: MutationRequest) -> None:
        self.user = "a"
        self.header = RequestHeader(request.api, request.version, request.correlation_id, "c", 0)
        self.existing = existing
        self.looked_up: list[list[str]] = []
        self.forwarded: list[tuple[bytes, Callable[[bytes], None]]] = []
        self.answers: list[tuple[bytes, float]] = []
        self.timers: list[Timer] = []
        self.broken = False

    def look_up(self, names: Sequence[str], done: Callable[[TopicCounts], None]) -> None:
        """Answers at once."""
        self.looked_up.append(list(names))
        found = {name: self.existing.get(name) for name in names}
        done(TopicCounts(by_name=found, by_id={}, names={}, broker_count=1))

    def forward(self, frame: bytes, done: Callable[[bytes], None]) -> bool:
        """Keeps it, unless the connection is lost."""
        if not self.broken:
            self.forwarded.append((frame, done))
        return not self.broken

    def ring(self) -> None:
        """The newest timer fires."""
        self.timers[-1].fire()

    def complete(self, answer: bytes, mute_ms: float) -> None:
        """Keeps it."""
        self.answers.append((answer, mute_ms))

    def call_later(self, delay_ms: float, function: Callable[[], None]) -> Timer:
        """A timer for the test."""
        self.timers.append(Timer(function))
        return self.timers[-1]


class Scene:
    """A request of user a at rate 1, which is dealt with in one way."""

    def __init__(
        self, action: Action, names: dict[str, int], *, version: int = 7, wait_ms: int = 0,
        existing: dict[str, int] | None = None, dry: bool = False, **settings: Any,
    ) -> None:  # fmt: skip
        self.version = version
        self.desk = Desk(**{"dry_run_factor": 1, **settings})
        self.desk.limit(controller_mutation_rate=1)
        self.prepare()
        self.request = decode_request(*request(create_request(names, version, validate_only=dry)))
        self.link = FakeLink(existing or {}, self.request)
        self.recent = RecentTopics(lambda: self.desk.now_ms)
        self.admission = self.again(action, wait_ms=wait_ms)

    def prepare(self) -> None:
        """Before the request comes."""

    def again(self, action: Action, *, wait_ms: int = 0, dry: bool = False) -> Admission:
        """The same request comes once more."""
        mutation = Mutation(
            self.link, self.desk.coordinator, self.recent, self.request,
            self.desk.coordinator.quota("a", "c"), Verdict(action, wait_ms, dry),
        )  # fmt: skip
        mutation.admission.start()
        return mutation.admission

    def decide(self, **fields: Any) -> None:
        """The decision arrives."""
        self.desk.decide(self.admission.request, **fields)

    def asked_for(self) -> list[str]:
        """Topics of the request that reached the broker."""
        (frame, _) = self.link.forwarded[-1]
        return [part.name for part in decode(topics.CreateTopicsRequest, self.version, frame).topics]

    def broker_says(self, **codes: int) -> None:
        """The broker's answer arrives; partitions created are 5 each."""
        parts = [
            {"name": name, "error_code": code, "error_message": None, "num_partitions": -1 if code else 5}
            for name, code in codes.items()
        ]
        answer = response(build(CREATED, self.version, throttle_time_ms=0, topics=parts))
        self.link.forwarded[-1][1](answer)

    def client_hears(self) -> tuple[dict[str, int], int, float]:
        """Error per topic, throttle time, and how long the connection is muted."""
        ((answer, mute_ms),) = self.link.answers
        heard = decode(CREATED, self.version, answer)
        return {part.name: part.error_code for part in heard.topics}, heard.throttle_time_ms, mute_ms
