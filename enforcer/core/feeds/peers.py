"""The other proxies: who lives, and what they have decided (docs/contract.md 3.1)."""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from confluent_kafka import Message

from enforcer.core.feeds.rows import events_of
from streaming.contract.errors import BadEvent
from streaming.contract.events import REQUEST_READERS, Refund, Request, load_object, own_at
from streaming.contract.fields import flag, text
from streaming.kafka_io.tail import Tail

_SIGN_BYTES: Final = 4_096
_SAYING_BYTES: Final = 131_072
_HEAD_BYTES: Final = 100
"""Where a record says its type, as we write it."""


class Sign(NamedTuple):
    """An `alive` as it was read.

    Attributes:
        proxy: who wrote it.
        ts: time of its record, ms since the epoch.
        leaving: its last one.
        speaks: the protocol of its clients; "": it does not say.
        instance: which process of that name; "": it does not say.
    """

    proxy: str
    ts: int
    leaving: bool
    speaks: str = ""
    instance: str = ""


class ReadersReport(NamedTuple):
    """What a proxy has told of who reads for which group (docs/contract.md 3.3, "Who reads").

    Attributes:
        proxy: who wrote it.
        fields: the record; what else stands in it is not checked.
    """

    proxy: str
    fields: Mapping[str, Any]


def signs_in(message: Message) -> list[Sign | ReadersReport]:
    """The sign of life in a record, or what it tells; none stands in a packed record. Never raises."""
    value = message.value() or b""
    # Reports of use are larger as a rule, and far more.
    says = b'"readers"' in value[:_HEAD_BYTES]
    if len(value) > (_SAYING_BYTES if says else _SIGN_BYTES) or not (says or b'"alive"' in value):
        return []
    try:
        fields = load_object(value)
        if fields.get("type") == "readers":
            return [ReadersReport(text(fields, "proxy", None), fields)]
        if fields.get("type") != "alive":
            return []
        return [
            Sign(
                text(fields, "proxy", None),
                message.timestamp()[1],
                flag(fields, "leaving", False),
                text(fields, "speaks", ""),
                text(fields, "instance", ""),
            )
        ]
    except BadEvent:
        return []  # the job says so, in a dead letter


class Charge(NamedTuple):
    """What an event says that was decided by a proxy, or gives back.

    Attributes:
        subject: the quota entity.
        id: of the event.
        ts: its time, ms since the epoch.
        mutations: of each item that was charged, of a refund their sum.
        refund: it gives them back.
    """

    subject: str
    id: str
    ts: int
    mutations: tuple[int, ...]
    refund: bool


def requests_since(
    properties: Mapping[str, str], topic: str, deliver: Callable[[list[Charge]], None], back_ms: int
) -> Tail[Charge]:
    """Read back what was decided by proxies and given back.

    Args:
        properties: librdkafka properties of the connection.
        topic: of the requests.
        deliver: gets them in order, in the loop.
        back_ms: how far.
    """
    return Tail(
        properties,
        topic,
        back_ms=back_ms,
        parse=charges_in,
        deliver=deliver,
        fetch_wait_ms=20,
    )


def charges_in(message: Message) -> list[Charge]:
    """The charges and refunds in a record, as far as they are some subject's. Never raises."""
    record_ms = message.timestamp()[1]
    events = events_of(message, REQUEST_READERS)
    return [charge for event, _ in events for charge in _charge(event, record_ms)]


def _charge(event: object, record_ms: int) -> list[Charge]:
    if isinstance(event, Request | Refund) and event.subject:
        ts = own_at(event.at, record_ms)
        if isinstance(event, Refund):
            return [Charge(event.subject, event.id, ts, (event.mutations,), refund=True)]
        if event.decided is not None:
            return [Charge(event.subject, event.id, ts, _charged(event), refund=False)]
    return []


def _charged(event: Request) -> tuple[int, ...]:
    assert event.decided is not None
    if event.validate_only:
        return ()
    pairs = zip(event.mutations, event.decided.rejected, strict=True)
    return tuple(mutations for mutations, rejected in pairs if not rejected)
