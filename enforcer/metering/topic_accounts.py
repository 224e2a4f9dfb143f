"""Whose each topic is, by what a protocol calls it: looked up once, then remembered within a bound."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from enforcer.metering.account import Account, Wait
from enforcer.metering.meter import Meter

Key = TypeVar("Key", bound=Hashable)


class Charged(NamedTuple):
    """What came of something that passed.

    Attributes:
        wait: the longest wait, above 0 ms; None: none.
        unknown: (topic, records, bytes) of what could not be charged, since its topic's name is not known.
    """

    wait: Wait | None
    unknown: Sequence[tuple[Any, int, int]]


# What comes of most; it need not be made anew.
_NOTHING: Final = Charged(None, ())


class TopicAccounts(Generic[Key]):
    """Charges topics that are called by one kind of key: a name as it is on the wire, an id, a handle.

    Hot path: a key that is remembered costs one look-up in a table.

    Args:
        meter: finds the account of a topic by its name.
        name_of: the name of a topic; None: not known (yet).
        topics_max: bound on what is remembered; what was found longest ago leaves.
    """

    def __init__(self, meter: Meter, name_of: Callable[[Key], str | None], topics_max: int) -> None:
        self._meter = meter
        self._name_of = name_of
        self._topics_max = topics_max
        self._steady_ms = meter.clock.steady_ms
        self._generation = meter.generation
        self._accounts: OrderedDict[Key, Account | None] = OrderedDict()

    def charge(
        self, passed: Iterable[tuple[Key, int, int]], direction: int, wait: Wait | None = None
    ) -> Charged:
        """Charge what passed of some topics.

        Args:
            passed: topic, records, bytes.
            direction: PUBLISH or DISPATCH.
            wait: what the user's own quota asks for.

        Returns:
            The stricter wait.
        """
        meter, accounts = self._meter, self._accounts
        now_ms = self._steady_ms()
        if self._generation != meter.generation:
            self._forget()
        unknown: list[tuple[Key, int, int]] = []
        for item in passed:
            topic, records, size = item
            try:
                account = accounts[topic]
            except KeyError:
                name = self._name_of(topic)
                if name is None:
                    unknown.append(item)
                    continue
                account = self._find(topic, name)
                meter.unmetered += account is meter.nowhere
            if account is not None:
                own = account.charge(direction, records, size, now_ms)
                if own.ms and (wait is None or own.ms > wait.ms):
                    wait = own
        return Charged(wait, unknown) if wait or unknown else _NOTHING

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

    def _find(self, topic: Key, name: str) -> Account | None:
        account = self._meter.of_topic(name)
        if self._generation != self._meter.generation:
            # Others made room for it: nobody may be charged any more by what was remembered of them.
            self._forget()
        # Who found no room asks again with the next frame.
        if account is not self._meter.nowhere:
            if len(self._accounts) >= self._topics_max:
                self._accounts.popitem(last=False)
            self._accounts[topic] = account
        return account

    def _forget(self) -> None:
        self._generation = self._meter.generation
        self._accounts.clear()
