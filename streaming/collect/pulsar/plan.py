"""What Pulsar's limiters should hold now: by policies, shares and what passed."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np

from streaming.collect.pulsar.counters import Passage
from streaming.collect.pulsar.limits import Kind, LimiterRate, Rates, Slot
from streaming.collect.pulsar.pools import Pool, Target, counts_in, groups_of, pools_of
from streaming.collect.pulsar.shares import Shares, ShareState
from streaming.contract.names import DISPATCH_GROUP_PREFIX, namespace_of, partitioned_topic_of
from streaming.contract.usage_events import DIMENSIONS
from streaming.laws.shares.law import FULL_USE, ROOM, divide, water_level
from streaming.policy.dispatch_limits import NO_LIMIT, NOT_LIMITED, Limit, dispatch_rate, limit_in
from streaming.policy.groups import group_limits
from streaming.policy.policy_set import UNLIMITED, PolicySet, Section
from streaming.policy.topics import RateKind, namespace_group

InForce = Callable[[Target, int], tuple[float | None, bool]]
"""A target and a dimension -> the rate of one partition that Pulsar holds now, per second (None: no limit),
and whether it is the target's own."""
NEWCOMER_FRACTION: Final = 0.05
"""Part of a group's limit for each topic without a limit of its own, as that of a proxy without a share."""
_OWN_FROM: Final = FULL_USE
"""From this part of what a newcomer may use on, a topic gets a limit of its own: a lower one is no help,"""
_OWN_TO: Final = 0.5
"""and loses it below this one."""
_MOST_OF_IT: Final = 0.9
IDLE_ROUNDS: Final = 3
"""Rounds without traffic after which a topic's own limit is taken away."""
_KIND_OF: Final = {RateKind.TOPIC: Kind.DISPATCH, RateKind.SUBSCRIPTION: Kind.SUBSCRIPTION}


@dataclass(slots=True)
class Plan:
    """What a round leads to.

    Attributes:
        pools: what passed, by the groups that it counts in.
        wanted: what limiters should hold. One that was pushed and is not among these is taken away.
        held: those that stay as they are.
        held_back: (group, broker) -> dimension -> whether limits held it back (1) or not (0).
    """

    pools: dict[str, Pool] = field(default_factory=dict)
    wanted: dict[Slot, LimiterRate] = field(default_factory=dict)
    held: set[Slot] = field(default_factory=set)
    held_back: dict[tuple[str, str], dict[str, int]] = field(default_factory=dict)

    def want(self, slot: Slot, wanted: LimiterRate) -> None:
        """One limiter serves all limits of its target."""
        self.wanted[slot] = wanted.stricter(self.wanted.get(slot))


