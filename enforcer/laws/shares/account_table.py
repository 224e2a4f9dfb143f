"""All accounts of one proxy, at most so many, and who makes room for whom (docs/contract.md 3.2)."""

import logging
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from cachetools import LRUCache

from enforcer.core.account import Account, ShareRules, State, Use
from enforcer.core.law import Clock
from enforcer.core.lines import Lines
from enforcer.core.settings import ProxySettings
from enforcer.laws.shares.newcomers import Newcomers
from streaming.contract.decisions import Share
from streaming.contract.names import DISPATCH_GROUP_PREFIX, INFLIGHT_GROUP_PREFIX, QUOTA_GROUP_PREFIX
from streaming.contract.usage_events import DIMENSIONS
from streaming.policy.groups import GroupLimits, group_limits
from streaming.policy.policy_set import PolicySet

SHARE_BURST_MS: Final = 500
"""Unused share that is kept, as so many ms of it: a tenth of a short round of 5 s."""

_AGAIN_MS: Final = 1_000.0
"""For how long no room is looked for once there was little: shares and debts rarely end sooner."""
_EARLY_BYTES: Final = 1_024
"""What a share of a group that has no account here takes at least, about."""
_PART: Final = 8
"""Room for one in so many accounts has paid for the look at all of them, and the next may follow at once."""
_SHOWN: Final = 5
"""Groups that one line of the log names."""
_MADE_UP: Final = (QUOTA_GROUP_PREFIX, DISPATCH_GROUP_PREFIX, INFLIGHT_GROUP_PREFIX)
"""How names begin of which a client can make up any number; of other groups there are as many as policies."""

logger = logging.getLogger(__name__)


