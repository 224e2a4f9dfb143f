"""Which consumer group reads: what group requests and answers say, against the partitions that are fetched.

A group's requests and its fetches come on several connections. What they have in common is who asks: the
principal, the host and the client id. Several groups may share these (`rdkafka` is the client id of every
librdkafka consumer that sets none): then the partitions that a group has told its members to read say which
it is. What stays ambiguous belongs to no group (docs/protocol_notes.md 3.6).
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Final, NamedTuple

IDLE_MS: Final = 600_000.0
"""A group of which nothing was heard or fetched for so long is forgotten."""
MEMBERS_MAX: Final = 200
"""Members of a group with one principal, host and client id that are told apart."""

PARTS_MAX: Final = 1_000_000
"""Assigned partitions that are remembered, of all groups; what further members read is not known."""
NAME_MAX: Final = 256
"""Longer names of groups and members, which Kafka allows, are kept as a digest."""

Assigned = Mapping[str | bytes, frozenset[int]]
"""Topic name (str) or id (bytes) -> the partitions that a member reads."""


class Client(NamedTuple):
    """Who asks.

    Attributes:
        user: Kafka principal.
        host: address of the client.
        client_id: as it says.
    """

    user: str
    host: str
    client_id: str


class _Group:
    """A group of one client: its members' assignments (None: not known), and when it was last heard of."""

    __slots__ = ("members", "seen_ms")

    def __init__(self) -> None:
        self.members: dict[str, Assigned | None] = {}
        self.seen_ms = 0.0

    def may_read(self, topic: Iterable[str | bytes], parts: frozenset[int]) -> bool:
        """Whether these partitions may be its members': they are, or nobody knows."""
        held: set[int] = set()
        names = tuple(topic)
        for assigned in self.members.values():
            if assigned is None:
                return True
            for name in names:
                held |= assigned.get(name, frozenset())
        return not self.members or parts <= held


class Readers:
    """The groups of all clients.

    Attributes:
        version: counts up when a group comes or goes.
        changes: counts up whenever `reading` may answer otherwise than before.

    Args:
        readers_max: groups of clients that are known; the one not heard of for longest leaves.
        steady_ms: the clock.
    """

    def __init__(self, readers_max: int, steady_ms: Callable[[], float]) -> None:
        self.version = self.changes = 0
        self._readers_max = readers_max
        self._steady_ms = steady_ms
        self._clients: dict[Client, dict[str, _Group]] = {}
        # All of them, that heard of last at the end.
        self._order: OrderedDict[tuple[Client, str], None] = OrderedDict()
        self._parts = 0

    def __len__(self) -> int:
        return len(self._order)

    def saw(self, client: Client, group: str, member: str = "") -> None:
        """A client acts for a group, as this member if it is named."""
        if not group:
            return
        found = self._found(client, group)
        if member and member not in found.members and len(found.members) < MEMBERS_MAX:
            found.members[member] = None
            self.changes += 1

    def assigned(self, client: Client, group: str, member: str, parts: Assigned | None) -> None:
        """A member was told what to read; None: it is not known."""
        if not group:
            return
        members = self._found(client, group).members
        self.changes += 1
        known = member in members or len(members) < MEMBERS_MAX
        # One that is not told apart may read anything.
        place = member if known else next(iter(members))
        self._parts -= _size(members.get(place))
        if not known or self._parts + _size(parts) > PARTS_MAX:
            parts = None
        members[place] = parts
        self._parts += _size(parts)

    def left(self, client: Client, group: str, members: Iterable[str]) -> None:
        """Members have left; a group without any is forgotten."""
        found = self._clients.get(client, {}).get(group)
        if found is None:
            return
        self.changes += 1
        for member in members:
            self._parts -= _size(found.members.pop(member, None))
        if not found.members:
            self._forget(client, group)

    def groups(self, client: Client) -> list[str]:
        """The groups that a client may read for."""
        self._forget_idle()
        return list(self._clients.get(client, ()))

    def reading(self, client: Client, topic: Iterable[str | bytes], parts: frozenset[int]) -> str | None:
        """The group for which a client fetches these partitions of a topic.

        Args:
            client: who fetches.
            topic: its name, and its id if that is known.
            parts: the partitions of one request: one consumer's, and so one group's.

        Returns:
            "": it reads for none; None: it is one of several, and cannot be told which.
        """
        self._forget_idle()
        names = tuple(topic)
        groups = self._clients.get(client, {})
        found = [name for name, group in groups.items() if group.may_read(names, parts)]
        if len(found) > 1:
            return None
        for name in found:
            self._touch(client, name, groups[name])
            return name
        return ""

    def heard(self, client: Client, groups: Iterable[str]) -> None:
        """A client still reads for these groups, as `reading` has said."""
        self._forget_idle()
        known = self._clients.get(client, {})
        for name in groups:
            group = known.get(name)
            if group is not None:
                self._touch(client, name, group)

    def _found(self, client: Client, group: str) -> _Group:
        self._forget_idle()
        groups = self._clients.get(client)
        found = None if groups is None else groups.get(group)
        if found is None:
            if len(self._order) >= self._readers_max:
                self._forget(*next(iter(self._order)))
            found = self._clients.setdefault(client, {})[group] = _Group()
            self.version += 1
            self.changes += 1
        self._touch(client, group, found)
        return found

    def _touch(self, client: Client, name: str, group: _Group) -> None:
        group.seen_ms = self._steady_ms()
        self._order[client, name] = None
        self._order.move_to_end((client, name))

    def _forget_idle(self) -> None:
        before_ms = self._steady_ms() - IDLE_MS
        while self._order:
            client, name = next(iter(self._order))
            if self._clients[client][name].seen_ms >= before_ms:
                return
            self._forget(client, name)

    def _forget(self, client: Client, name: str) -> None:
        groups = self._clients[client]
        self._parts -= sum(map(_size, groups[name].members.values()))
        del groups[name], self._order[client, name]
        if not groups:
            del self._clients[client]
        self.version += 1
        self.changes += 1


def _size(assigned: Assigned | None) -> int:
    """Partitions, and topics, of an assignment."""
    return 0 if assigned is None else len(assigned) + sum(map(len, assigned.values()))


def short(name: str) -> str:
    """A name as it is kept.

    >>> short("billing")
    'billing'
    >>> len(short("x" * 30_000))
    129
    """
    return name if len(name) <= NAME_MAX else f"{name[:64]}~{sha256(name.encode()).hexdigest()}"
