"""A broker's share divided over its topics, by the law of shares, and over the partitions of each.

Pulsar limits topics, and the same for each partition wherever it is; a group's share is for one broker. So
the share is divided among the topics that use it, as the job divides a limit among brokers, and what a topic
got at all brokers becomes one rate a partition: the level at which its partitions, each taking what it wants
or the level if that is less, use it up.
"""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from streaming.collect.pulsar.pools import Pool, Target, counts_in
from streaming.collect.pulsar.shares import Shares, ShareState
from streaming.contract.names import DISPATCH_GROUP_PREFIX
from streaming.contract.usage_events import DIMENSIONS
from streaming.laws.shares.law import FULL_USE, ROOM, divide, water_level

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


class Division:
    """Divides pools, round by round."""

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