class Division:
    """A broker's share divided over its topics, by the law of shares, and over the partitions of each.

    Pulsar limits topics, and the same for each partition wherever it is; a group's share is for one broker.
    So the share is divided among the topics that use it, as the job divides a limit among brokers, and what a
    topic got at all brokers becomes one rate a partition: the level at which its partitions, each taking what
    it wants or the level if that is less, use it up.
    """

    def __init__(self) -> None:
        self._last: dict[tuple[str, int, str], dict[Target, float]] = {}

    def newcomer(self, pool: str, limit: float) -> float:
        """What a topic without a limit of its own may use, per second; of a rate across brokers all of it."""
        return limit if pool.startswith(DISPATCH_GROUP_PREFIX) else NEWCOMER_FRACTION * limit

    def rates(
        self, pool: Pool, dimension: int, shares: Shares, in_force: InForce, now_ms: int
    ) -> dict[Target, float] | None:
        """The rate of a partition of each target that is to have its own, in a dimension that `pool` limits.

        None: all stays as it is.
        """
        limit = pool.limits.rates[dimension]
        assert limit is not None
        total = sum(_sum(uses, dimension) for uses in pool.uses.values())
        given: dict[str, float | None] = {}
        for broker, uses in pool.uses.items():
            standing = shares.standing(pool.name, broker, now_ms)
            if standing is ShareState.SILENT:
                return None
            given[broker] = None
            if standing is ShareState.ACTIVE:
                given[broker] = shares.limit(pool.name, broker, DIMENSIONS[dimension])
            elif standing is ShareState.NOBODY and total > 0.0:
                # As far as is known our brokers are alone with it.
                given[broker] = limit * _sum(uses, dimension) / total
        # Together never more than a limit that was lowered since: all in the same part, as proxies do.
        part = min(1.0, limit / (sum(share or 0.0 for share in given.values()) or limit))
        got: dict[Target, float] = {}
        for broker, share in given.items():
            place = (pool.name, dimension, broker)
            self._last[place] = {} if share is None else self._broker(pool, place, share * part, in_force)
            for target, rate in self._last[place].items():
                got[target] = got.get(target, 0.0) + rate
        return {target: _level(pool, target, dimension, rate, in_force) for target, rate in got.items()}

    def held_back(
        self, pool: Pool, shares: Shares, in_force: InForce, now_ms: int
    ) -> dict[str, dict[str, int]]:
        """Broker -> dimension -> 1 where what passed was held back by what is in force, 0 where it was not.

        Pulsar does not say how long. A broker counts as held back if a partition used all that it may, and
        all topics together most of the share: a topic alone gets more of the share, not the broker.
        """
        result: dict[str, dict[str, int]] = {}
        for broker, uses in pool.uses.items():
            for dimension in counts_in(pool.name):
                limited = [
                    (rates[dimension], force)
                    for target, partitions in uses.items()
                    if (force := in_force(target, dimension)[0]) is not None
                    for rates in partitions
                ]
                if pool.limits.rates[dimension] is None or not limited:
                    continue
                full = any(rate > 0.0 and rate >= FULL_USE * force for rate, force in limited)
                if shares.standing(pool.name, broker, now_ms) is ShareState.ACTIVE:
                    share = shares.limit(pool.name, broker, DIMENSIONS[dimension]) or 0.0
                    full &= _sum(uses, dimension) >= _MOST_OF_IT * share
                result.setdefault(broker, {})[DIMENSIONS[dimension]] = int(full)
        return result

    def forget(self, pools: Mapping[str, Pool]) -> None:
        """Only what is used now is remembered."""
        self._last = {
            place: rates
            for place, rates in self._last.items()
            if place[0] in pools and place[2] in pools[place[0]].uses
        }

    def _broker(
        self, pool: Pool, place: tuple[str, int, str], share: float, in_force: InForce
    ) -> dict[Target, float]:
        """The share of one broker, by topics. Those too small for a limit of their own take theirs first."""
        _, dimension, broker = place
        newcomer = self.newcomer(pool.name, pool.limits.rates[dimension] or 0.0)
        members: list[tuple[Target, float, bool, float]] = []
        last = self._last.get(place, {})
        small = 0.0
        for target, partitions in pool.uses[broker].items():
            rate, own = in_force(target, dimension)
            used = sum(rates[dimension] for rates in partitions)
            full = rate is not None and any(rates[dimension] >= FULL_USE * rate for rates in partitions)
            least = newcomer * (_OWN_TO if own else _OWN_FROM)
            # Who uses little because it may not use more wants more.
            little = used < least and not full and not pool.name.startswith(DISPATCH_GROUP_PREFIX)
            if used <= 0.0 or little:
                small += used
                continue
            # Of a newcomer, and of all after a restart, what is in force is what it had.
            had = np.nan if rate is None else rate * len(partitions)
            members.append((target, used, full, last.get(target, had)))
        if not members:
            return {}
        shares = divide(
            # Ever so little is left, or nothing could be divided.
            max(share - small, share * NEWCOMER_FRACTION, 1e-9),
            np.array([used for _, used, _, _ in members]),
            np.array([full for _, _, full, _ in members], dtype=np.bool_),
            np.array([had for _, _, _, had in members]),
        )
        return {target: float(rate) for (target, *_), rate in zip(members, shares, strict=True)}


