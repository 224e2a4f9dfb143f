"""What answers show: the addresses of brokers are replaced, what belongs to Weir is left out of lists.

Metadata answers are large and many, so Weir's topics are found in them by search, not by a walk: by the bytes
of their names. What stands before such a place tells whether a name begins there, since names have no bytes
below 0x2d: in classic versions the high byte of its length, which is 0; in flexible ones the second byte of a
long length, which is 1, or before a short one an error code below 7, as topics that exist have it.
"""

from collections.abc import Callable
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
_LISTS: Final = {
    key: told(key, "at:{0} of:{0} {0}(at {1}? end)".format(*path.split(".")), room=50_000, rows=1)
    for key, path in SHOWN.items()
    if path.count(".") == 1
}
"""Answers that are a list, whose entries are stepped over: a third of a microsecond for each struct."""
_ERRORS: Final = 7
_DELETED_BY_ID_FROM: Final = 6

Rewrite = Callable[[int, int, bytes], bytes]
"""(API, version, response) -> the response as clients may see it."""


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
        paths = SHOWN.get(key)
        if key == DESCRIBE_CONFIGS:
            found = any(name in response for name in _ADDRESSES)
            # A topic may be called so: of the settings of hundreds, not all are read.
            found = found and _BROKER in _RESOURCES(response, version)
            return rewritten(key, version, response, _blank_settings) if found else response
        if key == DESCRIBE_QUORUM:
            return rewritten(key, version, response, _blank_nodes)
        if paths is None:
            return self._rewrite(key, version, response)
        if not protected.active or not protected.may_be_in(response, 0, len(response), True):
            return response
        if key in _LISTS:
            return self._cut(key, version, response)

        def prune(answer: Fields) -> None:
            for path in paths.split():
                self._prune(answer, path)

        return rewritten(key, version, response, prune)

    def _cut(self, key: int, version: int, response: bytes) -> bytes:
        """Cut Weir's own out of the list that an answer is; the others, perhaps very many, are not read."""
        at, of, entries = _LISTS[key](response, version)
        ours = [(start, end, b"") for start, name, end in entries if self._protected.has(name)]
        count = frames.array_length(len(entries) - len(ours), is_flexible(key, version))
        return spliced(response, [(at, of, count), *ours]) if ours else response

    def _prune(self, holder: Fields, path: str) -> None:
        """Leave Weir's own out of the list at the end of a path, as `SHOWN` says it."""
        field, _, rest = path.partition(".")
        value = holder.get(field)
        if not value:
            return
        if "." not in rest:
            holder[field] = [entry for entry in value if not self._ours(entry, rest)]
        elif isinstance(value, dict):
            self._prune(value, rest)
        else:
            for inner in value:
                self._prune(inner, rest)

    def _ours(self, entry: Any, name: str) -> bool:
        if not isinstance(entry, dict):
            return self._protected.has(entry)
        return self._protected.has(entry.get(name)) or self._protected.has_id(entry.get("TopicId"))


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
