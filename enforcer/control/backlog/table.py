"""What was seen of backlogs, decided on them and done about them, as read from Weir's topics.

A topic is known once a report of it or a decision on it was read. What was done is counted from the first
action that was read on, and forgotten with its topic. Reports are cut down to what is shown of them where
records are read, so that long lists of ledgers neither hold up requests nor stay in memory.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate, takewhile
from operator import attrgetter
from sys import intern
from typing import Final, NamedTuple

from enforcer.core.feeds.rows import without_nulls
from streaming.contract.backlog.actions import BEGUN, DONE, FAILED, BacklogAction
from streaming.contract.backlog.decisions import BacklogDecision
from streaming.contract.broker_events import backlog
from streaming.contract.fields import Fields
from streaming.contract.names import partitioned_topic_of
from streaming.kafka_io.newest import Newest
from streaming.laws.backlog.law import Log


@dataclass(frozen=True, slots=True)
class SubscriptionLag:
    """How far behind one subscription is.

    Attributes:
        name: unique in its topic.
        durable: whether it holds data back.
        msgs: entries that it has not acknowledged.
        size: bytes of them, whole ledgers.
        precise_size: the same with `preciseBacklogSize`.
        earliest: publish time of the oldest of them, ms since the epoch; 0: not known, or there is none.
    """

    name: str
    durable: bool
    msgs: int
    size: float
    precise_size: float
    earliest: int


@dataclass(frozen=True, slots=True)
class BacklogReport:
    """What was seen of one topic.

    Attributes:
        topic: full name.
        ts: when, ms since the epoch.
        storage: bytes of all its ledgers.
        subscriptions: as they were sent.
    """

    topic: str
    ts: int
    storage: int
    subscriptions: tuple[SubscriptionLag, ...]


def report_of(fields: Fields, name: str, ts: int) -> BacklogReport:
    """A `backlog` event of that name and time, cut down; sizes are the law's own; raises BadEvent."""
    listed = fields.get("subscriptions")
    if type(listed) is list:
        # In the rows of a packed record a null is an absent field.
        items = [without_nulls(item) if type(item) is dict else item for item in listed]
        fields = {**fields, "subscriptions": items}
    event = backlog(fields, name, ts)
    whole, precise = (Log(event.ledgers, precise=flag) for flag in (False, True))
    counts = accumulate((ledger.entries for ledger in reversed(event.ledgers)), initial=0)
    rest = list(counts)[::-1]  # entries from each ledger on; nothing at the end
    subscriptions = []
    for each in event.subscriptions:
        place = whole.place(each)
        number, acknowledged = place
        msgs = rest[number] - acknowledged
        subscriptions.append(
            SubscriptionLag(
                name=each.name,
                durable=each.durable,
                msgs=msgs,
                size=whole.size(place),
                precise_size=precise.size(place),
                earliest=(each.oldest_publish_time or 0) if msgs else 0,
            )
        )
    storage = sum(ledger.size for ledger in event.ledgers)
    return BacklogReport(event.topic, event.ts, storage, tuple(subscriptions))


REMEMBERED_MAX: Final = 100
"""Steps of a topic that are remembered so as not to be counted twice, and blocks of it that stand."""


@dataclass(slots=True)
class Evictions:
    """What a quota of one type has cost a topic's subscriptions.

    Attributes:
        times: checks that something was evicted at; several subscriptions at one check are one time.
        failures: attempts, of a subscription each, that failed.
        msgs, bytes: what was evicted.
        lastTime: of the last time, ms since the epoch; None: never.
    """

    times: int = 0
    failures: int = 0
    msgs: int = 0
    bytes: int = 0
    lastTime: int | None = None


@dataclass(slots=True)
class Done:
    """What was done about one topic.

    Attributes:
        evicted: by quota type.
        blocks: of producers that have begun and not ended, by their id.
        times_blocked: how many have begun.
        remembered: ids of steps that were counted, and of checks that were.
    """

    evicted: dict[str, Evictions] = field(default_factory=dict)
    blocks: OrderedDict[str, BacklogAction] = field(default_factory=OrderedDict)
    times_blocked: int = 0
    remembered: OrderedDict[str, None] = field(default_factory=OrderedDict)