class Planner:
    """Makes plans, round by round."""

    def __init__(self) -> None:
        self._division = Division()
        self._idle: dict[Slot, int] = {}

    def plan(
        self, policies: PolicySet, passed: Passage, shares: Shares, pushed: Mapping[Slot, Rates], now_ms: int
    ) -> Plan:
        """What to do now, by what passed since the last round and what Pulsar holds of ours (`pushed`)."""
        plan = Plan(pools=pools_of(policies, passed))
        if policies.tracks:
            # What Pulsar holds of ours is taken back.
            return plan

        in_force = partial(_in_force, pushed)
        for pool in plan.pools.values():
            if pool.limits.shadow:
                continue
            found = self._division.held_back(pool, shares, in_force, now_ms)
            plan.held_back |= {(pool.name, broker): said for broker, said in found.items()}
            for dimension in counts_in(pool.name):
                if pool.limits.rates[dimension] is None:
                    continue
                rates = self._division.rates(pool, dimension, shares, in_force, now_ms)
                targets = {target for uses in pool.uses.values() for target in uses}
                for target in targets if rates is None else rates:
                    slot = _slot(target, dimension)
                    if rates is None:
                        plan.held.add(slot)
                    else:
                        plan.want(slot, _one(dimension, rates[target]))
        self._division.forget(plan.pools)
        for slot in [slot for slot in plan.wanted if slot.topic]:
            _add_fixed(plan, policies, slot)
        self._namespaces(plan, policies, pushed, passed)
        for path, value in policies.entries.items():
            if path.startswith(f"{Section.TOPICS}."):
                _add_topic(plan, path.removeprefix(f"{Section.TOPICS}."), value)
        self._keep(plan, policies, pushed, passed)
        return plan

    def _namespaces(
        self, plan: Plan, policies: PolicySet, pushed: Mapping[Slot, Rates], passed: Passage
    ) -> None:
        """What holds for topics without a limit of their own, and by policies."""
        named = {
            path.removeprefix(f"{Section.NAMESPACES}.")
            for path in policies.entries
            if path.startswith(f"{Section.NAMESPACES}.")
        }
        used = {namespace_of(t.topic) for pool in plan.pools.values() for u in pool.uses.values() for t in u}
        # Where a broker does not answer newcomers may begin all the same.
        used |= {namespace_of(topic) for topic, _ in passed.unheard}
        if not passed.whole:
            used |= {slot.namespace for slot in pushed}
        for namespace in sorted(named | used):
            group = namespace_group(policies, namespace)
            limits = None if group is None else group_limits(policies, group[0])
            if group is not None and limits is not None and not limits.shadow:
                for dimension, limit in enumerate(limits.rates):
                    if limit is not None:
                        rate = self._division.newcomer(group[0], limit)
                        kind = Kind.PUBLISH if dimension < 2 else Kind.DISPATCH
                        wanted = _one(dimension, rate, exact=True)
                        plan.want(Slot(namespace, "", "", kind), wanted)
            value = policies.entries.get(f"{Section.NAMESPACES}.{namespace}", {})
            for rate_kind, kind in _KIND_OF.items():
                fixed = _fixed(value.get(rate_kind))
                if fixed is not None:
                    plan.want(Slot(namespace, "", "", kind), fixed)

    def _keep(self, plan: Plan, policies: PolicySet, pushed: Mapping[Slot, Rates], passed: Passage) -> None:
        """A topic's own limit stays for some rounds without traffic, unless its policy is gone.

        What nobody has told of may have traffic, which must not fall back on what is there for newcomers.
        """
        silent = _targets(passed.unheard)
        told = set[tuple[str, str]]() if passed.whole else _targets(place[1:] for place in passed.counts)
        idle: dict[Slot, int] = {}
        for slot in pushed:
            if not slot.topic or slot in plan.wanted or slot in plan.held:
                continue
            target = slot.topic, slot.subscription
            heard = target not in silent and (passed.whole or target in told)
            rounds = self._idle.get(slot, 0) + heard
            if rounds < IDLE_ROUNDS and _is_shared(policies, slot):
                idle[slot] = rounds
                plan.held.add(slot)
        self._idle = idle


