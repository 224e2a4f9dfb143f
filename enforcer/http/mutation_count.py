"""How many partition mutations a request asks for, by its rule."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from enforcer.http.refusal import HttpRefusal
from enforcer.http.rules import Cost, Match, Rule, filled

Get = Callable[[str], Awaitable[tuple[int, bytes | None]]]
"""Asks the upstream on the client's behalf: status and body of the answer, None if that is too large."""

_INT32_MAX: Final = 2**31 - 1
_NOT_NOW: Final = frozenset((408, 429))
"""What an upstream answers that is too busy: the request itself it may carry out all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """What a request asks for.

    Attributes:
        items: topic -> mutations; empty if it is bound to fail, or changes nothing.
        beyond: the same of what is to be charged if it is carried out although it was bound to fail.
        dry: it is a dry run.
    """

    items: Mapping[str, int]
    beyond: Mapping[str, int] = field(default_factory=dict)
    dry: bool = False


async def count(match: Match, body: bytes, get: Get) -> Count:
    """Count a request by its rule, with its whole body, if the rule reads it.

    Raises:
        HttpRefusal: the body or the upstream's answer cannot be read.
    """
    rule, names, _ = match
    value = _decoded(body) if rule.reads_body else None
    topic = filled(rule.name, names) if not rule.name_field else _text(value, rule.name_field)
    dry = bool(rule.dry_run_field) and isinstance(value, dict) and value.get(rule.dry_run_field) is True
    asked = rule.number if rule.cost is Cost.CONSTANT else 0
    if rule.cost in (Cost.BODY, Cost.GROWTH):
        asked = _number(value, rule)
    if rule.cost not in (Cost.GROWTH, Cost.CURRENT):
        return Count(items={topic: asked} if asked > 0 else {}, dry=dry)
    held = await _held(match, get)
    if held is None:
        return Count(items={}, beyond={} if dry else {topic: max(1, asked)}, dry=dry)
    changed = held if rule.cost is Cost.CURRENT else asked - held
    return Count(items={topic: changed} if changed > 0 else {}, dry=dry)


async def _held(match: Match, get: Get) -> int | None:
    """How many partitions there are; None if the upstream refuses to say: it will refuse the request too."""
    status, answer = await get(filled(match.rule.current, match.sent))
    if 400 <= status < 500 and status not in _NOT_NOW:
        return None
    held = None
    with suppress(orjson.JSONDecodeError, KeyError, TypeError):
        value: Any = orjson.loads(answer or b"")
        if match.rule.current_field:
            value = value[match.rule.current_field]
        held = len(value) if isinstance(value, list) else _whole(value)
    if status != 200 or held is None:
        raise HttpRefusal(502, "The upstream does not say how many partitions there are")
    return max(0, held)


def _decoded(body: bytes) -> Any:
    """A body as JSON, or as the number that a text is: servers take more than JSON for one."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        pass
    try:
        return int(body.decode())
    except ValueError:
        raise HttpRefusal(400, "The body is neither JSON nor a number") from None


def _number(value: Any, rule: Rule) -> int:
    """The number of partitions a body asks for, the most that its fields say; if none does, the rule's."""
    said = [value]
    if isinstance(value, dict):
        given = [value.get(name) for name in rule.field.split("|")]
        said = [len(one) or None if isinstance(one, dict) else one for one in given]
    numbers = [number for number in map(_whole, said) if number is not None]
    if abs(most := max(numbers, key=abs, default=0)) > _INT32_MAX:
        raise HttpRefusal(400, f"{most} partitions are more than there can be")
    # Kafka takes a negative number for its own default.
    return max((number for number in numbers if number >= 0), default=rule.number)


def _whole(value: Any) -> int | None:
    """A number as servers read it: also from a text, and without what follows the point."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    with suppress(ValueError, OverflowError):
        return int(value)
    with suppress(ValueError, OverflowError):
        return int(float(value))
    return None


def _text(value: Any, name: str) -> str:
    given = value.get(name) if isinstance(value, dict) else None
    return given if isinstance(given, str) else ""
