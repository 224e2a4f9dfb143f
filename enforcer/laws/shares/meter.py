"""Counts traffic per group and user and says how long its connection must wait (docs/contract.md 3.2).

A protocol says what passed (topic, records, bytes) and whose it is; the policies say who belongs where, and
decisions bring shares. One event loop, no sockets. Where neither a group is attached to a namespace nor a
byte rate is set, `active` is False, and nobody calls anything else.

Resource groups, and what clients may make up names of, have room for accounts of their own each: nobody takes
that of a tenant by calling himself ten thousand names.
"""

import logging
import sys
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from cachetools import LRUCache

from enforcer.core.account import DISPATCH, PUBLISH, Account, State, Use, Wait
from enforcer.core.bucket import LONGEST_WAIT_MS
from enforcer.core.law import Clock
from enforcer.core.lines import Lines
from enforcer.core.settings import ProxySettings
from enforcer.laws.shares.newcomers import Newcomers
from streaming.contract.decisions import Share
from streaming.contract.names import DISPATCH_GROUP_PREFIX, INFLIGHT_GROUP_PREFIX, QUOTA_GROUP_PREFIX
from streaming.contract.namespaces import Namespaces
from streaming.contract.usage_events import DIMENSIONS
from streaming.policy.groups import (
    LIFE_ROUNDS,
    QUOTA_DIMENSIONS,
    GroupLimits,
    byte_quota_subject,
    group_limits,
    round_rules,
)
from streaming.policy.policy_set import UNLIMITED, PolicySet, Section
from streaming.policy.topics import namespace_group

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
_RATES: Final = dict(zip((PUBLISH, DISPATCH), QUOTA_DIMENSIONS, strict=True))

logger = logging.getLogger(__name__)


