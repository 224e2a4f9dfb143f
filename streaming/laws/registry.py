"""The laws: adding one is adding its folder, and its line to LAWS."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from streaming.contract.errors import BadEvent
from streaming.contract.events import Event, Reader, parse
from streaming.laws.backlog.spec import SPEC as BACKLOG
from streaming.laws.concurrency.spec import SPEC as CONCURRENCY
from streaming.laws.dispatch.spec import SPEC as DISPATCH
from streaming.laws.law import LawSpec
from streaming.laws.mutation.spec import SPEC as MUTATION
from streaming.laws.shares.spec import SPEC as SHARES

NUMBERS: Final = 16
"""A law's number is below this: checkpoints have room for so many."""


@dataclass(slots=True)
class Laws:
    """Laws by what is known of a record.

    Attributes:
        by_name: in the order of their numbers.
        by_event: by the class of an event; ticks are missing, since several laws may take them.
        by_decision: by the `type` of a decision.
        readers: of all events, by `type`.
    """

    by_name: dict[str, LawSpec] = field(default_factory=dict)
    by_event: dict[type, LawSpec] = field(default_factory=dict)
    by_decision: dict[str, LawSpec] = field(default_factory=dict)
    readers: dict[str, Reader] = field(default_factory=dict)

    def add(self, law: LawSpec) -> None:
        """Register a law.

        Raises:
            ValueError: its number, a type of its events or of its decisions is taken, or is none.
        """
        taken = {known.number for known in self.by_name.values()}
        if not 0 <= law.number < NUMBERS or law.number in taken or law.name in self.by_name:
            raise ValueError(f"law {law.name}: number {law.number} or its name is taken, or out of range")
        if law.readers.keys() & self.readers or law.decision.type in self.by_decision:
            raise ValueError(f"law {law.name}: another law has events or decisions of these types")
        if law.on_requests and any(known.on_requests for known in self.by_name.values()):
            raise ValueError(f"law {law.name}: another law has its events on the topic of requests")
        self.by_name = {
            known.name: known
            for known in sorted([*self.by_name.values(), law], key=lambda known: known.number)
        }
        self.by_event = self.by_event | {event: law for event in law.events if law.is_own(event)}
        self.by_decision = self.by_decision | {law.decision.type: law}
        self.readers = self.readers | dict(law.readers)

    @property
    def on_requests(self) -> LawSpec:
        """The law whose events stand on the topic of requests."""
        return next(law for law in self.by_name.values() if law.on_requests)

    @property
    def reporting(self) -> LawSpec:
        """The law that sees every policy; its first shard says what is wrong with one."""
        return next(iter(self.by_name.values()))

    def parse(
        self, value: bytes, *, default_id: str, default_ts: int | None, max_ahead_ms: int | None = None
    ) -> Event:
        """Read one record, whatever law it is for; see `contract.events.parse`.

        Raises:
            BadEvent: with the reason for the dead letter.
        """
        return parse(
            value, default_id=default_id, default_ts=default_ts, readers=self.readers,
            max_ahead_ms=max_ahead_ms,
        )  # fmt: skip

    def subject_of(self, decision: Mapping[str, Any]) -> str:
        """Whom a decision is about.

        Raises:
            BadEvent: no law makes such decisions, or it lacks what names its subject.
        """
        try:
            return self.by_decision[decision["type"]].decision.subject_of(decision)
        except (KeyError, TypeError) as error:
            raise BadEvent(f"not a decision of any law: {error}") from error


LAWS: Final = Laws()
for _law in (MUTATION, SHARES, DISPATCH, CONCURRENCY, BACKLOG):
    LAWS.add(_law)
