"""Entries of policies from what is usual: one for all who are alike, and some of their own.

Each limit is the headroom times the peak of the windows (usual.PEAK) of whoever asks most under its entry,
rounded up to two digits:

- mutations, by user: the rate of hours; the burst is the headroom times what must be in a bucket of a rate
  without headroom for all that is usual to get through. So the headroom times as much would get through too.
- bytes and messages of groups and quotas: minutes, all brokers together, as a rate.
- requests in flight: minutes, the greatest of each: where the limit begins and ends; half of all minutes stay
  below its least. A round trip above the headroom times the peak is slow.
- deliveries and backlogs: see topics.
"""

from collections.abc import Callable, Iterator
from math import ceil
from typing import Any, Final

import numpy as np

from streaming.contract.decisions import LIMIT_MAX
from streaming.contract.names import QUOTA_GROUP_PREFIX
from streaming.contract.usage_events import DIMENSIONS
from streaming.policy.concurrency_schema import MAX_DURATION_NS
from streaming.policy.groups import QUOTA_DIMENSIONS
from streaming.policy.policy_set import ALL_OTHERS, Section, entity_path
from streaming.policy.schema import MIN_RATE
from weir.propose.demand import INFLIGHT, MINUTE_MS, MUTATIONS, ROUND_TRIP, Doubles, Kind
from weir.propose.proposal import OWN_MAX, Asked, Proposal, may_be
from weir.propose.topics import propose_backlogs, propose_deliveries
from weir.propose.usual import Usual, apart

_NS_PER_US: Final = 1000
_SLOW_MAX_US: Final = MAX_DURATION_NS // _NS_PER_US


def propose(asked: Asked, headroom: float) -> Proposal:
    """Entries for all that was asked for.

    Args:
        asked: what a log says.
        headroom: how many times what is usual limits are, 1 or more.
    """
    proposal = Proposal(headroom)
    for add in (_mutations, _groups, propose_deliveries, propose_backlogs, _slots):
        add(proposal, asked)
    return proposal


def _default_first(
    peak: Doubles, far: Iterator[int], path_of: Callable[[int], str], default: str
) -> Iterator[tuple[str, list[int]]]:
    """Paths and the subjects that each is for: the default for those who are alike, then the others by name.

    Whoever has no usual peak has the default; whoever no entry can name is left out.
    """
    own = np.flatnonzero(apart(peak, OWN_MAX)).tolist()
    alike = set(np.flatnonzero(peak > 0.0).tolist()).difference(own)
    if alike:
        yield default, sorted(alike.union(number for number in far if peak[number] == 0.0))
    paths = ((path_of(number), number) for number in own)
    yield from sorted((path, [number]) for path, number in paths if path != default and may_be(path))


def _mutations(proposal: Proposal, asked: Asked) -> None:
    if (Kind.USER, MUTATIONS) not in asked:
        return
    usual = Usual.of(asked[Kind.USER, MUTATIONS], np.add)
    names = usual.demand.names
    default = entity_path({"user": None})
    for path, users in _default_first(
        usual.peak, iter(usual.far), lambda number: entity_path({"user": names[number]}), default
    ):
        rate = usual.peak_of(users) / (usual.window_ms / 1000.0)
        limits = {
            "controller_mutation_rate": max(MIN_RATE, proposal.ample(rate)),
            "controller_mutation_burst": max(1, proposal.ample(usual.burst(users, rate))),
        }
        proposal.entries.setdefault(path, {}).update(limits)
        proposal.note(path, MUTATIONS, "users", usual, users)


def _groups(proposal: Proposal, asked: Asked) -> None:
    for measure in DIMENSIONS:
        demand = asked.get((Kind.GROUP, measure))
        if demand is None or not len(demand.at):
            continue
        usual = Usual.of(demand, np.add, MINUTE_MS)
        names = usual.demand.names
        plain = [n for n, name in enumerate(names) if not name.startswith(QUOTA_GROUP_PREFIX)]
        for number in plain:
            path = f"{Section.RESOURCE_GROUPS}.{names[number]}"
            if usual.peak[number] > 0.0 and may_be(path):
                limit = max(MIN_RATE, proposal.ample(usual.peak_of([number])))
                proposal.entries.setdefault(path, {})[measure] = limit
                proposal.note(path, measure, "groups", usual, [number])
        key = next((key for key, place in QUOTA_DIMENSIONS.items() if DIMENSIONS[place] == measure), None)
        if key is not None:
            _byte_rates(proposal, measure, key, usual)


def _byte_rates(proposal: Proposal, measure: str, key: str, usual: Usual) -> None:
    """Users apart from clients without one: each kind has a default of its own."""
    names = [name.removeprefix(QUOTA_GROUP_PREFIX) for name in usual.demand.names]
    quotas = [name.startswith(QUOTA_GROUP_PREFIX) for name in usual.demand.names]
    for of in ("user", "client-id"):
        own = np.array([quota and name.startswith(of) for quota, name in zip(quotas, names, strict=True)])
        peak = np.where(own, usual.peak, 0.0)
        default = entity_path({of: None})
        far = (number for number in usual.far if own[number])
        for path, some in _default_first(peak, far, lambda number: f"quotas[{names[number]}]", default):
            proposal.entries.setdefault(path, {})[key] = proposal.whole(usual.peak_of(some))
            proposal.note(path, measure, f"{of}s", usual, some)


def _slots(proposal: Proposal, asked: Asked) -> None:
    if (Kind.PARTITION, INFLIGHT) not in asked:
        return
    inflight, round_trip = (
        Usual.of(asked[Kind.PARTITION, measure], np.maximum, MINUTE_MS) for measure in (INFLIGHT, ROUND_TRIP)
    )
    names = inflight.demand.names
    for path, partitions in _default_first(
        inflight.peak, iter(inflight.far), lambda number: f"{Section.PARTITIONS}.{names[number]}",
        f"{Section.PARTITIONS}.{ALL_OTHERS}",
    ):  # fmt: skip
        most = proposal.whole(inflight.peak_of(partitions), LIMIT_MAX)
        least = min(most, ceil(inflight.seen(partitions).p50))
        limits: dict[str, Any] = {"initialLimit": most, "minLimit": least, "maxLimit": most}
        proposal.note(path, INFLIGHT, "partitions", inflight, partitions)
        if round_trip.peak_of(partitions) > 0.0:
            slow_us = proposal.whole(round_trip.peak_of(partitions) / _NS_PER_US, _SLOW_MAX_US)
            slow = f"{slow_us // 1000}ms" if slow_us % 1000 == 0 else f"{slow_us}us"
            limits = {"requestTimeout": slow, **limits}
            proposal.note(path, ROUND_TRIP, "partitions", round_trip, partitions)
        proposal.entries[path] = {"algorithm": "aimd", "aimd": limits}
