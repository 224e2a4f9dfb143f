"""Which clients act for which consumer groups: what requests and answers of groups say, here and elsewhere.

A group's requests and its fetches come on several connections, which may end in several proxies. What they
have in common is who asks: the principal, the client id and, as long as nothing between changes it, the host.
Which of several groups a fetch is of is said by offsets: see group_finder.py.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Final, NamedTuple, TypeVar

K = TypeVar("K")
V = TypeVar("V")

READERS_MAX: Final = 100_000
"""Consumer groups of clients known at a time, for limits of subscriptions; the one not heard of for longest
leaves."""
CLIENT_GROUPS_MAX: Final = 1_000
"""Of these of one client, whose fetches go through all of them; those leave first that it has not joined."""
IDLE_MS: Final = 600_000.0
"""A group of which nothing was heard or fetched for so long is forgotten; so is a member
that was not heard of, beside others."""
MEMBERS_MAX: Final = 200
"""Members of a group with one principal, host and client id that are told apart."""

PARTS_MAX: Final = 1_000_000
"""Assigned partitions that are remembered, of all groups; what further members read is not known."""
GONE_MAX: Final = 10_000
"""Members that left since others were told so; of more the first are not told of."""
NAME_MAX: Final = 256
"""Longer names of groups and members, which Kafka allows, are kept as a digest."""

Assigned = Mapping[str | bytes, frozenset[int]]
"""Topic name (str) or id (bytes) -> the partitions that a member reads."""
_OTHERS: Final = "*"
"""Stands for all members beyond MEMBERS_MAX; they may read anything."""
_NOBODYS: Final[Assigned] = {"": frozenset()}


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


class Member(NamedTuple):
    """What is known of a member of a group, as proxies tell each other.

    Attributes:
        client: who it is.
        group: its group.
        name: its id; "": it has none, as with `assign()`.
        assigned: what it reads; None: not known.
    """

    client: Client
    group: str
    name: str
    assigned: Assigned | None


class _Group:
    """A group of one client: its members' assignments (None: not known), and when it was last heard of."""

    __slots__ = ("heard", "members", "own", "seen_ms")

    def __init__(self) -> None:
        self.members: dict[str, Assigned | None] = {}
        # When each was heard of last, the one silent for longest first.
        self.heard: dict[str, float] = {}
        self.own: set[str] = set()
        self.seen_ms = 0.0

    def may_read(self, topic: Iterable[str | bytes], parts: frozenset[int]) -> bool:
        """Whether these partitions may be its members': they are, or nobody knows."""
        if any(assigned is None for assigned in self.members.values()):
            return True
        return not self.members or parts <= self.held(topic)

    def held(self, topic: Iterable[str | bytes]) -> set[int]:
        """The partitions of a topic that its members were told to read."""
        names = tuple(topic)
        held: set[int] = set()
        for assigned in self.members.values():
            if assigned:
                held.update(*(assigned.get(name, ()) for name in names))
        return held


