"""What all connections share to keep limits of dispatch: the arithmetic, who reads, who waits."""

import logging
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from itertools import count
from typing import Final

from cachetools import LRUCache, TTLCache

from enforcer.core import bounds
from enforcer.core.lines import Lines
from enforcer.core.metrics import Metrics
from enforcer.core.settings import AmbiguousFetch, ProxySettings
from enforcer.kafka.addresses.brokers import Brokers
from enforcer.kafka.groups.frames import GROUP_KEYS, Place
from enforcer.kafka.groups.group_finder import GroupFinder
from enforcer.kafka.groups.readers import Assigned, Client, Member, short
from enforcer.kafka.groups.trails import Trail
from enforcer.kafka.share_sessions import Known
from enforcer.laws.dispatch.dispatch import Dispatch
from enforcer.wire.kafka.frames import FETCH, SHARE_FETCH
from enforcer.wire.kafka.mutations import is_legal_name
from streaming.contract.namespaces import Namespaces

logger = logging.getLogger(__name__)

_FETCHES: Final = frozenset({FETCH, SHARE_FETCH})
_FETCHES_AND_GROUPS: Final = _FETCHES | GROUP_KEYS
_NONE: Final[frozenset[int]] = frozenset()
LARGE_MS: Final = 1_000.0
"""Fetches of more partitions than can be told apart go on one after the other, with so much time between."""
UNHEARD_MS: Final = 10.0
"""And so those of share sessions that began unread, as all do that were there before a first limit."""
_NOBODY: Final = Client("", "", "")
_SAID_MAX: Final = 100
_SAID_AGAIN_MS: Final = 600_000.0
"""Of so many clients it is said within that time that they cannot be told apart; others are only counted."""
_SECOND_MS: Final = 1_000.0
_SAT_OUT_OF: Final = 4
"""A connection that may be of several groups leaves out one second of so many."""


