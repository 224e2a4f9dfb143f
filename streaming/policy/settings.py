"""Settings: a frozen pydantic model per section of weir.yaml, read with the line of every mistake.

A section is declared once, name, type, default, bounds and meaning together:

    class JobSettings(Settings):
        shards: int = setting(8, "groups of subjects; fixed in the checkpoint", minimum=1)

`read_settings(JobSettings, "job", file)` gives an instance; `render_section(JobSettings, "job")` writes the
same section as commented YAML at its defaults, which is how conf/weir.yaml is made and held true.
"""

import textwrap
from enum import Enum
from typing import Any, TypeVar, get_args

from pydantic import Field, field_validator

from streaming.contract.errors import ConfigError, Problem
from streaming.policy.validation import (
    ClosedMapping,
    Finding,
    Form,
    Schema,
    bounds,
    shown,
    sorted_problems,
    suggestion,
    within_64_bits,
)
from streaming.policy.yaml.lines import YamlFile, read_yaml
from streaming.policy.yaml.removed import GONE_SECTIONS, gone
from streaming.policy.yaml.text import rendered

# What weir.yaml may hold: each part of the program reads its own section and lets the others be.
SECTIONS = (
    "kafka", "job", "proxy", "pulsar", "admin", "http", "collect", "backlog",
    "collect_pulsar", "local",
)  # fmt: skip
_COMMENT_WIDTH = 100


class Settings(ClosedMapping):
    """Base of all sections."""

    _within_64_bits = field_validator("*")(within_64_bits)


Section = TypeVar("Section", bound=Settings)


def setting(default: Any, doc: str, *, minimum: float | None = None, maximum: float | None = None) -> Any:
    """Declare one setting of a section: its default, meaning and unit, and bounds."""
    # YAML has texts for an enum's members.
    strict = False if isinstance(default, Enum) else None
    return Field(default, description=doc, ge=minimum, le=maximum, strict=strict)


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
    removed = {key: why for key in values if (why := gone(section, key))}
    read, findings = Form(cls).read({key: value for key, value in values.items() if key not in removed})
    findings += [Finding((key,), why) for key, why in removed.items()]
    problems += [source.problem((section, *path), message) for path, message in findings]
    if read is None or problems:
        raise ConfigError(sorted_problems(problems))
    return read


def render_section(cls: type[Settings], section: str, shown: set[type] | None = None) -> str:
    """A section as commented YAML with every setting at its default.

    Args:
        cls: its settings.
        section: its name.
        shown: mappings within sections whose keys stand in the file already; those of this one are added.
    """
    lines = _rendered(cls(), Form(cls).schema, set() if shown is None else shown)
    return "\n".join([f"{section}:", *lines]) + "\n"


def _rendered(defaults: Settings, schema: Schema, shown_before: set[type]) -> list[str]:
    lines = []
    for name, node in schema["properties"].items():
        choices = [str(choice) for choice in node.get("enum", ())]
        # Choices only where the meaning does not name them.
        unnamed = any(choice not in node["description"] for choice in choices)
        parts = (node["description"], bounds(node), f"one of {', '.join(choices)}" if unnamed else "")
        meaning = "; ".join(part for part in parts if part)
        lines += [f"  # {line}" for line in textwrap.wrap(meaning, _COMMENT_WIDTH)]
        inside = _mapping_of(defaults, name)
        if inside is None:
            lines.append(f"  {name}: {rendered(getattr(defaults, name))}")
            continue
        # Absent unless it is wanted: its keys stand as a comment, where they stand first.
        lines.append(f"  # {name}:")
        if inside not in shown_before:
            shown_before.add(inside)
            inner = _rendered(inside.model_construct(), Form(inside).schema, shown_before)
            lines += [f"  # {line}" for line in inner]
    return lines


def _mapping_of(defaults: Settings, name: str) -> type[Settings] | None:
    """The kind of a setting that is a mapping of its own, and absent as a rule."""
    kinds = get_args(type(defaults).model_fields[name].annotation)
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Settings)), None)


def _section(source: YamlFile, section: str, problems: list[Problem]) -> dict[str, Any]:
    """The section's own values; sections that no part of the program reads are a problem."""
    if source.value is None:
        return {}
    if not isinstance(source.value, dict):
        problems.append(source.problem((), f"is not a mapping; expected sections {', '.join(SECTIONS)}"))
        return {}
    for name in source.value:
        if name in GONE_SECTIONS:
            problems.append(source.problem((name,), "held what are constants now; leave it out"))
        elif name not in SECTIONS:
            near = suggestion(name, sorted(SECTIONS))
            problems.append(source.problem((name,), f"is not a section; expected {near}"))
    # `job:` with all its lines commented out is a section at its defaults.
    values = source.value.get(section)
    if values is None or isinstance(values, dict):
        return values or {}
    problems.append(source.problem((section,), f"is {shown(values)}; expected settings, NAME: VALUE"))
    return {}
