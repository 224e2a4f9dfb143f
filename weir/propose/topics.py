"""Entries for deliveries and backlogs: the broker's default, one a namespace, some topics of their own.

- Deliveries: of each subscription, and of topics that are read without one, at each broker. Periods of 1, 10
  or 60 s: the shortest in which the peak is at most SMOOTH times as much, a second, as in 60. A broker's
  default knows periods of 1 s only.
- Backlogs: the greatest size and age of each hour.

Who is unlike the rest of its namespace (usual.apart) has an entry of its own. The broker's default is for
namespaces that are not known yet, and for those that are too many for entries of their own.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from streaming.contract.names import namespace_of
from streaming.policy.dispatch_limits import split_subscription
from streaming.policy.policy_set import Section
from weir.propose.demand import AGE, BYTES, MSGS, SIZE, Kind
from weir.propose.proposal import OWN_MAX, Asked, Proposal, may_be
from weir.propose.usual import Usual, apart

PERIODS_S: Final = (1, 10, 60)
SMOOTH: Final = 2.0
_HOLD: Final = "producer_request_hold"
_RATES: Final = {MSGS: "dispatchThrottlingRateInMsg", BYTES: "dispatchThrottlingRateInByte"}
_QUOTAS: Final = {SIZE: ("destination_storage", "limitSize"), AGE: ("message_age", "limitTime")}
_OF_BROKER: Final = {
    (Kind.SUBSCRIPTION, MSGS): "dispatchThrottlingRatePerSubscriptionInMsg",
    (Kind.SUBSCRIPTION, BYTES): "dispatchThrottlingRatePerSubscriptionInByte",
    (Kind.TOPIC, MSGS): "dispatchThrottlingRatePerTopicInMsg",
    (Kind.TOPIC, BYTES): "dispatchThrottlingRatePerTopicInByte",
    (Kind.BACKLOG, SIZE): "backlogQuotaDefaultLimitBytes",
    (Kind.BACKLOG, AGE): "backlogQuotaDefaultLimitSecond",
}  # fmt: skip
_Usuals = Mapping[str, Usual]
"""By measure."""


def propose_deliveries(proposal: Proposal, asked: Asked) -> None:
    """Add rates for subscriptions, and for topics that are read without one."""
    for kind in (Kind.SUBSCRIPTION, Kind.TOPIC):
        demands = {measure: asked[kind, measure] for measure in _RATES if (kind, measure) in asked}
        by_period = {
            period_s: {each: Usual.of(demand, np.add, 1000 * period_s) for each, demand in demands.items()}
            for period_s in PERIODS_S
        }
        for path, subjects in _places(by_period[PERIODS_S[-1]]):
            period_s = 1 if path == Section.BROKER else _period(by_period, subjects)
            limits = _limits(proposal, path, kind, by_period[period_s], subjects)
            entry = proposal.entries.setdefault(path, {})
            if path == Section.BROKER:
                entry.update((_OF_BROKER[kind, measure], limit) for measure, limit in limits.items())
                continue
            rate = {_RATES[measure]: limit for measure, limit in limits.items()}
            if period_s > 1:
                rate["ratePeriodInSecond"] = period_s
            if kind == Kind.TOPIC:
                entry["dispatchRate"] = rate
            elif path.startswith(f"{Section.NAMESPACES}."):
                entry["subscriptionDispatchRate"] = rate
            else:
                _, subscription = split_subscription(_names(by_period[period_s])[subjects[0]])
                entry.setdefault("subscriptions", {})[subscription] = {"dispatchRate": rate}


def propose_backlogs(proposal: Proposal, asked: Asked) -> None:
    """Add quotas that hold producers back, the only ones that lose nothing and tell nobody an error."""
    usuals = {
        measure: Usual.of(asked[Kind.BACKLOG, measure], np.maximum)
        for measure in _QUOTAS if (Kind.BACKLOG, measure) in asked
    }  # fmt: skip
    for path, topics in _places(usuals):
        limits = _limits(proposal, path, Kind.BACKLOG, usuals, topics)
        entry = proposal.entries.setdefault(path, {})
        if path == Section.BROKER:
            entry.update((_OF_BROKER[Kind.BACKLOG, measure], limit) for measure, limit in limits.items())
            entry["backlogQuotaDefaultRetentionPolicy"] = _HOLD
            continue
        quotas: dict[str, Any] = {}
        for measure, limit in limits.items():
            name, key = _QUOTAS[measure]
            quotas[name] = {key: limit, "policy": _HOLD}
        entry["backlogQuotaMap"] = quotas


def _limits(
    proposal: Proposal, path: str, kind: Kind, usuals: _Usuals, subjects: Sequence[int]
) -> dict[str, int]:
    """By measure, and a note of each."""
    limits = {}
    for measure, usual in usuals.items():
        if usual.peak_of(subjects) > 0.0:
            limits[measure] = proposal.whole(usual.peak_of(subjects))
            proposal.note(path, measure, "topics" if kind == Kind.BACKLOG else f"{kind}s", usual, subjects)
    return limits


def _period(by_period: Mapping[int, _Usuals], subjects: Sequence[int]) -> int:
    """The shortest period that lumps of deliveries fit into."""
    longest = PERIODS_S[-1]
    for period_s in PERIODS_S:
        if all(
            usual.peak_of(subjects) / period_s
            <= SMOOTH * by_period[longest][measure].peak_of(subjects) / longest
            for measure, usual in by_period[period_s].items()
        ):
            return period_s
    return longest


def _names(usuals: _Usuals) -> list[str]:
    return next(iter(usuals.values())).demand.names


def _places(usuals: _Usuals) -> Iterator[tuple[str, list[int]]]:
    """Paths of entries, and the subjects that each is for: the broker's, of namespaces, of topics."""
    if not usuals:
        return
    names = _names(usuals)
    known = [n for n in range(len(names)) if any(u.peak[n] > 0.0 or n in u.far for u in usuals.values())]
    spaces: dict[str, list[int]] = {}
    for number in sorted(known, key=lambda number: names[number]):
        spaces.setdefault(namespace_of(_topic(names[number])), []).append(number)

    def greatest_first(subjects: Sequence[int], name: str) -> tuple[list[float], str]:
        return [-usual.peak_of(subjects) for usual in usuals.values()], name

    unlike = [number for numbers in spaces.values() for number in _unlike(usuals, numbers)]
    unlike.sort(key=lambda number: greatest_first([number], names[number]))
    # Whoever no entry can name lifts nobody's.
    named = [number for number in unlike if _may_be_own(names[number])]
    own, apart_ = set(named[:OWN_MAX]), {*named[:OWN_MAX], *set(unlike).difference(named)}
    alike = {space: [n for n in numbers if n not in apart_] for space, numbers in spaces.items()}
    alike = {
        space: some for space, some in alike.items() if any(u.peak_of(some) > 0.0 for u in usuals.values())
    }
    large = sorted(alike, key=lambda space: greatest_first(alike[space], space))
    of_spaces = sorted(large[:OWN_MAX])
    others = [n for space in large[OWN_MAX:] for n in alike[space]] or _alike_of_all(usuals, alike)
    if others:
        yield Section.BROKER.value, sorted(others)
    for space in of_spaces:
        yield f"{Section.NAMESPACES}.{space}", alike[space]
    for number in sorted(own, key=lambda number: names[number]):
        yield f"{Section.TOPICS}.{_topic(names[number])}", [number]


def _alike_of_all(usuals: _Usuals, alike: Mapping[str, list[int]]) -> list[int]:
    everybody = [number for numbers in alike.values() for number in numbers]
    unlike = set(_unlike(usuals, everybody))
    return [number for number in everybody if number not in unlike]


def _unlike(usuals: _Usuals, subjects: Sequence[int]) -> list[int]:
    """Those of some who are unlike the others by any measure; if that is everybody, nobody is."""
    flags = [apart(usual.peak[subjects], len(subjects)) for usual in usuals.values()]
    unlike = np.any(flags, axis=0)
    return [] if unlike.all() else np.asarray(subjects)[unlike].tolist()


def _may_be_own(name: str) -> bool:
    topic, subscription = split_subscription(name)
    return may_be(f"{Section.TOPICS}.{topic}", {"subscriptions": {subscription: {}}} if subscription else {})


def _topic(name: str) -> str:
    return split_subscription(name)[0]