class AccountTable:
    """Group -> its account.

    Resource groups, and what clients may make up names of, have room of their own each: nobody takes that of
    a tenant by calling himself ten thousand names.

    Attributes:
        accounts: by the group's name.
        nowhere: stands for the accounts that there is no room for: it has no limits, and is never reported.
        newcomers: tells what may be used without a share.
        lines: who waits for an account.

    Args:
        settings: bounds and rules.
        clock: tells the time.
        on_gone: told that some accounts are gone and are to be forgotten, and of how many of them the use is
            not reported.
    """

    def __init__(self, settings: ProxySettings, clock: Clock, on_gone: Callable[[int], None]) -> None:
        self.accounts: dict[str, Account] = {}
        self._max = settings.accounts_max
        self._expired = settings.expired_share
        self._clock = clock
        self._on_gone = on_gone
        self._rules = ShareRules(
            expired=settings.expired_share,
            safe_fraction=settings.safe_fraction,
            burst_s=SHARE_BURST_MS / 1000,
            debt_max_s=settings.debt_max_s,
        )
        # As many as there are connections and producers: who had no place would be woken by nobody.
        self.lines = Lines(clock.steady_ms, places_max=sys.maxsize)
        no_limits = GroupLimits(rates=(None,) * len(DIMENSIONS), shadow=False)
        self.nowhere = Account("", no_limits, self._rules, self.lines, 0.0, part=1.0)
        self.newcomers = Newcomers(settings.joining_fraction)
        self._early: LRUCache[str, tuple[Share, GroupLimits | None, float]] = LRUCache(
            settings.accounts_max * _EARLY_BYTES,
            getsizeof=lambda kept: max(_EARLY_BYTES, 2 * len(kept[0].group)),
        )
        # Of groups that are made up, and of the others.
        self._left: dict[bool, dict[str, Use]] = {True: {}, False: {}}
        self._count = {True: 0, False: 0}
        self._full_until_ms = {True: 0.0, False: 0.0}

    def find(self, group: str, policies: PolicySet) -> Account | None:
        """The account of a group; None: the policies do not know it. One is made if there is room for it."""
        account = self.accounts.get(group)
        if account is not None:
            return account
        limits = group_limits(policies, group)
        if limits is None:
            return None
        now_ms = self._clock.steady_ms()
        made_up = group.startswith(_MADE_UP)
        earlier = self._left[made_up].pop(group, None)
        if self._count[made_up] >= self._max:
            self._make_room(now_ms, made_up)
        if self._count[made_up] >= self._max:
            if earlier is not None:
                self._left[made_up][group] = earlier
            return self.nowhere
        account = self.accounts[group] = Account(
            group, limits, self._rules, self.lines, now_ms, self.newcomers.part(group, now_ms)
        )
        self._count[made_up] += 1
        account.earlier = earlier
        if group in self._early:
            share, divided, came_ms = self._early.pop(group)
            left_ms = share.ttl_ms - (now_ms - came_ms)
            if left_ms > 0:
                account.take_share(share.limits, share.ts, left_ms, now_ms, divided)
        return account

    def set_policies(self, policies: PolicySet) -> None:
        """These policies are in force now; balances and debts are kept."""
        now_ms = self._clock.steady_ms()
        for name, account in list(self.accounts.items()):
            limits = group_limits(policies, name)
            if limits is None:
                self._drop(account)
                account.release()
            else:
                account.set_limits(limits, now_ms)

    def take_share(self, share: Share, divided: GroupLimits | None) -> None:
        """This proxy's share of a group was decided or repeated; see Account.take_share for `divided`."""
        now_ms = self._clock.steady_ms()
        account = self.accounts.get(share.group)
        if account is None:
            # A proxy that was restarted under its old name still has its shares, before it has any traffic.
            known = self._early.get(share.group)
            if known is not None and share.ts < known[0].ts:
                return
            # One whose name alone is more than may be kept is passed over; others came with it.
            with suppress(ValueError):
                self._early[share.group] = (share, divided, now_ms)
            return
        before = account.state
        account.take_share(share.limits, share.ts, share.ttl_ms, now_ms, divided)
        if before is State.EXPIRED:
            logger.info("group %s: shares are back", share.group)

    def look(self) -> None:
        """Called now and then: end shares whose life time has passed, and follow what newcomers may use."""
        now_ms, expired = self._clock.steady_ms(), list[str]()
        for account in self.accounts.values():
            if account.wanting:
                account.set_part(self.newcomers.part(account.name, now_ms), now_ms)
            if account.expire(now_ms):
                expired.append(account.name)
        if expired:
            # Without the job it is all of them at a time.
            logger.warning(
                "%d shares were not repeated in time, of %s%s; going on by expired_share: %s",
                len(expired), ", ".join(expired[:_SHOWN]), " and others" * (len(expired) > _SHOWN),
                self._expired.value,
            )  # fmt: skip

    def take_left(self) -> dict[str, Use]:
        """What groups used since the last call and before their accounts made room for others."""
        left, self._left = self._left, {True: {}, False: {}}
        return left[False] | left[True]

    def _make_room(self, now_ms: float, made_up: bool) -> None:
        """Let accounts go that hold neither a share, whose end the job decides, nor a debt.

        Idle ones if they are many. Of others the use is kept until it is reported; where that would be more
        than the table itself may hold, they stay. All accounts are looked at, and all that was remembered of
        whose traffic is whose is forgotten: that is done for many at a time, or else not again for a while.

        Where names are made up there is always room: those that used least go, who owes last. Or whoever
        makes up names enough could end the limits of everybody who comes later.
        """
        if now_ms < self._full_until_ms[made_up]:
            return
        before = self._count[made_up]
        its = [each for each in self.accounts.values() if each.name.startswith(_MADE_UP) is made_up]
        free = [a for a in its if a.state is not State.ACTIVE and not a.indebted]
        idle = [account for account in free if account.idle]
        leaving = idle if len(idle) * _PART >= before else free
        if made_up and len(leaving) * _PART < before:
            its.sort(key=lambda a: (a.indebted, a.state is State.ACTIVE, sum(a.used)))
            leaving = its[: before // _PART + 1]
        left, unreported = self._left[made_up], 0
        for account in leaving:
            if not account.idle:
                if len(left) < self._max:
                    left[account.name] = account.period(now_ms)
                elif made_up:
                    unreported += 1
                else:
                    continue
            self._drop(account)
        freed = before - self._count[made_up]
        if freed * _PART < before:
            self._full_until_ms[made_up] = now_ms + _AGAIN_MS
        if freed:
            self._on_gone(unreported)

    def _drop(self, account: Account) -> None:
        del self.accounts[account.name]
        self._count[account.name.startswith(_MADE_UP)] -= 1
