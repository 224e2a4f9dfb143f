"""Which topics a request names that has too many entries to be judged: its names alone are read."""

from collections.abc import Iterator
from functools import cache
from typing import Any

from enforcer.kafka.guard.protected import OwnTopics
from enforcer.kafka.guard.rules import TRANSACTION_OF, Kind, rules_of
from enforcer.wire.kafka.codec import Reader
from enforcer.wire.kafka.frames import RequestHeader


def names_none_of(protected: OwnTopics, frame: bytes, header: RequestHeader) -> bool:
    """Whether a request surely names nothing of Weir's. A topic whose name only holds the prefix looks so.

    Raises:
        BadFrame: it cannot be read, or is too large for this too.
    """
    read = _reader(header.api_key, header.api_version)
    if read is None or any(frame.find(topic_id, header.body_offset) >= 0 for topic_id in protected.ids):
        return False
    return not any(map(protected.has, _texts(read(frame, header.api_version, header.body_offset))))


@cache
def _reader(key: int, version: int) -> Reader | None:
    """Reads the names of an API's topics, and its transactional id; None: it names something else."""
    rules = rules_of(key, version)
    if not rules or any(rule.kind is not Kind.TOPICS for rule in rules):
        return None
    wanted = [TRANSACTION_OF[key]] if key in TRANSACTION_OF else []
    for rule in rules:
        outer, _, inner = rule.asked.partition(".")
        names = f"{inner or outer}({rule.name}?)" if rule.name else inner or outer
        wanted.append(f"{outer}({names})" if inner else names)
    return Reader(key, "request", " ".join(wanted))


def _texts(value: Any) -> Iterator[bytes]:
    if isinstance(value, bytes):
        yield value
    elif value is not None:
        for each in value:
            yield from _texts(each)
