"""Whose each topic is, by what a protocol calls it: looked up once, then remembered within a bound."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Final, Generic, NamedTuple, TypeVar

from enforcer.core.account import Account, Wait
from enforcer.laws.shares.meter import Meter

Key = TypeVar("Key", bound=Hashable)


class BillItem(NamedTuple):
    """What an account is to be charged for one thing that passes.

    Attributes:
        account: whose it is.
        topic: what it passes for, as its protocol calls it; None: all that a user sends or gets.
        records: how many.
        size: their bytes.
    """

    account: Account
    topic: Any
    records: int
    size: int


_NOTHING: Final = (0.0, 0.0)


class ChargeResult(NamedTuple):
    """What came of a charge.

    Attributes:
        wait: the longest debt that it left; None: none.
        forgiven: topic -> records and bytes that are not waited off.
    """

    wait: Wait | None
    forgiven: dict[Any, tuple[float, float]]


# What comes of most; it need not be made anew.
_FREE: Final = ChargeResult(None, {})


class Bill(NamedTuple):
    """What something that passes, or wants to, is charged.

    Attributes:
        owed: by whom; topics that belong to nobody are left out.
        unknown: topics whose names are not known.
    """

    owed: list[BillItem]
    unknown: list[Any]

    def charge(self, direction: int, now_ms: float) -> ChargeResult:
        """Charge all of it."""
        longest = None
        forgiven: dict[Any, tuple[float, float]] = {}
        for account, topic, records, size in self.owed:
            wait = account.charge(direction, records, size, now_ms)
            if wait is not None:
                if longest is None or wait.ms > longest.ms:
                    longest = wait
                if wait.forgiven != _NOTHING:
                    # A request may list a topic several times.
                    few, less = forgiven.get(topic, _NOTHING)
                    forgiven[topic] = (few + wait.forgiven[0], less + wait.forgiven[1])
        return _FREE if longest is None else ChargeResult(longest, forgiven)

    def refund(self, direction: int, topic: Any, records: int, size: int, charged: "ChargeResult") -> None:
        """Undo a part of what was charged for a topic; what was forgiven of it is not given back too."""
        few, less = charged.forgiven.pop(topic, _NOTHING)
        if few or less:
            charged.forgiven[topic] = (max(0.0, few - records), max(0.0, less - size))
        for owed in self.owed:
            if owed.topic == topic:
                owed.account.refund(direction, records, size, few, less)
                # However often the request lists it, it is one account.
                break


class TopicAccounts(Generic[Key]):
    """Finds the accounts of topics that are called by one kind of key: a name, an id, a handle.

    Hot path: a key that is remembered costs one look-up in a table.

    Args:
        name_of: the name of a topic; None: not known (yet).
        topics_max: bound on what is remembered; what was found longest ago leaves.
        name_max: longer names are no topics, belong to nobody, and are not remembered.
    """

    def __init__(
        self, meter: Meter, name_of: Callable[[Key], str | None], topics_max: int, name_max: int
    ) -> None:
        self._meter = meter
        self._name_of = name_of
        self._topics_max = topics_max
        self._name_max = name_max
        self._generation = meter.generation
        self._accounts: OrderedDict[Key, Account | None] = OrderedDict()

    def bill(self, passed: Iterable[tuple[Key, int, int]], users: BillItem | None = None) -> Bill:
        """Whom to charge for some topics.

        Args:
            passed: topic, records, bytes.
            users: what the user owes for all of it.
        """
        meter, accounts = self._meter, self._accounts
        if self._generation != meter.generation:
            self._forget()
        generation = meter.generation
        owed = [] if users is None else [users]
        unknown: list[Key] = []
        for topic, records, size in passed:
            try:
                account = accounts[topic]
            except KeyError:
                name = self._name_of(topic)
                if name is None:
                    unknown.append(topic)
                    continue
                account = self._find(topic, name)
                meter.unmetered += account is meter.nowhere
            if account is not None:
                owed.append(BillItem(account, topic, records, size))
        if generation != meter.generation:
            owed = [each if meter.has(each.account) else self._lost(each) for each in owed]
        return Bill(owed, unknown)

    def of(self, topic: Key) -> Account | None:
        """The account of a topic; None: none, or its name is not known.

        Where there is no room for it, it is one without limits.
        """
        if self._generation != self._meter.generation:
            self._forget()
        if topic in self._accounts:
            return self._accounts[topic]
        name = self._name_of(topic)
        return None if name is None else self._find(topic, name)

    def _lost(self, owed: BillItem) -> BillItem:
        """Its account has made room for others within the same frame: nobody would report it."""
        self._meter.unmetered += 1
        return owed._replace(account=self._meter.nowhere)

    def _find(self, topic: Key, name: str) -> Account | None:
        account = self._meter.of_topic(name) if len(name) <= self._name_max else None
        if self._generation != self._meter.generation:
            # Others made room for it: nobody may be charged any more by what was remembered of them.
            self._forget()
        # Who found no room asks again with the next frame.
        if account is not self._meter.nowhere and len(name) <= self._name_max:
            if len(self._accounts) >= self._topics_max:
                self._accounts.popitem(last=False)
            self._accounts[topic] = account
        return account

    def _forget(self) -> None:
        self._generation = self._meter.generation
        self._accounts.clear()