class Readers:
    """The groups of all clients.

    Attributes:
        version: counts up when a group comes or goes.
        changes: counts up whenever `matching` may answer otherwise than before.
    """

    def __init__(self, steady_ms: Callable[[], float]) -> None:
        self.version = self.changes = 0
        self._steady_ms = steady_ms
        self._clients: dict[Client, dict[str, _Group]] = {}
        # Of each of them those that it has named and not joined: none is looked for among a thousand others.
        self._named: dict[Client, dict[str, None]] = {}
        # By principal and client id, since a host may be several on its way; and by principal and group.
        self._hosts: dict[tuple[str, str], dict[Client, None]] = {}
        self._acting: dict[tuple[str, str], dict[Client, None]] = {}
        # All of them, that heard of last at the end.
        self._order: OrderedDict[tuple[Client, str], None] = OrderedDict()
        self._parts = 0
        self._untold: dict[tuple[Client, str, str], None] = {}
        self._gone: deque[Member] = deque(maxlen=GONE_MAX)

    def __len__(self) -> int:
        return len(self._order)

    def saw(self, client: Client, group: str, member: str = "") -> None:
        """A client acts for a group, as this member if it is named."""
        if not group:
            return
        found = self._found(client, group)
        if member and member not in found.members and len(found.members) < MEMBERS_MAX:
            found.members[member] = None
            self._named[client].pop(group, None)
            self.changes += 1
        self._own(client, group, found, member)
        self._is_there(client, group, found, member)

    def assigned(self, client: Client, group: str, member: str, parts: Assigned | None) -> None:
        """A member was told what to read; None: it is not known."""
        if group:
            place = self._assign(Member(client, group, member, parts))
            found = self._clients[client][group]
            self._own(client, group, found, place)
            self._is_there(client, group, found, member)
            self._untold[client, group, place] = None

    def left(self, client: Client, group: str, members: Iterable[str]) -> None:
        """Members have left; a group without any is forgotten."""
        for member in members:
            self._gone.append(Member(client, group, member, None))
            self._drop(client, group, member)

    def learn(self, told: Iterable[Member], left: Iterable[Member]) -> None:
        """What another proxy has seen. It is its to tell from now on, until we see more of it."""
        for member in told:
            found = self._found(member.client, member.group)
            if member.name and found.members.get(member.name, _NOBODYS) != member.assigned:
                self._assign(member)
            self._is_there(member.client, member.group, found, member.name)
            found.own.discard(member.name)
            self._untold.pop((member.client, member.group, member.name), None)
        for member in left:
            self._drop(member.client, member.group, member.name)

    def news(self) -> tuple[list[Member], list[Member]]:
        """Members here that others were not told of as they are now, and those that have left; each once."""
        told = [found for key in self._untold if (found := self._member(*key)) is not None]
        # A consumer that subscribes anew keeps its name (KIP-848): it is gone no more.
        gone = [each for each in self._gone if self._member(each.client, each.group, each.name) is None]
        self._gone.clear()
        self._untold.clear()
        return told, gone

    def all(self, *, own: bool = False) -> Iterator[Member]:
        """All members, or those that were seen here last."""
        self._forget_idle()
        for client, group in self._order:
            known = self._clients[client][group]
            for name in list(known.own if own else known.members):
                found = self._member(client, group, name)
                if found is not None:
                    yield found

    def groups(self, client: Client) -> list[str]:
        """The groups that a client may read for: of its host, or where that has none, of any."""
        self._forget_idle()
        return list(self._near(client))

    def matching(self, client: Client, topic: Iterable[str | bytes], parts: frozenset[int]) -> list[str]:
        """The groups for which a client may fetch these partitions of a topic.

        Args:
            topic: its name, and its id if that is known.
            parts: the partitions of one request: one consumer's, and so one group's.
        """
        self._forget_idle()
        names = tuple(topic)
        found = [name for name, groups in self._near(client).items()
                 if any(group.may_read(names, parts) for group in groups)]  # fmt: skip
        self.heard(client, found)
        return found

    def wanted(self, user: str, group: str, topic: Iterable[str | bytes]) -> set[int]:
        """The partitions that some member of a group, whoever it says it is, was told to read."""
        names = tuple(topic)
        clients = self._acting.get((user, group), ())
        return set[int]().union(*(self._clients[client][group].held(names) for client in clients))

    def lives(self, user: str, group: str) -> bool:
        """Whether anybody acts for a group."""
        return (user, group) in self._acting

    def heard(self, client: Client, groups: Iterable[str]) -> None:
        """A client still reads for these groups, as `matching` has said."""
        self._forget_idle()
        known = self._clients.get(client, {})
        for name in groups:
            group = known.get(name)
            if group is not None:
                self._touch(client, name, group)

    def _near(self, client: Client) -> dict[str, list[_Group]]:
        near = self._clients.get(client)
        if near is not None:
            return {name: [group] for name, group in near.items()}
        found: dict[str, list[_Group]] = {}
        for other in self._hosts.get((client.user, client.client_id), ()):
            for name, group in self._clients[other].items():
                found.setdefault(name, []).append(group)
        return found

    def _member(self, client: Client, group: str, name: str) -> Member | None:
        found = self._clients.get(client, {}).get(group)
        if found is None or (name and name not in found.members):
            return None
        return Member(client, group, name, found.members.get(name))

    def _own(self, client: Client, group: str, found: _Group, member: str) -> None:
        # A group whose members have no names is told as one.
        if member not in found.own and (member or not found.members) and len(found.own) <= MEMBERS_MAX:
            found.own.add(member)
            self._untold[client, group, member] = None

    def _is_there(self, client: Client, group: str, found: _Group, member: str) -> None:
        """A member was heard of. Static ones end without a word, and come again under another name."""
        if member not in found.members:
            return
        found.heard.pop(member, None)
        found.heard[member] = now_ms = self._steady_ms()
        first = next(iter(found.heard))
        if found.heard[first] < now_ms - IDLE_MS:
            self._drop(client, group, first)

    def _assign(self, told: Member) -> str:
        """Note what a member reads; returns the member under which it is kept."""
        members = self._found(told.client, told.group).members
        self.changes += 1
        known = told.name in members or len(members) < MEMBERS_MAX
        place = told.name if known else _OTHERS
        parts = told.assigned
        self._parts -= _size(members.get(place))
        if not known or self._parts + _size(parts) > PARTS_MAX:
            parts = None
        members[place] = parts
        self._named[told.client].pop(told.group, None)
        self._parts += _size(parts)
        return place

    def _drop(self, client: Client, group: str, member: str) -> None:
        found = self._clients.get(client, {}).get(group)
        # Whoever was never seen in it takes nobody along.
        if found is None or member not in found.members:
            return
        self.changes += 1
        self._parts -= _size(found.members.pop(member, None))
        found.heard.pop(member, None)
        found.own.discard(member)
        if not found.members:
            self._forget(client, group)

    def _found(self, client: Client, group: str) -> _Group:
        self._forget_idle()
        groups = self._clients.get(client)
        found = None if groups is None else groups.get(group)
        if found is None:
            if groups is not None and len(groups) >= CLIENT_GROUPS_MAX:
                self._forget(client, next(iter(self._named[client] or groups)))
            elif len(self._order) >= READERS_MAX:
                self._forget(*next(iter(self._order)))
            found = self._clients.setdefault(client, {})[group] = _Group()
            self._named.setdefault(client, {})[group] = None
            self._hosts.setdefault((client.user, client.client_id), {})[client] = None
            self._acting.setdefault((client.user, group), {})[client] = None
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
        self._named[client].pop(name, None)
        take_out(self._acting, (client.user, name), client)
        if not groups:
            del self._clients[client], self._named[client]
            take_out(self._hosts, (client.user, client.client_id), client)
        self.version += 1
        self.changes += 1


def take_out(index: dict[K, dict[V, None]], key: K, value: V) -> None:
    """Take one of those out that an index has by a key; it keeps no key of none."""
    found = index.get(key, {})
    found.pop(value, None)
    if not found:
        index.pop(key, None)


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
