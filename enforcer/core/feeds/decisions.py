"""Decisions as an enforcer reads them, each by its law's reader (docs/contract.md 3)."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from confluent_kafka import Message

from enforcer.core.feeds.complaints import Unusable, unheard
from enforcer.core.feeds.rows import objects_of, packed
from enforcer.core.law import DecisionReader
from streaming.columns.packed import schema_of
from streaming.contract.decisions import CANDIDATE, LATE_MS
from streaming.contract.errors import BadEvent
from streaming.contract.events import MAX_AHEAD_MS
from streaming.contract.fields import TS_MAX_MS, Fields, flag, text
from streaming.kafka_io.tail import Tail

Read = tuple[str, Any]
"""The type of a decision, and what its law's reader made of it."""
Readers = Mapping[str, DecisionReader]
"""By the type of their decisions."""


def decisions_in(
    message: Message,
    readers: Readers,
    own: str | None = None,
    unusable: Unusable = unheard,
    *,
    now_ms: Callable[[int], int] | None = None,
    tried: bool = False,
) -> list[Read]:
    """Read one record, single or packed; what cannot be used is left out, and types that no law reads.

    Never raises: the topic is written by the job, but anyone with access to the cluster could write to it.

    Args:
        own: name of this enforcer, by which packed records of others are told; None: all are read alike.
        unusable: told why something was left out.
        now_ms: the time of a record -> now, ms since the epoch. What is far ahead of it is left out: by it
            all that comes would be passed over as older, until then. None: any time will do.
        tried: as of rows.objects_of.
    """
    key, said_ms = message.key(), message.timestamp()[1]
    latest_ms = TS_MAX_MS
    if now_ms is not None:
        # The time of a record may be that of whoever wrote it.
        latest_ms, said_ms = now_ms(said_ms) + MAX_AHEAD_MS, min(said_ms, now_ms(said_ms))
    found: list[Read] = []
    try:
        if packed(message):
            value = message.value() or b""
            kind, schema = schema_of(value)
            # None of these is packed; what says so all the same is left out below, as a single one.
            reader = None if CANDIDATE in schema.names else readers.get(kind)
            of_another = own is not None and key and key != own.encode()
            if reader is not None and reader.of_others is not None and of_another:
                return [(kind, reader.of_others(value, said_ms))]
            rows = None if reader is None or reader.all_of is None else reader.all_of(value)
            if reader is not None and rows is not None and all(reader.at(said) <= latest_ms for said in rows):
                return [(kind, said) for said in rows]
        unread = {kind: reader.unread for kind, reader in readers.items()}
        for fields in objects_of(message, readers, unread, tried=tried):
            try:
                reader = readers.get(kind := text(fields, "type", None))
                decision = None if reader is None else _decision(reader, fields, said_ms, latest_ms)
            except Exception as trouble:  # noqa: BLE001 — counted and told; else this thread would end
                unusable(_told(trouble))
                continue
            if decision is not None:
                found.append((kind, decision))
    except Exception as trouble:  # noqa: BLE001 — the same of readers of whole records
        unusable(_told(trouble))
    return found


def _told(trouble: Exception) -> str:
    return trouble.reason if isinstance(trouble, BadEvent) else f"a mistake in its reader: {trouble!r}"


def _decision(reader: DecisionReader, fields: Fields, said_ms: int, latest_ms: int) -> Any | None:
    decision = reader.parse(fields)
    if decision is None:
        return None
    at = reader.at(decision)
    if at > latest_ms:
        raise BadEvent(f"of {at}, which is too far ahead; {latest_ms} at most was expected")
    if reader.timely and said_ms - at > max(decision.ttl_ms, LATE_MS) and not flag(fields, "repeat", False):
        # As if it had been withheld: its life time was over, but its batch was held up after the job looked.
        return None
    return decision


def decisions_tail(
    properties: Mapping[str, str],
    topic: str,
    readers: Readers,
    deliver: Callable[[list[Read]], None],
    unusable: Unusable = unheard,
    *,
    own: str | None = None,
    back_ms: int = 0,
    now_ms: Callable[[int], int] | None = None,
    standing: bool = False,
) -> Tail[Read]:
    """Follow the decisions of all enforcers: a subject that must wait must wait at each.

    Args:
        properties: librdkafka properties of the connection.
        deliver: gets them, in the loop.
        unusable: told of what cannot be used.
        own: name of this enforcer (decisions_in).
        back_ms: begin so long before the newest record, 0: with the next one.
        now_ms: see decisions_in.
        standing: read those alone that still stand by `now_ms` (docs/contract.md 1), each with what is left
            of its life time. By a reader apart, so that old admissions, of which there may be very many,
            never keep a request waiting for its own.
    """
    wanted = {kind: reader for kind, reader in readers.items() if reader.standing or not standing}

    def parse(message: Message) -> list[Read]:
        found = decisions_in(message, wanted, own, unusable, now_ms=now_ms)
        if not standing or now_ms is None:
            return found
        age_ms = now_ms(message.timestamp()[1]) - message.timestamp()[1]
        stands = ((kind, said) for kind, said in found if age_ms < said.ttl_ms)
        return [(kind, replace(said, ttl_ms=said.ttl_ms - age_ms)) for kind, said in stands]

    return Tail(
        properties,
        topic,
        back_ms=back_ms,
        from_newest=True,
        parse=parse,
        deliver=deliver,
    )
