"""Policy files and single policy events: read, checked in full, and written back (contract section 2).

A misspelt limit must not fail open, so everything that is not understood is refused.
"""

from collections.abc import Mapping
from typing import Any

from streaming.contract.errors import BadEvent, ConfigError, Problem
from streaming.policy.checks import Report, shown, sorted_problems, suggestion, text
from streaming.policy.policy_set import Entity, EntryPath, Section, parse_path
from streaming.policy.schema import NAME_CHECKS, SCHEMAS
from streaming.policy.yaml_lines import Path, YamlFile, dotted, read_yaml
from streaming.policy.yaml_text import rendered

FILE_VERSION = 1
# Kafka's third kind of entity, ip, has no law here: refused, since it would limit nobody.
_ENTITY_KEYS = ("user", "client-id")
_NAMED = (Section.RESOURCE_GROUPS, Section.TENANTS, Section.NAMESPACES, Section.TOPICS)
_TOP_KEYS = ("version", Section.QUOTAS, *_NAMED, Section.BROKER, "backpressure")


def load_policies(path: str) -> dict[str, Any]:
    """Read a policy file into entries, path -> value, in the order of the file.

    Raises:
        ConfigError: every problem of the file, each with the line of its key, in file order.
    """
    source = read_yaml(path)
    report = Report()
    entries = _entries(source, report)
    found = [source.problem(finding.path, finding.message) for finding in report.findings]
    # All problems at once: a file is repaired in one go, not in as many runs as it has mistakes.
    problems = sorted_problems([*source.problems, *_without_repeats(source.problems, found)])
    if problems:
        raise ConfigError(problems)
    return entries


def check_entry(path: str, value: Any) -> None:
    """Check one entry of a policy event; the value None removes it.

    Raises:
        BadEvent: `policy PATH: what is wrong; what was expected`, for everything that is wrong with it.
    """
    entry = parse_path(path)
    report = Report()
    if entry.name:
        NAME_CHECKS[entry.section](report, (), entry.name)
    if entry.entity is not None:
        _check_names(report, entry.entity)
    # A removal is judged by its path alone, so that what an older version let in can be removed.
    if value is not None:
        SCHEMAS[entry.section](report, (), value)
    if report.findings:
        found = (
            f"{dotted(item.path)}: {item.message}" if item.path else item.message for item in report.findings
        )
        raise BadEvent(f"policy {path}: {' | '.join(found)}")


def policy_file(entries: Mapping[str, Any]) -> str:
    """Write entries as a policy file that `load_policies` reads back equal.

    Raises:
        BadEvent: an entry's path is not one.
    """
    sections: dict[Section, list[tuple[EntryPath, Any]]] = {section: [] for section in Section}
    for path, value in entries.items():
        entry = parse_path(path)
        sections[entry.section].append((entry, value))
    # Not by PyYAML's dumper, which leaves names like 1e6 unquoted.
    lines = [f"version: {FILE_VERSION}"]
    if sections[Section.QUOTAS]:
        lines.append("quotas:")
        for entry, value in sections[Section.QUOTAS]:
            lines += [f"  - entity: {rendered(_entity_value(entry))}", *_block(value, 4)]
    for section in _NAMED:
        lines += _table(section, sections[section], 0)
    for _, value in sections[Section.BROKER]:
        lines += ["broker:", *_block(value, 2)] if value else ["broker: {}"]
    if sections[Section.PARTITIONS]:
        lines += ["backpressure:", *_table("partitions", sections[Section.PARTITIONS], 2)]
    return "\n".join(lines) + "\n"


def _table(title: str, items: list[tuple[EntryPath, Any]], indent: int) -> list[str]:
    if not items:
        return []
    inner = " " * (indent + 2)
    return [
        f"{' ' * indent}{title}:",
        *(f"{inner}{rendered(entry.name)}: {rendered(value)}" for entry, value in items),
    ]


def _block(value: Mapping[str, Any], indent: int) -> list[str]:
    return [f"{' ' * indent}{name}: {rendered(item)}" for name, item in value.items()]


def _entity_value(entry: EntryPath) -> dict[str, str | None]:
    """An entity as the file writes it: null for the default, no key for a part that does not belong to it."""
    entity = entry.entity or Entity()
    value: dict[str, str | None] = {}
    if entity.default_user or entity.user is not None:
        value["user"] = entity.user
    if entity.default_client_id or entity.client_id is not None:
        value["client-id"] = entity.client_id
    return value


def _without_repeats(earlier: list[Problem], found: list[Problem]) -> list[Problem]:
    """Leave out what follows from a problem that the reader had with the same key."""
    known = {problem.path for problem in earlier}
    return [problem for problem in found if problem.path not in known]


def _entries(source: YamlFile, report: Report) -> dict[str, Any]:
    document = {} if source.value is None else source.value
    if not isinstance(document, dict):
        report.add((), f"is {shown(document)}; expected a mapping with {', '.join(_TOP_KEYS)}")
        return {}
    for name in document:
        if name not in _TOP_KEYS:
            report.add((name,), f"is not a section; expected {suggestion(name, _TOP_KEYS)}")
    _check_version(report, document)
    entries = _quota_entries(report, source, document.get(Section.QUOTAS))
    for section in _NAMED:
        entries |= _named_entries(report, section, (section.value,), document.get(section))
    if document.get(Section.BROKER) is not None:
        SCHEMAS[Section.BROKER](report, (Section.BROKER.value,), document[Section.BROKER])
        entries[Section.BROKER.value] = document[Section.BROKER]
    entries |= _partition_entries(report, document.get("backpressure"))
    _check_groups(report, document)
    return entries


