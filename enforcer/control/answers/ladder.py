"""Where an entity's limit is looked for, level by level, and which one won (docs/contract.md 2)."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from enforcer.control.entities.laws import MEASURES, Entity, Law
from streaming.contract.errors import BadEvent
from streaming.contract.names import DISPATCH_GROUP_PREFIX, QUOTA_GROUP_PREFIX, parse_subject
from streaming.policy.dispatch_limits import parse_dispatch_group, split_subscription
from streaming.policy.groups import QUOTA_DIMENSIONS
from streaming.policy.policy_set import ALL_OTHERS, UNLIMITED, PolicySet, Section, candidates
from streaming.policy.schema import MUTATION_RATE
from streaming.policy.topics import LIMIT_KEYS, BacklogKind, RateKind, backlog_candidates, dispatch_candidates

_RATES: Final = {"msgs": "dispatchThrottlingRateInMsg", "bytes": "dispatchThrottlingRateInByte"}


class Level(NamedTuple):
    """One level.

    Attributes:
        level: its number or name.
        entry: where it stands in the policies.
        limit: that it sets, in the measure's unit; None: none, so the search goes on.
        won: it is the one in force.
    """

    level: str
    entry: str
    limit: float | None
    won: bool


def ladder(policies: PolicySet, entity: Entity, measure: int) -> list[Level]:
    """The levels of one of its measures in order of precedence; none for what is no name of that law."""
    try:
        found = list(_LADDERS[entity.law](policies, entity.name, measure))
    except BadEvent:
        return []
    # What stands below the one that won is not reached.
    won = next((place for place, level in enumerate(found) if level.won), len(found))
    return [level._replace(won=place == won) for place, level in enumerate(found)]


def entry_of(levels: list[Level]) -> str | None:
    """The path of the one that won."""
    return next((level.entry for level in levels if level.won), None)


def _quota(policies: PolicySet, subject: str, key: str) -> Iterator[Level]:
    user, client_id = parse_subject(subject)
    for place in candidates(user or "", client_id or ""):
        # With a part missing only the levels that charge the other one alone.
        if None not in (user, client_id) or place.subject == subject:
            limit = _set(policies.entries.get(place.path), key)
            # One that charges somebody else limits nothing here, and would have come first.
            yield Level(str(place.level), place.path, limit, limit is not None and place.subject == subject)


def _shares(policies: PolicySet, group: str, measure: int) -> Iterator[Level]:
    if group.startswith(QUOTA_GROUP_PREFIX):
        key = next((key for key, place in QUOTA_DIMENSIONS.items() if place == measure), None)
        return iter(()) if key is None else _quota(policies, group.removeprefix(QUOTA_GROUP_PREFIX), key)
    if group.startswith(DISPATCH_GROUP_PREFIX):
        names = parse_dispatch_group(group)
        if names is None:
            return iter(())
        kind = RateKind.TOPIC if names[1] is None else RateKind.SUBSCRIPTION
        dimension = "bytes" if MEASURES[Law.SHARES][measure].unit == "bytes/s" else "msgs"
        return _rates(policies, *names, kind, _RATES[dimension])
    path = f"{Section.RESOURCE_GROUPS}.{group}"
    limit = _set(policies.entries.get(path), MEASURES[Law.SHARES][measure].dimension)
    return iter((Level("resourcegroup", path, limit, limit is not None),))


def _dispatch(policies: PolicySet, name: str, measure: int) -> Iterator[Level]:
    topic, subscription = split_subscription(name)
    dimension, _, level = MEASURES[Law.DISPATCH][measure]
    if level == "broker":
        limit = _set(policies.entries.get(Section.BROKER), _RATES[dimension])
        return iter((Level(level, str(Section.BROKER), limit, limit is not None),))
    kind = RateKind.TOPIC if level == "topic" else RateKind.SUBSCRIPTION
    return _rates(policies, topic, subscription, kind, _RATES[dimension])


def _rates(
    policies: PolicySet, topic: str, subscription: str | None, kind: RateKind, key: str
) -> Iterator[Level]:
    for place in dispatch_candidates(policies, topic, subscription, kind):
        limit = _set(place.value, key)
        if limit is not None and place.value is not None:
            limit /= place.value.get("ratePeriodInSecond", 1)
        yield Level(place.level, place.path, limit, place.wins)


def _concurrency(policies: PolicySet, partition: str, _measure: int) -> Iterator[Level]:
    for level, name in (("partition", partition), ("all others", ALL_OTHERS)):
        path = f"{Section.PARTITIONS}.{name}"
        yield Level(level, path, None, path in policies.entries)


def _backlog(policies: PolicySet, topic: str, measure: int) -> Iterator[Level]:
    kind = tuple(BacklogKind)[measure]
    for place in backlog_candidates(policies, topic, kind):
        yield Level(place.level, place.path, _set(place.value, LIMIT_KEYS[kind]), place.wins)


_LADDERS: Final = {
    Law.MUTATION: lambda policies, name, _measure: _quota(policies, name, MUTATION_RATE),
    Law.SHARES: _shares,
    Law.DISPATCH: _dispatch,
    Law.CONCURRENCY: _concurrency,
    Law.BACKLOG: _backlog,
}


def _set(value: Mapping[str, Any] | None, key: str) -> float | None:
    """A limit that an entry sets; None: it sets none."""
    found = UNLIMITED if value is None else value.get(key, UNLIMITED)
    return None if found == UNLIMITED else float(found)
