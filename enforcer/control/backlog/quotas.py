"""What the admin API does to backlog quotas: entries and a request in, changes or a refusal out; no I/O.

Paths, field names and reasons are those of Pulsar's broker (docs/protocol_notes.md 4.6, docs/admin_api.md).
Each function but those that read a body raises Refusal (412) where there is no such name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from enforcer.control.groups import Changes, Entries, Holder, Place, Refusal, object_of
from streaming.contract.fields import shown
from streaming.policy.policy_set import UNLIMITED, PolicySet, Section
from streaming.policy.schema import VALUES
from streaming.policy.topics import LIMIT_KEYS, BacklogKind, backlog_candidates
from streaming.policy.validation import Schema
from streaming.policy.yaml.lines import dotted

MAP: Final = "backlogQuotaMap"
_OLD_NAME: Final = "limit"
_POLICY: Final = "policy"
_OURS: Final = ("actions", "allow_delete_records")
"""What pulsar-admin cannot say, so that it stays where nothing is said of it."""
# Namespaces and topics have the same quotas.
_FORM: Final = VALUES[Section.NAMESPACES]
_QUOTAS: Final[Schema] = _FORM.schema["properties"][MAP]["properties"]
_POLICIES: Final = ", ".join(_QUOTAS[BacklogKind.SIZE]["properties"][_POLICY]["enum"])
_INT32_MAX: Final = 2**31 - 1
_ANY_LIMIT: Final[Schema] = {"type": "integer", "minimum": -1}
QUOTA_SCHEMA: Final[Schema] = {
    "type": "object",
    "description": "The limit of the type (limitSize in bytes, limitTime in s; -1: none) and what is done "
    "beyond it. The other limit may be there as -1 or 0. actions and allow_delete_records keep their values "
    "if they are absent.",
    "properties": {
        _OLD_NAME: {**_ANY_LIMIT, "description": "the same as limitSize"},
        **{name: _ANY_LIMIT for name in LIMIT_KEYS.values()},
        **{name: _QUOTAS[BacklogKind.SIZE]["properties"][name] for name in (_POLICY, *_OURS)},
    },
    "required": [_POLICY],
    "additionalProperties": False,
}
"""A quota as a request may have it."""


class QuotaView(BaseModel):
    """A quota as Pulsar answers; `actions` and `allow_delete_records` where they are true."""

    model_config = ConfigDict(extra="forbid")

    limit: int = Field(description="the same as limitSize")
    limitSize: int = Field(description="bytes; -1: none")
    limitTime: int = Field(description="s; -1: none")
    policy: str
    actions: bool = Field(False, description="it is carried out, not only decided")
    allow_delete_records: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaPlace(Place):
    """Where a quota stands, of size or of age."""

    kind: BacklogKind

    @property
    def keys(self) -> tuple[str, ...]:
        """See Place."""
        return MAP, self.kind.value

    def put(self, entries: Entries, fields: Mapping[str, Any]) -> Changes:
        """See Place; `actions` and the like of the one before stay if nothing else is said."""
        before = self.at(entries) or {}
        kept: dict[str, Any] = {name: before[name] for name in _OURS if name in before}
        return Place.put(self, entries, {**kept, **fields})


def quota_fields(body: bytes, place: QuotaPlace) -> dict[str, Any]:
    """Read the body of a POST as the policies keep it, without the fields that are null.

    pulsar-admin sends both limits, the one that is not of this type as -1; it is left out.

    Raises:
        Refusal: 400, no object, or all that is wrong with its fields. Above all an absent limit: Pulsar
            takes it for 0, which every topic exceeds.
    """
    given = object_of(body, '{"limitSize":1000000,"policy":"producer_request_hold"}')
    fields = {name: value for name, value in given.items() if value is not None}
    wrong = []
    old = fields.pop(_OLD_NAME, None)
    if old is not None and fields.setdefault(LIMIT_KEYS[BacklogKind.SIZE], old) != old:
        wrong.append(f"{_OLD_NAME}: is limitSize's old name, and has another value; expected one of them")
    for kind, name in LIMIT_KEYS.items():
        other = fields.pop(name, UNLIMITED) if kind is not place.kind else UNLIMITED
        if type(other) is not int or other not in (UNLIMITED, 0):
            wrong.append(
                f"{name}: is {shown(other)}, but this is the quota {place.kind}; expected -1, and the limit "
                f"in a request of its own with backlogQuotaType={kind}"
            )
    if fields.get(_POLICY) not in _QUOTAS[BacklogKind.SIZE]["properties"][_POLICY]["enum"]:
        fields.pop(_POLICY, None)
        # Of a topic Pulsar names the namespace too.
        namespace = place.holder.name.partition("://")[2].rpartition("/")[0] or place.holder.name
        wrong.append(
            f"Set namespace[{namespace}] backlog quota failed because the data validation failed. "
            f"the attribute policy cannot be null; expected one of {_POLICIES}"
        )
    found = _FORM.check({MAP: {place.kind.value: fields}})
    wrong += [f"{dotted(path[2:])}: {message}" for path, message in found if path[2:] != (_POLICY,)]
    # Pulsar keeps times in 32 bits, so its clients could not read a longer one back.
    if not wrong and place.kind is BacklogKind.AGE and fields[LIMIT_KEYS[place.kind]] > _INT32_MAX:
        wrong.append(f"limitTime: expected at most {_INT32_MAX}, as Pulsar's clients read it")
    if wrong:
        raise Refusal(400, " | ".join(wrong))
    return fields


def quotas_at(entries: Entries, holder: Holder) -> dict[str, Any]:
    """The quotas that a namespace or a topic has itself, by type, as Pulsar answers."""
    holder.check_policies()
    held = entries.get(holder.path, {}).get(MAP, {})
    return {kind.value: _shown(kind, held[kind]) for kind in BacklogKind if kind in held}


def applied_quotas(policies: PolicySet, holder: Holder) -> dict[str, Any]:
    """What applies to a topic by precedence (docs/contract.md 2), by type; always both, limit -1: none."""
    holder.check_policies()
    applied = {}
    for kind in BacklogKind:
        levels = list(backlog_candidates(policies, holder.name, kind))
        won = next((level for level in levels if level.wins), levels[-1])
        assert won.value is not None, "the broker has a default of each"
        applied[kind.value] = _shown(kind, won.value)
    return applied


def _shown(kind: BacklogKind, quota: Mapping[str, Any]) -> dict[str, Any]:
    limits = {**dict.fromkeys(LIMIT_KEYS.values(), UNLIMITED), LIMIT_KEYS[kind]: quota[LIMIT_KEYS[kind]]}
    ours = {name: True for name in _OURS if quota.get(name)}
    return {_OLD_NAME: limits[LIMIT_KEYS[BacklogKind.SIZE]], **limits, _POLICY: quota[_POLICY], **ours}
