"""What limits deliveries to one consumer: dispatch rates, the group of its namespace, its user's byte rate.

Dispatch rates hold for what is stored (docs/contract.md 3.3). Messages of a topic that is not wait nowhere
but with the proxy, so a rate would lose them; groups and users are charged for them like for all others.
Topics of Pulsar's own carry no messages of anybody, and a broker that waits for them stands still.
"""

import hashlib
from collections.abc import Callable
from math import inf
from typing import Final, NamedTuple

from enforcer.core.account import DISPATCH, Account
from enforcer.core.lines import Counter
from enforcer.laws.dispatch.dispatch import Dispatch
from enforcer.laws.dispatch.left import UNLIMITED, both, left_of_account
from enforcer.laws.dispatch.smoothing import Smoothing
from enforcer.laws.dispatch.terms import Limiting
from enforcer.laws.shares.meter import Meter
from enforcer.wire.pulsar.names import read_topic
from streaming.contract.names import TOPIC

GROUP: Final = "group"
USER: Final = "user"
"""Levels of a wait beside those of dispatch rates."""
_SYSTEM_NAMESPACE: Final = "pulsar/system"
_SNAPSHOT: Final = "__transaction_buffer_snapshot"
_SYSTEM_TOPICS: Final = frozenset(
    {"__change_events", _SNAPSHOT, f"{_SNAPSHOT}_indexes", f"{_SNAPSHOT}_segments"}
)
"""Whole names: whoever may create topics may call them anything that begins or ends like these."""


class Laws(NamedTuple):
    """What deliveries are limited by, of the whole proxy.

    Attributes:
        dispatch: dispatch rates.
        meter: groups and users.
        brokers_ms: the time of Weir's brokers, ms since the epoch.
        smoothing: counts from the first delivery on, beside the law's periods.
    """

    dispatch: Dispatch
    meter: Meter
    brokers_ms: Callable[[], int]
    smoothing: Smoothing

    @property
    def now_ms(self) -> float:
        """The steady clock."""
        return self.meter.clock.steady_ms()

    @property
    def generation(self) -> tuple[int, int]:
        """Another one: what limits whom may have changed."""
        return self.dispatch.generation, self.meter.generation


class Room(NamedTuple):
    """What may be delivered to a consumer now.

    Attributes:
        units: messages by dispatch rates, or entries where these are counted; infinite: not limited.
        msgs: messages by groups and users.
        size: bytes, by all.
        wait_ms: 0, or the time until there is room, if nothing else happens.
        level: whose limit that is, of contract 3.3, GROUP or USER; "": nobody's.
        dimension: msgs or bytes.
    """

    units: float
    msgs: float
    size: float
    wait_ms: int = 0
    level: str = ""
    dimension: str = ""


FREE: Final = Room(inf, inf, inf)
"""Nothing limits."""
NO_TURN: Final = Room(0.0, 0.0, 0.0)
"""What is left is others' first."""


