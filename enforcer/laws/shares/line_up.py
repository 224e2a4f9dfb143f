"""One connection's place among those that wait for accounts (docs/resource_groups.md, "Turns")."""

from collections.abc import Iterable
from math import inf
from typing import Final

from enforcer.core.account import DISPATCH, PUBLISH, Account, Wait
from enforcer.core.waiting import RESERVED_MS, Pause, WaitingLine
from enforcer.laws.shares.topic_accounts import Owed

_AGAIN_MS: Final = 1_000.0
"""How often one that waits for very long asks whether it may pass in spite of the debt."""
_LITTLE_MS: Final = 1.0
"""A Fetch that brings so little is not reckoned with before it does."""


class LineUp:
    """Decides whether the request at the head of a connection may go on; if not, it is paused and in line.

    Args:
        pause: holds the connection back.
        split_ms: a request that waited so long may pass in spite of the debt, or its client would give up.
        first_cost_ms: what a first Fetch is taken to cost.
    """

    def __init__(self, pause: Pause, split_ms: float, first_cost_ms: float) -> None:
        self._pause = pause
        self._split_ms = split_ms
        self._line: WaitingLine | None = None
        self._since_ms = inf
        self._fetch_cost_ms = first_cost_ms
        self._reserved: list[WaitingLine] = []

    def wake(self) -> None:
        """It may be this connection's turn (waiting.Waiter)."""
        self._pause.wake()

    def admits(self, owed: Iterable[Owed], now_ms: float) -> bool:
        """Whether a Produce request may go on; if so, it is to be charged before anything else is asked."""
        for account, _, records, size in owed:
            line = account.lines[0]
            if not line.busy and account.debt(PUBLISH, now_ms) is None:
                continue
            wait_ms = self._produce_waits_ms(account, line, records, size, now_ms)
            if wait_ms:
                self._wait(line, account.cost_ms(PUBLISH, records, size), wait_ms, now_ms)
                return False
        self._go_on()
        return True

    def admits_fetch(self, accounts: Iterable[Account], now_ms: float) -> bool:
        """Whether a Fetch request may go on; what it may bring is kept free for a moment."""
        split = now_ms - self._since_ms >= self._split_ms
        if not split:
            for account in accounts:
                line = account.lines[1]
                if not line.busy and account.debt(DISPATCH, now_ms) is None:
                    continue
                wait_ms = self._fetch_waits_ms(account, line, now_ms)
                if wait_ms:
                    self._wait(line, 0.0, wait_ms, now_ms)
                    return False
        self._go_on()
        if self._fetch_cost_ms > _LITTLE_MS:
            for account in accounts:
                line = account.lines[1]
                line.reserve(self, self._fetch_cost_ms, now_ms)
                self._reserved.append(line)
        return True

    def fetched(self, owed: Iterable[Owed], now_ms: float) -> Wait | None:
        """A Fetch is answered, with so much; the next one is taken to bring as much.

        Returns:
            The longest debt of those whom it is charged to, as it is without that; None: there is none.
        """
        if self._reserved:
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
        if self._line is not None:
            line, self._line = self._line, None
            line.leave(self)

    def close(self) -> None:
        """The connection is gone."""
        self._go_on()
        self._settle()

    def _produce_waits_ms(
        self, account: Account, line: WaitingLine, records: int, size: int, now_ms: float
    ) -> float:
        """0: it need not; else when to look again, if nobody wakes it before."""
        if account.limits.shadow:
            return 0.0
        if not line.is_next(self):
            return self._split_ms
        debt = account.debt(PUBLISH, now_ms)
        if debt is None:
            return 0.0
        from_ms = max(min(self._since_ms, now_ms) + self._split_ms, line.split_from_ms)
        if now_ms < from_ms:
            return min(debt.ms, from_ms - now_ms)
        # One for all connections, and only what will be paid back: else a thousand of them would be a way.
        if not account.can_owe(PUBLISH, records, size, now_ms):
            return min(debt.ms, _AGAIN_MS)
        line.split_from_ms = now_ms + self._split_ms
        return 0.0

    def _fetch_waits_ms(self, account: Account, line: WaitingLine, now_ms: float) -> float:
        if account.limits.shadow:
            return 0.0
        left_ms = min(self._since_ms, now_ms) + self._split_ms - now_ms
        if not line.is_next(self):
            return left_ms
        debt = account.debt(DISPATCH, now_ms)
        if debt is not None:
            return min(debt.ms, left_ms)
        reserved_ms = line.reserved_ms(now_ms)
        if reserved_ms and account.balance_ms(DISPATCH, now_ms) < reserved_ms:
            return min(RESERVED_MS, left_ms)
        return 0.0

    def _wait(self, line: WaitingLine, cost_ms: float, wait_ms: float, now_ms: float) -> None:
        if self._line is not line:
            if self._line is not None:
                self._line.leave(self)
            self._line = line
        line.join(self, cost_ms)
        self._since_ms = min(self._since_ms, now_ms)
        self._pause.pause(wait_ms)

    def _go_on(self) -> None:
        self._since_ms = inf
        self.step_aside()

    def _settle(self) -> None:
        for line in self._reserved:
            line.settle(self)
        self._reserved.clear()
