"""The limited topics of a Fetch request: how much may be read of each, and when."""

from functools import partial
from math import ceil, inf
from typing import Final

from enforcer.kafka.dispatch.context import FetchContext
from enforcer.kafka.dispatch.fetch_requests import FetchRequest, TopicRequest
from enforcer.kafka.dispatch.session import TopicReading
from enforcer.kafka.part import FETCH_LIMIT_MAX, PART_BYTES_MIN
from enforcer.laws.dispatch.counter_table import Moment
from enforcer.laws.dispatch.dispatch import Dispatch
from enforcer.laws.dispatch.left import Left, both

_ENTRY_BYTES: Final = 1_024.0
"""Size that an entry is taken to have until some were seen."""
_WIDE_MAX: Final = 2 * FETCH_LIMIT_MAX
"""A Fetch of hundreds of partitions brings at most so many bytes at once."""
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


def divided(asked: FetchRequest, wanted: dict[bytes, LimitedTopic]) -> tuple[set[int], dict[int, int]]:
    """Which topics of a request must wait, and how much may be read of others; both by place."""
    waiting, limits = set[int](), dict[int, int]()
    for place, topic in enumerate(asked.topics if wanted else ()):
        want = wanted.get(topic.key)
        if want is not None and want.wait_ms:
            waiting.add(place)
        elif want is not None and 0 < want.most < FETCH_LIMIT_MAX:
            limits[place] = want.most
    return waiting, limits


def most_of(asked: FetchRequest) -> int:
    """Most bytes of a response: each partition that is looked at takes its time, whatever it brings."""
    parts = sum(len(topic.parts) for topic in asked.topics)
    return max(FETCH_LIMIT_MAX, min(_WIDE_MAX, 2 * PART_BYTES_MIN * parts))
