"""The policies that the proxy holds, read from `weir.policies` (docs/contract.md 2)."""

from collections.abc import Callable, Mapping

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from enforcer.core.feeds.complaints import Unusable, unheard
from streaming.contract.errors import BadEvent
from streaming.contract.events import PolicyChange, parse
from streaming.kafka_io.tail import Tail
from streaming.policy.files import check_entry
from streaming.policy.policy_set import PolicySet, raised_until
from streaming.policy.timeline import PolicyTimeline

KEEP_MS = 600_000
"""How long old policies are kept: a decision that is late was made under them."""
_FOLD_ABOVE = 64


class Policies:
    """What is in force when, as far as the proxy has read.

    Attributes:
        timeline: the policies over time.
        known: whether they were read to their end; before it nobody can say that a client has no quota.

    Args:
        brokers_ms: the time now, ms on the brokers' clock, by which policies are dated.
        known: see there.
        dated: whether that clock is known; before it is our own, which may be ahead, and what is forgotten by
            it would be in force at once.
    """

    def __init__(
        self, brokers_ms: Callable[[], int], known: Callable[[], bool] = lambda: True,
        dated: Callable[[], bool] = lambda: True,
    ) -> None:  # fmt: skip
        self.timeline = PolicyTimeline()
        self.known = known
        self._followers: list[tuple[Callable[[int], None], Callable[[int], None]]] = []
        self._brokers_ms, self._dated = brokers_ms, dated
        self._unfolded = 0

    def follow(self, changed: Callable[[int], None], forgetting: Callable[[int], None]) -> None:
        """Tell of changes the time from which they are in force, and of what is forgotten up to what time.

        Args:
            changed: told, in the loop, once new policies are known (ms since the epoch).
            forgetting: told before it is forgotten.
        """
        self._followers.append((changed, forgetting))

    @property
    def now(self) -> PolicySet:
        """The policies in force now."""
        return self.timeline.at(self._brokers_ms())

    def at(self, ts: int) -> PolicySet:
        """The policies in force at a time, ms since the epoch."""
        return self.timeline.at(ts)

    def apply(self, changes: list[PolicyChange]) -> None:
        """Take changes that were read, in order."""
        for change in changes:
            self.timeline.apply(change.path, change.value, change.ts, change.version)
        self._unfolded += len(changes)
        if self._unfolded > _FOLD_ABOVE and self._dated():
            # Years of changes are not needed, only what late decisions may refer to. What is late is said
            # by the clock: the newest change may be dated far ahead.
            upto = self._brokers_ms() - KEEP_MS
            for _, forgetting in self._followers:
                forgetting(upto)
            self.timeline.forget_before(upto)
            self._unfolded = 0
        ends = {end for change in changes if (end := raised_until(change.value)) is not None}
        for ts in sorted({change.ts for change in changes} | ends):
            for changed, _ in self._followers:
                changed(ts)


def parse_policy(
    value: bytes | None, name: str, ts: int | None, unusable: Unusable = unheard
) -> PolicyChange | None:
    """Read one record; None if it cannot be used."""
    try:
        event = parse(value or b"", default_id=name, default_ts=ts)
        if not isinstance(event, PolicyChange):
            raise BadEvent("not a policy")
        check_entry(event.path, event.value)
    except BadEvent as bad:
        unusable(f"{name}: {bad.reason}")
        return None
    return event


def policies_tail(
    properties: Mapping[str, str], topic: str, policies: Policies, unusable: Unusable = unheard
) -> Tail[PolicyChange]:
    """Follow the policies from the beginning."""

    def parse_message(message: Message) -> list[PolicyChange]:
        name = f"{topic}-{message.partition()}-{message.offset()}"
        kind, ts = message.timestamp()
        known_ts = None if kind == TIMESTAMP_NOT_AVAILABLE else ts
        change = parse_policy(message.value(), name, known_ts, unusable)
        return [] if change is None else [change]

    return Tail(properties, topic, parse=parse_message, deliver=policies.apply)