class Meter:
    """All accounts of this proxy. Topics are charged by `topic_accounts.TopicAccounts`.

    Attributes:
        active: something is to be counted.
        grouped: some namespaces have groups, so topics matter.
        begun: how often they have begun to: before, nobody looked at which ones a session has.
        accounts: group -> its account.
        nowhere: stands for the accounts that there is no room for: it has no limits, and is never reported.
        newcomers: tells what may be used without a share.
        lines: who waits for an account.
        unmetered: how often traffic was not counted: no room for its account, or for its use until the next
            report, or a topic without a name.
        interval_ms: time between two usage reports.
        generation: goes up when a topic or a user may belong to another account than before.
        clock: tells the time.
    """

    def __init__(self, settings: ProxySettings, clock: Clock) -> None:
        self.active, self.grouped, self.begun = False, False, 0
        self.accounts: dict[str, Account] = {}
        self._max = settings.subjects_max
        self._settings = settings
        # As many as there are connections and producers: who had no place would be woken by nobody.
        self.lines = Lines(clock.steady_ms, places_max=sys.maxsize)
        no_limits = GroupLimits(rates=(None,) * len(DIMENSIONS), shadow=False)
        self.nowhere = Account("", no_limits, settings, self.lines, 0.0, part=1.0)
        self.newcomers = Newcomers()
        self._early: LRUCache[str, tuple[Share, GroupLimits | None, float]] = LRUCache(
            self._max * _EARLY_BYTES,
            getsizeof=lambda kept: max(_EARLY_BYTES, 2 * len(kept[0].group)),
        )
        # Of groups that are made up, and of the others.
        self._left: dict[bool, dict[str, Use]] = {True: {}, False: {}}
        self._count = {True: 0, False: 0}
        self._full_until_ms = {True: 0.0, False: 0.0}
        self.unmetered = 0
        self.generation = 0
        self.clock = clock
        self._namespaces = Namespaces(settings.namespace_pattern)
        self._policies = PolicySet()
        self.interval_ms = round_rules(self._policies).interval_ms
        self._rated = False
        self._by_user: OrderedDict[tuple[str, str, int], Account | None] = OrderedDict()
        self._fillers: list[Callable[[float], None]] = []

    @property
    def share_life_ms(self) -> int:
        """For how long a share stands at most when it is not repeated."""
        return LIFE_ROUNDS * self.interval_ms

    def before_report(self, fill: Callable[[float], None]) -> None:
        """Call `fill` with the length (ms) of each round that is about to be reported, to add to its use."""
        self._fillers.append(fill)

    def fill(self, period_ms: float) -> None:
        """A round of so many ms is about to be reported."""
        for fill in self._fillers:
            fill(period_ms)

    def set_policies(self, policies: PolicySet) -> None:
        """These policies are in force now; balances and debts are kept."""
        if policies is self._policies:
            return
        self._policies = policies
        self.interval_ms = round_rules(policies).interval_ms
        entries = policies.entries
        attached = (f"{Section.NAMESPACES}.", f"{Section.TENANTS}.")
        # Traffic waits while a hundred thousand entries are looked at, so once each and no more.
        before, self.grouped = self.grouped, any(
            "resourcegroup" in value for path, value in entries.items() if path.startswith(attached)
        )
        self.begun += self.grouped and not before
        self._rated = any(
            value.get(key, UNLIMITED) != UNLIMITED
            for path, value in entries.items()
            if path.startswith("quotas[")
            for key in QUOTA_DIMENSIONS
        )
        self.active = self.grouped or self._rated
        self._accounts_changed()
        now_ms = self.clock.steady_ms()
        for name, account in list(self.accounts.items()):
            limits = group_limits(policies, name)
            if limits is None:
                # What it has used is told all the same, what it owes too.
                account.set_limits(self.nowhere.limits, now_ms)
                if not account.idle:
                    self._left[name.startswith(_MADE_UP)][name] = account.period(now_ms)
                self._drop(account)
                account.release()
            else:
                account.set_limits(limits, now_ms)

    def take_share(self, share: Share, then: PolicySet | None = None) -> None:
        """This proxy's share of a group was decided or repeated, under the policies `then`; None: of now."""
        then = then or self._policies
        now_ms = self.clock.steady_ms()
        account = self.accounts.get(share.group)
        # It may be one of a hundred thousand.
        known_limits = then is self._policies and account is not None
        divided = None if known_limits else group_limits(then, share.group)
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
        now_ms, expired = self.clock.steady_ms(), list[str]()
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
                self._settings.expired_share.value,
            )  # fmt: skip

    def take_left(self) -> dict[str, Use]:
        """What groups used since the last call and before their accounts went."""
        left, self._left = self._left, {True: {}, False: {}}
        return left[False] | left[True]

    def of_topic(self, topic: str) -> Account | None:
        """The account of a topic, by its name; None: it belongs to no group, `nowhere`: there is no room."""
        namespace = self._namespaces.of(topic) if self.grouped else None
        found = None if namespace is None else namespace_group(self._policies, namespace)
        return None if found is None else self._find(found[0])

    def of_group(self, group: str) -> Account | None:
        """The account of a group by its name; None: the policies do not know it, or there is no room."""
        account = self._find(group)
        return None if account is self.nowhere else account

    def of_user(self, user: str, client_id: str, direction: int) -> Account | None:
        """The account of a client's own byte rate, as `of_topic`; None: it has none in this direction."""
        if not self._rated:
            return None
        key = (user, client_id, direction)
        try:
            return self._by_user[key]
        except KeyError:
            subject = byte_quota_subject(self._policies, user, client_id, _RATES[direction])
        group = None if subject is None else f"{QUOTA_GROUP_PREFIX}{subject}"
        account = None if group is None else self._find(group)
        # Who found no room asks again with the next frame.
        if account is not self.nowhere:
            if len(self._by_user) >= self._max:
                self._by_user.popitem(last=False)
            self._by_user[key] = account
        return account

    def has(self, account: Account) -> bool:
        """Whether an account is still to be charged: it is in the table, or stands for what has no room."""
        return account is self.nowhere or self.accounts.get(account.name) is account

    def told_ms(self, wait: Wait, queued_ms: float) -> int:
        """What a client is told of a debt.

        All of it, and what those will cost who wait already, as it is their turn before. A share that is on
        its way may make it shorter.
        """
        wait_ms = wait.ms + queued_ms
        if wait.account.state is State.JOINING:
            unseen_ms = self.newcomers.unseen_ms(self.clock.steady_ms())
            wait_ms = min(wait_ms, unseen_ms or self.interval_ms)
        return max(1, round(min(wait_ms, LONGEST_WAIT_MS)))

    def _accounts_changed(self, unreported: int = 0) -> None:
        self.unmetered += unreported
        self.generation += 1
        self._by_user.clear()

    def _find(self, group: str) -> Account | None:
        """The account of a group; None: the policies do not know it. One is made if there is room for it."""
        account = self.accounts.get(group)
        if account is not None:
            return account
        limits = group_limits(self._policies, group)
        if limits is None:
            return None
        now_ms = self.clock.steady_ms()
        made_up = group.startswith(_MADE_UP)
        earlier = self._left[made_up].pop(group, None)
        if self._count[made_up] >= self._max:
            self._make_room(now_ms, made_up)
        if self._count[made_up] >= self._max:
            if earlier is not None:
                self._left[made_up][group] = earlier
            return self.nowhere
        account = self.accounts[group] = Account(
            group, limits, self._settings, self.lines, now_ms, self.newcomers.part(group, now_ms)
        )
        self._count[made_up] += 1
        account.earlier = earlier
        if group in self._early:
            share, divided, came_ms = self._early.pop(group)
            left_ms = share.ttl_ms - (now_ms - came_ms)
            if left_ms > 0:
                account.take_share(share.limits, share.ts, left_ms, now_ms, divided)
        return account

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
            self._accounts_changed(unreported)

    def _drop(self, account: Account) -> None:
        del self.accounts[account.name]
        self._count[account.name.startswith(_MADE_UP)] -= 1
