"""Settings: a frozen dataclass per section of weir.yaml, read with the line of every mistake.

A section is declared once, name, type, default, bounds and meaning together:

    @dataclass(frozen=True, slots=True, kw_only=True)
    class JobSettings:
        shards: int = setting(8, "groups of subjects; fixed in the checkpoint", minimum=1)

`read_settings(JobSettings, "job", file)` gives an instance; `render_section(JobSettings, "job")` writes the
same section as commented YAML at its defaults, which is how conf/weir.yaml is made and held true.
"""

import textwrap
import types
import typing
from collections.abc import Iterable
from dataclasses import Field, dataclass, field, fields
from enum import Enum
from typing import Any, TypeVar

from streaming.contract.errors import ConfigError, Problem
from streaming.policy.checks import INT64_MAX, INT64_MIN, is_finite, shown, sorted_problems, suggestion
from streaming.policy.yaml_lines import Path, YamlFile, read_yaml
from streaming.policy.yaml_text import rendered

# What weir.yaml may hold: each part of the program reads its own section and lets the others be.
SECTIONS = ("kafka", "job", "proxy", "admin", "collect", "local")

_COMMENT_WIDTH = 100
_RULE = "setting"
_NAMES = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    types.NoneType: "null",
}

Section = TypeVar("Section")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What is said about a setting beside its type.

    Attributes:
        doc: its meaning and unit, one line.
        minimum: smallest number allowed, maximum: largest.
        choices: values allowed, empty for any.
    """

    doc: str = ""
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[Any, ...] = ()


def setting(
    default: Any,
    doc: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: Iterable[Any] = (),
) -> Any:
    """Declare one setting of a section: a dataclass field with its meaning, unit and bounds."""
    rule = Rule(doc=doc, minimum=minimum, maximum=maximum, choices=tuple(choices))
    # One mapping as the default of all instances would be changed by the first that adds to it.
    if isinstance(default, (dict, list)):
        return field(default_factory=lambda: type(default)(default), metadata={_RULE: rule})
    return field(default=default, metadata={_RULE: rule})


def read_settings(cls: type[Section], section: str, file: str | None) -> Section:
    """Read one section of a settings file; without a file, or a section in it, all is at its default.

    Raises:
        ConfigError: every unknown key, wrong type and number out of bounds, each with its line.
    """
    if file is None:
        return cls()
    source = read_yaml(file)
    problems = list(source.problems)
    values = _section(source, section, problems)
    # Resolved, since a module may postpone its annotations.
    hints = typing.get_type_hints(cls)
    known = {item.name: item for item in fields(cls)}  # type: ignore[arg-type]  # cls is a dataclass
    accepted: dict[str, Any] = {}
    for name, value in values.items():
        path = (section, name)
        if name not in known:
            problems.append(source.problem(path, f"is not a setting; expected {suggestion(name, known)}"))
            continue
        message = _wrong(value, hints[name], _rule(known[name]))
        if message:
            problems.append(source.problem(path, message))
        else:
            accepted[name] = _converted(value, hints[name])
    if problems:
        raise ConfigError(sorted_problems(problems))
    return cls(**accepted)


def render_section(cls: type[Any], section: str) -> str:
    """A section as commented YAML with every setting at its default."""
    lines = [f"{section}:"]
    defaults = cls()
    for item in fields(cls):
        for line in textwrap.wrap(_explained(_rule(item)), _COMMENT_WIDTH):
            lines.append(f"  # {line}")
        lines.append(f"  {item.name}: {rendered(getattr(defaults, item.name))}")
    return "\n".join(lines) + "\n"


def _section(source: YamlFile, section: str, problems: list[Problem]) -> dict[str, Any]:
    """The section's own values; sections that no part of the program reads are a problem."""
    if source.value is None:
        return {}
    if not isinstance(source.value, dict):
        problems.append(source.problem((), f"is not a mapping; expected sections {', '.join(SECTIONS)}"))
        return {}
    for name in source.value:
        if name not in SECTIONS and name != section:
            path: Path = (name,)
            problems.append(source.problem(path, f"is not a section; expected {suggestion(name, SECTIONS)}"))
    # `job:` with all its lines commented out is a section at its defaults.
    values = source.value.get(section)
    if values is None or isinstance(values, dict):
        return values or {}
    problems.append(source.problem((section,), f"is {shown(values)}; expected settings, NAME: VALUE"))
    return {}


def _rule(item: "Field[Any]") -> Rule:
    rule = item.metadata.get(_RULE)
    return rule if isinstance(rule, Rule) else Rule()


def _wrong(value: Any, hint: Any, rule: Rule) -> str | None:
    """What is wrong with a value, None if nothing."""
    if not _fits(value, hint):
        return f"is {shown(value)}; expected {_described(hint)}"
    if rule.choices and value not in rule.choices:
        return f"is {shown(value)}; expected one of {', '.join(map(str, rule.choices))}"
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    below = number and rule.minimum is not None and value < rule.minimum
    above = number and rule.maximum is not None and value > rule.maximum
    return f"is {value}; expected {_bounds(rule)}" if below or above else None


def _fits(value: Any, hint: Any) -> bool:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, argument) for argument in arguments)
    if origin is dict:
        return isinstance(value, dict) and all(_fits(item, arguments[1]) for item in value.values())
    if origin in (list, tuple):
        return isinstance(value, list) and all(_fits(item, arguments[0]) for item in value)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return any(value == choice.value for choice in hint)
    # Before the numbers: true is an int in Python.
    if isinstance(value, bool):
        return hint is bool
    if hint is int:
        return isinstance(value, int) and INT64_MIN <= value <= INT64_MAX
    if hint is float:
        return isinstance(value, (int, float)) and is_finite(value)
    return isinstance(hint, type) and isinstance(value, hint)


def _converted(value: Any, hint: Any) -> Any:
    """The value in the declared type: 3 for a float is 3.0, a text for an enum its member."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is float:
        return float(value)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(value)
    if origin in (typing.Union, types.UnionType) and not any(
        type(value) is argument for argument in arguments
    ):
        return _converted(value, next(argument for argument in arguments if _fits(value, argument)))
    if origin is tuple:
        return tuple(value)
    return value


def _described(hint: Any) -> str:
    """A type in words."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_described(argument) for argument in arguments)
    if origin is dict:
        return f"a mapping of names to {_described(arguments[1])}"
    if origin in (list, tuple):
        return f"a list of {_described(arguments[0])}"
    if isinstance(hint, type) and issubclass(hint, Enum):
        return f"one of {', '.join(str(choice.value) for choice in hint)}"
    return _NAMES.get(hint, str(hint))


def _bounds(rule: Rule) -> str:
    parts = []
    if rule.minimum is not None:
        parts.append(f"at least {rule.minimum}")
    if rule.maximum is not None:
        parts.append(f"at most {rule.maximum}")
    return " and ".join(parts)


def _explained(rule: Rule) -> str:
    """A setting's meaning with its bounds; choices only where the meaning does not name them."""
    choices = (
        "" if all(str(choice) in rule.doc for choice in rule.choices) else ", ".join(map(str, rule.choices))
    )
    extra = [_bounds(rule), f"one of {choices}" if choices else ""]
    return "; ".join(part for part in (rule.doc, *extra) if part)
