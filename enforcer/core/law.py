"""What a law is to an enforcer: one object a law, which `enforcer/laws/enforcement.py` lists.

The control plane reads decisions by the laws' readers and hands each law its own; a law acts on them, on
policies and on the time, and tells the job what it measured.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, ClassVar, Final, Protocol

from enforcer.core.account import Account
from enforcer.core.feeds.policies import Policies
from enforcer.core.membership import Membership
from enforcer.core.metrics import Metrics
from enforcer.core.reports import Acknowledged
from enforcer.core.settings import ProxySettings
from streaming.contract.fields import Fields
from streaming.contract.topics import Topics


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """The two clocks of one process; what is handed one knows no other time, and tests put their own in.

    Attributes:
        steady_ms: never goes back; for time limits.
        wall_ms: ms since the epoch; for policies and the time of decisions.
    """

    steady_ms: Callable[[], float]
    wall_ms: Callable[[], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionReader:
    """How the decisions of one law are read from `weir.decisions`, in the thread that follows them.

    Attributes:
        type: theirs.
        parse: makes one of its JSON object; None: it says nothing to an enforcer. Raises BadEvent.
        at: the time that newer and older ones are told apart by, ms since the epoch.
        timely: receivers go by the one that comes last, so one whose life time is over is refused.
        standing: one holds until something else is said, and is read back at the start with what is left of
            its life time (`ttl_ms`, a field of a dataclass).
        unread: columns of packed records that are left out, since they may be large.
        of_others: reads a packed record that is for another enforcer: (its bytes, when it was written); None:
            all enforcers read all records alike.
        all_of: reads a packed record as a whole, from its columns, which is faster; None, or no such reader:
            its rows are read one by one.
    """

    type: str
    parse: Callable[[Fields], Any | None]
    at: Callable[[Any], int] = attrgetter("ts")
    timely: bool = False
    standing: bool = False
    unread: frozenset[str] = frozenset()
    of_others: Callable[[bytes, int], Any] | None = None
    all_of: Callable[[bytes], list[Any] | None] | None = None


Work = Callable[[], Coroutine[None, None, None]]
"""Something to be run beside the connections."""


class Accounts(Protocol):
    """The accounts of groups, for laws whose limits are shared out as groups.

    Attributes:
        unmetered: how often use was not counted.
    """

    unmetered: int

    def of_group(self, group: str) -> Account | None:
        """The account of a group by its name; None: the policies do not know it, or there is no room."""

    @property
    def share_life_ms(self) -> int:
        """For how long a share stands at most when it is not repeated."""

    def before_report(self, fill: Callable[[float], None]) -> None:
        """Call `fill` with the length (ms) of each round that is about to be reported, to add to its use."""


class Upstreams(Protocol):
    """What is known of the brokers behind an enforcer."""

    @property
    def changes(self) -> int:
        """Goes up when an address may belong to another one than before."""

    def partition_at(self, address: tuple[str, int]) -> str | None:
        """The partition (docs/contract.md 3.4) of the broker at an address; None: nobody knows which."""


class _NoUpstreams:
    changes = 0

    def partition_at(self, _address: tuple[str, int]) -> str | None:
        return None


NO_UPSTREAMS: Final = _NoUpstreams()
"""Of an enforcer that knows no brokers."""


class Sender(Protocol):
    """Where events go; see reports.Reports."""

    def send(self, event: Mapping[str, Any], key: str, *, acked: Acknowledged | None = None) -> bool:
        """Hand an event over; False if it was dropped."""

    def room(self) -> bool:
        """Whether an event handed over now would not be dropped."""


class Send(Protocol):
    """Hands an event over, to be written under a record key."""

    def __call__(
        self, event: Mapping[str, Any], key: str, *, acked: Callable[[int | None], None] | None = None
    ) -> bool:
        """False if it was dropped; `acked` is told, in a thread, its record's time, None if it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a law stands in.

    Attributes:
        proxy_id: name of this enforcer.
        settings: bounds and rules.
        metrics: a law registers its own there.
        topics: names of Weir's topics.
        connection: librdkafka properties of our own connections.
        clock: our own clocks.
        brokers_ms: the brokers' time, ms since the epoch.
        policies: as far as they were read.
        membership: who else enforces.
        requests: takes events for `weir.requests`.
        send_usage: writes to `weir.usage`.
        send_usage_pack: the same of a packed record.
        send_action: writes to `weir.decisions`.
        soon: calls a function once what was written to sockets has left.
        call_later: calls a function after some ms.
        call_at: calls a function at a time of the brokers' clock.
        in_loop: calls a function in the loop, from any thread.
        ask_for_a_sign: makes the job say something, if it is there.
        upstreams: the brokers behind us.
        connections: all that are open to clients.
    """

    proxy_id: str
    settings: ProxySettings
    metrics: Metrics
    topics: Topics
    connection: Mapping[str, str]
    clock: Clock
    brokers_ms: Callable[[], int]
    policies: Policies
    membership: Membership
    requests: Sender
    send_usage: Send
    send_usage_pack: Callable[[bytes, str], bool]
    send_action: Send
    soon: Callable[[Callable[[], None]], object]
    call_later: Callable[[float, Callable[[], None]], object]
    call_at: Callable[[int, Callable[[], None]], object]
    in_loop: Callable[[Callable[[], None]], object]
    ask_for_a_sign: Callable[[], None]
    upstreams: Upstreams = NO_UPSTREAMS
    connections: Callable[[], Iterable[Any]] = tuple


class EnforcerLaw:
    """One law at one enforcer, for one event loop.

    Attributes:
        reads: its decisions.
        look_s: how often it looks at the time: policies come into force at most so late.

    Args:
        context: see there.
        accounts: of groups; a law whose limits are not shared out as groups lets them be.
    """

    reads: ClassVar[DecisionReader]
    look_s: float = 0.25

    def __init__(self, context: Context, accounts: Any) -> None: ...

    @property
    def history_ms(self) -> int:
        """How long before the newest decision it must have read all decisions to begin, ms."""
        return 0

    @property
    def standing_ms(self) -> int:
        """How far back its standing decisions are to be read at the start, ms; 0: none is wanted."""
        return 0

    async def open(self, newest_ms: int) -> None:
        """Read what else is needed; all decisions since `history_ms` are taken, the last of `newest_ms`."""

    def take(self, decisions: Sequence[Any]) -> None:
        """Its decisions; none where only others were read: the job is there.

        A live one may come before older ones that are read back: go by their times (`reads.at`).
        """

    def look(self) -> None:
        """Follow the time, before clients are let in and again and again."""

    def refused(self, event_id: str) -> None:
        """Kafka never takes this event, it is too large."""

    def ask_for_a_sign(self) -> None:
        """Make the job say something, if this law has what it always answers."""

    def work(self) -> list[Work]:
        """What is to be run, each until it is cancelled or has come to its end; after a mistake anew."""
        return [self.run]

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(self.look_s)
            self.look()

    def stop(self) -> None:
        """Say what is left to be said."""
