"""Policy files and single policy events: read, checked in full, written back (docs/contract.md 2).

A misspelt limit must not fail open, so everything that is not understood is refused.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from streaming.contract.errors import BadEvent, ConfigError
from streaming.contract.names import full_topic
from streaming.policy.policy_set import RAISE, EntryPath, Section, entity_path, parse_path
from streaming.policy.schema import ENTITY, FILE, FILE_VERSION, NAMES, VALUES
from streaming.policy.validation import SUGGESTED_MAX, Finding, sorted_problems, suggestion
from streaming.policy.yaml.lines import YamlFile, dotted, read_yaml
from streaming.policy.yaml.text import rendered

_NAMED = (Section.RESOURCE_GROUPS, Section.TENANTS, Section.NAMESPACES, Section.TOPICS)


class _Written(NamedTuple):
    """An entry on its way into a file, with the lines above it."""

    entry: EntryPath
    value: Any
    said: Sequence[str]


def load_policies(path: str) -> dict[str, Any]:
    """Read a policy file into entries, path -> value, in the order of the file.

    Raises:
        ConfigError: every problem of the file, each with the line of its key, in file order.
    """
    source = read_yaml(path)
    document = {} if source.value is None else source.value
    found = FILE.check(document)
    if isinstance(document, dict):
        found += _repeated_entities(source, document, found)
        found += [*_repeated_topics(source, document), *_missing_groups(document)]
    # What follows from a problem that the reader had with the same key is left out.
    known = {problem.path for problem in source.problems}
    problems = [source.problem(*finding) for finding in found if dotted(finding.path) not in known]
    # All problems at once: a file is repaired in one go, not in as many runs as it has mistakes.
    if source.problems or problems:
        raise ConfigError(sorted_problems([*source.problems, *problems]))
    return dict(_entries(document))


def check_entry(path: str, value: Any) -> None:
    """Check one entry of a policy event; the value None removes it.

    Raises:
        BadEvent: `policy PATH: what is wrong; what was expected`, for everything that is wrong with it.
    """
    entry = parse_path(path)
    found = NAMES[entry.section].check(entry.name) if entry.name else []
    if entry.entity is not None:
        found = ENTITY.check(entry.entity)
    # A removal is judged by its path alone, so that what an older version let in can be removed.
    if value is not None:
        found += VALUES[entry.section].check(value)
    if found:
        told = (f"{dotted(item.path)}: {item.message}" if item.path else item.message for item in found)
        raise BadEvent(f"policy {path}: {' | '.join(told)}")


def policy_file(entries: Mapping[str, Any], comments: Mapping[str, Sequence[str]] | None = None) -> str:
    """Write entries as a policy file that `load_policies` reads back equal.

    Args:
        entries: path -> value.
        comments: lines of printable text above an entry, by its path.

    Raises:
        BadEvent: an entry's path is not one.
    """
    sections: dict[Section, list[_Written]] = {section: [] for section in Section}
    for path, value in entries.items():
        entry = parse_path(path)
        sections[entry.section].append(_Written(entry, value, (comments or {}).get(path, ())))
    # Not by PyYAML's dumper, which leaves names like 1e6 unquoted.
    lines = [f"version: {FILE_VERSION}", *(f"mode: {rendered(one.value)}" for one in sections[Section.MODE])]
    if sections[Section.QUOTAS]:
        lines.append("quotas:")
        for entry, value, said in sections[Section.QUOTAS]:
            lines += _commented(said, 2)
            lines += [f"  - entity: {rendered(entry.entity)}", *_block(value, 4)]
    for section in _NAMED:
        lines += _table(section, sections[section], 0)
    for _, value, said in sections[Section.BROKER]:
        lines += _commented(said, 0)
        lines += ["broker:", *_block(value, 2)] if value else ["broker: {}"]
    if sections[Section.PARTITIONS]:
        lines += ["backpressure:", *_table("partitions", sections[Section.PARTITIONS], 2)]
    return "\n".join(lines) + "\n"


def _table(title: str, items: list[_Written], indent: int) -> list[str]:
    if not items:
        return []
    lines, inner = [f"{' ' * indent}{title}:"], indent + 2
    for entry, value, said in items:
        lines += [*_commented(said, inner), f"{' ' * inner}{rendered(entry.name)}: {rendered(value)}"]
    return lines


def _commented(said: Sequence[str], indent: int) -> list[str]:
    return [f"{' ' * indent}# {line}" for line in said]


def _block(value: Mapping[str, Any], indent: int) -> list[str]:
    return [f"{' ' * indent}{name}: {rendered(item)}" for name, item in value.items()]


def _entries(document: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    if Section.MODE in document:
        yield Section.MODE.value, document[Section.MODE]
    for item in document.get(Section.QUOTAS) or ():
        yield entity_path(item["entity"]), {name: value for name, value in item.items() if name != "entity"}
    for section in _NAMED:
        for name, value in _mapping(document.get(section)).items():
            yield f"{section}.{full_topic(name) if section is Section.TOPICS else name}", value
    if document.get(Section.BROKER) is not None:
        yield Section.BROKER.value, document[Section.BROKER]
    for name, value in _mapping(_mapping(document.get("backpressure")).get("partitions")).items():
        yield f"{Section.PARTITIONS}.{name}", value


def _repeated_entities(
    source: YamlFile, document: Mapping[str, Any], found: list[Finding]
) -> Iterator[Finding]:
    """By path: {user: a, client-id: b} and {client-id: b, user: a} are the same entity."""
    items = document.get(Section.QUOTAS)
    unsound = {path[1] for path, _ in found if len(path) > 1 and path[2:3] in ((), ("entity",))}
    first: dict[str, int] = {}
    for index, item in enumerate(items if isinstance(items, list) else ()):
        if index in unsound:
            continue
        earlier = first.setdefault(entity_path(item["entity"]), index)
        if earlier != index:
            line = source.line((Section.QUOTAS.value, earlier))
            message = f"is that of quotas[{earlier}] in line {line} again; expected each entity once"
            yield Finding((Section.QUOTAS.value, index, "entity"), message)


def _repeated_topics(source: YamlFile, document: Mapping[str, Any]) -> Iterator[Finding]:
    """By full name: x and persistent://public/default/x are the same topic."""
    first: dict[str, str] = {}
    for name in _mapping(document.get(Section.TOPICS)):
        with suppress(BadEvent):
            earlier = first.setdefault(full_topic(str(name)), name)
            if earlier != name:
                line = source.line((Section.TOPICS.value, earlier))
                message = f"is topics.{earlier} in line {line} again; expected each topic once"
                yield Finding((Section.TOPICS.value, name), message)


def _missing_groups(document: Mapping[str, Any]) -> Iterator[Finding]:
    """A tenant or namespace in a group that does not exist would not be limited at all."""
    groups = document.get(Section.RESOURCE_GROUPS) or {}
    if not isinstance(groups, dict):
        return
    known, near = sorted(groups), dict[str, str]()
    for section in (Section.TENANTS, Section.NAMESPACES):
        for name, value in _mapping(document.get(section)).items():
            for place, holder in (((), value), ((RAISE,), _mapping(value).get(RAISE))):
                group = _mapping(holder).get("resourcegroup")
                # What is no text has been reported by the section's own check.
                if isinstance(group, str) and group and group not in groups:
                    if known and group not in near and len(near) < SUGGESTED_MAX:
                        near[group] = suggestion(group, known)
                    words = near.get(group, "one that resourcegroups holds")
                    message = f"names the group {group!r}, which this file does not have; expected {words}"
                    yield Finding((section.value, name, *place, "resourcegroup"), message)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
