"""The rounds of resource groups (docs/contract.md 3.2), compiled, over columns of all groups of a shard.

**A round** n of length R holds the times from n R up to (n + 1) R. It is closed by the first report of its
group, or tick, at its end or later, and judged by the policies of its end: of what the brokers last reported.

**Who leaves.** A broker whose last report is more than resourceUsageMemberExpiryRounds rounds old is dropped,
one that reports to use nothing stays but is no member. Whoever had a share and has none any more is told why,
before the others get what is free.

**Who is told.** Every member, in each round in which the group had a report or somebody left. Rounds of
silence are closed too, by the ticks that a live job writes, but say nothing until somebody expires in them.

How a limit is divided among members is law.py's. The same told broker by broker, with examples, is
tests/kit/rounds_kit.py: a property test holds both equal, decision by decision. Groups do not touch each
other, so each is taken through all that concerns it before the next one. A group whose round ends under other
policies than those at hand waits until they are.
"""

from typing import Final

import numpy as np

from streaming.columns.byte_strings import Integers
from streaming.columns.compiled import inner, lean
from streaming.laws.shares.columns import (
    DONE,
    EXPIRED,
    IDLE,
    MORE_ROOM,
    NOT_WRITTEN,
    SHARE,
    WIDTH,
    Groups,
    Limits,
    Members,
    Progress,
    Rules,
    Steps,
    Takers,
    Told,
)
from streaming.laws.shares.law import fill_shares, is_hungry

STALE_ROUNDS: Final = 2
"""A report this many rounds older than the group's newest is still taken, an older one is stale."""


@lean
def walk(
    active: Integers, stretch: int, groups: Groups, members: Members, steps: Steps, rules: Rules,
    limits: Limits, progress: Progress, told: Told, takers: Takers,
) -> None:  # fmt: skip
    """Take groups through what happens to them, as far as the policies at hand reach, and the room.

    Args:
        active: numbers of groups.
        stretch: number of the policies at hand, NOWHERE for none.
        groups: changed, as are the next but `steps`, `rules` and `limits`.
        members: their brokers.
        steps: what happens.
        rules: the rhythm.
        limits: of all groups under the policies at hand.
        progress: how far they are.
        told: filled.
        takers: room for the slots of any group.
    """
    for g in active:
        while progress.need[g] == stretch:
            step = _next_step(g, groups, steps, progress)
            if step == DONE:
                progress.need[g] = DONE
                break
            if step >= 0 and not progress.fresh[g] and _is_stale(g, step, groups, members, steps):
                progress.stale[0] += 1
                progress.row[g] += 1
                continue
            progress.fresh[g] = step >= 0
            upto, position, source = _when(g, step, groups, steps, progress)
            while groups.size[g] > 0 and groups.end[g] <= upto:
                progress.need[g] = _stretch_of(groups.end[g], rules)
                if progress.need[g] == stretch and not _has_room(g, groups, told):
                    progress.need[g] = MORE_ROOM
                if progress.need[g] != stretch:
                    break
                _close(g, stretch, position, source, groups, members, rules, limits, told, takers)
                _open(g, groups.end[g], groups, rules)
                _skip_quiet_rounds(g, upto, groups, members, rules)
            if progress.need[g] == stretch:
                _pass(g, step, groups, members, steps, rules, progress)


_TICK: Final = -1
_END: Final = -2


@inner
def _next_step(g: int, groups: Groups, steps: Steps, progress: Progress) -> int:
    """Number of a report, or _TICK, _END or DONE."""
    row, tick = progress.row[g], progress.tick[g]
    if row < steps.first[g + 1]:
        return _TICK if tick < steps.ticks[steps.event[row]] else int(row)
    if tick < len(steps.tick_at):
        return _TICK
    return _END if steps.end and groups.touched[g] else DONE


@inner
def _when(g: int, step: int, groups: Groups, steps: Steps, progress: Progress) -> tuple[int, int, int]:
    """Up to what time (ms) a step closes rounds, its position and its source."""
    if step >= 0:
        event = steps.event[step]
        return steps.at[event], event + steps.ticks[event], steps.source[event]
    if step == _TICK:
        tick = progress.tick[g]
        return steps.tick_at[tick], steps.tick_position[tick], steps.tick_source[tick]
    source = steps.last[0]
    if steps.first[g + 1] > steps.first[g]:
        source = steps.source[steps.event[steps.first[g + 1] - 1]]
    return groups.end[g], steps.last[1], source


