"""Request events within the size of a record: what is too large to be sent could not be charged.

Names are what makes an event large, and nobody decides by them. So they are cut where they must be; what was
cut is put back when the decision comes. Counts are never touched.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

import orjson

EVENT_BYTES_MAX: Final = 900_000
"""Of a request event and its key. Kafka's default bound of a record is 1,048,588 bytes, and the decision,
which may repeat every name and the subject, has to fit one too."""
_KEPT: Final = (32, 0)
"""So many characters of a name are kept, before its number among the items; tried in this order."""
# A character is at most 6 bytes of JSON. User and client-id come twice, within the subject percent-encoded.
_CHAR_BYTES: Final = 6
_ITEM_BYTES: Final = 64
_FIELD_BYTES: Final = 1_024

Aliases = Mapping[str, tuple[str, ...]]
"""Name as it was sent -> the names that it stands for; empty if all were sent as they are."""


def put_items(
    event: dict[str, Any], key: str, counts: Mapping[str, int], *, may_sum: bool, twice: bool = False
) -> Aliases | None:
    """Put a request's items into its event, so that it fits a record.

    Args:
        event: without its items, which are added.
        key: the record's.
        counts: name -> mutations, in order.
        may_sum: all items are admitted or rejected together, so one that holds their sum says the same.
        twice: leave room for all names once more, in the list of those that were rejected.

    Returns:
        What was sent in place of which names; None if there is no way to send them: nothing was added.

    >>> event = {"type": "refund"}
    >>> put_items(event, "user=a", {"a": 1, "b": 2}, may_sum=True), event["items"]
    ({}, [{'name': 'a', 'mutations': 1}, {'name': 'b', 'mutations': 2}])
    """
    for aliases in _ways(counts, may_sum):
        sent = aliases or dict.fromkeys(counts)
        event["items"] = [
            {"name": name, "mutations": sum(counts[own] for own in names) if names else counts[name]}
            for name, names in sent.items()
        ]
        if _fits(event, key, [*sent, *sent] if twice else sent, list(sent) if twice else []):
            return aliases
    event.pop("items")
    return None


def in_own_names(aliases: Aliases, sent: Iterable[str]) -> frozenset[str]:
    """The names that were meant by those that were sent."""
    return frozenset(own for name in sent for own in aliases.get(name, ()))


def _ways(counts: Mapping[str, int], may_sum: bool) -> Iterator[Aliases]:
    yield {}
    for kept in _KEPT:
        yield {f"{name[:kept]}#{number}": (name,) for number, name in enumerate(counts)}
    if may_sum:
        yield {f"{len(counts)} items": tuple(counts)}


def _fits(event: Mapping[str, Any], key: str, names: Collection[str], again: list[str]) -> bool:
    # Nearly all are far below the bound, and writing JSON only to measure it costs more than this sum.
    chars = sum(map(len, names)) + len(event.get("user", "")) + len(event.get("client_id", ""))
    most = _FIELD_BYTES + _ITEM_BYTES * len(names) + _CHAR_BYTES * (chars + 2 * len(key))
    if most <= EVENT_BYTES_MAX:
        return True
    return len(orjson.dumps(event)) + len(orjson.dumps(again)) + len(key.encode()) <= EVENT_BYTES_MAX
