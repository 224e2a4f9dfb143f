"""What entries of `backpressure.partitions` may hold: concurrency algorithms, their keys and defaults
(docs/contract.md 3.4).

Bounds are those of the builders in Netflix's concurrency-limits where they have one. Defaults are Zeebe 8.4's
and, where Zeebe sets none, those of that library, which it links.
"""

import re
from enum import StrEnum
from fractions import Fraction
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ModelWrapValidatorHandler,
    Strict,
    ValidationError,
    model_validator,
)
from pydantic_core import InitErrorDetails

from streaming.contract.decisions import LIMIT_MAX
from streaming.contract.errors import BadEvent
from streaming.policy.validation import ClosedMapping, expected, restated, within_64_bits, wrong

# Two of them still add up within 64 bits.
MAX_DURATION_NS: Final = 2**62
_NS_PER_UNIT: Final = {"us": 1_000, "ms": 1_000_000, "s": 10**9, "m": 60 * 10**9, "h": 3_600 * 10**9}
_DURATION: Final = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)\s?(us|ms|s|m|h)")
_DURATION_EXPECTED: Final = "a number with its unit us, ms, s, m or h, such as 200ms"
_LOG_ROOT: Final = re.compile(r"(?:([0-9]{1,9}(?:\.[0-9]{1,9})?)\*)?log10")


class RequestClass(StrEnum):
    """Requests that a partition's entry may let pass without a free slot (docs/protocol_notes.md 3.7)."""

    HEARTBEAT = "heartbeat"
    GROUP = "group"
    SASL = "sasl"
    API_VERSIONS = "api_versions"
    FETCH = "fetch"
    METADATA = "metadata"
    ADMIN = "admin"


EXEMPT: Final = (
    RequestClass.HEARTBEAT,
    RequestClass.GROUP,
    RequestClass.SASL,
    RequestClass.API_VERSIONS,
    RequestClass.FETCH,
)
"""Those that pass where an entry says nothing else: what keeps clients alive, and what waits on purpose."""


class LimitAlgorithm(StrEnum):
    """The concurrency laws by name."""

    AIMD = "aimd"
    AIMD_PLAIN = "aimd-plain"
    FIXED = "fixed"
    VEGAS = "vegas"
    GRADIENT = "gradient"
    GRADIENT2 = "gradient2"


def duration_ns(text: str) -> int:
    """Read `200ms` or `1.5s` as whole nanoseconds.

    Raises:
        BadEvent: no number, no unit, zero, or too long for 64 bits.
    """
    found = _DURATION.fullmatch(text)
    if not found:
        raise BadEvent(f"is the text {text!r}; expected {_DURATION_EXPECTED}")
    # Exact: 0.1s is a hundred million, not the nearest double times a billion.
    length_ns = round(Fraction(found[1]) * _NS_PER_UNIT[found[2]])
    if not 0 < length_ns <= MAX_DURATION_NS:
        raise BadEvent(f"is {text}; expected more than 0 and at most {MAX_DURATION_NS} ns")
    return length_ns


def _duration(text: str) -> str:
    try:
        duration_ns(text)
    except BadEvent as error:
        raise wrong(error.reason) from None
    return text


def _log_root(text: str) -> str:
    found = _LOG_ROOT.fullmatch(text)
    if not found or (found[1] is not None and not float(found[1])):
        raise ValueError(text)
    return text


Duration = Annotated[str, AfterValidator(_duration), expected(_DURATION_EXPECTED)]
Count = Annotated[int, Field(ge=1, le=LIMIT_MAX)]
# A constant, or a multiple of the log10 root of the limit: 3, log10, 3*log10.
Root = Annotated[
    Count | Annotated[str, AfterValidator(_log_root)],
    expected(f'a whole number at least 1 and at most {LIMIT_MAX}, "log10" or "N*log10"'),
]
# -1 is "never" here, no limit that is left out.
Interval = Annotated[
    Count | Annotated[float, Field(ge=-1, le=-1)],
    expected(f"a whole number at least 1 and at most {LIMIT_MAX}, or -1 for never"),
]
# Below one half an algorithm of the original library refuses to start.
Backoff = Annotated[float, Field(ge=0.5, lt=1.0)]
Smoothing = Annotated[float, Field(gt=0.0, le=1.0)]
Tolerance = Annotated[float, Field(ge=1.0), BeforeValidator(within_64_bits)]