@inner
def _pass(
    g: int, step: int, groups: Groups, members: Members, steps: Steps, rules: Rules, progress: Progress
) -> None:
    """A step has closed its rounds: take the report in, if it is one, and go on."""
    if step == _TICK:
        progress.tick[g] += 1
    elif step >= 0:
        _take(g, step, groups, members, steps, rules)
        progress.row[g] += 1
    progress.fresh[g] = False


@inner
def _is_stale(g: int, row: int, groups: Groups, members: Members, steps: Steps) -> bool:
    """Whether a report is older than its broker's last one, or too old for the group."""
    ts, slot = steps.ts[steps.event[row]], steps.slot[row]
    if members.there[slot] and ts < members.ts[slot]:
        return True
    if groups.size[g] == 0:
        return False
    return bool(groups.newest[g] // groups.every[g] - ts // groups.every[g] > STALE_ROUNDS)


@inner
def _take(g: int, row: int, groups: Groups, members: Members, steps: Steps, rules: Rules) -> None:
    ts, slot = steps.ts[steps.event[row]], steps.slot[row]
    if groups.size[g] == 0:
        _open(g, steps.at[steps.event[row]], groups, rules)
        groups.newest[g] = ts
    groups.newest[g] = max(groups.newest[g], ts)
    groups.touched[g] = True
    if not members.there[slot]:
        members.there[slot] = True
        groups.size[g] += 1
    members.ts[slot] = ts
    for dimension in range(WIDTH):
        members.used[slot, dimension] = steps.used[row, dimension]
        members.throttled[slot, dimension] = steps.throttled[row, dimension]


@inner
def _stretch_of(ts: int, rules: Rules) -> int:
    """Number of the policies in force at `ts` ms: of the changes made by then."""
    low, high = 0, len(rules.changes)
    while low < high:
        middle = (low + high) // 2
        if rules.changes[middle] <= ts:
            low = middle + 1
        else:
            high = middle
    return low


@inner
def _open(g: int, start: int, groups: Groups, rules: Rules) -> None:
    """Open the round that holds `start`; it ends as the policies of that time say."""
    every = rules.every[_stretch_of(start, rules)]
    groups.every[g] = every
    groups.end[g] = (start // every + 1) * every


@inner
def _skip_quiet_rounds(g: int, upto: int, groups: Groups, members: Members, rules: Rules) -> None:
    """Pass over rounds without reports up to one in which somebody expires or the policies change.

    Nothing happens in the others, and after a silence of a year there are very many.
    """
    if groups.size[g] == 0 or groups.end[g] > upto:
        return
    every = groups.every[g]
    start = groups.end[g] - every
    stretch = _stretch_of(start, rules)
    oldest = DONE
    for slot in range(groups.first[g], groups.first[g + 1]):
        if members.there[slot]:
            oldest = min(oldest, members.ts[slot])
    until = min(oldest // every + rules.expiry[stretch] + 2, upto // every + 1) * every
    if stretch < len(rules.changes) and rules.changes[stretch] <= upto:
        until = min(until, -(-rules.changes[stretch] // every) * every)
    groups.end[g] = max(groups.end[g], until)


@inner
def _has_room(g: int, groups: Groups, told: Told) -> bool:
    """Whether there is room for what a closing round can tell: who leaves, and then each one's share."""
    rounds, decisions = told.filled[0] + 2, told.filled[1] + groups.first[g + 1] - groups.first[g]
    return bool(rounds <= len(told.group) and decisions <= len(told.why))


@inner
def _close(
    g: int, stretch: int, position: int, source: int, groups: Groups, members: Members, rules: Rules,
    limits: Limits, told: Told, takers: Takers,
) -> None:  # fmt: skip
    """Close the open round by the policies of its end; the caller opens the next."""
    before = told.filled[1]
    touched = groups.touched[g]
    groups.touched[g] = False
    _let_go(g, rules.expiry[stretch], groups, members, limits, told)
    removed = told.filled[1] > before
    if removed:
        _file(g, before, position, source, groups, limits, told)
    if limits.known[g] and (touched or removed) and _share_out(g, groups, members, limits, takers):
        _file(g, told.filled[1], position, source, groups, limits, told)
        _note(g, groups.end[g], groups.every[g], groups, limits)
        _tell_shares(g, groups, members, limits, told)
    elif not _stands(g, groups, members):
        _note(g, 0, 0, groups, limits)


@inner
def _file(g: int, first: int, position: int, source: int, groups: Groups, limits: Limits, told: Told) -> None:
    """File the decisions from number `first` on under the round that closes."""
    rounds = told.filled[0]
    told.position[rounds], told.source[rounds], told.group[rounds] = position, source, g
    told.end[rounds], told.every[rounds] = groups.end[g], groups.every[g]
    told.shadow[rounds], told.first[rounds] = limits.shadow[g], first
    for dimension in range(WIDTH):
        told.limited[rounds, dimension] = not np.isnan(limits.rates[g, dimension])
    told.filled[0] = rounds + 1


@inner
def _let_go(g: int, expiry: int, groups: Groups, members: Members, limits: Limits, told: Told) -> None:
    """Drop the brokers whose report is too old, and the shares of those that use nothing.

    Who had shares is told, by name. Where the policies do not know the group, nobody has shares any more.
    """
    every = groups.every[g]
    this_round = groups.end[g] // every - 1
    for slot in range(groups.first[g], groups.first[g + 1]):
        if not members.there[slot]:
            continue
        expired = this_round - members.ts[slot] // every > expiry
        if expired:
            members.there[slot] = False
            groups.size[g] -= 1
        uses = False
        if limits.known[g]:
            uses = _uses(slot, g, members, limits)
            if members.told[slot] and (expired or not uses):
                _tell(slot, EXPIRED if expired else IDLE, members, told)
        if expired or not uses:
            _take_back(slot, members)


@inner
def _uses(slot: int, g: int, members: Members, limits: Limits) -> bool:
    """Whether it is a member: it uses some limited dimension. Last shares of the others are forgotten."""
    uses = False
    for dimension in range(WIDTH):
        if not np.isnan(limits.rates[g, dimension]) and members.used[slot, dimension] > 0.0:
            uses = True
        else:
            members.held[slot, dimension] = False
    return uses


@inner
def _take_back(slot: int, members: Members) -> None:
    """Nothing is told that stands."""
    members.told[slot] = False
    for dimension in range(WIDTH):
        members.shares[slot, dimension] = np.nan
        members.held[slot, dimension] = False
        members.told_used[slot, dimension] = 0.0


@inner
def _tell(slot: int, why: int, members: Members, told: Told) -> None:
    number = told.filled[1]
    told.broker[number], told.why[number] = members.broker[slot], why
    for dimension in range(WIDTH):
        told.used[number, dimension] = members.told_used[slot, dimension]
        told.shares[number, dimension] = members.shares[slot, dimension]
    told.filled[1] = number + 1


@inner
def _share_out(g: int, groups: Groups, members: Members, limits: Limits, takers: Takers) -> bool:
    """Share out the limits; whether anybody takes part."""
    shared = False
    for dimension in range(WIDTH):
        count = 0
        for slot in range(groups.first[g], groups.first[g + 1]):
            used, last = members.used[slot, dimension], np.nan
            if members.held[slot, dimension]:
                last = members.shares[slot, dimension]
            takes = members.there[slot] and not np.isnan(limits.rates[g, dimension]) and used > 0.0
            if takes:
                takers.slot[count], takers.used[count], takers.last[count] = slot, used, last
                takers.hungry[count] = is_hungry(used, members.throttled[slot, dimension], last)
                count += 1
            members.shares[slot, dimension], members.held[slot, dimension] = np.nan, takes
        if count > 0:
            shared = True
            fill_shares(
                limits.rates[g, dimension], takers.used[:count], takers.hungry[:count], takers.last[:count],
                takers.shares[:count],
            )  # fmt: skip
        for place in range(count):
            members.shares[takers.slot[place], dimension] = takers.shares[place]
    return shared


@inner
def _tell_shares(g: int, groups: Groups, members: Members, limits: Limits, told: Told) -> None:
    """Tell the members what they may use."""
    for slot in range(groups.first[g], groups.first[g + 1]):
        if members.there[slot] and _uses(slot, g, members, limits):
            members.told[slot] = True
            for dimension in range(WIDTH):
                limited = not np.isnan(limits.rates[g, dimension])
                members.told_used[slot, dimension] = members.used[slot, dimension] if limited else 0.0
            _tell(slot, SHARE, members, told)


@inner
def _stands(g: int, groups: Groups, members: Members) -> bool:
    """Whether somebody has shares."""
    standing = 0
    for slot in range(groups.first[g], groups.first[g + 1]):
        standing += members.told[slot]
    return standing > 0


@inner
def _note(g: int, end: int, every: int, groups: Groups, limits: Limits) -> None:
    """Note the round whose shares stand; 0: none do."""
    groups.told_end[g], groups.told_every[g] = end, every
    groups.told_shadow[g] = end > 0 and limits.shadow[g]
    groups.written[g] = NOT_WRITTEN if end > 0 else 0
    for dimension in range(WIDTH):
        groups.told_limited[g, dimension] = end > 0 and not np.isnan(limits.rates[g, dimension])
