"""One connection's place among those that wait for accounts (docs/resource_groups.md, "Turns")."""

from collections.abc import Iterable, Sequence
from math import inf
from typing import Final

from enforcer.core.account import DISPATCH, PUBLISH, Account, Wait
from enforcer.core.lines import RESERVED_MS, Claim, Counter, Lines, Pause
from enforcer.laws.shares.topic_accounts import BillItem

_AGAIN_MS: Final = 1_000.0
"""How often one that waits for very long asks whether it may pass in spite of the debt."""
_LITTLE_MS: Final = 1.0
"""A Fetch that brings so little is not reckoned with before it does."""


class LineUp:
    """Decides whether the request at the head of a connection may go on; if not, it is paused and in line.

    Args:
        split_ms: a request that waited so long may pass in spite of the debt, or its client would give up.
        first_cost_ms: what a first Fetch is taken to cost.
    """

    def __init__(self, lines: Lines, pause: Pause, split_ms: float, first_cost_ms: float) -> None:
        self._lines = lines
        self._pause = pause
        self._split_ms = split_ms
        self._waits = self._reserved = False
        self._since_ms = inf
        self._fetch_cost_ms = first_cost_ms

    def wake(self) -> None:
        """It may be this connection's turn (lines.Waiter)."""
        self._pause.wake()

    def admits(self, owed: Sequence[BillItem], now_ms: float) -> bool:
        """Whether a Produce request may go on; if so, it is to be charged before anything else is asked."""
        if self.passes(owed, now_ms):
            return True
        charges: dict[Account, tuple[int, int]] = {}
        for account, _, records, size in owed:
            few, less = charges.get(account, (0, 0))
            charges[account] = few + records, less + size
        for account, (records, size) in charges.items():
            wait_ms = self._produce_waits_ms(account, records, size, now_ms)
            if wait_ms:
                self._wait(account.counters[0], account.cost_ms(PUBLISH, records, size), wait_ms, now_ms)
                return False
        for account in charges:
            if account.debt(PUBLISH, now_ms) is not None:
                # Only now: had another one held it, nobody would have passed for this time.
                account.split_from_ms = now_ms + self._split_ms
        self._go_on()
        return True

    def passes(self, owed: Iterable[BillItem], now_ms: float) -> bool:
        """The same where nobody owes and nobody waits; False: nothing is said, `admits` is to be asked."""
        for account, *_ in owed:
            if self._lines.busy(account.counters[0]) or account.debt(PUBLISH, now_ms) is not None:
                return False
        self._go_on()
        return True

    def admits_fetch(self, accounts: Iterable[Account], now_ms: float, *, most_ms: float = inf) -> bool:
        """Whether a Fetch request may go on; what it may bring is kept free for a moment.

        Args:
            accounts: who would be charged for it.
            most_ms: its answer cannot be emptied, so it passes others after a while, but never a debt, and
                is looked at again after so long; inf: it can be.
        """
        left_ms = min(self._since_ms, now_ms) + self._split_ms - now_ms
        in_turn = left_ms > 0
        for account in accounts if in_turn or most_ms < inf else ():
            if not self._lines.busy(account.counters[1]) and account.debt(DISPATCH, now_ms) is None:
                continue
            wait_ms = self._fetch_waits_ms(account, now_ms, in_turn)
            if wait_ms:
                wait_ms = min(wait_ms, most_ms, left_ms if in_turn else inf)
                self._wait(account.counters[1], 0.0, wait_ms, now_ms)
                return False
        self._go_on()
        if self._fetch_cost_ms > _LITTLE_MS:
            counters = [account.counters[1] for account in accounts]
            self._lines.reserve(counters, self._claim, self._fetch_cost_ms)
            self._reserved = True
        return True

    def must_wait(self, accounts: Iterable[Account], now_ms: float) -> bool:
        """Whether a Fetch could not go on now; it does not wait for that."""
        return any(self._fetch_waits_ms(account, now_ms) for account in accounts)

    def fetched(self, owed: Iterable[BillItem], now_ms: float) -> Wait | None:
        """A Fetch is answered, with so much; the next one is taken to bring as much.

        Returns:
            The longest debt of those whom it is charged to, as it is without that; None: there is none.
        """
        self._settle()
        longest = None
        cost_ms = 0.0
        for account, _, records, size in owed:
            cost_ms = max(cost_ms, account.cost_ms(DISPATCH, records, size))
            debt = account.debt(DISPATCH, now_ms)
            if debt is not None and (longest is None or debt.ms > longest.ms):
                longest = debt
        self._fetch_cost_ms = cost_ms
        return longest

    def step_aside(self) -> None:
        """It could not go on even if it were its turn: nobody shall wait for that."""
        if self._waits:
            self._waits = False
            self._lines.leave(self._claim)

    def close(self) -> None:
        """The connection is gone."""
        self._go_on()
        self._settle()

    @property
    def _claim(self) -> Claim:
        return self, "", ""

    def _produce_waits_ms(self, account: Account, records: int, size: int, now_ms: float) -> float:
        """0: it need not; else when to look again, if nobody wakes it before."""
        if account.limits.shadow:
            return 0.0
        if not self._lines.is_next(account.counters[0], self._claim):
            return self._split_ms
        debt = account.debt(PUBLISH, now_ms)
        if debt is None:
            return 0.0
        from_ms = max(min(self._since_ms, now_ms) + self._split_ms, account.split_from_ms)
        if now_ms < from_ms:
            return min(debt.ms, from_ms - now_ms)
        # One for all connections, and only what will be paid back: else a thousand of them would be a way.
        if not account.can_owe(PUBLISH, records, size, now_ms):
            return min(debt.ms, _AGAIN_MS)
        return 0.0

    def _fetch_waits_ms(self, account: Account, now_ms: float, in_turn: bool = True) -> float:
        if account.limits.shadow:
            return 0.0
        counter = account.counters[1]
        if in_turn and not self._lines.is_next(counter, self._claim):
            return self._split_ms
        debt = account.debt(DISPATCH, now_ms)
        if debt is not None:
            return debt.ms
        # What is on its way to this one too: it may ask again before it has been answered.
        reserved_ms, _ = self._lines.others(counter, None)
        return RESERVED_MS if reserved_ms and account.balance_ms(DISPATCH, now_ms) < reserved_ms else 0.0

    def _wait(self, counter: Counter, cost_ms: float, wait_ms: float, now_ms: float) -> None:
        self._waits = True
        self._lines.join([counter], self._claim, cost=cost_ms)
        self._since_ms = min(self._since_ms, now_ms)
        self._pause.pause(wait_ms)

    def _go_on(self) -> None:
        self._since_ms = inf
        self.step_aside()

    def _settle(self) -> None:
        if self._reserved:
            self._reserved = False
            self._lines.settle(self._claim)
