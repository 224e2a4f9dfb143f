"""Pulsar's admin API in memory, as far as backlogs are read and evicted by it."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote_plus, unquote, unquote_plus

import httpx2
import orjson
from limits_kit import FakeApi, rest_of

from streaming.collect.backlog.cluster import RoundQuestion
from streaming.collect.pulsar_backlog.cluster import PulsarBacklogs

NOW_MS = 1_795_166_700_000
ENTRY = 100
"""Bytes of each."""


def told(at_ms: int) -> str:
    """A time as Pulsar writes it."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat().replace("+00:00", "Z")


@dataclass
class FakeTopic:
    """A topic: ledgers with so many entries each, the last one open, and its subscriptions.

    Attributes:
        ledgers: id -> entries.
        positions: subscription -> its mark-delete position.
        created: of the open ledger, ms.
        is_open: whether the last ledger is.
        readers: those of the subscriptions that are not durable.
        acknowledged: subscription -> ranges as Pulsar writes them.
        published: position -> when, ms.
        batch: messages an entry.
        born: changes when a subscription is made anew.
    """

    ledgers: dict[int, int]
    positions: dict[str, tuple[int, int]] = field(default_factory=dict)
    created: int = NOW_MS - 5_000
    is_open: bool = True
    readers: set[str] = field(default_factory=set)
    acknowledged: dict[str, str] = field(default_factory=dict)
    published: dict[tuple[int, int], int] = field(default_factory=dict)
    batch: int = 1
    born: str = "2026-11-20T09:54:47.9Z"

    def entries(self) -> list[tuple[int, int]]:
        """The positions of all of them."""
        return [(ledger, entry) for ledger, count in self.ledgers.items() for entry in range(count)]

    def behind(self, subscription: str) -> list[tuple[int, int]]:
        """Those of a subscription's backlog."""
        return [one for one in self.entries() if one > self.positions[subscription]]

    def internal_stats(self) -> dict[str, Any]:
        """As Pulsar tells them."""
        last = max(self.ledgers)
        held = {ledger: 0 if self.is_open and ledger == last else n for ledger, n in self.ledgers.items()}
        confirmed = max(self.entries(), default=(last, -1))
        return {
            "currentLedgerEntries": self.ledgers[last],
            "currentLedgerSize": self.ledgers[last] * ENTRY,
            "lastLedgerCreatedTimestamp": told(self.created),
            "lastConfirmedEntry": f"{confirmed[0]}:{confirmed[1]}",
            "ledgers": [{"ledgerId": one, "entries": n, "size": n * ENTRY} for one, n in held.items()],
            "cursors": {
                quote_plus(name): {
                    "markDeletePosition": f"{ledger}:{entry}",
                    "individuallyDeletedMessages": self.acknowledged.get(name, "[]"),
                    "lastLedgerSwitchTimestamp": self.born,
                }
                for name, (ledger, entry) in {**self.positions, "pulsar.dedup": (0, 0)}.items()
            },
        }

    def stats(self, earliest: bool) -> dict[str, Any]:
        """As Pulsar tells them."""
        firsts = {name: next(iter(self.behind(name)), None) for name in self.positions}
        return {
            "subscriptions": {
                name: {
                    "isDurable": name not in self.readers,
                    "earliestMsgPublishTimeInBacklog": (self.published.get(first, 0) if earliest else 0)
                    if first is not None
                    else -1,
                }
                for name, first in firsts.items()
            }
        }

    def expire(self, subscription: str, upto: tuple[int, int]) -> int:
        """Status; moves it as Pulsar does."""
        if subscription not in self.positions:
            return 404
        if upto > max(self.entries()):
            return 409
        there = [one for one in self.behind(subscription) if one <= upto]
        self.positions[subscription] = max(there, default=self.positions[subscription])
        return 204


class FakeBacklogs(FakeApi):
    """A cluster.

    Attributes:
        topics: full name -> topic.
        namespaces: that are there besides those of the topics.
        lazy: evictions are taken and not carried out.
        bodies: of evictions.
        found: what is found for any time; None: the first message of that time or later.
    """

    def __init__(self, topics: dict[str, FakeTopic] | None = None) -> None:
        super().__init__()
        self.topics = topics or {}
        self.namespaces: set[str] = {"pulsar/system"}
        self.lazy = False
        self.bodies: list[Any] = []
        self.found: tuple[int, int] | None = None

    def count(self, ending: str) -> int:
        """Calls whose path ends so."""
        return Counter(path.endswith(ending) for _, path in self.calls)[True]

    def answer(self, request: httpx2.Request, path: str) -> httpx2.Response:
        """See FakeApi."""
        path, _, query = path.partition("?")
        parts = path.removeprefix("/admin/v2/").split("/")
        if parts[0] != "persistent":
            return httpx2.Response(200, json=self._list(parts))
        namespace = "/".join(map(unquote, parts[1:3]))
        if len(parts) == 3:
            own = [name for name in self.topics if name.startswith(f"persistent://{namespace}/")]
            return httpx2.Response(200, json=own)
        topic = self.topics.get(f"persistent://{namespace}/{unquote(parts[3])}")
        if topic is None:
            return httpx2.Response(404, json={"reason": "Topic not found"})
        return self._topic(topic, request, parts[4:], query)

    def _list(self, parts: list[str]) -> list[str]:
        names = self.namespaces | {
            name.removeprefix("persistent://").rpartition("/")[0] for name in self.topics
        }
        match parts:
            case ["brokers"]:
                return ["broker1:8080"]
            case ["tenants"]:
                return sorted({name.partition("/")[0] for name in names})
            case ["namespaces", tenant]:
                return sorted(name for name in names if name.startswith(f"{unquote(tenant)}/"))
        raise AssertionError(parts)

    def _topic(
        self, topic: FakeTopic, request: httpx2.Request, rest: list[str], query: str
    ) -> httpx2.Response:
        match rest:
            case ["internalStats"]:
                return httpx2.Response(200, json=topic.internal_stats())
            case ["stats"]:
                return httpx2.Response(200, json=topic.stats("getEarliestTimeInBacklog=true" in query))
            case ["messageid", at]:
                late = [one for one in topic.entries() if topic.published.get(one, NOW_MS) >= int(at)]
                ledger, entry = max(topic.entries())
                ledger, entry = self.found or min(late, default=(ledger, entry + 1))
                return httpx2.Response(200, json={"ledgerId": ledger, "entryId": entry})
            case ["ledger", ledger_id, "entry", number]:
                headers = {
                    "X-Pulsar-publish-time": told(topic.published.get((int(ledger_id), int(number)), NOW_MS))
                }
                headers |= {"X-Pulsar-num-batch-message": str(topic.batch)} if topic.batch > 1 else {}
                return httpx2.Response(200, headers=headers)
            case ["subscription", name, "expireMessages"]:
                body = orjson.loads(request.content)
                self.bodies.append(body)
                if self.lazy:
                    return httpx2.Response(204)
                # Twice, as Pulsar does.
                subscription = unquote_plus(unquote(name))
                return httpx2.Response(topic.expire(subscription, (body["ledgerId"], body["entryId"])))
        raise AssertionError(rest)


def cluster_of(fake: Callable[[httpx2.Request], httpx2.Response]) -> PulsarBacklogs:
    """Its reader."""
    return PulsarBacklogs(rest_of(fake))


def wants(*, precise_age: bool = False, expires: bool = False) -> RoundQuestion:
    """The same for all topics."""
    return RoundQuestion(precise_age=precise_age, expires=lambda _topic: expires)