class Judged(NamedTuple):
    """Of a decision (BacklogDecision) what is shown."""

    ts: int
    size: float
    age: int
    oldest: str | None
    exceeded: tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Row:
    """One topic.

    Attributes:
        report: the newest; None: none was read.
        decision: the newest; None: none was read.
        done: None: nothing, as about most.
        heard_ts: the newest of all of these, ms since the epoch.
    """

    report: BacklogReport | None = None
    decision: Judged | None = None
    done: Done | None = None
    heard_ts: int = 0

    @property
    def checked_ts(self) -> int:
        """When the topic was last looked at, ms since the epoch; 0: nothing but actions are known of it."""
        seen = (each.ts for each in (self.report, self.decision) if each is not None)
        return max(seen, default=0)

    @property
    def weight(self) -> int:
        """Rows that it counts for: itself and its subscriptions."""
        return 1 + (0 if self.report is None else len(self.report.subscriptions))


class BacklogTable:
    """Topics that are looked at; beyond so many, with their subscriptions, those silent longest go first."""

    def __init__(self, rows_max: int) -> None:
        self.rows: Newest[str, Row] = Newest(
            rows_max, group=partitioned_topic_of, weight=attrgetter("weight")
        )

    def take_report(self, report: BacklogReport) -> None:
        """Take in what was seen; older than what is known it says nothing."""
        row = self._heard(report.topic, report.ts)
        if row.report is None or report.ts >= row.report.ts:
            before, row.report = row.weight, report
            self.rows.resize(row.weight - before)

    def take_decision(self, decision: BacklogDecision) -> None:
        """Take in what was decided; older than what is known it says nothing, and repeated nothing new."""
        row = self._heard(decision.topic, decision.ts)
        if row.decision is None or decision.ts >= row.decision.ts:
            # The same few names stand in very many rows.
            oldest = None if decision.oldest is None else intern(decision.oldest)
            row.decision = Judged(decision.ts, decision.size, decision.age, oldest, decision.exceeded)

    def take_action(self, action: BacklogAction) -> None:
        """Count what was done; each step once, though it may come again."""
        row = self._heard(action.topic, action.ts)
        row.done = row.done or Done()
        if action.subscription:
            _count(row.done, action)
        else:
            _note_block(row.done, action)

    def row(self, topic: str, since_ms: int) -> Row | None:
        """A topic that was looked at since then; None: it was not."""
        row = self.rows.get(topic)
        return None if row is None or row.checked_ts < max(1, since_ms) else row

    def partitions(self, topic: str, since_ms: int) -> Iterator[tuple[str, Row]]:
        """Partitions of a topic that were looked at since then, by number."""
        for name, row in sorted(self.rows.of_group(topic), key=lambda one: int(one[0].rpartition("-")[2])):
            if self.row(name, since_ms) is not None:
                yield name, row

    def forget(self, before_ms: int) -> None:
        """Let go of topics of which nothing was heard since then: they are there no more."""
        silent = takewhile(lambda one: one[1].heard_ts < before_ms, self.rows.items())
        for topic in [topic for topic, _ in silent]:
            self.rows.remove(topic)

    def _heard(self, topic: str, ts: int) -> Row:
        known = self.rows.get(topic)
        row = self.rows.heard(topic, Row, newer=known is None or ts > known.heard_ts)
        row.heard_ts = max(row.heard_ts, ts)
        return row


def _count(done: Done, action: BacklogAction) -> None:
    if action.step not in (DONE, FAILED) or not _remember(done, f"{action.step} {action.id}"):
        return
    evicted = done.evicted.setdefault(action.quota_type, Evictions())
    if action.step == FAILED:
        evicted.failures += 1
        return
    evicted.msgs += action.messages
    evicted.bytes += action.bytes
    evicted.lastTime = max(evicted.lastTime or 0, action.ts)
    # The actions of one check differ in what stands behind its id.
    check = action.id.removesuffix(f"/{action.quota_type}/{action.subscription}")
    evicted.times += _remember(done, f"{action.quota_type} {check}")


def _note_block(done: Done, action: BacklogAction) -> None:
    if not _remember(done, f"{action.step} {action.id}"):
        return
    if action.step != BEGUN:
        done.blocks.pop(action.id, None)
        return
    done.times_blocked += 1
    done.blocks[action.id] = action
    if len(done.blocks) > REMEMBERED_MAX:
        done.blocks.popitem(last=False)


def _remember(done: Done, what: str) -> bool:
    """Whether this is new."""
    if what in done.remembered:
        # What still comes is no reason to forget it.
        done.remembered.move_to_end(what)
        return False
    done.remembered[what] = None
    if len(done.remembered) > REMEMBERED_MAX:
        done.remembered.popitem(last=False)
    return True
