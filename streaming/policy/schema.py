"""What each section of a policy file may hold (docs/contract.md 2), as types that pydantic checks.

One form per section, shared by files, policy events and the admin API. Nothing is converted: a policy in
memory stays the JSON value that was written, and what an absent key means is the law's affair.
"""

import math
import re
from typing import Annotated, Any, Final, Literal, NotRequired, Required, cast, get_args, get_origin

from pydantic import AfterValidator, BeforeValidator, Field, Strict, ValidationError, ValidationInfo
from pydantic_core import InitErrorDetails
from typing_extensions import TypedDict  # what pydantic asks for before Python 3.12

from streaming.contract.errors import BadEvent
from streaming.contract.fields import INT64_MAX
from streaming.contract.names import GROUP_PREFIXES, NAMESPACE, TENANT, TOPIC, TOPIC_EXPECTED, full_topic
from streaming.contract.times import instant_ms
from streaming.policy.concurrency_schema import PartitionLimit
from streaming.policy.policy_set import RAISE, UNLIMITED, UNTIL, Algorithm, Decide, Mode, Section, unraised
from streaming.policy.validation import CLOSED, Form, expected, shown, within_64_bits, wrong

FILE_VERSION: Final = 1
# A name is a record key and a metric label: longer ones are a mistake.
MAX_NAME_LENGTH: Final = 1024
# One window per second of the burst is kept for each subject of a sampled rate.
MAX_WINDOWS: Final = 100_000
# One in 31 years: what is less, such as 1e-300, is no limit but a switch, and somebody's mistake.
MIN_RATE: Final = 1e-9
# Keeps 11 x rate finite; burst / rate may be infinite.
MAX_MUTATION_RATE: Final = 1e300
MUTATION_RATE: Final = "controller_mutation_rate"


def sampled_windows(limit: float, burst: float) -> int:
    """Windows S of a sampled rate (docs/contract.md 3.1); may be far above MAX_WINDOWS.

    >>> sampled_windows(5.0, 500.0), sampled_windows(10.0, 12.0)
    (100, 2)
    """
    ratio = burst / limit
    return max(2, math.floor(ratio + 0.5)) if math.isfinite(ratio) else 2**63


def _named(shortest: int) -> AfterValidator:
    def check(name: str) -> str:
        if not shortest <= len(name) <= MAX_NAME_LENGTH:
            raise wrong(f"has {len(name)} characters; expected {shortest} to {MAX_NAME_LENGTH}")
        return name

    return AfterValidator(check)


_KEPT_FOR: Final = dict(zip(GROUP_PREFIXES, ("quotas", "dispatch rates", "concurrency limits"), strict=True))


def _not_of_others(name: str) -> str:
    """What else is shared out are groups of such names (docs/contract.md 3.2 to 3.4)."""
    for prefix, others in _KEPT_FOR.items():
        if name.startswith(prefix):
            raise wrong(f"begins with {prefix}, which is kept for {others}; expected another name")
    return name


def _of_a_topic(name: str) -> str:
    """A topic's full or short name, as files may have it."""
    try:
        full_topic(name)
    except BadEvent as error:
        raise wrong(error.reason) from error
    return name


def _shaped(pattern: re.Pattern[str], words: str) -> AfterValidator:
    def check(name: str) -> str:
        if not pattern.fullmatch(name):
            raise wrong(f"is not a valid name; expected {words}")
        return name

    return AfterValidator(check)


def limit(kind: str, range_: str = "") -> Any:
    """Annotates a rate: positive, or -1 for no limit."""
    # Kafka refuses 0, for Pulsar it is no limit: nobody may have to guess.
    zero = (
        "is 0, which is ambiguous (nothing allowed, or no limit?); "
        f"expected {kind} to limit, and for no limit -1 or no such key at all"
    )
    return expected(f"{kind}{range_}, or -1 for no limit", zero=zero)


