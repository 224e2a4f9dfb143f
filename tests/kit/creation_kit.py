"""A connection whose client and broker the test plays, and its part that watches over new topics."""

from collections.abc import Awaitable
from typing import Any

from mutation_kit import Bureau, settle_down
from part_link_kit import PartLink

from enforcer.pulsar.creation.known_topics import Office
from enforcer.pulsar.creation.part import CreationPart
from enforcer.pulsar.settings import PulsarSettings
from enforcer.wire.pulsar import frames
from enforcer.wire.pulsar.commands import command, parse

NOT_FOUND = 11
HERE = "persistent://public/default/"
SURE_S = 0.03
"""After so long a refused creation has been looked at again (see the conftest of the tests)."""


class Wire(PartLink):
    """A connection that keeps what goes either way."""

    def __init__(self, bureau: Bureau, user: str) -> None:
        super().__init__(bureau.desk, user)
        self.protocol_version, self.asks_only = 21, True
        self.up: list[bytes] = []
        self.down: list[bytes] = []

    def to_broker(self, frame: bytes) -> None:
        """Keeps it."""
        self.up.append(frame)

    def to_client(self, frame: bytes) -> None:
        """Keeps it."""
        self.down.append(frame)


class Client:
    """One client and its broker.

    Args:
        yard: whose.
        user: principal.
    """

    def __init__(self, yard: "Yard", user: str = "a") -> None:
        self.wire = Wire(yard.bureau, user)
        self.part = CreationPart(self.wire, yard.office)
        self.wire.parts.append(self.part)
        self._numbers = 0

    async def send(self, kind: int, **fields: Any) -> bool:
        """A request of the client comes; True if it passes at once."""
        self._numbers += 1
        number = fields.pop("request_id", self._numbers)
        passed = await self.give(command(kind, request_id=number, **fields))
        return passed

    async def give(self, frame: bytes) -> bool:
        """A frame of the client's comes; True if it passes at once."""
        passed = self.wire.shown(frame, up=True) is not None
        await settle_down()
        return passed

    async def produce(self, name: str = "t", **fields: Any) -> bool:
        """A PRODUCER for a topic."""
        return await self.send(frames.PRODUCER, topic=name, producer_id=1, **fields)

    async def subscribe(self, name: str = "t", **fields: Any) -> bool:
        """A SUBSCRIBE for a topic."""
        return await self.send(frames.SUBSCRIBE, topic=name, consumer_id=1, subscription="s", **fields)

    async def look_up(self, name: str = "t", **fields: Any) -> bool:
        """A PARTITIONED_METADATA for a topic."""
        return await self.send(frames.PARTITIONED_METADATA, topic=name, **fields)

    def asked(self) -> Any:
        """The newest frame to the broker, which is removed."""
        return parse(self.wire.up.pop())

    def told(self) -> Any:
        """The newest frame to the client, which is removed."""
        return parse(self.wire.down.pop())

    async def reply(self, kind: int, **fields: Any) -> bool:
        """The broker sends something; True if it passes at once."""
        return await self.tell(command(kind, **fields))

    async def tell(self, frame: bytes) -> bool:
        """The same with a whole frame."""
        passed = self.wire.shown(frame, up=False) is not None
        await settle_down()
        return passed

    async def answer(self, partitions: int | None, error: int = NOT_FOUND) -> Any:
        """The broker answers the newest question; None: with an error. Returns the question."""
        question = self.asked()
        fields = {"response": 1, "error": error} if partitions is None else {"partitions": partitions}
        await self.reply(frames.PARTITIONED_METADATA_RESPONSE, request_id=question.request_id, **fields)
        return question

    async def answered(self, sent: Awaitable[bool], *partitions: int | None) -> Any:
        """The client sends something, and the broker answers what it is asked then; its last question."""
        await sent
        return [await self.answer(count) for count in partitions][-1]

    async def made(self, request_id: int) -> bool:
        """The broker has done a PRODUCER or SUBSCRIBE, which is then the newest it got."""
        frame = self.wire.up.pop()
        kind = frames.PRODUCER_SUCCESS if frame[9] == frames.PRODUCER else frames.SUCCESS
        return await self.reply(kind, request_id=request_id)

    async def refused(self, request_id: int, error: int = NOT_FOUND) -> bool:
        """The broker has refused something of the client's."""
        return await self.reply(frames.ERROR, request_id=request_id, error=error, message="no")


class Yard:
    """What connections share: quota of user a, rate 1, burst 11."""

    def __init__(self, settings: dict[str, Any] | None = None, **proxy: Any) -> None:
        self.bureau = Bureau(**proxy)
        self.desk = self.bureau.desk
        self.settings = PulsarSettings(**(settings or {}))
        coordinator = self.desk.coordinator
        self.office = Office(coordinator, lambda: self.desk.wall_ms, self.settings, self.desk.call_later)
        # One line for all who wait.
        self.office.mutations = self.bureau.mutations
        self.known, self.metrics = self.office.known, self.office.metrics

    def charged(self) -> list[dict[str, int]]:
        """Items of the requests that were sent as events and not refused, in order."""
        return [
            {item["name"].removeprefix(HERE): item["mutations"] for item in event["items"]}
            for event in self.desk.of_type("request")
            if not event.get("decided", {}).get("rejected")
        ]

    def refunded(self) -> int:
        """Mutations that were given back."""
        return sum(item["mutations"] for event in self.desk.of_type("refund") for item in event["items"])

    def found(self) -> dict[str, float]:
        """What was found of topics, counted."""
        (family,) = self.metrics.topics.collect()
        totals = [sample for sample in family.samples if sample.name.endswith("_total")]
        return {sample.labels["found"]: sample.value for sample in totals}

    async def drain(self) -> None:
        """Use up the quota's burst, and owe 9."""
        answer = await self.bureau.answer({"drained": 20})
        assert answer.allowed
        self.desk.events.clear()


def asking(*given: Any, acknowledges: bool = True, **proxy: Any) -> tuple[Yard, Client]:
    """A client of user a, see Yard and Desk."""
    yard = Yard(*given, **proxy)
    yard.desk.acknowledges = acknowledges
    return yard, Client(yard)
