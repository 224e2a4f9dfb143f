"""The broker's settings as Pulsar's dynamic configuration: names and texts in, changes or a refusal out."""

import re
from typing import Any, Final

from enforcer.control.groups import Changes, Entries, Refusal, placed
from streaming.policy.policy_set import Section
from streaming.policy.schema import VALUES

_FORM: Final = VALUES[Section.BROKER]
_PATH: Final = Section.BROKER.value
NAMES: Final = tuple(sorted(_FORM.schema["properties"]))
"""What can be set, sorted."""
_INTEGER: Final = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_FLAGS: Final = {"true": True, "false": False}


def values(entries: Entries) -> dict[str, str]:
    """What is set, as texts; all else has its default."""
    held = entries.get(_PATH, {})
    return {name: str(value).lower() if type(value) is bool else str(value) for name, value in held.items()}


def put_value(entries: Entries, name: str, text: str) -> Changes:
    """Set one setting; raises Refusal: 412, no such setting; 400, no such value."""
    _check(name)
    value = _value(text)
    if found := _FORM.check({name: value}):
        raise Refusal(400, " | ".join(f"{name}: {message}" for _, message in found))
    return {_PATH: {**entries.get(_PATH, {}), name: value}}


def delete_value(entries: Entries, name: str) -> Changes:
    """Back to the default; nothing to do if it has it; raises Refusal: 412, no such setting."""
    _check(name)
    held = entries.get(_PATH, {})
    if name not in held:
        return {}
    return {_PATH: placed(held, (name,), None)}


def _check(name: str) -> None:
    if name not in NAMES:
        raise Refusal(412, f"Can't update non-dynamic configuration; known are {', '.join(NAMES)}")


def _value(text: str) -> Any:
    if _INTEGER.fullmatch(text):
        return int(text)
    return _FLAGS.get(text.lower(), text)
