"""Backlogs of a real Pulsar as a test reads and evicts them."""

import asyncio
import time
from typing import Any

import pulsar as pulsar_client
from pulsar_kit import Admin, client, fresh, receive, send_all

from streaming.collect.backlog.cluster import Eviction, RoundQuestion, RoundResult
from streaming.collect.pulsar.rest import Rest, RestTerms
from streaming.collect.pulsar_backlog.cluster import PulsarBacklogs
from streaming.contract.backlog.actions import Position
from streaming.contract.backlog.decisions import EvictionPlan
from streaming.contract.broker_events import Backlog
from streaming.laws.backlog.law import Log
from weir.stack.pulsar import LocalPulsar

SLOW, FAST = "slow", "fast/%41+ one"
"""Names as people may choose them."""


class InLoop:
    """Who asks an admin API, in a loop of its own."""

    def __init__(self, url: str) -> None:
        self._loop = asyncio.new_event_loop()
        self.rest: Rest = self.run(self._connect(url))

    async def _connect(self, url: str) -> Rest:
        return Rest(RestTerms(base=url))

    def run(self, work: Any) -> Any:
        """In its loop."""
        return self._loop.run_until_complete(work)

    def close(self) -> None:
        """Leave nothing open."""
        self.run(self.rest.__aexit__(None, None, None))
        self._loop.close()


class Rig(InLoop):
    """A cluster's backlogs."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.cluster = PulsarBacklogs(self.rest)

    def look(self, *, precise_age: bool = True, expires: bool = True) -> RoundResult:
        """A round, with nothing left unread."""
        looked: RoundResult = self.run(
            self.cluster.look(RoundQuestion(precise_age=precise_age, expires=lambda _topic: expires))
        )
        assert (looked.unread, looked.failures) == (0, [])
        return looked

    def report(self, topic: str, **wants: bool) -> Backlog:
        """Of one topic."""
        [found] = [one for one in self.look(**wants).reports if one.topic == topic]
        return found

    def prepare(self, report: Backlog, **planned: Any) -> Eviction | None:
        """See PulsarBacklogs."""
        plan = EvictionPlan(**planned)
        prepared: Eviction | None = self.run(self.cluster.prepare(report, plan, may_delete=False))
        return prepared

    def evict(self, report: Backlog, **planned: Any) -> Eviction:
        """Both steps, and seen."""
        prepared = self.prepare(report, **planned)
        assert prepared is not None
        self.run(self.cluster.carry_out(prepared))
        assert self.passed(prepared) is True
        return prepared

    def passed(self, eviction: Eviction) -> bool | None:
        """Whether it is where it was to be."""
        [one] = self.run(self.cluster.passed(eviction.topic, [(eviction.subscription, eviction.upto)]))
        found: bool | None = one
        return found


def bodies(first: int, end: int) -> list[bytes]:
    """Numbered messages of 200 bytes."""
    return [b"%06d" % number + b"." * 194 for number in range(first, end)]


def numbers(consumer: Any, most: int | None = None, quiet_s: float = 1.5) -> list[int]:
    """Those of the messages that a consumer gets, acknowledged."""
    return [int(one.data[:6]) for one in receive(consumer, most=most, quiet_s=quiet_s)]


def subscribed(service: str, topic: str, *names: str) -> None:
    """Subscriptions that nobody reads."""
    with client(service) as clients:
        for name in names:
            clients.subscribe(topic, name, initial_position=pulsar_client.InitialPosition.Earliest).close()


def sent(service: str, topic: str, first: int, end: int, **options: Any) -> None:
    """Messages one by one, or as the options say."""
    with client(service) as clients:
        producer = clients.create_producer(topic, **{"batching_enabled": False, **options})
        send_all(producer, bodies(first, end))


def backlogged(pulsar: LocalPulsar, count: int, *names: str, partitions: int = 0) -> str:
    """A topic with so many messages, which these subscriptions have not read."""
    topic: str = Admin(pulsar.admin).topic(fresh("backlog"), partitions)
    subscribed(pulsar.service, topic, *names)
    sent(pulsar.service, topic, 0, count)
    return topic


def read(service: str, topic: str, name: str, most: int | None = None) -> list[int]:
    """What a subscription has left, in order."""
    with client(service) as clients:
        consumer = clients.subscribe(topic, name)
        found = numbers(consumer, most)
        time.sleep(0.3)  # acknowledgements are sent together, a tenth of a second later
        return found


def position(report: Backlog, name: str) -> Position:
    """Where a subscription stands."""
    [one] = [one for one in report.subscriptions if one.name == name]
    return one.ledger, one.entry


def precise_size(report: Backlog, name: str) -> float:
    """Bytes of its backlog, by the law."""
    [one] = [one for one in report.subscriptions if one.name == name]
    log = Log(report.ledgers, precise=True)
    return log.size(log.place(one))


def entry_at(report: Backlog, number: int, total: int) -> Position:
    """The position of the entry with a number, from 0, of so many; the first ones may have been trimmed."""
    left = total - 1 - number
    for ledger in reversed(report.ledgers):
        if left < ledger.entries:
            return ledger.id, ledger.entries - 1 - left
        left -= ledger.entries
    raise AssertionError(number)


def upto(report: Backlog, number: int, total: int, passed: int = 0) -> dict[str, Any]:
    """A plan for SLOW, which has passed so many: to the entry with a number (see entry_at), no further."""
    ledger, entry = entry_at(report, number, total)
    return {"subscription": SLOW, "ledger": ledger, "entry": entry, "entries": number + 1 - passed}