def _few_windows(burst: float, info: ValidationInfo) -> float:
    """A sampled rate must not need too many windows; looks at the keys declared before the burst."""
    limit = info.data.get(MUTATION_RATE, UNLIMITED)
    # Without a rate the entry is passed over, whatever else it says.
    if limit != UNLIMITED and info.data.get("algorithm") is Algorithm.SAMPLED_RATE:
        windows = sampled_windows(limit, burst)
        if windows > MAX_WINDOWS:
            raise wrong(
                f"makes {'too many' if windows >= 2**63 else windows} one-second windows (burst / rate); "
                f"expected at most {MAX_WINDOWS} with {Algorithm.SAMPLED_RATE}, or {Algorithm.TOKEN_BUCKET}"
            )
    return burst


def _not_sampled(decide: Decide, info: ValidationInfo) -> Decide:
    """A sampled rate has no balance that a proxy could carry on; looks at the algorithm, declared before."""
    if decide is Decide.LOCAL and info.data.get("algorithm") is Algorithm.SAMPLED_RATE:
        raise wrong(
            f"is {Decide.LOCAL} with {Algorithm.SAMPLED_RATE}, which is always decided by the job; expected"
            f" {Decide.STRICT}, or {Algorithm.TOKEN_BUCKET}"
        )
    return decide


_Name = Annotated[str, _named(1), expected("a name (in quotes if it looks like a number)")]
_GroupName = Annotated[_Name, AfterValidator(_not_of_others)]
_TenantName = Annotated[str, _shaped(TENANT, "a tenant's name of letters, digits and - = : . _")]
_NamespaceName = Annotated[
    str, _shaped(NAMESPACE, "TENANT/NAMESPACE, each of letters, digits and - = : . _")
]
_TopicName = Annotated[str, _shaped(TOPIC, TOPIC_EXPECTED)]
_TopicNameOfFile = Annotated[str, AfterValidator(_of_a_topic)]

Unlimited = Annotated[float, Field(ge=UNLIMITED, le=UNLIMITED)]
# Pulsar keeps whole numbers, but a group's limit is shared out in fractions here anyway.
_GroupRate = Annotated[
    Annotated[float, Field(ge=MIN_RATE)] | Unlimited,
    BeforeValidator(within_64_bits),
    limit("a positive number", f" at least {MIN_RATE}"),
]
_MutationRate = Annotated[
    Annotated[float, Field(ge=MIN_RATE, le=MAX_MUTATION_RATE)] | Unlimited,
    BeforeValidator(within_64_bits),
    limit("a positive number", f" at least {MIN_RATE} and at most {MAX_MUTATION_RATE}"),
]
_MutationBurst = Annotated[
    float,
    Field(gt=0, le=MAX_MUTATION_RATE),
    BeforeValidator(within_64_bits),
    AfterValidator(_few_windows),
]
# Where Pulsar and Kafka keep an integer.
_WholeRate = Annotated[
    Annotated[int, Field(gt=0, le=INT64_MAX)] | Annotated[int, Field(ge=UNLIMITED, le=UNLIMITED)],
    limit("a positive whole number"),
]
_OR_DEFAULT = expected("a name (in quotes if it looks like a number), or null for the default")
_BY_NAME = expected("entries by name, NAME: {...}")
_Period = Annotated[int, Field(ge=1, le=2**31 - 1)]
# -1 is no limit; 0 bytes is a limit that every backlog exceeds.
_BacklogLimit = Annotated[int, Field(ge=-1, le=INT64_MAX)]
_Retention = Literal["producer_request_hold", "producer_exception", "consumer_backlog_eviction"]


class _ClosedMapping(TypedDict):
    """No other keys than those of a class; `total=False` where none of them has to be there."""


_ClosedMapping.__pydantic_config__ = CLOSED  # type: ignore[attr-defined]  # what pydantic's mypy plugin would know


def _moment(text: str) -> str:
    try:
        instant_ms(text)
    except ValueError:
        raise wrong(f"is {shown(text)}; expected {_A_MOMENT}") from None
    return text


def _keyed(raised: Any) -> Any:
    """A raise of nothing is somebody's mistake."""
    if raised is None or (isinstance(raised, dict) and raised.keys() <= {UNTIL}):
        raise wrong(f"changes no key; expected some of the entry's keys besides {UNTIL}")
    return raised


