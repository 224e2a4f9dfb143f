"""What the admin API does to policies: entries and a request in, changes or a refusal out; no I/O.

Paths, field names and reasons are those of PIP-82 and of Pulsar's broker (docs/protocol_notes.md 4.4);
where Pulsar checks nothing or answers 500, the code is the one that the kind of mistake calls for.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import BaseModel, Field

from streaming.contract.errors import BadEvent, WeirError
from streaming.contract.events import load_object
from streaming.contract.fields import INT64_MAX, Fields
from streaming.contract.usage_events import DIMENSIONS
from streaming.policy.files import check_entry
from streaming.policy.policy_set import RAISE, UNLIMITED, Section
from streaming.policy.schema import MIN_RATE, VALUES, Unlimited, limit
from streaming.policy.validation import ClosedMapping, Finding, Form, expected
from streaming.policy.yaml.lines import dotted

Entries = Mapping[str, Any]
Changes = dict[str, Any | None]
"""Path -> new value, None to remove the entry."""

# PIP-82's answer calls publishRateInMsgs PublishRatelimitinmsgs.
PIP_82_NAMES: Final = {
    name: name[0].upper() + name[1:].replace("RateIn", "RatelimitIn") for name in DIMENSIONS
}
"""Field -> its name in PIP-82's answers, letters' case aside."""
_FIELDS: Final = {
    **{name.lower(): name for name in (*DIMENSIONS, "shadow")},
    **{alias.lower(): name for name, alias in PIP_82_NAMES.items()},
}
_RAISED: Final = "values of these fields, and `until`, the ISO 8601 time with its zone at which they end"
_PER_SECOND: Final = "per second; -1: not limited"
# Pulsar keeps rates of messages in 32 bits, so its clients could not read a greater one back.
_MessageRate = Annotated[
    Annotated[float, Field(ge=MIN_RATE, le=2**31 - 1)] | Unlimited,
    limit("a positive number", f" at least {MIN_RATE} and at most {2**31 - 1}, as Pulsar's clients read it"),
]
_ByteRate = Annotated[
    Annotated[int, Field(gt=0, le=INT64_MAX)] | Annotated[float, Field(ge=MIN_RATE, lt=2**63)] | Unlimited,
    limit("a positive number", f" at least {MIN_RATE} and at most {INT64_MAX}, as Pulsar's clients read it"),
]
_GROUP_NAME: Final = re.compile(r"[-=:.\w]{1,255}", re.ASCII)
_SHOWN_USERS: Final = 3
_HOLDERS: Final = (f"{Section.TENANTS}.", f"{Section.NAMESPACES}.")
_PARTITION: Final = "-partition-"


class Refusal(WeirError):
    """A request that is not carried out.

    Args:
        status: HTTP status of the answer.
        reason: what is wrong, for people.
        retry_after_s: it may be carried out later; 0: it will not be.
    """

    def __init__(self, status: int, reason: str, retry_after_s: int = 0) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.retry_after_s = retry_after_s


class Unavailable(Refusal):
    """Policies cannot be read or changed now; a change may have been made all the same."""

    def __init__(self, reason: str) -> None:
        super().__init__(503, reason, retry_after_s=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who has an entry of a name: a tenant or a namespace, which can be attached to a group, or a topic."""

    section: Section
    name: str

    @property
    def path(self) -> str:
        """Its entry."""
        return f"{self.section}.{self.name}"

    @property
    def tenant(self) -> str:
        """Of a tenant or namespace: whose it is."""
        return self.name.partition("/")[0]

    def check(self) -> None:
        """Raises Refusal (412, as Pulsar) if the name cannot be one."""
        try:
            check_entry(self.path, None)
        except BadEvent:
            raise Refusal(412, f"{self.section.capitalize().removesuffix('s')} name is not valid") from None

    def check_policies(self) -> None:
        """Raises Refusal (412, as Pulsar): as `check`, or it is one partition, which has none of its own."""
        self.check()
        topic, _, partition = self.name.rpartition(_PARTITION)
        if self.section is Section.TOPICS and topic and partition.isdecimal():
            raise Refusal(412, "Not allowed to set/get topic policy for a partition")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place(ABC):
    """Where something stands in the entry of a namespace or a topic, the `holder`; each kind says the way."""

    holder: Holder

    @property
    @abstractmethod
    def keys(self) -> tuple[str, ...]:
        """The way to it inside the entry."""

    def check(self) -> None:
        """Raises Refusal (412, as Pulsar): a name cannot be one, or is that of one partition."""
        self.holder.check_policies()

    def at(self, entries: Entries) -> dict[str, Any] | None:
        """What stands there, None if nothing does; as those below raises Refusal: see check."""
        self.check()
        value: Any = entries.get(self.holder.path)
        for key in self.keys:
            value = None if value is None else value.get(key)
        return None if value is None else dict(value)

    def put(self, entries: Entries, fields: Mapping[str, Any]) -> Changes:
        """Set it in place of the one before; what else the entry says stays."""
        self.check()
        return {self.holder.path: placed(entries.get(self.holder.path, {}), self.keys, fields)}

    def delete(self, entries: Entries) -> Changes:
        """Remove it; nothing to do if there is none. With the last key of an entry the entry goes."""
        if self.at(entries) is None:
            return {}
        return {self.holder.path: placed(entries[self.holder.path], self.keys, None)}


