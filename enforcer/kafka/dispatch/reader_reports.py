"""What proxies tell each other of who reads for which group: records of type `readers` on `weir.usage`.

A record holds rows, each a list: members of groups with what they were told to read, those that left, where
groups stand, what connections were delivered, and those that are gone. What has changed is told within a
second, all that one has seen itself again each AGAIN_MS (docs/contract.md 3.1).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Annotated, Any, Final

import orjson
from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from enforcer.kafka.dispatch.context import FetchContext
from enforcer.kafka.groups.readers import Assigned, Client, Member
from enforcer.kafka.groups.trails import Stretch
from streaming.contract.fields import INT64_MAX
from streaming.contract.names import TOPIC

AGAIN_MS: Final = 15_000.0
"""How often all is told again."""
LIFE_MS: Final = 45_000.0
"""What another proxy says that a connection was delivered counts for so long."""
RECORD_BYTES: Final = 32_768
"""Size of a record, about."""
AT_ONCE_BYTES: Final = 131_072
"""What is told at once, bytes; the rest waits for the next time."""
MEMBERS_S: Final = 0.1
"""How often new members are told of: their fetches are not far behind."""
REST_MS: Final = 1_000.0
"""How often all else that is new."""
ROWS_MAX: Final = 100_000
"""Rows that wait; of more the first are not told until all is told again."""
WAITING_MAX: Final = 500_000
"""Partitions of connections in rows that wait; further ones are told of when these have gone."""
PARTS_MAX: Final = 1_000
"""Partitions of a row."""
NAMES_MAX: Final = 5_000
"""Partitions, and characters of topics, of a member; of one with more it is not said what it reads."""

logger = logging.getLogger(__name__)

Row = tuple[str, list[Any]]
Fields = Mapping[str, Any]


class ReadersExchange:
    """One proxy's part in it.

    Args:
        send: takes (event, record key) for `weir.usage`; False if it was dropped.
    """

    def __init__(
        self, context: FetchContext, proxy_id: str, send: Callable[[dict[str, Any], str], bool]
    ) -> None:
        self._context = context
        self._proxy_id = proxy_id
        self._send = send
        self._urgent: deque[Row] = deque(maxlen=ROWS_MAX)
        self._rows: deque[Row] = deque(maxlen=ROWS_MAX)
        self._came = False
        self._others = 1
        self._again_ms = self._next_ms = 0.0
        self._count = self._from = 0

    async def run(self) -> None:
        """Tell what is new, until cancelled."""
        while True:
            await asyncio.sleep(MEMBERS_S)
            try:
                if self._context.steady_ms() >= self._next_ms:
                    self._next_ms = self._context.steady_ms() + REST_MS
                    self.tell()
                elif self._tells:
                    self._add(*self._context.readers.news())
                    self._write()
            except Exception:
                # One row's trouble must not end what proxies know of each other.
                logger.exception("other proxies could not be told who reads for which group")

    def tell(self) -> None:
        """Tell all that is new; nothing while there is nobody to tell."""
        context, now_ms = self._context, self._context.steady_ms()
        context.look()
        context.finder.trails.forget(now_ms - LIFE_MS)
        told, left = context.readers.news()
        stands = context.finder.stands
        others = context.dispatch.proxies
        self._came |= others > self._others
        self._others = others
        if not self._tells:
            self._rows.clear()
            self._urgent.clear()
            context.finder.trails.gone.clear()
            stands.news()
            return
        every = (self._came or now_ms >= self._again_ms) and not self._rows
        if every:
            self._came = False
            self._again_ms = now_ms + AGAIN_MS
            told = list(context.readers.all(own=True))
        self._add(told, left)
        if all(kind != "stands" for kind, _ in self._rows):
            # Where some wait, more of a partition's offsets take each other's place meanwhile.
            self._rows.extend(
                ("stands", [*key, parts[first : first + PARTS_MAX]])
                for *key, parts in stands.news()
                for first in range(0, len(parts), PARTS_MAX)
            )
        room = WAITING_MAX - sum(len(row[-1]) for kind, row in self._rows if kind == "trails")
        for row in self._trails(every):
            room -= len(row[-1])
            if room < 0:
                # What is new of this connection stays untold until then, and of those after it; so does whose
                # end would come before it.
                self._from = row[0]
                break
            self._rows.append(("trails", row))
        else:
            gone = context.finder.trails.gone
            self._rows.extend(("gone", [number]) for number in gone)
            gone.clear()
        self._write()

    @property
    def _tells(self) -> bool:
        return self._others > 1 and self._context.dispatch.by_subscription

    def _add(self, told: Iterable[Member], left: Iterable[Member]) -> None:
        self._urgent.extend(("members", [*_who(each), _packed(each.assigned)]) for each in told)
        self._urgent.extend(("left", _who(each)) for each in left)

    def take(self, proxy: str, fields: Fields) -> None:
        """Another proxy has told something; what is no row of ours is passed over."""
        if proxy == self._proxy_id:
            return
        members = [
            Member(Client(*client), group, name, None if parts is None else dict(parts))
            for *client, group, name, parts in _rows(fields, "members")
        ]
        left = [
            Member(Client(*client), group, name, None) for *client, group, name in _rows(fields, "left")
        ]
        self._context.told(members, left)
        finder, now_ms = self._context.finder, self._context.steady_ms()
        for user, group, topic, parts in _rows(fields, "stands"):
            # What limits another name cannot be asked.
            for number, offset in parts if TOPIC.fullmatch(topic) else ():
                finder.moved(user, group, topic, number, offset)
        for number, *client, topic, acts, groups, parts in _rows(fields, "trails"):
            trail = finder.trails.told(proxy, number, Client(*client))
            if trail is None:
                continue
            trail.learn(topic, ((at, Stretch(a, b, c, d, now_ms)) for at, a, b, c, d in parts))
            if trail.of(topic):
                finder.found(trail, topic, tuple(acts), tuple(groups))
                finder.trails.join(trail, topic)
        for (number,) in _rows(fields, "gone"):
            finder.trails.ended(proxy, number)

    def _trails(self, every: bool) -> Iterator[list[Any]]:
        # From where there was no room the last time, so that nobody keeps it from others.
        own = self._context.finder.trails.own()
        for trail in sorted(own, key=lambda one: (one.number < self._from, one.number)):
            for topic in list(trail.topics() if every and not trail.ended else trail.untold):
                stretches = trail.of(topic).items()
                parts = [
                    [at, had.began, had.first, had.end, had.reach]
                    for at, had in stretches
                    if min(at, had.began) >= 0
                ]
                said = [list(groups.get(topic, ())) for groups in (trail.acts, trail.groups)]
                for first in range(0, len(parts), PARTS_MAX):
                    yield [trail.number, *trail.client, topic, *said, parts[first : first + PARTS_MAX]]
            trail.untold.clear()

    def _write(self) -> None:
        """Send what waits, as much as may go at once."""
        room = AT_ONCE_BYTES
        while (self._rows or self._urgent) and room > 0:
            record: dict[str, list[Any]] = {}
            size = 0
            while (rows := self._urgent or self._rows) and size < RECORD_BYTES:
                kind, row = rows.popleft()
                record.setdefault(kind, []).append(row)
                size += len(orjson.dumps(row))
            room -= size
            self._count += 1
            name = f"{self._proxy_id}-readers-{int(self._context.steady_ms())}-{self._count}"
            head = {"type": "readers", "id": name, "proxy": self._proxy_id}
            self._send({**head, **record}, self._proxy_id)


def _who(member: Member) -> list[str]:
    return [*member.client, member.group, member.name]


def _packed(assigned: Assigned | None) -> list[Any] | None:
    """What a member reads, as JSON: rows of a topic's name, or `id:` and its id, and its partitions."""
    if assigned is None or sum(map(len, (*assigned, *assigned.values()))) > NAMES_MAX:
        return None
    names = (f"id:{key.hex()}" if isinstance(key, bytes) else key for key in assigned)
    return [[name, sorted(parts)] for name, parts in zip(names, assigned.values(), strict=True)]