def _raisable(entry: Any) -> Any:
    """An entry, a class of ours, that may hold a raise: what its keys say until a time."""
    keys, form = dict(entry.__annotations__), Form(entry)
    # None of them has to be there.
    raised = {name: NotRequired[_bare(kind)] for name, kind in keys.items() if name != _ENTITY}

    def fits(value: Any) -> Any:
        """Both together must be an entry too."""
        if RAISE in value:
            found = form.check(unraised(value, -math.inf))
            own = {path: (RAISE, *path) if path[0] in value[RAISE] else (RAISE,) for path, _ in found}
            errors = [InitErrorDetails(type=wrong(told), loc=own[path], input=None) for path, told in found]
            if errors:
                raise ValidationError.from_exception_data(entry.__name__, errors)
        return value

    # mypy reads no types that are made of others.
    kinds = {**keys, RAISE: Annotated[_closed("Raise", {**raised, UNTIL: Required[_Moment]}), _KEYED]}
    return Annotated[_closed(entry.__name__, kinds), AfterValidator(fits)]


def _bare(kind: Any) -> Any:
    """A key's type, without whether it has to be there."""
    origin: Any = get_origin(kind)
    return get_args(kind)[0] if origin is Required else kind


def _closed(name: str, kinds: dict[str, Any]) -> Any:
    made = cast(Any, TypedDict)(name, kinds, total=False)
    made.__pydantic_config__ = CLOSED
    return made


_ENTITY: Final = "entity"
_KEYED: Final = BeforeValidator(_keyed)
_A_MOMENT: Final = "a time with its zone, such as 2026-12-01T08:00:00Z"
_Moment = Annotated[str, AfterValidator(_moment), expected(_A_MOMENT)]


class _QuotaKeys(_ClosedMapping, total=False):
    algorithm: Annotated[Algorithm, Strict(False)]
    controller_mutation_rate: _MutationRate
    controller_mutation_burst: _MutationBurst
    decide: Annotated[Decide, Strict(False), AfterValidator(_not_sampled)]
    producer_byte_rate: _WholeRate
    consumer_byte_rate: _WholeRate
    shadow: bool


# A client that names itself by nothing has the empty client-id.
_Parts = TypedDict(
    "_Parts",
    {
        "user": Annotated[Annotated[str, _named(1)] | None, _OR_DEFAULT],
        "client-id": Annotated[Annotated[str, _named(0)] | None, _OR_DEFAULT],
    },
    total=False,
)
_Parts.__pydantic_config__ = CLOSED  # type: ignore[attr-defined]  # as above


def _somebody(entity: _Parts) -> _Parts:
    if not entity:
        raise wrong("is empty; expected a user, a client-id or both")
    return entity


# Kafka's third kind of entity, ip, has no law here: refused, since it would limit nobody.
_Entity = Annotated[
    _Parts, AfterValidator(_somebody), expected("a user, a client-id or both, such as {user: alice}")
]


@_raisable
class _Quota(_QuotaKeys, total=False):
    pass


@_raisable
class _QuotaItem(_QuotaKeys, total=False):
    entity: Required[_Entity]


@_raisable
class _Group(_ClosedMapping, total=False):
    publishRateInMsgs: _GroupRate
    publishRateInBytes: _GroupRate
    dispatchRateInMsgs: _GroupRate
    dispatchRateInBytes: _GroupRate
    shadow: bool


@_raisable
class _Tenant(_ClosedMapping, total=False):
    resourcegroup: Required[_Name]


class _DispatchRate(_ClosedMapping, total=False):
    dispatchThrottlingRateInMsg: _WholeRate
    dispatchThrottlingRateInByte: _WholeRate
    ratePeriodInSecond: _Period
    across_brokers: bool


class _SizeQuota(_ClosedMapping):
    limitSize: _BacklogLimit
    policy: _Retention
    actions: NotRequired[bool]
    allow_delete_records: NotRequired[bool]


class _AgeQuota(_ClosedMapping):
    limitTime: _BacklogLimit
    policy: _Retention
    actions: NotRequired[bool]
    allow_delete_records: NotRequired[bool]


class _BacklogQuotas(_ClosedMapping, total=False):
    destination_storage: _SizeQuota
    message_age: _AgeQuota


class _Shared(_ClosedMapping, total=False):
    dispatchRate: _DispatchRate
    subscriptionDispatchRate: _DispatchRate
    backlogQuotaMap: _BacklogQuotas


