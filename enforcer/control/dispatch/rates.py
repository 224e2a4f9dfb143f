"""What the admin API does to dispatch rates: entries and a request in, changes or a refusal out; no I/O.

Paths, field names and reasons are those of Pulsar's broker (docs/protocol_notes.md 4.5, docs/admin_api.md).
Each function but those that read a body raises Refusal (412) where there is no such name.
"""

from dataclasses import dataclass
from typing import Any, Final

from enforcer.control.groups import Place, Refusal, object_of
from streaming.contract.errors import BadEvent
from streaming.policy.files import check_entry
from streaming.policy.policy_set import UNLIMITED, PolicySet, Section
from streaming.policy.schema import VALUES
from streaming.policy.topics import RATE_KEYS, RateKind, dispatch_candidates
from streaming.policy.validation import Schema
from streaming.policy.yaml.lines import dotted

MSG_RATE, BYTE_RATE = RATE_KEYS
PERIOD: Final = "ratePeriodInSecond"
RELATIVE: Final = "relativeToPublishRate"
# Namespaces and topics have the same rates.
_FORM: Final = VALUES[Section.NAMESPACES]
_IN_FORM: Final = RateKind.TOPIC.value
_RATE: Final[Schema] = _FORM.schema["properties"][_IN_FORM]
RATE_SCHEMA: Final[Schema] = {
    **_RATE,
    "description": "Rates a period, -1: not limited; absent ones stay absent.",
    "properties": {**_RATE["properties"], RELATIVE: {"type": "boolean", "enum": [False]}},
}
"""A dispatch rate as a request may have it."""
_UNSET: Final = {MSG_RATE: UNLIMITED, BYTE_RATE: UNLIMITED, RELATIVE: False, PERIOD: 1}
_INT32_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RatePlace(Place):
    """Where a dispatch rate stands.

    Attributes:
        kind: of a topic as a whole, or of subscriptions.
        subscription: the one whose own it is, None: all of them.
    """

    kind: RateKind
    subscription: str | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """See Place."""
        if self.subscription is None:
            return (self.kind.value,)
        return ("subscriptions", self.subscription, RateKind.TOPIC.value)

    def check(self) -> None:
        """See Place; that of a subscription too."""
        Place.check(self)  # not by super(), which is lost where slots make another class
        if self.subscription is not None:
            try:
                check_entry(self.holder.path, {"subscriptions": {self.subscription: {}}})
            except BadEvent:
                raise Refusal(412, "Subscription name is not valid") from None


def rate_fields(body: bytes) -> dict[str, Any]:
    """Read the body of a POST, without the fields that are null.

    `relativeToPublishRate` may be there if it is false, since pulsar-admin always sends it, and is left out.

    >>> rate_fields(b'{"dispatchThrottlingRateInMsg": 5, "relativeToPublishRate": false}')
    {'dispatchThrottlingRateInMsg': 5}

    Raises:
        Refusal: 400, no object, or all that is wrong with its fields.
    """
    given = object_of(body, '{"dispatchThrottlingRateInMsg":100,"ratePeriodInSecond":1}')
    fields = {name: value for name, value in given.items() if value is not None}
    wrong = []
    if RELATIVE not in _RATE["properties"] and fields.pop(RELATIVE, False) is not False:
        wrong.append(
            f"{RELATIVE}: publish rates are not known here, so nothing is relative to them; expected false"
        )
    wrong += [f"{dotted(path[1:])}: {message}" for path, message in _FORM.check({_IN_FORM: fields})]
    # Pulsar keeps rates of messages in 32 bits, so its clients could not read a greater one back.
    if not wrong and fields.get(MSG_RATE, UNLIMITED) > _INT32_MAX:
        wrong.append(
            f"{MSG_RATE}: is {fields[MSG_RATE]}; expected at most {_INT32_MAX}, as Pulsar's clients read it"
        )
    if wrong:
        raise Refusal(400, " | ".join(wrong))
    return fields


def applied_rate(policies: PolicySet, place: RatePlace) -> dict[str, Any]:
    """What applies to a topic or subscription by precedence (docs/contract.md 2), absent fields filled in."""
    place.check()
    levels = dispatch_candidates(policies, place.holder.name, place.subscription, place.kind)
    won = next((level.value for level in levels if level.wins), None)
    return {**_UNSET, **(won or {})}
