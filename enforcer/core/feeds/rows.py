"""The JSON objects of a record, whether it is a single one or packed (docs/contract.md 1)."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

from confluent_kafka import Message

from streaming.columns.packed import is_packed, unpack
from streaming.contract.decisions import CANDIDATE
from streaming.contract.errors import BadEvent
from streaming.contract.events import load_object
from streaming.contract.fields import TS_MAX_MS, Fields, integer, text

T = TypeVar("T")

_NULLABLE: Final = frozenset({"limit", "limits"})
"""Fields in which a null says something; in others it is an absent one."""


def objects_of(
    message: Message, types: Collection[str] = (), unread: Mapping[str, Collection[str]] | None = None,
    *, tried: bool = False,
) -> Iterator[Fields]:  # fmt: skip
    """The objects of a record, in order.

    Args:
        types: of a packed record of other types nothing is read; none: of all.
        unread: type -> columns that are left out of a packed record, since they may be large.
        tried: decisions by policies that are only tried too, by which nobody may go.

    Raises:
        BadEvent: it is neither JSON nor packed, or packed in a way that cannot be read.
    """
    if not packed(message):
        fields = load_object(message.value() or b"")
        if tried or CANDIDATE not in fields:
            yield fields
        return
    kind, rows = unpack(message.value() or b"")
    if (types and kind not in types) or CANDIDATE in rows.schema.names:
        return
    left_out = set((unread or {}).get(kind, ())) & set(rows.schema.names)
    if left_out:
        rows = rows.drop_columns(sorted(left_out))
    try:
        found = rows.to_pylist(maps_as_pydicts="strict")
    except (KeyError, ValueError) as error:
        # What Arrow's check of a record lets pass: a map that holds a key twice, a struct a field.
        raise BadEvent(f"no JSON objects: {error}; names that differ were expected") from error
    for row in found:
        yield {"type": kind, **without_nulls(row)}


def events_of(
    message: Message, readers: Mapping[str, Callable[[Fields, str, int], T]]
) -> Iterator[tuple[T, Fields]]:
    """The events of a record, each with its JSON object; what is none is the job's to report.

    Args:
        readers: type of events -> makes one of its object, its id and its time; of other types none is read.
    """
    written_ms, name = message.timestamp()[1], f"{message.topic()}-{message.partition()}-{message.offset()}"
    of_row = "/{}" if packed(message) else ""
    with suppress(BadEvent):
        for row, fields in enumerate(objects_of(message, readers)):
            reader = readers.get(str(fields.get("type")))
            if reader is not None:
                with suppress(BadEvent):
                    ts = integer(fields, "ts", written_ms, maximum=TS_MAX_MS)
                    yield reader(fields, text(fields, "id", name + of_row.format(row)), ts), fields


def packed(message: Message) -> bool:
    """Whether a record is packed."""
    headers = message.headers()
    return headers is not None and is_packed(headers.items() if isinstance(headers, dict) else headers)


def without_nulls(row: dict[str, Any]) -> dict[str, Any]:
    """A row's fields without those that it does not have."""
    return {name: value for name, value in row.items() if value is not None or name in _NULLABLE}
