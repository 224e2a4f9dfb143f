"""What a coordinator says of a streams group, as far as it tells which topics the group needs."""

from collections.abc import MutableMapping, Sequence
from typing import Any, Final, NamedTuple

from enforcer.wire.kafka.codec import Reader, told
from enforcer.wire.kafka.frames import STREAMS_DESCRIBE, BadFrame, Reason

_GROUPS: Final = told(STREAMS_DESCRIBE, "of:Groups Groups:count")
# Only what stands before its members, of which there may be thousands.
_GROUP: Final = Reader(
    STREAMS_DESCRIBE, "response.Groups()",
    "ErrorCode ErrorMessage:text? Topology(Epoch Subtopologies(SourceTopics(Text:text)"
    " StateChangelogTopics(Name:text) RepartitionSourceTopics(Name:text)))",
)  # fmt: skip


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


Remembered = MutableMapping[tuple[str, bytes], KnownTopology]
"""Groups by who asked and name, for REMEMBERED_MS: not all may see the same."""
LARGE_BYTES: Final = 65_536
"""What is said of a group grows with its members, each of whom would ask: beyond this one asks for all."""
REMEMBERED_MS: Final = 1_000.0
REMEMBERED_MAX: Final = 100


def only_group(response: bytes) -> tuple[int, str | None, Sequence[Any] | None]:
    """Error, text and topology of the group that was asked for.

    Raises:
        BadFrame: it is not there, or cannot be read.
    """
    start, count = _GROUPS(response, 0)
    if count != 1:
        raise BadFrame(Reason.BAD_VALUE)
    said: tuple[int, str | None, Sequence[Any] | None] = _GROUP(response, 0, start)
    return said


def known_topology(epoch: int, parts: Sequence[Sequence[Sequence[str]]]) -> KnownTopology:
    """What is told of a group's topology."""
    sources = dict.fromkeys(name for part in parts for name in part[0])
    internal = dict.fromkeys(name for part in parts for topics in part[1:] for name in topics)
    return KnownTopology(epoch, list(sources), list(internal))
