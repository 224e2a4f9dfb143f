"""Reading the fields of an event: one place that says what a number, a text and a choice are."""

from collections.abc import Mapping
from math import isfinite
from typing import Any, Final

import orjson

from streaming.contract.errors import BadEvent
from streaming.contract.names import TOPIC

INT64_MAX: Final = 2**63 - 1
TS_MAX_MS: Final = 253_402_300_799_999
"""The last millisecond of the year 9999: a later time is a unit mistake, not a time."""
Fields = Mapping[str, Any]


def integer(
    fields: Fields, key: str, default: int | None, *, minimum: int = 0, maximum: int = INT64_MAX
) -> int:
    """An integer in `minimum` to `maximum`; true, false and 1.0 are none. No default: it must be there.

    Raises:
        BadEvent: missing, no integer, or out of range.
    """
    if key not in fields:
        if default is None:
            raise BadEvent(f"{key}: missing; an integer was expected")
        return default
    value = fields[key]
    # `type(...) is int` and not isinstance: true and false are ints to Python.
    if type(value) is not int:
        raise BadEvent(f"{key}: {shown(value)}; an integer was expected")
    if not minimum <= value <= maximum:
        raise BadEvent(f"{key}: {value} is out of range; {minimum} to {maximum} was expected")
    return value


def text(fields: Fields, key: str, default: str | None) -> str:
    """Text, valid Unicode since the parser saw to that. No default: it must be there."""
    if key not in fields:
        if default is None:
            raise BadEvent(f"{key}: missing; text was expected")
        return default
    value = fields[key]
    if type(value) is not str:
        raise BadEvent(f"{key}: {shown(value)}; text was expected")
    return value


def flag(fields: Fields, key: str, default: bool) -> bool:
    """true or false; 0, 1 and null are neither."""
    value = fields.get(key, default)
    if type(value) is not bool:
        raise BadEvent(f"{key}: {shown(value)}; true or false was expected")
    return value


def choice(fields: Fields, key: str, default: str, choices: tuple[str, ...]) -> str:
    """One of a few words."""
    value = fields.get(key, default)
    if value not in choices:
        raise BadEvent(f"{key}: {shown(value)}; one of {', '.join(choices)} was expected")
    return str(value)


def shown(value: Any) -> str:
    """A value as JSON, short enough for one line of a log."""
    text = orjson.dumps(value).decode()
    return text if len(text) <= 60 else f"{text[:57]}..."


def number(fields: Fields, key: str, default: float | None, *, minimum: float = 0.0) -> float:
    """A finite double, `minimum` or more; integers count, true and false do not."""
    if key not in fields:
        if default is None:
            raise BadEvent(f"{key}: missing; a number was expected")
        return default
    value = fields[key]
    if type(value) not in (int, float) or not isfinite(value):
        raise BadEvent(f"{key}: {shown(value)}; a number was expected")
    if value < minimum:
        raise BadEvent(f"{key}: {shown(value)} is out of range; {minimum} or more was expected")
    return float(value)


def signed(fields: Fields, key: str) -> float | None:
    """A finite number, of a debt negative; absent and null are none."""
    return None if fields.get(key) is None else number(fields, key, None, minimum=float("-inf"))


def names(fields: Fields, key: str) -> list[str]:
    """A list of texts, which must be there."""
    listed = fields.get(key)
    if type(listed) is not list or not all(type(one) is str for one in listed):
        raise BadEvent(f"{key}: {shown(listed)}; a list of names was expected")
    return listed


def applied_ts(fields: Fields, ts: int) -> int:
    """When an event is applied, ms: later than its `ts` only in a dump of a log whose clock went back."""
    return max(ts, integer(fields, "applied_ts", ts, maximum=TS_MAX_MS))


def full_topic_in(fields: Fields) -> str:
    """A topic's full name: without a namespace it has no policies, and is better refused than not limited."""
    topic = text(fields, "topic", None)
    if not TOPIC.fullmatch(topic):
        raise BadEvent(
            f"topic: {shown(topic)}; a full name such as persistent://TENANT/NAMESPACE/TOPIC was expected"
        )
    return topic