class GroupFields(ClosedMapping):
    """Names in any case of letters, null = absent; absent fields keep theirs, at first -1."""

    publishRateInMsgs: _MessageRate | None = None
    publishRateInBytes: _ByteRate | None = None
    dispatchRateInMsgs: _MessageRate | None = None
    dispatchRateInBytes: _ByteRate | None = None
    shadow: Annotated[bool | None, Field(description="decide, do not enforce")] = None
    raised: Annotated[
        dict[str, Any] | None, Field(alias="raise", description=_RAISED), expected(_RAISED)
    ] = None


class GroupView(BaseModel):
    """A group as Pulsar answers."""

    publishRateInMsgs: float = Field(description=_PER_SECOND)
    publishRateInBytes: float = Field(description=_PER_SECOND)
    dispatchRateInMsgs: float = Field(description=_PER_SECOND)
    dispatchRateInBytes: float = Field(description=_PER_SECOND)
    shadow: bool = False
    raised: dict[str, Any] | None = Field(default=None, alias="raise", description=_RAISED)


GROUP_FIELDS: Final = Form(GroupFields)


def group_fields(body: bytes) -> dict[str, Any]:
    """Read the body of a PUT: field -> value, under Pulsar's names, without those that are null.

    Names are PIP-82's or Pulsar's in any case of letters.

    >>> group_fields(b'{"PublishRateInmsgs": 5, "publishRateInBytes": null}')
    {'publishRateInMsgs': 5}

    Raises:
        Refusal: 400, no object, or all that is wrong with its fields.
    """
    given = object_of(body, '{"publishRateInMsgs":100}')
    fields: dict[str, Any] = {}
    for name, value in given.items():
        known = _FIELDS.get(name.lower(), name)
        if value is not None and fields.setdefault(known, value) != value:
            raise Refusal(400, f"{known}: is given twice with different values")
    _refuse(GROUP_FIELDS.check(fields))
    return {
        name: int(value) if isinstance(value, float) and value.is_integer() else value
        for name, value in fields.items()
    }


def _refuse(findings: Sequence[Finding]) -> None:
    if findings:
        raise Refusal(400, " | ".join(f"{dotted(path)}: {message}" for path, message in findings))


def object_of(body: bytes, example: str) -> Fields:
    """The JSON object that a body is; raises Refusal: 400, it is none; an empty one is shown the example."""
    if not body.strip():
        raise Refusal(400, f"The body is empty; an object such as {example} was expected")
    try:
        return load_object(body)
    except BadEvent as bad:
        raise Refusal(400, f"The body is {bad.reason}") from None


