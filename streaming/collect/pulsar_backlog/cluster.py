"""A Pulsar cluster as a holder of backlogs: all its topics in a round, a few calls at a time.

A round asks each topic once (`internalStats`, which Pulsar has in memory) and a second time (`stats`) only
where a subscription is new or a publish time is needed that is not known yet: then Pulsar reads a message.
Topics that are not loaded get loaded by that.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

from streaming.collect.backlog.cluster import RoundQuestion, RoundResult, now_ms, unnamed_report
from streaming.collect.pulsar.limits import topic_path
from streaming.collect.pulsar.readings import is_users
from streaming.collect.pulsar.rest import Rest, RestError, part, told
from streaming.collect.pulsar_backlog.eviction import Evictor, has_passed, log_of
from streaming.collect.pulsar_backlog.readings import (
    PUBLISHED,
    Cursor,
    TopicLog,
    durabilities,
    earliest,
    when,
)
from streaming.contract.backlog.actions import Position
from streaming.contract.broker_events import Backlog, Ledger, Subscription
from streaming.contract.errors import WeirError
from streaming.contract.names import NAMESPACE

TOPICS_MAX: Final = 100_000
"""Topics that are read; others are counted as unread."""
REQUESTS_AT_ONCE: Final = 8
"""REST calls under way at a time."""
_EARLIEST: Final = "?getEarliestTimeInBacklog=true"


class Closings:
    """When one topic's ledgers were closed, look by look, which Pulsar keeps and tells nobody.

    It tells when the open ledger was created, which is when the one before was closed; of others it is known
    that they were closed earlier. So a ledger is noted with the earliest time by which it was closed for
    sure: ages by it are too small rather than too great. Of those that were there before the collector was,
    that may be by much; then the publish time of the message behind the ledger tells more (`refine`).
    """

    __slots__ = ("_open", "_times")

    def __init__(self) -> None:
        self._times: dict[int, tuple[int, bool]] | None = None
        self._open: tuple[int, int] | None = None

    def take(self, log: TopicLog, at_ms: int) -> None:
        """A look at `at_ms`, by our clock."""
        created = self._created(log)
        # A broker's clock before ours must not close ledgers in the future.
        known_by = at_ms if created is None else min(at_ms, created)
        closed = [one.id for one in log.ledgers[: log.closed]]
        before = self._times or {}
        # At the first look only the last one's time is exact, if any is.
        loose = len(closed) - (created is not None) if self._times is None else 0
        self._times = {
            ledger: before.get(ledger, (known_by, number < loose)) for number, ledger in enumerate(closed)
        }

    def time(self, ledger: int) -> int | None:
        """By when it was closed, ms since the epoch; None: it is open."""
        return (self._times or {}).get(ledger, (None, False))[0]

    def loose(self, ledger: int) -> bool:
        """Whether it may have been closed long before that."""
        return (self._times or {}).get(ledger, (None, False))[1]

    def refine(self, ledger: int, published: int) -> None:
        """The first message behind it was published at `published`."""
        if self._times is not None and ledger in self._times:
            self._times[ledger] = min(self._times[ledger][0], published), False

    def _created(self, log: TopicLog) -> int | None:
        """When the open ledger was created; None also while Pulsar still tells when the one before was."""
        if log.created is None:
            return None
        now = log.ledgers[-1].id, log.created
        if self._open is not None and self._open[1] == now[1] and self._open[0] != now[0]:
            return None
        self._open = now
        return log.created


@dataclass(slots=True)
class _Memory:
    """What is known of a topic from earlier rounds.

    Attributes:
        durable: (name, when it was born) of a subscription -> whether it holds data back.
        published: name of a subscription -> its position, and when the message behind that was published.
        closings: of its ledgers.
    """

    durable: dict[tuple[str, str], bool] = field(default_factory=dict)
    published: dict[str, tuple[Position, int]] = field(default_factory=dict)
    closings: Closings = field(default_factory=Closings)


class Listing:
    """The topics of a cluster, round by round."""

    def __init__(self, rest: Rest) -> None:
        self._rest = rest
        self._known: dict[str, list[str]] = {}

    @property
    def known(self) -> Sequence[str]:
        """The topics of the last list; of namespaces that could not be listed, of an earlier one."""
        return [topic for topics in self._known.values() for topic in topics]

    async def list(self, looked: RoundResult) -> Sequence[str]:
        """The full names of all that could be listed; `looked` is told of others, at least so many, and why.

        Raises:
            RestError: nothing could be listed.
        """
        tenants = await self._rest.names("/admin/v2/tenants")
        found, lost = await told(
            self._rest.names, {one: f"/admin/v2/namespaces/{part(one)}" for one in tenants}
        )
        # Users', in the form that Pulsar has had since 2.0.
        namespaces = [
            name
            for names in found.values()
            for name in names
            if NAMESPACE.fullmatch(name) and name != "pulsar/system"
        ]
        lists, unlisted = await told(
            self._rest.names, {one: f"/admin/v2/persistent/{quote(one)}" for one in namespaces}
        )
        failures = [*lost.values(), *unlisted.values()]
        if failures and not (lists if namespaces else found):
            raise failures[0]
        looked.failures += map(str, failures)
        before = self._known
        self._known = {name: sorted(filter(is_users, set(topics))) for name, topics in lists.items()}
        topics = self.known
        # Nobody knows how many there are now; one is always said.
        kept = {name: before.get(name, []) for name in unlisted}
        looked.unread += sum(max(1, len(one)) for one in kept.values())
        for tenant in lost:
            own = {name: one for name, one in before.items() if name.startswith(f"{tenant}/")}
            looked.unread += max(1, sum(map(len, own.values())))
            kept |= own
        self._known |= kept
        return topics


class PulsarBacklogs:
    """A BacklogCluster: all topics but Pulsar's own."""

    def __init__(self, rest: Rest) -> None:
        self._rest = rest
        evictor = Evictor(rest)
        self.prepare, self.carry_out = evictor.prepare, evictor.carry_out
        self._listing = Listing(rest)
        self._memories: dict[str, _Memory] = {}

    async def look(self, wants: RoundQuestion) -> RoundResult:
        """Read all topics (see BacklogCluster)."""
        looked = RoundResult()
        self._rest.ask_again()
        # Who is asked sends on to the one that has the topic.
        self._rest.trust_brokers(await self._rest.names("/admin/v2/brokers"))
        listed = await self._listing.list(looked)
        topics, beyond = listed[:TOPICS_MAX], len(listed) - TOPICS_MAX
        if beyond > 0:
            looked.failures.append(f"{len(listed)} topics; {TOPICS_MAX} are read")
            looked.unread += beyond
        # Of topics that are only unread now, what was seen of them stays known.
        kept = self._listing.known[:TOPICS_MAX]
        self._memories = {topic: self._memories.get(topic) or _Memory() for topic in (*kept, *topics)}
        await self._read_all(topics, wants, looked)
        return looked

    async def passed(self, topic: str, subscriptions: Sequence[tuple[str, Position]]) -> list[bool | None]:
        """Whether each of these subscriptions of a topic has come to a position, or further."""
        try:
            log = await log_of(self._rest, topic)
        except RestError as failure:
            if failure.absent:
                return [None] * len(subscriptions)
            raise
        return [has_passed(log, name, position) for name, position in subscriptions]

    async def _read_all(self, topics: Iterable[str], wants: RoundQuestion, looked: RoundResult) -> None:
        """As many at a time as calls may be under way: more would only wait in memory."""
        waiting: Iterator[str] = iter(topics)

        async def work() -> None:
            for topic in waiting:
                try:
                    looked.reports.append(await self._read(topic, wants))
                except Exception as failure:  # noqa: BLE001 - one topic must not cost all others their check
                    if not isinstance(failure, RestError) or not failure.absent:
                        looked.unread += 1
                        said = str(failure) if isinstance(failure, WeirError) else f"{topic}: {failure!r}"
                        looked.failures.append(said)

        async with asyncio.TaskGroup() as group:
            for _ in range(REQUESTS_AT_ONCE):
                group.create_task(work())
        looked.reports.sort(key=lambda report: report.topic)

    async def _read(self, topic: str, wants: RoundQuestion) -> Backlog:
        """One topic; raises as `log_of`."""
        memory, path = self._memories[topic], topic_path(topic)
        # Before the answer: ages must not be greater than they are.
        ts = now_ms()
        log = await log_of(self._rest, topic)
        memory.closings.take(log, ts)
        durable = await self._durable(topic, memory, log)
        names = sorted(durable)
        behind = [name for name in names if durable[name] and log.next_of(log.cursors[name].position)]
        behind.sort(key=lambda name: log.cursors[name].position)
        published = await self._published(topic, memory, log, _asked(topic, wants, behind))
        if behind and not wants.precise_age:
            await self._refine(path, memory.closings, log, log.cursors[behind[0]].position)
        ledgers = (
            Ledger(id=one.id, entries=one.entries, size=one.size, close_time=memory.closings.time(one.id))
            for one in log.ledgers
        )
        subscriptions = (
            Subscription(
                name=name,
                ledger=log.cursors[name].position[0],
                entry=log.cursors[name].position[1],
                durable=durable[name],
                oldest_publish_time=published.get(name),
            )
            for name in names
        )
        return unnamed_report(topic, ts, ledgers, subscriptions)

    async def _durable(self, topic: str, memory: _Memory, log: TopicLog) -> dict[str, bool]:
        """Which cursors are subscriptions, and whether they are durable."""
        keys = {name: (name, cursor.born) for name, cursor in log.cursors.items()}
        if not all(key in memory.durable for key in keys.values()):
            said = durabilities(topic, await self._rest.get(f"{topic_path(topic)}/stats"))
            # One that is not told there is being made or deleted right now, and is asked for again.
            memory.durable = {key: said[name] for name, key in keys.items() if name in said}
        memory.durable = {key: memory.durable[key] for key in keys.values() if key in memory.durable}
        return {name: memory.durable[key] for name, key in keys.items() if key in memory.durable}

    async def _published(
        self, topic: str, memory: _Memory, log: TopicLog, names: Sequence[str]
    ) -> dict[str, int]:
        """When the oldest unacknowledged messages of these were published; asked if a position has moved."""
        known = memory.published
        if any(_moved(known, name, log.cursors[name]) for name in names):
            stats = await self._rest.get(f"{topic_path(topic)}/stats{_EARLIEST}")
            durabilities(topic, stats)
            said = ((name, earliest(stats, name)) for name in names)
            known = {name: (log.cursors[name].position, at) for name, at in said if at is not None}
        memory.published = {
            name: known[name]
            for name in names
            if name in known and not _moved(known, name, log.cursors[name])
        }
        return {name: at for name, (_, at) in memory.published.items()}

    async def _refine(self, path: str, closings: Closings, log: TopicLog, position: Position) -> None:
        """The close time of the ledger that the oldest subscription is in, if it may be much earlier."""
        first = log.next_of(position)
        ledger = log.size_of(first[0]) if first is not None else None
        if ledger is None or not closings.loose(ledger.id):
            return
        behind = log.next_of((ledger.id, ledger.entries - 1))
        if behind is None:
            return
        try:
            headers = await self._rest.head(f"{path}/ledger/{behind[0]}/entry/{behind[1]}")
        except RestError:
            # The time that is known is too late rather than too early, and the next round asks again.
            return
        published = when(headers.get(PUBLISHED))
        if published is not None:
            closings.refine(ledger.id, published)


def _asked(topic: str, wants: RoundQuestion, behind: Sequence[str]) -> Sequence[str]:
    """Whose publish times are wanted, of those with a backlog, the oldest first."""
    if wants.expires(topic):
        return behind
    return behind[:1] if wants.precise_age else ()


def _moved(known: dict[str, tuple[Position, int]], name: str, cursor: Cursor) -> bool:
    return name not in known or known[name][0] != cursor.position