def _check_version(report: Report, document: dict[str, Any]) -> None:
    version = document.get("version")
    if "version" not in document:
        report.add(("version",), f"is missing; expected version: {FILE_VERSION}")
    # True and 1.0 are equal to 1 in Python.
    elif isinstance(version, bool) or not isinstance(version, int) or version != FILE_VERSION:
        report.add(("version",), f"is {shown(version)}; expected {FILE_VERSION}")


def _quota_entries(report: Report, source: YamlFile, items: Any) -> dict[str, Any]:
    # `quotas:` with all its lines commented out is an empty list, not a mistake.
    if items is None:
        return {}
    if not isinstance(items, list):
        report.add(
            (Section.QUOTAS.value,), f"is {shown(items)}; expected a list of quotas, - entity: {{...}}"
        )
        return {}
    entries: dict[str, Any] = {}
    first: dict[str, int] = {}
    for index, item in enumerate(items):
        where: Path = (Section.QUOTAS.value, index)
        if not isinstance(item, dict):
            report.add(where, f"is {shown(item)}; expected a quota, entity: {{...}} and its limits")
            continue
        SCHEMAS[Section.QUOTAS](
            report, where, {name: value for name, value in item.items() if name != "entity"}
        )
        # By path: {user: a, client-id: b} and {client-id: b, user: a} are the same entity.
        path = _entity_path(report, where, item)
        if path is None:
            continue
        if path in first:
            line = source.line((Section.QUOTAS.value, first[path]))
            message = f"is that of quotas[{first[path]}] in line {line} again; expected each entity once"
            report.add((*where, "entity"), message)
        first.setdefault(path, index)
        entries[path] = {name: value for name, value in item.items() if name != "entity"}
    return entries


def _entity_path(report: Report, where: Path, item: dict[str, Any]) -> str | None:
    """The path of a quota in the file; None, with a finding, if its entity is wrong."""
    where = (*where, "entity")
    if "entity" not in item:
        report.add(where, "is missing; expected whom the quota is for, such as {user: alice}")
        return None
    names = item["entity"]
    if not isinstance(names, dict) or not names:
        report.add(where, f"is {shown(names) if names else 'empty'}; expected a user, a client-id or both")
        return None
    found = len(report.findings)
    for name, value in names.items():
        if name not in _ENTITY_KEYS:
            report.add((*where, name), f"is not part of an entity; expected {suggestion(name, _ENTITY_KEYS)}")
        elif value is not None:
            _check_name(report, (*where, name), value)
    if len(report.findings) > found:
        return None
    return Entity(
        user=names.get("user"),
        client_id=names.get("client-id"),
        default_user="user" in names and names["user"] is None,
        default_client_id="client-id" in names and names["client-id"] is None,
    ).path


def _check_name(report: Report, where: Path, value: Any) -> None:
    """A user has a name; a client that names itself by nothing has the empty client-id."""
    if value != "" or where[-1:] == ("user",):
        text(report, where, value)


def _check_names(report: Report, entity: Entity) -> None:
    for name, value in (("user", entity.user), ("client-id", entity.client_id)):
        if value is not None:
            _check_name(report, (name,), value)


def _named_entries(report: Report, section: Section, where: Path, items: Any) -> dict[str, Any]:
    if items is None:
        return {}
    if not isinstance(items, dict):
        report.add(where, f"is {shown(items)}; expected entries by name, NAME: {{...}}")
        return {}
    for name, value in items.items():
        NAME_CHECKS[section](report, (*where, name), name)
        SCHEMAS[section](report, (*where, name), value)
    return {f"{section}.{name}": value for name, value in items.items()}


def _partition_entries(report: Report, value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        report.add(("backpressure",), f"is {shown(value)}; expected partitions: {{NAME: {{...}}}}")
        return {}
    for name in value:
        if name != "partitions":
            report.add(("backpressure", name), "is not a known key; expected partitions")
    return _named_entries(report, Section.PARTITIONS, ("backpressure", "partitions"), value.get("partitions"))


def _check_groups(report: Report, document: dict[str, Any]) -> None:
    """A tenant or namespace in a group that does not exist would not be limited at all."""
    groups = document.get(Section.RESOURCE_GROUPS) or {}
    for section in (Section.TENANTS, Section.NAMESPACES):
        items = document.get(section)
        for name, value in items.items() if isinstance(items, dict) else ():
            group = value.get("resourcegroup") if isinstance(value, dict) else None
            # What is no text has been reported by the section's own check.
            if isinstance(group, str) and group and group not in groups:
                expected = suggestion(group, groups) if groups else "one that resourcegroups holds"
                report.add(
                    (section.value, name, "resourcegroup"),
                    f"names the group {group!r}, which this file does not have; expected {expected}",
                )
