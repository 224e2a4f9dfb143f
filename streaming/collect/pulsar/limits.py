"""What can be set in Pulsar: a limiter of a namespace, topic or subscription, and the rates in it.

Pulsar counts per partition and broker. Its rates are whole numbers, and 0 and below mean no limit, so what is
to be limited gets 1 at least. A dispatch rate may count over several seconds, a publish rate may not.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple, Self
from urllib.parse import unquote

from streaming.collect.pulsar.rest import namespace_path, part
from streaming.contract.names import NAMESPACE, TOPIC, namespace_of

MSGS_MAX: Final = 2**31 - 1
BYTES_MAX: Final = 2**53
"""Beyond it, an arithmetic of nanoseconds times bytes could overflow in the broker."""
NONE: Final = -1
PERIOD_MAX_S: Final = 60
_ENCODED: Final = {ord("%"): "%25", ord(" "): "%20"}


class Kind(StrEnum):
    """The limiters, by their name in paths."""

    PUBLISH = "publishRate"
    DISPATCH = "dispatchRate"
    SUBSCRIPTION = "subscriptionDispatchRate"


class Slot(NamedTuple):
    """A limiter.

    Attributes:
        namespace: `TENANT/NAMESPACE`.
        topic: full name without a partition; empty: of the namespace.
        subscription: of the topic; empty: of all of them.
        kind: which one.
    """

    namespace: str
    topic: str
    subscription: str
    kind: Kind

    @property
    def path(self) -> str:
        """Where it is read, set and taken away."""
        if not self.topic:
            return f"{namespace_path(self.namespace)}/{self.kind}"
        # A subscription's own rate has the name of a topic's.
        kind = f"{part(self.subscription)}/{Kind.DISPATCH}" if self.subscription else str(self.kind)
        return f"{topic_path(self.topic)}/{kind}"

    @property
    def name(self) -> str:
        """For people and notes; `parse` reads it back.

        >>> Slot("a/b", "persistent://a/b/t", "eu/1", Kind.SUBSCRIPTION).name
        'subscriptionDispatchRate persistent://a/b/t eu/1'
        """
        # A topic's own name may hold spaces.
        parts = self.kind, self.topic.translate(_ENCODED) or self.namespace, self.subscription
        return " ".join(filter(None, parts))

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """The slot of a name; None: no name of one.

        >>> Slot.parse("publishRate a/b")
        Slot(namespace='a/b', topic='', subscription='', kind=<Kind.PUBLISH: 'publishRate'>)
        """
        kind, _, target = name.partition(" ")
        encoded, _, subscription = target.partition(" ")
        topic = unquote(encoded)
        if kind not in tuple(Kind):
            return None
        if NAMESPACE.fullmatch(target):
            return cls(target, "", "", Kind(kind))
        if not TOPIC.fullmatch(topic) or (subscription and kind != Kind.SUBSCRIPTION):
            return None
        return cls(namespace_of(topic), topic, subscription, Kind(kind))


class Rates(NamedTuple):
    """What a limiter holds.

    Attributes:
        msgs: messages per period; NONE: not limited.
        size: bytes per period; NONE: not limited.
        period_s: length of the period, s; 1 for publishing.
    """

    msgs: int
    size: int
    period_s: int = 1

    def __str__(self) -> str:
        said = [f"{self.msgs} msg"] * (self.msgs != NONE) + [f"{self.size} B"] * (self.size != NONE)
        return f"{' and '.join(said) or 'nothing'} per {self.period_s} s"


@dataclass(frozen=True, slots=True)
class LimiterRate:
    """What a limiter should hold.

    Attributes:
        msgs: messages per second; None: not limited.
        size: bytes per second; None: not limited.
        exact: from a policy as it stands; a share otherwise, of which small changes do not matter.
        period_s: that of the policy; 0: any.
    """

    msgs: float | None
    size: float | None
    exact: bool = False
    period_s: int = 0

    def stricter(self, other: "LimiterRate | None") -> "LimiterRate":
        """Both at once, in one limiter.

        >>> LimiterRate(100.0, None).stricter(LimiterRate(50.0, 9.0, True, 5))
        LimiterRate(msgs=50.0, size=9.0, exact=False, period_s=5)
        """
        if other is None:
            return self
        period_s = max(self.period_s, other.period_s)
        exact = self.exact and other.exact
        return LimiterRate(_least(self.msgs, other.msgs), _least(self.size, other.size), exact, period_s)

    def rates(self, kind: Kind) -> Rates:
        """In Pulsar's numbers: rounded down, never to nothing.

        >>> LimiterRate(99.9, None).rates(Kind.PUBLISH)
        Rates(msgs=99, size=-1, period_s=1)
        >>> LimiterRate(0.25, None).rates(Kind.PUBLISH), LimiterRate(0.25, None).rates(Kind.DISPATCH)
        (Rates(msgs=1, size=-1, period_s=1), Rates(msgs=1, size=-1, period_s=4))
        """
        period_s = 1 if kind is Kind.PUBLISH else self.period_s or _period_s(self.msgs, self.size)
        return Rates(_whole(self.msgs, period_s, MSGS_MAX), _whole(self.size, period_s, BYTES_MAX), period_s)


def is_real_change(held: Rates, wanted: Rates, least: float) -> bool:
    """Whether a limiter should be told: every time it is, it begins anew with a full bucket.

    >>> [is_real_change(Rates(100, NONE), Rates(msgs, NONE), 0.05) for msgs in (105, 94)]
    [False, True]

    Args:
        held, wanted: before and after.
        least: relative change from which on it counts; 0: any.
    """
    if (held.msgs == NONE) != (wanted.msgs == NONE) or (held.size == NONE) != (wanted.size == NONE):
        return True
    before, after = ((one.msgs / one.period_s, one.size / one.period_s) for one in (held, wanted))
    if least == 0.0:
        return held != wanted
    return any(abs(new - old) > least * abs(old) for old, new in zip(before, after, strict=True))


def topic_path(topic: str) -> str:
    """The path of a topic in the admin API."""
    domain, _, rest = topic.partition("://")
    return f"/admin/v2/{domain}/{'/'.join(part(name) for name in rest.split('/', 2))}"


def body_of(kind: Kind, rates: Rates) -> dict[str, Any]:
    """What is posted."""
    if kind is Kind.PUBLISH:
        return {"publishThrottlingRateInMsg": rates.msgs, "publishThrottlingRateInByte": rates.size}
    return {
        "dispatchThrottlingRateInMsg": rates.msgs,
        "dispatchThrottlingRateInByte": rates.size,
        "relativeToPublishRate": False,
        "ratePeriodInSecond": rates.period_s,
    }


def rates_in(answer: Any) -> Rates | None:
    """What is set, from an answer; None: nothing that limits."""
    if not isinstance(answer, dict):
        return None
    word = "publish" if "publishThrottlingRateInMsg" in answer else "dispatch"
    msgs, size = (
        found if type(found := answer.get(f"{word}ThrottlingRateIn{unit}")) is int and found > 0 else NONE
        for unit in ("Msg", "Byte")
    )
    if msgs == size == NONE:
        return None
    period = answer.get("ratePeriodInSecond", 1)
    return Rates(msgs, size, period if type(period) is int and period > 0 else 1)


def _least(one: float | None, other: float | None) -> float | None:
    return min((rate for rate in (one, other) if rate is not None), default=None)


def _whole(rate: float | None, period_s: int, most: int) -> int:
    return NONE if rate is None else max(1, min(most, math.floor(rate * period_s + 1e-9)))


def _period_s(*rates: float | None) -> int:
    """Long enough for one message or byte."""
    least = min((rate for rate in rates if rate is not None), default=1.0)
    return 1 if least >= 1.0 else min(PERIOD_MAX_S, math.ceil(1.0 / max(least, 1e-9)))