class FetchContext:
    """Shared by all connections of a proxy.

    Attributes:
        dispatch: the arithmetic.
        finder: of which group a fetch is.
        readers: who acts for which group, a part of it.
        metrics: counts what is held back.
        hold_ms: how long a request may be kept.
        names: topic id -> name, shared with metering.
        sessions: of share groups, as far as connections know them.

    Args:
        brokers: known by address.
        seed: another one for each proxy.
    """

    def __init__(
        self,
        dispatch: Dispatch,
        settings: ProxySettings,
        metrics: Metrics,
        brokers: Brokers,
        names: LRUCache[bytes, str],
        steady_ms: Callable[[], float],
        seed: int = 0,
    ) -> None:
        self.dispatch = dispatch
        self.steady_ms = steady_ms
        self.finder = GroupFinder(self._is_limited, lambda: self.alone, steady_ms)
        self.readers = self.finder.readers
        self.metrics = metrics
        self.hold_ms = float(settings.dispatch_hold_ms)
        self.names = names
        self.sessions = Known()
        self._apart_from_ms: dict[float, float] = {}
        # Others know them by their numbers, and knew those of a process before us of our name.
        self._connections = count(seed << 20)
        self._brokers = brokers
        self._namespaces = Namespaces(settings.namespace_pattern)
        self._passes_ambiguous = settings.ambiguous_fetch is AmbiguousFetch.PASS
        self._said: TTLCache[tuple[Client, str], None] = TTLCache(_SAID_MAX, _SAID_AGAIN_MS, steady_ms)
        self._terms_at = -1
        self._full_names: LRUCache[tuple[bool, bytes], str] = LRUCache(bounds.TOPICS_MAX)

    @property
    def lines(self) -> Lines:
        """Who waits, in what order: the lines in which the arithmetic finds what others take."""
        return self.dispatch.lines

    def apart_ms(self, between_ms: float = LARGE_MS) -> float:
        """How long a request must wait whose topics are too many, or unknown.

        Args:
            between_ms: if it goes on (0), the next one of all that say so does so much later.
        """
        now_ms = self.steady_ms()
        from_ms = self._apart_from_ms.get(between_ms, 0.0)
        if now_ms < from_ms:
            return from_ms - now_ms
        self._apart_from_ms[between_ms] = now_ms + between_ms
        if between_ms == LARGE_MS:
            self.metrics.large_fetches.inc()
        return 0.0

    @property
    def keys(self) -> frozenset[int]:
        """APIs whose requests are read."""
        if not self.dispatch.active:
            return _NONE
        return _FETCHES_AND_GROUPS if self.dispatch.by_subscription else _FETCHES

    def new_trail(self) -> Trail:
        """Of a new connection."""
        return Trail(_NOBODY, next(self._connections))

    @property
    def alone(self) -> bool:
        """Whether no other proxy can know more of a client."""
        return self.dispatch.proxies < 2

    def topic(self, key: bytes, ids: bool) -> str | None:
        """A topic's full name, as limits know it.

        Args:
            key: its Kafka name, or its id.
            ids: whether it is the id.

        Returns:
            None: nobody knows the name of the id, or no topic can have the name.
        """
        # Told apart: a request may name what it likes, also what is somebody's id.
        found = self._full_names.get((ids, key))
        if found is None:
            name = self.names.get(key) if ids else key.decode("utf-8", "replace")
            if name is None or not is_legal_name(name):
                return None
            found = self._full_names[ids, key] = self._namespaces.full_name(name)
        return found

    def assigned(self, client: Client, group: str, member: str, parts: Assigned | None) -> None:
        """A member of a group was told what to read."""
        self.readers.assigned(client, group, member, parts)
        self._index(client, group, parts)

    def told(self, members: Iterable[Member], left: Iterable[Member]) -> None:
        """Another proxy has seen members of groups, and that some left."""
        members = list(members)
        self.readers.learn(members, left)
        for member in members:
            self._index(member.client, member.group, member.assigned)

    def stands(self, user: str, places: Iterable[Place]) -> None:
        """A group has said where it stands."""
        for place in places:
            ids = isinstance(place.topic, bytes)
            topic = self.topic(place.topic if isinstance(place.topic, bytes) else place.topic.encode(), ids)
            if topic is not None and self.dispatch.may_limit_groups(topic):
                self.finder.moved(user, short(place.group), topic, place.number, place.offset)
                self.finder.stands.seen(user, short(place.group), topic, place.number, place.offset)

    def groups_of(
        self, client: Client, trail: Trail, topic: str, names: Sequence[str | bytes], parts: list[int]
    ) -> tuple[tuple[str, ...], bool, bool]:
        """The groups for which a fetch counts ("": none), whether it may be of several, whether that stays.

        Args:
            topic: full name.
            names: its name, and its id.
            parts: its partitions of one request.
        """
        if not self.dispatch.may_limit_groups(topic):
            found: Sequence[str] = self.readers.matching(client, names, frozenset(parts))
            return (found[0] if len(found) == 1 else "",), False, True
        found, stays = self.finder.of(client, trail, topic, names, parts)
        if len(found) < 2:
            return tuple(found) or ("",), False, stays
        limited = tuple(group for group in found if self._is_limited(topic, group))
        if limited and len(trail.acts.get(topic, ())) > 1:
            self._say(client, topic, found)
        return ("",) if self._passes_ambiguous or not limited else limited, bool(limited), False

    def sits_out_ms(self, trail: Trail) -> float:
        """How long a connection that may be of several groups leaves the others alone, ms; mostly 0.

        Two that read the same at the same pace would stand at the same offsets for ever, and never be told
        apart by them. So each leaves out a second now and then, by chance, but the same chance each time.
        """
        second, ms = divmod(self.steady_ms(), _SECOND_MS)
        # By a CRC, which is linear, one of four pairs would leave out the same seconds for ever.
        chance = blake2b(b"%d %d" % (trail.number, int(second)), digest_size=1).digest()[0]
        return 0.0 if chance % _SAT_OUT_OF else _SECOND_MS - ms

    def look(self) -> None:
        """Once a second: conclude from what has settled; policies may have brought limits of groups."""
        if self._terms_at != self.dispatch.generation:
            self._terms_at = self.dispatch.generation
            for member in self.readers.all():
                self._index(member.client, member.group, member.assigned)
        self.finder.look()

    def _index(self, client: Client, group: str, parts: Assigned | None) -> None:
        for key in parts or ():
            topic = self.topic(key if isinstance(key, bytes) else key.encode(), isinstance(key, bytes))
            if topic is not None:
                self.finder.reads(client.user, group, topic)

    def _is_limited(self, topic: str, group: str) -> bool:
        return self.dispatch.limits_group(topic, group)

    def _say(self, client: Client, topic: str, groups: Sequence[str]) -> None:
        if (client, topic) in self._said or len(self._said) >= _SAID_MAX:
            return
        self._said[client, topic] = None
        logger.warning(
            "fetches of %s by client id %r (user %s at %s) may be of the groups %s: until their offsets tell,"
            " they %s; consumers with a client.id of their own group's, that commit, are told apart at once",
            topic, client.client_id, client.user, client.host, ", ".join(map(repr, groups[:10])),
            "count for none" if self._passes_ambiguous else "wait for the strictest limit of these",
        )  # fmt: skip

    def broker(self, address: tuple[str, int]) -> str:
        """What a broker at an address is called in events; until its id is known, by the address."""
        return self._brokers.partition_at(address) or "broker-{}:{}".format(*address)