def group_view(entries: Entries, group: str) -> dict[str, Any]:
    """A group as Pulsar answers; -1 where nothing limits; raises Refusal: 404, there is none."""
    value = entries.get(_group_path(group))
    if value is None:
        raise Refusal(404, "ResourceGroup does not exist")
    view = {name: value.get(name, UNLIMITED) for name in DIMENSIONS}
    return view | {name: value[name] for name in ("shadow", RAISE) if value.get(name)}


def group_names(entries: Entries) -> list[str]:
    """All groups, sorted."""
    prefix = f"{Section.RESOURCE_GROUPS}."
    return sorted(path.removeprefix(prefix) for path in entries if path.startswith(prefix))


def put_group(entries: Entries, group: str, fields: Mapping[str, Any]) -> Changes:
    """Create a group, or change the given fields of one; the others keep their value.

    Raises:
        Refusal: 412, no name for a new group; 400, what is raised, or until when, is wrong.
    """
    path = _group_path(group)
    held = entries.get(path)
    if held is None and not (_GROUP_NAME.fullmatch(group) and group.strip(".")):
        raise Refusal(412, "ResourceGroup name is not valid; expected letters, digits and - = : . _")
    value = {**(held or {}), **fields}
    if RAISE in fields:
        _refuse(VALUES[Section.RESOURCE_GROUPS].check(value))
    return {path: value}


def delete_group(entries: Entries, group: str) -> Changes:
    """Remove a group that nobody is attached to; raises Refusal: 404, there is none; 412, it is in use."""
    path = _group_path(group)
    if path not in entries:
        raise Refusal(404, "ResourceGroup does not exist")
    users = [
        f"{who.section.removesuffix('s')} {who.name}" for who, held in attached(entries) if held == group
    ]
    users.sort(key=lambda who: who.startswith("namespace"))
    if users:
        more = f" and {len(users) - _SHOWN_USERS} more" if len(users) > _SHOWN_USERS else ""
        raise Refusal(412, f"ResourceGroup is in use by {', '.join(users[:_SHOWN_USERS])}{more}")
    return {path: None}


def attached(entries: Entries) -> Iterator[tuple[Holder, str]]:
    """The tenants and namespaces that are attached to a group, each with that group."""
    for path, value in entries.items():
        if path.startswith(_HOLDERS) and value.get("resourcegroup"):
            section, _, name = path.partition(".")
            yield Holder(section=Section(section), name=name), value["resourcegroup"]


def attached_group(entries: Entries, holder: Holder) -> str | None:
    """The group that a tenant or namespace has itself, None if none; raises Refusal: 412, no such name."""
    holder.check()
    group = entries.get(holder.path, {}).get("resourcegroup")
    return None if group is None else str(group)


def attach(entries: Entries, holder: Holder, group: str) -> Changes:
    """Attach to a group, in place of the one before; one record, so there is no moment without a group.

    Raises:
        Refusal: 412, no such name or no such group.
    """
    holder.check()
    if _group_path(group) not in entries:
        raise Refusal(412, "ResourceGroup does not exist")
    return {holder.path: {**entries.get(holder.path, {}), "resourcegroup": group}}


def detach(entries: Entries, holder: Holder) -> Changes:
    """Detach, if it is attached; what else the entry says stays. Raises Refusal: 412, no such name."""
    if attached_group(entries, holder) is None:
        return {}
    return {holder.path: placed(entries[holder.path], ("resourcegroup",), None)}


def placed(
    value: Mapping[str, Any], keys: Sequence[str], held: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    """A mapping with something at the end of the keys, or without it; None if nothing is left.

    >>> placed({"a": {"b": {"x": 1}}}, ("a", "c"), {"y": 2})
    {'a': {'b': {'x': 1}, 'c': {'y': 2}}}
    """
    key, *inner = keys
    new = placed(value.get(key, {}), inner, held) if inner else held
    if new is not None:
        return {**value, key: new}
    return {name: other for name, other in value.items() if name != key} or None


def _group_path(group: str) -> str:
    return f"{Section.RESOURCE_GROUPS}.{group}"
