"""Counts traffic per group and user and says how long its connection must wait (docs/contract.md 3.2).

A protocol says what passed (topic, records, bytes) and whose it is; the policies say who belongs where, and
decisions bring shares. One event loop, no sockets. Where neither a group is attached to a namespace nor a
byte rate is set, `active` is False, and nobody calls anything else.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from enforcer.core.account import DISPATCH, PUBLISH, Account, State, Wait
from enforcer.core.bucket import LONGEST_WAIT_MS
from enforcer.core.law import Clock
from enforcer.core.settings import ProxySettings
from enforcer.laws.shares.account_table import AccountTable
from streaming.contract.decisions import Share
from streaming.contract.names import QUOTA_GROUP_PREFIX
from streaming.contract.namespaces import Namespaces
from streaming.policy.groups import (
    LIFE_ROUNDS,
    QUOTA_DIMENSIONS,
    byte_quota_subject,
    group_limits,
    round_rules,
)
from streaming.policy.policy_set import UNLIMITED, PolicySet, Section
from streaming.policy.topics import namespace_group

_RATES: Final = dict(zip((PUBLISH, DISPATCH), QUOTA_DIMENSIONS, strict=True))


class Meter:
    """All accounts of this proxy. Topics are charged by `topic_accounts.TopicAccounts`.

    Attributes:
        active: something is to be counted.
        grouped: some namespaces have groups, so topics matter.
        begun: how often they have begun to: before, nobody looked at which ones a session has.
        accounts: group -> its account.
        nowhere: stands for every account that there is no room for; it has no limits.
        newcomers: tells what may be used without a share.
        lines: who waits for an account.
        look, take_left: of AccountTable, see there.
        unmetered: how often traffic was not counted: no room for its account, or for its use until the next
            report, or a topic without a name.
        interval_ms: time between two usage reports.
        generation: goes up when a topic or a user may belong to another account than before.
        clock: tells the time.

    Args:
        settings: bounds and rules.
        clock: tells the time.
    """

    def __init__(self, settings: ProxySettings, clock: Clock) -> None:
        self.active, self.grouped, self.begun = False, False, 0
        self._table = AccountTable(settings, clock, self._accounts_changed)
        self.accounts = self._table.accounts
        self.nowhere = self._table.nowhere
        self.newcomers = self._table.newcomers
        self.lines = self._table.lines
        self.look, self.take_left = self._table.look, self._table.take_left
        self.unmetered = 0
        self.generation = 0
        self.clock = clock
        self._users_max = settings.subjects_max
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
        self._table.set_policies(policies)

    def take_share(self, share: Share, then: PolicySet | None = None) -> None:
        """This proxy's share of a group was decided or repeated, under the policies `then`; None: of now."""
        then = then or self._policies
        # It may be one of a hundred thousand.
        known = then is self._policies and share.group in self.accounts
        self._table.take_share(share, None if known else group_limits(then, share.group))

    def of_topic(self, topic: str) -> Account | None:
        """The account of a topic, by its name; None: it belongs to no group, `nowhere`: there is no room."""
        namespace = self._namespaces.of(topic) if self.grouped else None
        found = None if namespace is None else namespace_group(self._policies, namespace)
        return None if found is None else self._table.find(found[0], self._policies)

    def of_group(self, group: str) -> Account | None:
        """The account of a group by its name; None: the policies do not know it, or there is no room."""
        account = self._table.find(group, self._policies)
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
        account = None if group is None else self._table.find(group, self._policies)
        # Who found no room asks again with the next frame.
        if account is not self.nowhere:
            if len(self._by_user) >= self._users_max:
                self._by_user.popitem(last=False)
            self._by_user[key] = account
        return account

    def has(self, account: Account) -> bool:
        """Whether an account is still to be charged: it is in the table, or stands for what has no room."""
        return account is self.nowhere or self.accounts.get(account.name) is account

    def has_unread(self, account: Account) -> bool:
        """Whether another proxy may have shares of an account's group that were not read."""
        return self.newcomers.unread and self.newcomers.stands(account.name, self.clock.steady_ms())

    def told_ms(self, wait: Wait, queued_ms: float) -> int:
        """What a client is told of a debt.

        All of it, and what those will cost who wait already, as it is their turn before. A share that is on
        its way may make it shorter.

        Args:
            wait: the debt.
            queued_ms: of those who wait.
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
