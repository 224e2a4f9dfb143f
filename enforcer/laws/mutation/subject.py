"""What a proxy knows of one subject: its newest statement, the own tail, and the balance at its end.

The balance is walked on with every event that is added, never again from the start for each request. A new
statement makes another walk necessary only where it says something else than the walk did; of a long tail
that is put off until it is paid for (`CREDIT`), so that a job that comes back after an hour with many
thousands of admissions costs each of them the same.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from enforcer.laws.mutation.balance import Balance, Kind, Sent, take
from streaming.laws.mutation.rates import FULL, refill
from streaming.policy.timeline import PolicyTimeline

SHORT: Final = 64
"""A tail of so many events is walked again at once: about 0.1 ms."""
CREDIT: Final = 8
"""Events of a longer one that each statement and each request pays for."""
LOST_MS: Final = 60_000
"""A question without an admission is lost once later events are decided so long after it."""
SAID_MS: Final = 3_660_000
"""Of an event so much older than a statement nothing is said any more: the job lists a refund for an hour,
and what stands on the topic is applied within a minute of its time."""
_ID_CHARS: Final = 256


def weight_of(sent: Sent) -> int:
    """What an event counts in the bound of all tails: itself, its items, and a name that is very long."""
    return 1 + len(sent.mutations) + len(sent.id) // _ID_CHARS


class Subject:
    """Statement and own tail of one subject.

    Attributes:
        name: the quota entity.
        base: the statement, with the events that had to be folded into it.
        now: the balance after the whole tail, as far as it was walked.
        tail: own events whose admission was not read, by id, in the order sent.
        weight: of the tail.
        ts: time of the newest own event, ms: the next one is not older.
        stated_at: applied time of the statement, ms; -1: there is none.
        stated_ids: the admissions read with that applied time.
        folded: id of the newest own event that was folded into the statement; "" if none was.
        silent: the last question got no answer in time.
        asked_ts: time of the last question, ms.
        open: questions without an answer.
        walk: number of the proxies' count and the policies by which the tail was walked.
    """

    __slots__ = (
        "asked_ts", "base", "credit", "folded", "name", "now", "open", "silent", "stale", "stated_at",
        "stated_ids", "tail", "ts", "walk", "weight",
    )  # fmt: skip

    def __init__(self, name: str, ts: int, walk: int) -> None:
        self.name = name
        self.base = Balance(FULL, FULL, ts)
        self.now = self.base.copy()
        self.tail: OrderedDict[str, Sent] = OrderedDict()
        self.weight = 0
        self.ts = ts
        self.stated_at = -1
        self.stated_ids: set[str] = set()
        self.folded = ""
        self.silent = False
        self.asked_ts = 0
        self.open = 0
        self.walk = walk
        self.stale = False
        self.credit = 0

    def add(self, sent: Sent) -> None:
        """Put an event at the end of the tail; the caller has taken `now` through it."""
        self.tail[sent.id] = sent
        self.weight += weight_of(sent)
        self.open += sent.question

    def drop(self, sent: Sent) -> None:
        """Take an event out of the tail."""
        del self.tail[sent.id]
        self.weight -= weight_of(sent)
        self.open -= sent.question

    def give_up(self, sent: Sent) -> None:
        """A question was not answered in time, and is not charged any more."""
        self.weight -= weight_of(sent)
        self.open -= sent.question
        sent.kind, sent.mutations, sent.question = Kind.CHARGE, (), False
        self.weight += weight_of(sent)
        self.stale = True

    def catch_up(self, walk: int, timeline: PolicyTimeline, proxies: int) -> Balance:
        """The balance after the whole tail; walked anew where that is due."""
        self.credit += CREDIT
        due = self.stale and len(self.tail) <= max(SHORT, self.credit)
        if due or self.walk != walk:
            self.walk, self.stale, self.credit = walk, False, 0
            now = self.base.copy()
            # FULL / P is FULL.
            now.part = now.tokens / proxies
            for sent in self.tail.values():
                take(now, sent, self.name, timeline, proxies)
            self.now = now
        return self.now

    def state(self, statement: Balance, own: Sent | None, refunds: Iterable[str], proxies: int) -> int:
        """Take a statement, and what it holds out of the tail.

        Args:
            statement: balance at its applied time.
            own: the event that it is for, if that is in the tail.
            refunds: ids of the refunds that it lists.
            proxies: their number.

        Returns:
            How many events were given up: nothing will ever be said of them.
        """
        self.credit += CREDIT
        lost, in_order = self._drop_older(statement.at)
        if own is not None and own.id in self.tail:
            before, own_in_order = self._drop_before(own, statement.at)
            lost, in_order = lost + before, in_order and own_in_order
        for refund in refunds:
            given_back = self.tail.get(refund)
            if given_back is not None:
                self.drop(given_back)
                in_order = False
        # Nearly always, where we are alone, it says what the walk said; then the walk goes on.
        said = Balance(own.tokens, FULL, own.at) if own is not None else self.base
        agrees = proxies == 1 and in_order and said.tokens == statement.tokens and said.at == statement.at
        self.base = statement
        self.folded = ""
        self.stale = self.stale or not agrees
        return lost

    def fold(self, timeline: PolicyTimeline) -> None:
        """Make the oldest event of the tail part of the statement."""
        sent = next(iter(self.tail.values()))
        take(self.base, sent, self.name, timeline, 1)
        self.drop(sent)
        self.folded = sent.id

    def is_full(self, ts: int, timeline: PolicyTimeline) -> bool:
        """Whether it has nothing to say at a time: no tail, and its bucket is full."""
        return not self.tail and self.base_is_full(ts, timeline)

    def base_is_full(self, ts: int, timeline: PolicyTimeline) -> bool:
        """Whether the statement says no more at a time than that the bucket is full."""
        base = self.base
        quota = timeline.at(max(ts, base.at)).mutation_quota_of_subject(self.name)
        if quota is None or base.tokens == FULL:
            return True
        return refill(base.tokens, quota.rate, quota.burst, max(0, ts - base.at)) >= quota.burst

    def _drop_older(self, at: int) -> tuple[int, bool]:
        """Drop events of which nothing will be said any more.

        Without it a refund that no admission lists would be given again with each statement of others.

        Returns:
            How many were lost, and whether there was none.
        """
        lost, none = 0, True
        while self.tail:
            oldest = next(iter(self.tail.values()))
            if oldest.ts + SAID_MS >= at:
                break
            lost, none = lost + (oldest.kind is not Kind.REFUND), False
            self.drop(oldest)
        return lost, none

    def _drop_before(self, own: Sent, at: int) -> tuple[int, bool]:
        """Drop an own event that was decided, and those before it: they are in its statement, or lost.

        Events that carry their time are applied in the order sent. A question carries none, and may be
        decided after events that were sent after it.

        Returns:
            How many were lost, and whether nothing was left before it.
        """
        before = []
        for sent in self.tail.values():
            if sent is own:
                break
            before.append(sent)
        lost = left = 0
        for sent in before:
            if not sent.timed and at < sent.ts + LOST_MS:
                left += 1
                continue
            lost += sent.kind is not Kind.REFUND
            self.drop(sent)
        self.drop(own)
        return lost, not left and not lost
