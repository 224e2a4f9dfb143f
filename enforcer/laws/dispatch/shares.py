"""Dispatch rates across brokers: this proxy's share of each, as a group (docs/contract.md 3.2 and 3.3).

Such a rate is one for a whole cluster, so no counter of one broker says what is left of it. Its group has an
account like any other: what the share gives per second flows in evenly, deliveries are charged when they have
been made, whatever their size, and what was too much is waited off.
"""

from math import inf

from enforcer.core.account import DISPATCH, Account
from enforcer.core.bucket import LONGEST_WAIT_MS
from enforcer.core.law import Accounts, Clock
from enforcer.laws.dispatch.left import UNLIMITED, Left
from streaming.laws.dispatch.law import DIMENSIONS


def left_of_account(account: Account, level: str, now_ms: float) -> Left:
    """What may be delivered now by an account; nothing limits in shadow.

    Args:
        account: a group's, or another's.
        level: what the answer calls it.
        now_ms: on the steady clock.
    """
    if account.limits.shadow:
        return UNLIMITED
    least: list[int | None] = [None, None]
    for place in range(len(DIMENSIONS)):
        bucket = account.buckets[DISPATCH + place]
        if bucket is not None and bucket.rate != inf:
            bucket.settle(now_ms)
            # Who owes nothing may deliver one more, whatever it brings.
            least[place] = max(1, int(bucket.tokens)) if bucket.tokens >= 0.0 else 0
    wait = account.debt(DISPATCH, now_ms)
    if wait is None:
        msgs, size = (None if here is None else max(1, here) for here in least)
        return Left(msgs, size, 0, "", "")
    wait_ms = max(1, round(min(wait.ms, LONGEST_WAIT_MS)))
    return Left(least[0], least[1], wait_ms, level, DIMENSIONS[wait.dimension - DISPATCH])


class DispatchShares:
    """Asks the accounts.

    Args:
        accounts: see there.
        clock: tells the time.
    """

    def __init__(self, accounts: Accounts, clock: Clock) -> None:
        self._accounts, self._clock = accounts, clock

    def left(self, group: str, level: str) -> Left:
        """What may be delivered now by the share of a group, or the part that is used without one.

        Args:
            group: its name.
            level: what the answer calls it.
        """
        account = self._accounts.of_group(group)
        if account is None:
            return UNLIMITED
        return left_of_account(account, level, self._clock.steady_ms())

    def charge(self, group: str, units: int, size: int) -> None:
        """Count a delivery: messages, or entries where they are counted, and bytes."""
        account = self._accounts.of_group(group)
        if account is None:
            self._accounts.unmetered += 1
            return
        account.charge(DISPATCH, units, size, self._clock.steady_ms())
