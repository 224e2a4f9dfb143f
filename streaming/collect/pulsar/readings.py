"""The live counters of a cluster's brokers, by topic, subscription and owner.

Two sources have them live: each broker's Prometheus page, one request for all of its topics, and `stats` of
one topic after the other. `broker-stats/topics` has no counters and is made once a minute.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from streaming.collect.pulsar.counters import NOTHING, Counts, Place, added
from streaming.collect.pulsar.limits import topic_path
from streaming.collect.pulsar.rest import Rest, RestError, answer_of, namespace_path, part, told
from streaming.collect.settings import Source
from streaming.contract.errors import BadEvent
from streaming.contract.names import TOPIC, namespace_of

COUNTER_OF: Final = {
    "pulsar_in_messages_total": 0,
    "pulsar_in_bytes_total": 1,
    "pulsar_out_messages_total": 2,
    "pulsar_out_bytes_total": 3,
}
"""Names on a broker's page -> position in Counts."""
_IN: Final = ("msgInCounter", "bytesInCounter")
_OUT: Final = ("msgOutCounter", "bytesOutCounter")
_NAMES: Final = tuple(f"{name}{{" for name in COUNTER_OF)
# Prometheus' text by hand: its own parser takes 36 us a line, and four lines a topic would hold up rounds.
_LINE: Final = re.compile(r"(\w+)\{(.*)\} (\d[\d.eE+]*)")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPE: Final = re.compile(r"\\(.)")
_INTERNAL: Final = "__"
"""Topics and subscriptions of the broker's own begin so; nobody's limits are for them."""

Concerns = Callable[[str], bool]
"""Whether traffic of `TENANT/NAMESPACE` matters."""


@dataclass(slots=True)
class BrokerReading:
    """What brokers said.

    Attributes:
        concerns: of which namespaces.
        brokers: who answered, by their names in events.
        counters: of their topics (published) and subscriptions (dispatched).
        unread: topics that failed by themselves, whoever has them, and namespaces and tenants.
        failures: why these did, and brokers that did not answer.
    """

    concerns: Concerns
    brokers: set[str] = field(default_factory=set)
    counters: dict[Place, Counts] = field(default_factory=dict)
    unread: set[str] = field(default_factory=set)
    failures: list[RestError] = field(default_factory=list)

    def shows(self, topic: str) -> bool:
        """Whether a topic would be among the counters if these brokers had it."""
        namespace = namespace_of(topic)
        names = {topic, namespace, namespace.partition("/")[0]}
        return self.unread.isdisjoint(names) and self.concerns(namespace)


def broker_name(address: str) -> str:
    """The name in events of a broker with this web address."""
    return f"pulsar-{address}"


async def read_counters(rest: Rest, source: Source, concerns: Concerns) -> BrokerReading:
    """Read all brokers.

    Raises:
        RestError: the cluster does not say which brokers it has, or who is asked refuses the token.
    """
    brokers = await rest.names("/admin/v2/brokers")
    rest.trust_brokers(brokers)
    if source is Source.STATS:
        return await _by_topics(rest, brokers, concerns)
    reading = BrokerReading(concerns)
    pages = await asyncio.gather(*(answer_of(_page(rest, one, concerns)) for one in brokers))
    for broker, found in zip(brokers, pages, strict=True):
        if isinstance(found, RestError):
            reading.failures.append(found)
        else:
            reading.brokers.add(broker_name(broker))
            reading.counters |= found
    return reading


async def _page(rest: Rest, broker: str, concerns: Concerns) -> dict[Place, Counts]:
    text = await rest.text(f"{rest.broker_url(broker)}/metrics/")
    try:
        # Of many topics it is some megabytes, and the loop has other things to do.
        return await asyncio.to_thread(counters_in, text, broker_name(broker), concerns)
    except (ValueError, OverflowError) as error:
        raise RestError(f"GET {broker}/metrics/: not in the form of Prometheus: {error}", None) from error


