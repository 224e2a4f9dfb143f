"""What answers show: the addresses of brokers are replaced, what belongs to Weir is left out of lists.

Metadata answers are large and many, so Weir's topics are found in them by search, not by a walk: by the bytes
of their names. What stands before such a place tells whether a name begins there, since names have no bytes
below 0x2d: in classic versions the high byte of its length, which is 0; in flexible ones the second byte of a
long length, which is 1, or before a short one an error code below 7, as topics that exist have it.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

from enforcer.kafka.guard.apis import ANY_VERSION, HIDDEN, READABLE
from enforcer.kafka.guard.protected import OwnTopics
from enforcer.kafka.guard.rules import SHOWN
from enforcer.wire.kafka import frames
from enforcer.wire.kafka.codec import Reader, response_layout, rewritten, spliced, told
from enforcer.wire.kafka.frames import (
    API_VERSIONS,
    DELETE_TOPICS,
    FLEXIBLE_FROM,
    METADATA,
    BadFrame,
    Fields,
    Reason,
    is_flexible,
    response_body_offset,
)
from enforcer.wire.kafka.messages import BY_ID_FROM
from enforcer.wire.kafka.traffic import METADATA_IDS_FROM

DESCRIBE_CONFIGS: Final = 32
DESCRIBE_QUORUM: Final = 55
SHOWN_KEYS: Final = SHOWN.keys() | {API_VERSIONS, DESCRIBE_CONFIGS, DESCRIBE_QUORUM}
"""APIs whose answers are looked at, beside those whose addresses are replaced."""

_BROKER: Final = 4
# Settings of a broker that name addresses: its own, other brokers', controllers'. By these bytes an answer is
# found that may hold one.
_ADDRESSES: Final = (b"listeners", b"bootstrap.servers", b"quorum.voters", b"zookeeper.connect", b"host.name")
_RESOURCES: Final = told(DESCRIBE_CONFIGS, "Results(ResourceType)", rows=1)
_LIST: Final = told(METADATA, "at:Topics of:Topics Topics:count")
_TOPIC: Final = Reader(METADATA, "response.Topics()", "Name? TopicId end")
_ROOM: Final = 50_000
"""Structs that an answer with lists may have, which are stepped over: a third of a microsecond for each."""
_ERRORS: Final = 7
_DELETED_BY_ID_FROM: Final = 6

Rewrite = Callable[[int, int, bytes], bytes]
"""(API, version, response) -> the response as clients may see it."""


def _lists(key: int, path: str, room: int) -> Callable[[bytes, int], Any]:
    """Reads the lists at the end of a path, as `SHOWN` says it; see `_found`."""
    *holders, field, names = path.split(".")
    wanted = f"at:{field} of:{field} {field}(at {names.replace(',', '? ')}? end)"
    for holder in reversed(holders):
        wanted = f"{holder}({wanted})"
    return told(key, wanted, room=room, rows=1)


_LISTS: Final = {
    key: [_lists(key, path, _ROOM // len(paths.split())) for path in paths.split()]
    for key, paths in SHOWN.items()
}


class AnswerFilter:
    """Makes answers fit to be shown, for all connections of a proxy.

    Args:
        rewrite: puts in the addresses where clients go instead of the brokers'.
    """

    def __init__(self, protected: OwnTopics, rewrite: Rewrite) -> None:
        self._protected = protected
        self._rewrite = rewrite

    def __call__(self, key: int, version: int, response: bytes) -> bytes:
        """An answer as the client gets it.

        Raises:
            WeirError: it cannot be read, is too large to be judged, or names a broker too many.
        """
        protected = self._protected
        if key == METADATA:
            response = self._rewrite(key, version, response)
            return without_ours(response, version, protected) if protected.active else response
        if key == API_VERSIONS:
            return limit_api_versions(response, version)
        if key == DESCRIBE_CONFIGS:
            found = any(name in response for name in _ADDRESSES)
            # A topic may be called so: of the settings of hundreds, not all are read.
            found = found and _BROKER in _RESOURCES(response, version)
            return rewritten(key, version, response, _blank_settings) if found else response
        if key == DESCRIBE_QUORUM:
            return rewritten(key, version, response, _blank_nodes)
        if key not in _LISTS:
            return self._rewrite(key, version, response)
        if not protected.active or not protected.may_be_in(response, 0, len(response), True):
            return response
        return self._cut(key, version, response)

    def _cut(self, key: int, version: int, response: bytes) -> bytes:
        """Cut Weir's own out of the lists of an answer; the others, perhaps very many, stay as they came."""
        flexible = is_flexible(key, version)
        spans: list[tuple[int, int, bytes]] = []
        for at, of, entries in (found for read in _LISTS[key] for found in _found(read(response, version))):
            ours = [(start, end, b"") for start, *names, end in entries if any(map(self._is_ours, names))]
            if ours:
                spans += [(at, of, frames.array_length(len(entries) - len(ours), flexible)), *ours]
        return spliced(response, sorted(spans))

    def _is_ours(self, name: bytes | None) -> bool:
        return self._protected.has(name) or self._protected.has_id(name)