def _sum(uses: Mapping[Target, list[tuple[float, float, float, float]]], dimension: int) -> float:
    return sum(rates[dimension] for partitions in uses.values() for rates in partitions)


def _level(pool: Pool, target: Target, dimension: int, rate: float, in_force: InForce) -> float:
    """What a partition may use, so that all of them use `rate`."""
    force = in_force(target, dimension)[0]
    wanted = []
    for uses in pool.uses.values():
        for rates in uses.get(target, ()):
            used = rates[dimension]
            full = force is None or used >= FULL_USE * force
            if used > 0.0:
                wanted.append(np.inf if full else ROOM * used)
    # Somebody takes what is left: the one that uses most, if nobody is held back.
    wanted.sort()
    wanted[-1] = np.inf
    return float(water_level(rate, np.array(wanted)))


def _targets(places: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Topics, and their subscriptions, that places of partitions are of."""
    return {(partitioned_topic_of(topic) or topic, of) for topic, name in places for of in ("", name)}


def _slot(target: Target, dimension: int) -> Slot:
    kind = Kind.SUBSCRIPTION if target.subscription else Kind.PUBLISH if dimension < 2 else Kind.DISPATCH
    return Slot(namespace_of(target.topic), target.topic, target.subscription, kind)


def _one(dimension: int, rate: float, *, exact: bool = False) -> LimiterRate:
    """A limit of one dimension."""
    return LimiterRate(None, rate, exact) if dimension % 2 else LimiterRate(rate, None, exact)


def _in_force(pushed: Mapping[Slot, Rates], target: Target, dimension: int) -> tuple[float | None, bool]:
    """What a partition may use by what was pushed: the topic's own limit hides its namespace's."""
    slot = _slot(target, dimension)
    own = slot in pushed
    rates = pushed.get(slot) or pushed.get(Slot(slot.namespace, "", "", slot.kind))
    if rates is None or rates[dimension % 2] == UNLIMITED:
        return None, own
    return rates[dimension % 2] / rates.period_s, own


def _fixed(value: Mapping[str, int | bool] | None) -> LimiterRate | None:
    """A dispatch rate of a policy. One across brokers too: it holds until a topic has its part of it."""
    limit = NO_LIMIT if value is None else limit_in(value)
    return None if limit.rate == NO_LIMIT.rate else _of_limit(limit)


def _of_limit(limit: Limit) -> LimiterRate:
    period_s = limit.period_ms // 1000
    msgs, size = (None if rate == NOT_LIMITED else rate / period_s for rate in limit.rate)
    return LimiterRate(msgs, size, True, period_s)


def _add_fixed(plan: Plan, policies: PolicySet, slot: Slot) -> None:
    """A topic's own limit hides its namespace's, so that one must be in it too."""
    if slot.kind is Kind.PUBLISH:
        return
    limit = dispatch_rate(policies, slot.topic, slot.subscription or None)
    if limit is not None and not limit.group:
        plan.want(slot, _of_limit(limit))


def _add_topic(plan: Plan, topic: str, value: Mapping[str, Any]) -> None:
    """The rates that a topic's own entry sets."""
    rates = {("", kind): value.get(rate_kind) for rate_kind, kind in _KIND_OF.items()}
    for name, one in value.get("subscriptions", {}).items():
        rates[name, Kind.SUBSCRIPTION] = one.get("dispatchRate")
    for (subscription, kind), rate in rates.items():
        slot, fixed = Slot(namespace_of(topic), topic, subscription, kind), _fixed(rate)
        # A part of a rate across brokers, once there is one, is what holds.
        if fixed is not None and slot not in plan.wanted:
            plan.want(slot, fixed)


def _is_shared(policies: PolicySet, slot: Slot) -> bool:
    """Whether some group that is enforced still limits what the slot does."""
    dimensions = slice(0, 2) if slot.kind is Kind.PUBLISH else slice(2, 4)
    names = groups_of(policies, Target(slot.topic, slot.subscription))
    return any(
        limits is not None and not limits.shadow and any(one is not None for one in limits.rates[dimensions])
        for limits in (group_limits(policies, name) for name in names)
    )
