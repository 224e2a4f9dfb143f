"""What one connection waits for under limits of dispatch: its places in lines, and how much it may read then.

A topic that may not be read now has a place in the line of each of its counters (core/lines.py); one that
goes on keeps free what it may bring until that has come.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain
from math import ceil, inf
from typing import Final

from enforcer.core.lines import RESERVED_MS, Claim, Pause
from enforcer.kafka.dispatch.context import LARGE_MS, FetchContext
from enforcer.kafka.dispatch.fetch_requests import TopicRequest
from enforcer.kafka.dispatch.session import TopicReading
from enforcer.kafka.groups.trails import Trail
from enforcer.kafka.part import FETCH_LIMIT_MAX, PART_BYTES_MIN
from enforcer.laws.dispatch.counter_table import Moment
from enforcer.laws.dispatch.dispatch import Dispatch
from enforcer.laws.dispatch.left import Left, both

_LOOK_MS: Final = 1_000.0
"""How often it is looked what a limit of a longer period leaves, though nobody said that it has changed."""
_AMPLE_MS: Final = 10_000.0
"""And where far more was left than a response may bring, as long as none brings much. Others may have got it
meanwhile: then one response is cut that need not have been asked for."""
_COME_BACK_MS: Final = 100.0
"""A client has so long to ask again when its time has come, or loses its place to who does."""
_LIMITED_MAX: Final = 1_000
"""Topics of a connection of which it is remembered that a limit was reached."""
_ENTRY_BYTES: Final = 1_024.0
"""Size that an entry is taken to have until some were seen."""
_SLACK: Final = 1.5
"""Entries larger than the mean by so much still come; a broker may leave out what does not fit."""


class LimitedTopic:
    """A limited topic of a request.

    Attributes:
        topic: what is asked for of it, wherever the request lists it.
        broker, name, groups, claim, tracked, unsure, counters: see TopicReading.
        group: that of them whose limit was the strictest when it was looked at last.
        wait_ms: it must wait so long; 0: it goes on.
        msgs: messages, or entries where these are counted, that may be delivered of it.
        size: the same, bytes.
        most: most bytes of each of its partitions; 0: as many as it asks for.
        est_msgs: messages, or entries where these are counted, that it may bring.
        est_size: the same, bytes.
        turns: whether a limit was reached before, so that it takes turns at its counters.
        scarce: what came left no more than another such response may bring.
        left: what is left once a limit was reached by what came.
    """

    # A request for hundreds makes as many of them, so what they begin with stands here.
    group = ""
    wait_ms = 0.0
    msgs = inf
    size = inf
    most = 0
    est_msgs = 0.0
    est_size = 0.0
    turns = False
    scarce = False
    left: Left | None = None

    def __init__(self, topic: TopicRequest, reading: TopicReading) -> None:
        self.topic = topic
        (
            self.broker, self.name, self.groups, self.claim, self.tracked, self.unsure, self.counters,
        ) = reading  # fmt: skip

    def begin(self) -> None:
        """It is asked for again."""
        self.wait_ms, self.most, self.turns = 0.0, 0, False
        self.msgs = self.size = inf


Ample = dict[bytes, tuple[TopicRequest, TopicReading]]
"""Limited topics of a request of which far more is left than a response may bring, by name or id."""


class Claims:
    """The places of one connection."""

    def __init__(self, context: FetchContext, pause: Pause, trail: Trail) -> None:
        self._context = context
        self._pause = pause
        self._trail = trail
        # Until when it need not be asked what is left for them, unless it was woken.
        self._waiting: dict[Claim, float] = {}
        self._woken = False
        self._going: list[Claim] = []
        # Those of which a limit was reached; with when, what was left and whose, until it is asked anew.
        self._limited_before: dict[Claim, tuple[float, Left, str] | None] = {}
        # Until when it need not be asked either.
        self._ample: dict[Claim, float] = {}
        self._generation = -1
        # Since when a request is kept; since when one was that has gone on since, and may be taken back.
        self._held_since_ms = self._released_ms = inf
        self._taken_back = False

    def wake(self) -> None:
        """It may be its turn (lines.Waiter)."""
        self._woken = True
        self._pause.wake()

    @property
    def held(self) -> bool:
        """Whether a request is kept."""
        return self._held_since_ms != inf

    @property
    def again(self) -> bool:
        """Whether a request was planned before, and kept here or by a later part."""
        return self.held or self._taken_back

    @property
    def waits(self) -> bool:
        """Whether it waits for anything."""
        return bool(self._waiting)

    def begin(self) -> None:
        """A request is looked at: what the last one had on its way has come."""
        self.settle()
        generation = self._context.dispatch.generation
        if self._woken or generation != self._generation:
            self._waiting = dict.fromkeys(self._waiting, 0.0)
            self._limited_before = dict.fromkeys(self._limited_before)
            self._ample.clear()
        self._woken, self._generation = False, generation

    def decide(self, want: LimitedTopic, now_ms: float, moment: Moment, caught_up: bool = False) -> None:
        """Whether a topic may be read now, and how much of it; else it has its place in the line."""
        context, claim = self._context, want.claim
        if caught_up and not context.dispatch.all_charged:
            return
        until_ms = self._waiting.get(claim)
        if until_ms is not None and until_ms > now_ms:
            want.wait_ms = until_ms - now_ms
            return
        want.turns = not caught_up and claim in self._limited_before
        left = self._left_before(want, now_ms) or left_for(context.dispatch, moment, want)
        if left.msgs == left.bytes == inf:
            return
        want.msgs, want.size = left.msgs, left.bytes
        if left.wait_ms:
            self._note_limited(claim)
            want.wait_ms = float(left.wait_ms)
        elif want.unsure and (sits_out_ms := context.sits_out_ms(self._trail)):
            want.wait_ms = sits_out_ms
            self.leave(want)
            return
        elif want.msgs <= 0 or want.size <= 0 or (
            want.turns and not all(context.lines.is_next(each, claim) for each in want.counters)
        ):
            want.wait_ms = RESERVED_MS
        if want.wait_ms:
            within_ms = want.wait_ms + _COME_BACK_MS
            context.lines.join(want.counters, claim, wait_ms=float(left.wait_ms), within_ms=within_ms)
            if until_ms is None and left.level:
                context.dispatch.throttled(want.broker, want.name, want.group, left.level, left.dimension)
            self._waiting[claim] = now_ms + min(float(left.wait_ms), _LOOK_MS)
            return
        estimate(context, want)
        self._let_go(want, now_ms)

    def decide_together(self, wants: Sequence[LimitedTopic], now_ms: float, moment: Moment) -> float:
        """Whether all of these may be read now, by their one claim; else it has its place in all their lines.

        Had each of them a claim, one would wait for another of the same request, and behind others here who
        wait behind it there. What comes cannot be held back any more, so they take turns from the beginning.

        Returns:
            How long they must wait, ms; 0: they go on.
        """
        context, claim = self._context, wants[0].claim
        until_ms = self._waiting.get(claim, -inf)
        if until_ms > now_ms:
            return until_ms - now_ms
        ready_ms = 0.0
        for want in wants:
            want.turns = True
            left = left_for(context.dispatch, moment, want)
            want.msgs, want.size = left.msgs, left.bytes
            ready_ms = max(ready_ms, float(left.wait_ms))
            if left.level and claim not in self._waiting:
                context.dispatch.throttled(want.broker, want.name, want.group, left.level, left.dimension)
            estimate(context, want)
        counters = tuple(dict.fromkeys(chain.from_iterable(want.counters for want in wants)))
        free = all(want.msgs > 0 and want.size > 0 for want in wants)
        if ready_ms or not (free and all(context.lines.is_next(each, claim) for each in counters)):
            wait_ms = ready_ms or RESERVED_MS
            context.lines.join(counters, claim, wait_ms=ready_ms, within_ms=wait_ms + _COME_BACK_MS)
            self._waiting[claim] = now_ms + min(ready_ms, _LOOK_MS)
            return wait_ms
        msgs, size = min(want.est_msgs for want in wants), min(want.est_size for want in wants)
        context.lines.reserve(counters, claim, msgs, size)
        self._going.append(claim)
        self.leave(wants[0])
        return 0.0

    def hold(self, wait_ms: float, most_ms: float) -> bool:
        """Whether a request is kept, for so long, but not for longer than `most_ms` since it came."""
        now_ms = self._context.steady_ms()
        if not self.held:
            before_ms = self._released_ms if self._taken_back else inf
            self._held_since_ms = min(before_ms, now_ms)
            self._context.metrics.held_fetches.inc(before_ms == inf)
        left_ms = self._held_since_ms + most_ms - now_ms
        if left_ms > 0:
            self._pause.pause(min(wait_ms, left_ms))
        return left_ms > 0

    def release(self) -> None:
        """The request is not kept any more."""
        self._released_ms = min(self._held_since_ms, self._released_ms if self._taken_back else inf)
        self._held_since_ms = inf
        self._taken_back = False

    def take_back(self) -> None:
        """It does not go on, after all, and is planned again."""
        self.settle()
        self._taken_back = True

    def apart_ms(self, between_ms: float = LARGE_MS) -> float:
        """How long one whose topics are too many, or unknown, must wait (FetchContext.apart_ms).

        Taken back it has had its turn: another one would be a turn that others wait for.
        """
        return 0.0 if self._taken_back else self._context.apart_ms(between_ms)

    def is_ample(self, claim: Claim, now_ms: float) -> bool:
        """Whether far more was left than one response may bring, and none has come that changes it."""
        return self._ample.get(claim, 0.0) > now_ms

    def look(self, want: LimitedTopic) -> None:
        """What is left of a topic is not ample any more."""
        self._ample.pop(want.claim, None)

    def reached(self, want: LimitedTopic, left: Left, came_ms: float) -> None:
        """A limit was reached by what came of a topic then, which left so much."""
        self._note_limited(want.claim, (came_ms, left, want.group))

    def leave(self, want: LimitedTopic) -> None:
        """It waits no more."""
        if want.claim in self._waiting:
            del self._waiting[want.claim]
            self._context.lines.leave(want.claim)

    def give_up(self, wanted: Iterable[LimitedTopic] = ()) -> None:
        """Who waited for what is not asked for any more does not wait."""
        asked = {want.claim for want in wanted} if self._waiting else ()
        for claim in [claim for claim in self._waiting if claim not in asked]:
            del self._waiting[claim]
            self._context.lines.leave(claim)

    def settle(self) -> None:
        """What was on its way has come, or will not come."""
        going, self._going = self._going, []
        for claim in going:
            self._context.lines.settle(claim)

    def close(self) -> None:
        """The connection is gone."""
        self.settle()
        self.give_up()

    def _let_go(self, want: LimitedTopic, now_ms: float) -> None:
        """It goes on: what it may bring is kept free for it, where it takes turns."""
        if want.turns:
            self._context.lines.reserve(want.counters, want.claim, want.est_msgs, want.est_size)
            self._going.append(want.claim)
        elif want.most == FETCH_LIMIT_MAX and not want.unsure and self._context.dispatch.all_charged:
            if len(self._ample) >= _LIMITED_MAX:
                self._ample.clear()
            self._ample[want.claim] = now_ms + _AMPLE_MS

    def _left_before(self, want: LimitedTopic, now_ms: float) -> Left | None:
        """What was left when a limit was reached, as long as it has to be waited for; None: look anew."""
        reached = self._limited_before.get(want.claim)
        if reached is None:
            return None
        self._limited_before[want.claim] = None
        came_ms, left, want.group = reached
        wait_ms = left.wait_ms - (now_ms - came_ms)
        return left._replace(wait_ms=ceil(wait_ms)) if wait_ms > 0 else None

    def _note_limited(self, claim: Claim, reached: tuple[float, Left, str] | None = None) -> None:
        """From now on it takes turns; before, nobody waits for what others may bring."""
        self._ample.pop(claim, None)
        if len(self._limited_before) >= _LIMITED_MAX:
            self._limited_before.clear()
        self._limited_before[claim] = reached


def left_for(dispatch: Dispatch, moment: Moment, want: LimitedTopic) -> Left:
    """What may be delivered of a topic now, beside others who take turns, by the strictest of its groups."""
    lines, others = dispatch.lines, None
    if want.turns and not lines.are_left_to(want.counters, want.claim):
        others = partial(lines.taken, claim=want.claim)
    found = None
    for group in want.groups:
        its = dispatch.left_at(moment, want.name, group, others)
        if found is None or its.wait_ms > found.wait_ms:
            want.group = group
        found = its if found is None else both(found, its)
    assert found is not None
    return found


def estimate(context: FetchContext, want: LimitedTopic) -> None:
    """How much may be read of a topic, and what that may bring."""
    entry_msgs, entry_bytes = context.dispatch.mean_entry(want.broker, want.name, want.group)
    unit = 1.0 if context.dispatch.by_entry else max(1.0, entry_msgs)
    entry_bytes = entry_bytes or _ENTRY_BYTES
    entries = min(
        ceil(want.msgs / unit) if want.msgs < inf else inf,
        max(1, ceil(want.size / entry_bytes)) if want.size < inf else inf,
        max(1, ceil(FETCH_LIMIT_MAX / entry_bytes)),
    )
    want.most = int(min(FETCH_LIMIT_MAX, max(PART_BYTES_MIN, entries * entry_bytes * _SLACK)))
    want.est_msgs, want.est_size = entries * unit, entries * entry_bytes