def counters_in(text: bytes, broker: str, concerns: Concerns) -> dict[Place, Counts]:
    """The counters of a broker's page.

    >>> page = b'pulsar_in_messages_total{namespace="a/b",topic="persistent://a/b/t"} 7\\nother 1'
    >>> counters_in(page, "b", lambda namespace: True)
    {Place(broker='b', topic='persistent://a/b/t', subscription=''): (7, 0, 0, 0)}

    Raises:
        ValueError, OverflowError: not in the form of Prometheus.
    """
    counters: dict[Place, Counts] = {}
    # The page has some sixty lines a topic, and four are wanted.
    for line in text.decode("utf-8", "replace").split("\n"):
        if not line.startswith(_NAMES):
            continue
        found = _LINE.match(line)
        if found is None:
            raise ValueError(f"{line[:100]!r}; a counter with its labels was expected")
        position = COUNTER_OF[found[1]]
        labels = {name: _unescaped(value) for name, value in _LABEL.findall(found[2])}
        place = _place(broker, labels)
        # What is dispatched counts by subscription: a sum over them goes back when one of them goes.
        if place is None or (position in (2, 3)) != bool(place.subscription):
            continue
        if concerns(labels["namespace"]):
            count = [0, 0, 0, 0]
            count[position] = int(float(found[3]))
            counters[place] = added(counters.get(place, NOTHING), (*count,))  # type: ignore[arg-type]
    return counters


def _unescaped(value: str) -> str:
    return _ESCAPE.sub(lambda found: "\n" if found[1] == "n" else found[1], value) if "\\" in value else value


def _place(broker: str, labels: Mapping[str, str]) -> Place | None:
    topic, subscription = labels.get("topic", ""), labels.get("subscription", "")
    brokers = subscription.startswith(_INTERNAL) or not is_users(topic)
    if brokers or labels.get("namespace") != namespace_of(topic):
        return None
    return Place(broker, topic, subscription)


def is_users(topic: str) -> bool:
    """Whether it is a topic, and none of Pulsar's own."""
    return bool(TOPIC.fullmatch(topic)) and not topic.rpartition("/")[2].startswith(_INTERNAL)


async def _by_topics(rest: Rest, brokers: Iterable[str], concerns: Concerns) -> BrokerReading:
    """`stats` of each topic; who owns it stands there."""
    reading = BrokerReading(concerns, {broker_name(one) for one in brokers})
    tenants = await rest.names("/admin/v2/tenants")
    found = await _told(rest.names, reading, {one: f"/admin/v2/namespaces/{part(one)}" for one in tenants})
    namespaces = [one for each in found.values() for one in each if concerns(one)]
    lists = await _told(rest.names, reading, {one: f"{namespace_path(one)}/topics" for one in namespaces})
    topics = [topic for each in lists.values() for topic in each if is_users(topic)]
    stats = await _told(rest.get, reading, {one: f"{topic_path(one)}/stats" for one in topics})
    for topic, answer in stats.items():
        try:
            reading.counters |= dict(counters_of(topic, answer))
        except BadEvent as error:
            reading.unread.add(topic)
            reading.failures.append(RestError(error.reason, None))
    return reading


async def _told(
    ask: Callable[[str], Awaitable[Any]], reading: BrokerReading, paths: Mapping[str, str]
) -> dict[str, Any]:
    """What is told of some names, each at its path; a failure of one is noted, and costs no other."""
    # One that is absent was deleted meanwhile, or is partitioned and nothing else.
    found, failed = await told(ask, paths)
    reading.unread |= failed.keys()
    reading.failures += failed.values()
    return found


def counters_of(topic: str, stats: Any) -> Iterator[tuple[Place, Counts]]:
    """The counters in the `stats` of a topic."""
    try:
        broker = broker_name(stats["ownerBroker"])
        yield Place(broker, topic), (*(int(stats[name]) for name in _IN), 0, 0)  # type: ignore[misc]
        for name, one in stats["subscriptions"].items():
            if not name.startswith(_INTERNAL):
                yield Place(broker, topic, name), (0, 0, *(int(one[key]) for key in _OUT))  # type: ignore[misc]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadEvent(f"stats of {topic}: {error!r}; counters were expected") from error