class _Rising(ClosedMapping):
    """Settings of which some must not fall from one to the next, defaults filled in."""

    RISING: ClassVar[tuple[str, ...]] = ("minLimit", "initialLimit", "maxLimit")

    @model_validator(mode="wrap")
    @classmethod
    def _rise(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(value, dict):
            return handler(value)
        errors: list[InitErrorDetails] = []
        try:
            made = handler(value)
        except ValidationError as error:
            # Those that are right by themselves are held against each other all the same.
            errors = restated(error)
        unsound = {error["loc"][0] for error in errors}
        names = [name for name in cls.RISING if name in cls.model_fields and name not in unsound]
        for low, high in pairwise(names):
            held = [value.get(name, cls.model_fields[name].default) for name in (low, high)]
            if _size(held[0]) > _size(held[1]):
                told = [
                    f"{name} {size}{'' if name in value else ' (default)'}"
                    for name, size in zip((low, high), held, strict=True)
                ]
                # The line of a key that is in the file, not of a default that is nowhere.
                blamed = low if low in value else high
                message = f"leaves {told[0]} above {told[1]}; expected {low} <= {high}"
                errors.append(InitErrorDetails(type=wrong(message), loc=(blamed,), input=value))
        if errors:
            raise ValidationError.from_exception_data(cls.__name__, errors)
        return made


def _size(value: str | int) -> int:
    return duration_ns(value) if isinstance(value, str) else value


class Window(_Rising):
    """Gathers samples first."""

    RISING: ClassVar[tuple[str, ...]] = ("minWindow", "maxWindow")
    minWindow: Duration = "1s"
    maxWindow: Duration = "1s"
    windowSize: Count = 10
    minRttThreshold: Duration = "100us"


class Fixed(ClosedMapping):
    """`fixed`."""

    limit: Count = 20


class Aimd(_Rising):
    """`aimd` and `aimd-plain`."""

    requestTimeout: Duration = "200ms"
    initialLimit: Count = 100
    minLimit: Count = 1
    maxLimit: Count = 1000
    backoffRatio: Backoff = 0.9


class Vegas(_Rising):
    """`vegas`."""

    initialLimit: Count = 20
    maxLimit: Count = 1000
    alpha: Root = 3
    beta: Root = 6
    threshold: Root = "log10"
    smoothing: Smoothing = 1.0
    probeMultiplier: Count = 30
    probeJitter: Smoothing = 0.75


class Gradient(_Rising):
    """`gradient`."""

    minLimit: Count = 10
    initialLimit: Count = 20
    maxLimit: Count = 1000
    rttTolerance: Tolerance = 2.0
    smoothing: Smoothing = 0.2
    backoffRatio: Backoff = 0.9
    probeInterval: Interval = 1000


class Gradient2(_Rising):
    """`gradient2`."""

    minLimit: Count = 10
    initialLimit: Count = 20
    maxLimit: Count = 200
    rttTolerance: Tolerance = 2.0
    smoothing: Smoothing = 0.2
    queueSize: Count = 4
    longWindow: Count = 600


class PartitionLimit(ClosedMapping):
    """The limit of a partition's requests in flight."""

    algorithm: Annotated[LimitAlgorithm, Strict(False)] = LimitAlgorithm.AIMD
    useWindowed: bool = True
    exempt: list[Annotated[RequestClass, Strict(False)]] = Field(default=list(EXEMPT))
    window: Window = Window()
    fixed: Fixed = Fixed()
    aimd: Aimd = Aimd()
    aimd_plain: Aimd = Field(default=Aimd(), alias="aimd-plain")
    vegas: Vegas = Vegas()
    gradient: Gradient = Gradient()
    gradient2: Gradient2 = Gradient2()