@_raisable
class _Namespace(_Shared, total=False):
    resourcegroup: _Name


class _Subscription(_ClosedMapping, total=False):
    dispatchRate: _DispatchRate


@_raisable
class _Topic(_Shared, total=False):
    subscriptions: Annotated[
        dict[_Name, _Subscription], expected("subscriptions by name, NAME: {dispatchRate: {...}}")
    ]


@_raisable
class _Broker(_ClosedMapping, total=False):
    dispatchThrottlingRateInMsg: _WholeRate
    dispatchThrottlingRateInByte: _WholeRate
    dispatchThrottlingRatePerTopicInMsg: _WholeRate
    dispatchThrottlingRatePerTopicInByte: _WholeRate
    dispatchThrottlingRatePerSubscriptionInMsg: _WholeRate
    dispatchThrottlingRatePerSubscriptionInByte: _WholeRate
    dispatchThrottlingOnNonBacklogConsumerEnabled: bool
    dispatchThrottlingOnBatchMessageEnabled: bool
    preciseDispatcherFlowControl: bool
    backlogQuotaDefaultLimitBytes: _BacklogLimit
    backlogQuotaDefaultLimitSecond: _BacklogLimit
    backlogQuotaDefaultRetentionPolicy: _Retention
    backlogQuotaCheckIntervalInSeconds: _Period
    preciseTimeBasedBacklogQuotaCheck: bool
    preciseBacklogSize: bool
    resourceUsagePublishIntervalInSecs: _Period
    resourceUsageMemberExpiryRounds: _Period


class _PartitionRaise(PartitionLimit):
    until: _Moment


class _PartitionEntry(PartitionLimit):
    raised: Annotated[_PartitionRaise | None, _KEYED] = Field(default=None, alias="raise")


_Partition = Annotated[_PartitionEntry, expected("a mapping such as {algorithm: aimd, useWindowed: true}")]
_Mode = Annotated[Mode, Strict(False)]


class _Backpressure(_ClosedMapping, total=False):
    partitions: Annotated[dict[_Name, _Partition] | None, _BY_NAME]


class _PolicyFile(_ClosedMapping, total=False):
    version: Required[Annotated[int, Field(ge=FILE_VERSION, le=FILE_VERSION), expected(f"{FILE_VERSION}")]]
    mode: _Mode
    # A section whose lines are all commented out is null.
    quotas: Annotated[
        list[Annotated[_QuotaItem, expected("a quota, entity: {...} and its limits")]] | None,
        expected("a list of quotas, - entity: {...}"),
    ]
    resourcegroups: Annotated[dict[_GroupName, _Group] | None, _BY_NAME]
    tenants: Annotated[dict[_TenantName, _Tenant] | None, _BY_NAME]
    namespaces: Annotated[dict[_NamespaceName, _Namespace] | None, _BY_NAME]
    topics: Annotated[dict[_TopicNameOfFile, _Topic] | None, _BY_NAME]
    broker: Annotated[_Broker | None, expected("a mapping of the broker's settings, NAME: VALUE")]
    backpressure: Annotated[_Backpressure | None, expected("partitions: {NAME: {...}}")]


FILE: Final[Form[Any]] = Form(_PolicyFile)
ENTITY: Final[Form[Any]] = Form(_Entity)
VALUES: Final[dict[Section, Form[Any]]] = {
    Section.QUOTAS: Form(_Quota),
    Section.RESOURCE_GROUPS: Form(_Group),
    Section.TENANTS: Form(_Tenant),
    Section.NAMESPACES: Form(_Namespace),
    Section.TOPICS: Form(_Topic),
    Section.BROKER: Form(_Broker),
    Section.PARTITIONS: Form(_Partition),
    Section.MODE: Form(_Mode),
}
NAMES: Final[dict[Section, Form[Any]]] = {
    Section.RESOURCE_GROUPS: Form(_GroupName),
    Section.TENANTS: Form(_TenantName),
    Section.NAMESPACES: Form(_NamespaceName),
    Section.TOPICS: Form(_TopicName),
    Section.PARTITIONS: Form(_Name),
}
