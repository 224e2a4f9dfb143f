"""The five laws as the one view over them names them: units, and what an entity of each is."""

from contextlib import suppress
from enum import IntEnum
from typing import Final, NamedTuple

from streaming.contract.errors import BadEvent
from streaming.contract.names import DISPATCH_GROUP_PREFIX, namespace_of
from streaming.contract.usage_events import DIMENSIONS
from streaming.laws.dispatch.law import DIMENSIONS as DELIVERED
from streaming.laws.dispatch.law import LEVELS
from streaming.policy.dispatch_limits import split_subscription


class Law(IntEnum):
    """A law, by its number in the table."""

    MUTATION = 0
    SHARES = 1
    DISPATCH = 2
    CONCURRENCY = 3
    BACKLOG = 4


NAMES: Final = tuple(law.name.lower() for law in Law)
"""Of the laws, as commands and paths have them."""


class Entity(NamedTuple):
    """Whom a limit is for.

    Attributes:
        law: that limits it.
        name: quota entity, group, TOPIC/SUBSCRIPTION, partition or topic (docs/contract.md 3), by law.
    """

    law: Law
    name: str

    @property
    def tenant(self) -> str:
        """Whose topic it is about; empty: nobody's, as users of Kafka, groups and requests in flight are."""
        name = self.name.removeprefix(DISPATCH_GROUP_PREFIX if self.law is Law.SHARES else "")
        if self.law in (Law.DISPATCH, Law.BACKLOG) or name != self.name:
            with suppress(BadEvent):
                return namespace_of(split_subscription(name)[0]).partition("/")[0]
        return ""


class Measure(NamedTuple):
    """One thing that a law limits.

    Attributes:
        dimension: its name in policies and decisions.
        unit: of the limit and of what is used.
        level: of dispatch, whose counter it is; else empty.
    """

    dimension: str
    unit: str
    level: str = ""


_PER_SECOND: Final = {"msgs": "msgs/s", "bytes": "bytes/s"}
MEASURES: Final[tuple[tuple[Measure, ...], ...]] = (
    (Measure("mutations", "mutations/s"),),
    tuple(Measure(name, "bytes/s" if name.endswith("Bytes") else "msgs/s") for name in DIMENSIONS),
    tuple(Measure(name, _PER_SECOND[name], level) for level in LEVELS for name in DELIVERED),
    (Measure("inflight", "slots"),),
    (Measure("size", "bytes"), Measure("time", "s")),
)
"""What each law limits; the one nearest to its limit is an entity's row."""