def _key(name: str) -> str | bytes:
    return bytes.fromhex(name[3:]) if name.startswith("id:") else name


_Number = Annotated[int, Field(strict=True, ge=0, le=INT64_MAX)]
# A client says itself what its members are assigned, and may say anything.
_Parts = list[tuple[Annotated[str, AfterValidator(_key)], frozenset[Annotated[int, Field(strict=True)]]]]
_Stretch = tuple[_Number, _Number, _Number, _Number, _Number]
_ROWS: Final[Mapping[str, TypeAdapter[Any]]] = {
    "members": TypeAdapter(tuple[str, str, str, str, str, _Parts | None]),
    "left": TypeAdapter(tuple[str, str, str, str, str]),
    "stands": TypeAdapter(tuple[str, str, str, list[tuple[_Number, _Number]]]),
    "trails": TypeAdapter(tuple[_Number, str, str, str, str, list[str], list[str], list[_Stretch]]),
    "gone": TypeAdapter(tuple[_Number]),
}
"""What a row of each kind is."""


def _rows(fields: Fields, kind: str) -> Iterator[Any]:
    """The rows of a kind; what is none is passed over."""
    rows = fields.get(kind)
    for row in rows if isinstance(rows, list) else ():
        with suppress(ValidationError):
            yield _ROWS[kind].validate_python(row)