def _found(value: Any) -> Iterator[tuple[int, int, list[Any]]]:
    """The lists, whatever they stand in: where each begins, where its first entry does, the entries."""
    if isinstance(value, tuple) and value:
        yield value
    else:
        for inner in value or ():
            yield from _found(inner)


def _blank_settings(answer: Fields) -> None:
    """No addresses in the settings of brokers: they are shown as passwords are, without their value."""
    for resource in answer["Results"]:
        if resource["ResourceType"] != _BROKER:
            continue
        for config in resource["Configs"]:
            if config["Name"].endswith(_ADDRESSES):
                config["Value"], config["IsSensitive"] = None, True
                config["Synonyms"] = [{**one, "Value": None} for one in config.get("Synonyms", ())]


def _blank_nodes(answer: Fields) -> None:
    """Controllers have no address that leads through the proxy, so they are shown without."""
    for node in answer.get("Nodes", ()):
        node["Listeners"] = ()


def without_ours(response: bytes, version: int, protected: OwnTopics) -> bytes:
    """A Metadata answer without topics of Weir's; the ids of those are learnt from it.

    Raises:
        BadFrame: it ends too early or a length in it is impossible.
    """
    if not protected.may_be_in(response, 0, len(response), False):
        return response
    flexible = is_flexible(METADATA, version)
    list_at, copied, count = _LIST(response, version)
    parts, ids = list[bytes](), set[bytes]()
    for start in _starts(response, copied, flexible, protected):
        if start < copied:
            continue
        name, topic_id, end = _TOPIC(response, version, start)
        if protected.has(name):
            parts.append(response[copied:start])
            copied = end
            ids.add(topic_id)
    if not parts:
        return response
    if len(parts) > count:
        raise BadFrame(Reason.BAD_VALUE)
    if version >= METADATA_IDS_FROM:
        protected.saw(ids)
    head = response[:list_at] + frames.array_length(count - len(parts), flexible)
    return b"".join((head, *parts, response[copied:]))


def _starts(data: bytes, offset: int, flexible: bool, protected: OwnTopics) -> list[int]:
    """Where topics begin whose names begin with one of ours, in ascending order."""
    # Before the second byte of a name stands its length, which is then at least so much.
    errors = min(_ERRORS, protected.shortest_bytes + 2)
    found = (_start(data, hit, flexible, errors) for hit in protected.places(data, offset))
    return sorted(start for start in found if start >= offset)


def _start(data: bytes, name: int, flexible: bool, errors: int) -> int:
    """Where the topic begins whose name begins there; -1 if no name begins there."""
    if not flexible:
        return name - 4 if data[name - 2] == 0 else -1
    if data[name - 1] == 1:
        return name - 4
    short = data[name - 3] == 0 and data[name - 2] < errors
    return name - 3 if short else -1


def limit_api_versions(response: bytes, version: int) -> bytes:
    """A broker's ApiVersions response reduced to what the proxy understands.

    Throttle time and the tagged section (features) stay. An error 35 comes in the form of version 0 whatever
    was asked, with the correlation id of the request.

    Raises:
        BadFrame: the response ends too early or a length in it is impossible.
    """
    start = response_body_offset(API_VERSIONS, version, response)
    return response[:start] + _limited(response[start:], version)


# A broker says the same for as long as it runs, to every client that comes: read it once per version.
@lru_cache(maxsize=64)
def _limited(body: bytes, version: int) -> bytes:
    refused = int.from_bytes(body[:2], "big") == frames.UNSUPPORTED_VERSION
    layout = response_layout(API_VERSIONS, 0 if refused else version)
    said = layout.read(body, 0)
    offered = {row["ApiKey"]: row for row in said["ApiKeys"]}
    knows_ids = METADATA in offered and offered[METADATA]["MaxVersion"] >= BY_ID_FROM
    shown: list[Fields] = []
    for key, row in offered.items():
        if key not in FLEXIBLE_FROM or key in HIDDEN:
            continue
        lowest, highest = READABLE.get(key, ANY_VERSION)
        if key == DELETE_TOPICS and not knows_ids:
            # Kafka 2.8 and 3.0 delete by id what they cannot be asked for by id.
            highest = _DELETED_BY_ID_FROM - 1
        low, high = max(row["MinVersion"], lowest), min(row["MaxVersion"], highest)
        if low <= high:
            shown.append(row | {"MinVersion": low, "MaxVersion": high})
    return layout.write(said | {"ApiKeys": shown})
