"""What one proxy knows of one resource group: use, limits, its share, the balance (docs/contract.md 3.2).

The byte rates of a user are a group too, `quota/` and the subject. Pure: times are arguments, ms of one
steady clock.
"""

from collections.abc import Mapping
from enum import StrEnum
from math import inf
from typing import Final, NamedTuple

from enforcer.core.bucket import Bucket
from enforcer.core.lines import Lines
from enforcer.core.settings import ExpiredShare, ProxySettings
from streaming.contract.usage_events import DIMENSIONS
from streaming.policy.groups import MIN_LIMIT, GroupLimits

PUBLISH: Final = 0
DISPATCH: Final = 2
"""Where the two dimensions (messages, bytes) of a direction begin in DIMENSIONS."""
SHARE_BURST_S: Final = 0.5
"""Unused seconds of a rate that are kept: a tenth of a short round of 5 s."""
_NO_TIME_MS: Final = 0.1
"""A debt that lasts no longer keeps nobody waiting: no timer is so exact."""


class State(StrEnum):
    """How an account stands towards its shares (after Envoy's RLQS, docs/protocol_notes.md 6)."""

    JOINING = "joining"
    """No share yet: a newcomer's part of the limit."""
    ACTIVE = "active"
    EXPIRED = "expired"
    """The share was not repeated within its life time: as `expired_share` says."""


class Wait(NamedTuple):
    """How long an account's debt lasts.

    Attributes:
        ms: the time, above 0.
        account: whose debt it is.
        dimension: its place in DIMENSIONS.
        forgiven: records and bytes of a charge that are not waited off, since the debt has a limit.
    """

    ms: float
    account: "Account"
    dimension: int
    forgiven: tuple[float, float] = (0.0, 0.0)


class Use(NamedTuple):
    """What an account used in a period, as it is reported.

    Attributes:
        counts: in the order of DIMENSIONS. In a dimension that is waited off, traffic counts as its debt is
            repaid, not when it passed: one large request must not look like a burst and then silence.
        throttled_ms: time in debt; None: not limited.
    """

    counts: tuple[int, ...]
    throttled_ms: tuple[int | None, ...]

    def plus(self, later: "Use") -> "Use":
        """Of this period and a later one together."""
        return Use(
            tuple(first + second for first, second in zip(self.counts, later.counts, strict=True)),
            tuple(
                second if first is None else first + (second or 0)
                for first, second in zip(self.throttled_ms, later.throttled_ms, strict=True)
            ),
        )