class Limits:
    """What limits one consumer.

    Attributes:
        topic: full name; "": no rate can be for it.
        subscription: its name.
        exempt: why dispatch rates leave it alone; "": they do not.
        lossy: its topic is not stored: a message that cannot be sent on is lost.
        applies: its deliveries are counted.
        limited: they may have to wait.
        names_size: characters of both names, as the client says them.
        counters: of those that may make it wait, the narrowest first.

    Args:
        laws: of the whole proxy.
        broker: as events call it.
        topic: as the client says.
        subscription: see there.
        user: whose connection it is.

    Raises:
        BadName: no topic has this name.
    """

    __slots__ = (
        "_accounts", "_broker", "_generation", "_laws", "_metered", "_rated", "_user", "applies",
        "counters", "exempt", "limited", "lossy", "names_size", "subscription", "topic",
    )  # fmt: skip

    def __init__(self, laws: Laws, broker: str, topic: str, subscription: str, user: str) -> None:
        self._laws, self._broker, self._user = laws, broker, user
        self.subscription = subscription
        self.names_size = len(topic) + len(subscription)
        self.topic, self._metered, self.lossy, self.exempt = _read(topic)
        self._generation = (-1, -1)
        self._accounts: list[tuple[str, Account]] = []
        self._rated = self.applies = self.limited = False
        self.counters: list[Counter] = []

    def look(self) -> bool:
        """Follow the policies; False if nothing has changed."""
        if self._generation == self._laws.generation:
            return False
        dispatch, meter = self._laws.dispatch, self._laws.meter
        self._accounts = []
        if meter.active:
            # An account that is made may let others go, which is another generation.
            of_topic = meter.of_topic(self._metered) if self._metered else None
            of_user = meter.of_user(self._user, "", DISPATCH)
            found = ((GROUP, of_topic), (USER, of_user))
            self._accounts = [(level, account) for level, account in found if account is not None]
        self._rated = self.rates and not self.exempt
        limiting = [(level, account) for level, account in self._accounts if _limits(account)]
        self.applies = self._rated or bool(self._accounts)
        self.limited = self._rated or bool(limiting)
        place = self._broker, self.topic, self.subscription
        self.counters = [place, place[:2], place[:1]] if self._rated else []
        self.counters += [(level, account.name) for level, account in limiting]
        # Who found no room for its account asks again.
        homeless = any(account is meter.nowhere for _, account in self._accounts)
        self._generation = (-1, -1) if homeless else (dispatch.generation, meter.generation)
        return True

    @property
    def rates(self) -> bool:
        """Whether there is a dispatch rate for it, exempt or not; any, if none can name it."""
        dispatch = self._laws.dispatch
        return dispatch.active and (not self.topic or dispatch.limits(self.topic, self.subscription))

    def counter(self, level: str) -> Counter:
        """Whose a level's limit is."""
        for own, account in self._accounts:
            if own == level:
                return level, account.name
        place = self._broker, self.topic, self.subscription
        return {"broker": place[:1], "topic": place[:2]}.get(level, place)

    def room(self, *, charged: bool) -> Room:
        """What may be delivered now.

        Args:
            charged: dispatch rates count it (dispatchThrottlingOnNonBacklogConsumerEnabled).
        """
        if not self.limited:
            return FREE
        rates = accounts = UNLIMITED
        dispatch, now_ms = self._laws.dispatch, self._laws.now_ms
        if self._rated and charged and not dispatch.tracks:
            rates = dispatch.left_at(dispatch.moment(self._broker), self.topic, self.subscription)
            rates = both(rates, self._laws.smoothing.left(self._limiting(), int(now_ms)))
        for level, account in self._accounts:
            accounts = both(accounts, left_of_account(account, level, now_ms))
        all_of_them = both(rates, accounts)
        return Room(rates.msgs, accounts.msgs, *all_of_them[1:])

    def charge(self, msgs: int, size: int, entries: int, *, backlog: bool) -> None:
        """Count what was delivered."""
        dispatch, now_ms = self._laws.dispatch, self._laws.now_ms
        if self._rated:
            dispatch.deliver_at(
                dispatch.moment(self._broker), self.topic, self.subscription,
                msgs=msgs, size=size, entries=entries, backlog=backlog,
            )  # fmt: skip
            if backlog or dispatch.all_charged:
                units = entries if dispatch.by_entry else msgs
                self._laws.smoothing.charge(self._limiting(), units, size, int(now_ms))
        for _, account in self._accounts:
            account.charge(DISPATCH, msgs, size, now_ms)

    def _limiting(self) -> Limiting:
        return self._laws.dispatch.terms().limiting((self._broker, self.topic, self.subscription))

    def throttled(self, level: str, dimension: str) -> None:
        """It waits for a dispatch rate; for metrics."""
        self._laws.dispatch.throttled(self._broker, self.topic, self.subscription, level, dimension)


def _limits(account: Account) -> bool:
    buckets = account.buckets[DISPATCH : DISPATCH + 2]
    return not account.limits.shadow and any(bucket is not None for bucket in buckets)


def _read(name: str) -> tuple[str, str, bool, str]:
    """Full name, the name that namespaces are read from, whether it is not stored, and why it is exempt."""
    topic = read_topic(name)
    if not TOPIC.fullmatch(topic.name):
        # No policy can name it, but its namespace may have one.
        topic = topic._replace(local=hashlib.sha256(topic.name.encode()).hexdigest(), partition=-1)
    if not TOPIC.fullmatch(topic.name):
        # The old form, with a cluster: no rate can be for it, but its tenant may have a group.
        return "", topic._replace(persistent=True).name, not topic.persistent, "name"
    stored = topic._replace(persistent=True).name
    if topic.namespace == _SYSTEM_NAMESPACE or topic.local in _SYSTEM_TOPICS:
        return topic.name, "", False, "system"
    return topic.name, stored, not topic.persistent, "" if topic.persistent else "non_persistent"