class Account:
    """One group or quota subject at this proxy.

    Attributes:
        name: of the group.
        limits: of the whole group.
        buckets: per dimension; None: not limited.
        used: records and bytes since the start, per dimension.
        refunded: those of them that a broker refused.
        share: the newest share, per dimension; None: none.
        state: how it stands towards its shares.
        part: of the limit, which may be used in a dimension without a share.
        wanting: there is such a dimension.
        counters: its names in the lines, to publish and to dispatch.
        lines: who waits for it.
        split_from_ms: from when on one may publish in spite of the debt.
        earlier: what its group used in this period before it last made room for others.

    Args:
        settings: how shares and debts are used.
        burst_s: unused seconds of a rate that are kept.
    """

    __slots__ = (
        "_burst_s", "_carry", "_counted", "_debt", "_debt_ms", "_divided", "_forgiven", "_settings",
        "_share_ts", "_taken_back", "buckets", "counters", "earlier", "limits", "lines", "name", "part",
        "refunded", "share", "share_until_ms", "split_from_ms", "state", "used", "wanting",
    )  # fmt: skip

    def __init__(
        self, name: str, limits: GroupLimits, settings: ProxySettings, lines: Lines, now_ms: float,
        part: float, burst_s: float = SHARE_BURST_S,
    ) -> None:  # fmt: skip
        self.name = name
        self.part = part
        self.limits = limits
        self.used = [0] * len(DIMENSIONS)
        self.refunded = [0] * len(DIMENSIONS)
        self.share: list[float | None] = [None] * len(DIMENSIONS)
        self.share_until_ms = -inf
        self.state = State.JOINING
        self.buckets: list[Bucket | None] = [None] * len(DIMENSIONS)
        self.counters = (name, "publish"), (name, "dispatch")
        self.lines = lines
        self.split_from_ms = -inf
        self.earlier: Use | None = None
        self._settings, self._burst_s = settings, burst_s
        self._share_ts = 0
        self._divided = limits
        self._counted = [0] * len(DIMENSIONS)
        self._taken_back = [0] * len(DIMENSIONS)
        self._carry = [0.0] * len(DIMENSIONS)
        self._debt = [0.0] * len(DIMENSIONS)
        self._debt_ms = [0.0] * len(DIMENSIONS)
        self._forgiven = [0.0] * len(DIMENSIONS)
        self._apply_rates(now_ms)

    def debt(self, direction: int, now_ms: float) -> Wait | None:
        """How long nothing more should pass; None: it may. In shadow it always may."""
        by_records, by_size = self.buckets[direction], self.buckets[direction + 1]
        # Time only makes a balance larger, so who had one last time has one now.
        owes_records = by_records is not None and by_records.tokens < 0.0
        owes_size = by_size is not None and by_size.tokens < 0.0
        if (not owes_records and not owes_size) or self.limits.shadow:
            return None
        longest, dimension = 0.0, direction
        if by_records is not None:
            longest = by_records.wait_ms(now_ms)
        if by_size is not None and (wait_ms := by_size.wait_ms(now_ms)) > longest:
            longest, dimension = wait_ms, direction + 1
        return Wait(longest, self, dimension) if longest > _NO_TIME_MS else None

    def cost_ms(self, direction: int, records: int, size: int) -> float:
        """For how long a charge keeps the account busy; 0: not limited."""
        by_records, by_size = self.buckets[direction], self.buckets[direction + 1]
        cost_ms = 0.0 if by_records is None else records / by_records.rate * 1000.0
        return cost_ms if by_size is None else max(cost_ms, size / by_size.rate * 1000.0)

    def balance_ms(self, direction: int, now_ms: float) -> float:
        """For how long the balance lasts at the account's rate; below 0 it is debt."""
        least = inf
        for bucket in self.buckets[direction : direction + 2]:
            if bucket is not None and bucket.rate != inf:
                bucket.settle(now_ms)
                least = min(least, bucket.tokens / bucket.rate * 1000.0)
        return least

    def can_owe(self, direction: int, records: int, size: int, now_ms: float) -> bool:
        """Whether all of a charge would be waited off, and nothing of it forgiven."""
        for bucket, count in zip(self.buckets[direction : direction + 2], (records, size), strict=True):
            if bucket is not None:
                bucket.settle(now_ms)
                if bucket.tokens - count < -bucket.debt_max:
                    return False
        return True

    def refund(self, direction: int, records: int, size: int, few: float = 0.0, less: float = 0.0) -> None:
        """Undo what was charged for something that did not come to pass.

        Args:
            direction: PUBLISH or DISPATCH.
            size: bytes of the records.
            few, less: of records and bytes, those forgiven already.
        """
        for place, count, forgiven in ((direction, records, few), (direction + 1, size, less)):
            self.refunded[place] += count
            bucket = self.buckets[place]
            if bucket is not None:
                bucket.give_back(max(0.0, count - forgiven))
                # It was not used after all, so it is not taken off the use as forgiven either.
                self._forgiven[place] += min(count, forgiven)
        self.lines.wake(self.counters[direction >> 1])

    def charge(self, direction: int, records: int, size: int, now_ms: float) -> Wait | None:
        """Count what passes; says how long nothing more should pass after it, None: no time."""
        used = self.used
        used[direction] += records
        used[direction + 1] += size
        by_records, by_size = self.buckets[direction], self.buckets[direction + 1]
        longest, dimension = 0.0, direction
        few = less = 0.0
        if by_records is not None:
            few = by_records.forgiven
            longest = by_records.charge(records, now_ms)
            few = by_records.forgiven - few
        if by_size is not None:
            less = by_size.forgiven
            wait_ms = by_size.charge(size, now_ms)
            less = by_size.forgiven - less
            if wait_ms > longest:
                longest, dimension = wait_ms, direction + 1
        if not longest:
            return None
        if self.limits.shadow:
            # Its debt is counted, not waited off: one second of it is enough to be seen.
            for bucket in self.buckets:
                if bucket is not None and bucket.debt > bucket.rate:
                    bucket.forgive(bucket.rate)
            return None
        return Wait(longest, self, dimension, (few, less))

    def note(self, dimension: int, count: int, held_ms: float) -> None:
        """Add to the use of this period what is neither charged nor waited off here.

        Args:
            dimension: its place in DIMENSIONS.
            count: the use.
            held_ms: for how long no more was to be had.
        """
        self.used[dimension] += count
        bucket = self.buckets[dimension]
        if bucket is not None:
            bucket.debt_ms += held_ms

    def take_share(
        self, rates: Mapping[str, float] | None, ts: int, ttl_ms: float, now_ms: float,
        divided: GroupLimits | None = None,
    ) -> None:  # fmt: skip
        """A share was decided or repeated.

        Args:
            rates: dimension -> what may be used per second; None: this proxy is no member any more.
            ts: when it was decided. A job that was killed, or begins anew, writes some decisions again: older
                ones are passed over, since the newer follow, or have come.
            ttl_ms: how long it stands, from now on.
            divided: the limits that it is a share of; None: those of now.
        """
        if ts < self._share_ts:
            return
        if ts > self._share_ts:
            self._divided = divided or self.limits
        self._share_ts = ts
        if rates is None:
            self.share = [None] * len(DIMENSIONS)
            self.state = State.JOINING
        else:
            self.share = [rates.get(dimension) for dimension in DIMENSIONS]
            self.share_until_ms = now_ms + ttl_ms
            self.state = State.ACTIVE
        self._apply_rates(now_ms)

    def set_limits(self, limits: GroupLimits, now_ms: float) -> None:
        """The policies have changed."""
        if limits != self.limits:
            self.limits = limits
            self._apply_rates(now_ms)

    def set_part(self, part: float, now_ms: float) -> None:
        """Another part of the limit is this proxy's without a share."""
        if part != self.part:
            self.part = part
            self._apply_rates(now_ms)

    def expire(self, now_ms: float) -> bool:
        """Whether the share's life time has just ended."""
        if self.state is not State.ACTIVE or now_ms < self.share_until_ms:
            return False
        self.state = State.EXPIRED
        self._apply_rates(now_ms)
        return True

    def rate(self, dimension: int) -> float | None:
        """What this proxy may use of a dimension per second; None: not limited."""
        limit = self.limits.rates[dimension]
        if limit is None:
            return None
        share = self.share[dimension]
        if share is None:
            return max(MIN_LIMIT, limit * self.part)
        divided = self._divided.rates[dimension]
        if divided is not None:
            # Of a limit that was lowered since then all have the same part as of the former one.
            share *= min(1.0, limit / divided)
        expired = self._settings.expired_share
        if self.state is State.EXPIRED and expired is not ExpiredShare.KEEP:
            if expired is ExpiredShare.OPEN:
                return inf
            share *= 0.0 if expired is ExpiredShare.CLOSED else self._settings.safe_fraction
        return max(MIN_LIMIT, min(share, limit))

    def period(self, now_ms: float) -> Use:
        """What was used since the last call."""
        counts: list[int] = []
        throttled: list[int | None] = []
        for place, bucket in enumerate(self.buckets):
            count = float(self.used[place] - self._counted[place])
            count -= self.refunded[place] - self._taken_back[place]
            self._counted[place], self._taken_back[place] = self.used[place], self.refunded[place]
            time_ms = None
            if bucket is not None:
                bucket.settle(now_ms)
                time_ms = round(bucket.debt_ms - self._debt_ms[place])
                # What was forgiven is never waited off, nor was it used by the rules of the group.
                count += self._debt[place] - bucket.debt - (bucket.forgiven - self._forgiven[place])
                count += self._carry[place]
                self._debt[place], self._debt_ms[place] = bucket.debt, bucket.debt_ms
                self._forgiven[place] = bucket.forgiven
            # Without debt the rest is a whole number but for rounding, and there may be no later report.
            whole = int(count) if self._debt[place] else round(count)
            # A rate below one per round must not look like silence: its carry goes below zero for it.
            whole = max(whole, 1 if time_ms else 0)
            self._carry[place] = count - whole if bucket is not None else 0.0
            counts.append(whole)
            throttled.append(time_ms)
        use, earlier = Use(tuple(counts), tuple(throttled)), self.earlier
        self.earlier = None
        return use if earlier is None else earlier.plus(use)

    def release(self) -> None:
        """The group is gone: nobody waits for it any longer."""
        for counter in self.counters:
            self.lines.wake_all(counter)

    @property
    def idle(self) -> bool:
        """Whether the next `period` would say nothing: no use since the last one, no debt."""
        if self.used != self._counted or self.refunded != self._taken_back:
            return False
        return not any(self._debt) and self.earlier is None

    @property
    def indebted(self) -> bool:
        """Whether something passed that is not waited off yet."""
        return any(bucket is not None and bucket.tokens < 0.0 for bucket in self.buckets)

    def _apply_rates(self, now_ms: float) -> None:
        pairs = zip(self.limits.rates, self.share, strict=True)
        self.wanting = any(limit is not None and share is None for limit, share in pairs)
        for place, bucket in enumerate(self.buckets):
            rate = self.rate(place)
            if rate is None:
                # It has passed, and nobody waits off the rest of it.
                self._counted[place] -= round(self._debt[place] + self._carry[place])
                self._debt[place] = self._carry[place] = 0.0
                self.buckets[place] = None
                continue
            # Of the limit, not of the share: who has little of it may not be forgiven more for that.
            debt_max = (self.limits.rates[place] or 0.0) * self._settings.debt_max_s
            if bucket is None:
                self.buckets[place] = Bucket(rate, self._burst_s, now_ms, debt_max)
                self._debt[place] = self._debt_ms[place] = self._carry[place] = self._forgiven[place] = 0.0
                continue
            bucket.debt_max = debt_max
            if rate != bucket.rate:
                bucket.set_rate(rate, now_ms)
        for counter in self.counters:
            self.lines.wake(counter)
