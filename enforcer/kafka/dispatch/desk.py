"""What all connections share to keep limits of dispatch: the arithmetic, who reads, who waits."""

from collections.abc import Callable
from typing import Final

from cachetools import LRUCache

from enforcer.core.dispatch.dispatch import Dispatch
from enforcer.core.dispatch.lines import Lines
from enforcer.core.metrics import Metrics
from enforcer.core.settings import ProxySettings
from enforcer.kafka.brokers import Brokers
from enforcer.kafka.dispatch.group_frames import GROUP_KEYS
from enforcer.kafka.dispatch.readers import Readers
from enforcer.kafka.protocol.frames import FETCH
from enforcer.kafka.protocol.mutations import is_legal_name
from streaming.contract.namespaces import Namespaces

_FETCHES: Final = frozenset({FETCH})
_FETCHES_AND_GROUPS: Final = _FETCHES | GROUP_KEYS
_NONE: Final[frozenset[int]] = frozenset()


LARGE_MS: Final = 1_000.0
"""Fetches of more partitions than can be told apart go on one after the other, with so much time between."""


class FetchDesk:
    """Shared by all connections of a proxy.

    Attributes:
        dispatch: the arithmetic.
        readers: which groups read.
        lines: who waits, in what order.
        metrics: counts what is held back.
        hold_ms: how long a request may be kept.
        names: topic id -> name, shared with metering.

    Args:
        dispatch: the arithmetic.
        settings: bounds.
        metrics: counts what is held back.
        brokers: known by address.
        names: topic id -> name.
        steady_ms: the clock.
    """

    def __init__(
        self,
        dispatch: Dispatch,
        settings: ProxySettings,
        metrics: Metrics,
        brokers: Brokers,
        names: LRUCache[bytes, str],
        steady_ms: Callable[[], float],
    ) -> None:
        self.dispatch = dispatch
        self.steady_ms = steady_ms
        self.readers = Readers(settings.readers_max, steady_ms)
        self.lines = Lines(steady_ms)
        dispatch.decided = self.lines.wake
        self.metrics = metrics
        self.hold_ms = float(settings.dispatch_hold_ms)
        self.names = names
        self._large_from_ms = 0.0
        self._brokers = brokers
        self._namespaces = Namespaces(settings.namespace_pattern)
        self._full_names: LRUCache[tuple[bool, bytes], str] = LRUCache(settings.topics_max)

    def large_wait_ms(self) -> float:
        """How long a request of too many partitions must wait; 0: it goes on, the next one a second later."""
        now_ms = self.steady_ms()
        if now_ms < self._large_from_ms:
            return self._large_from_ms - now_ms
        self._large_from_ms = now_ms + LARGE_MS
        self.metrics.large_fetches.inc()
        return 0.0

    @property
    def keys(self) -> frozenset[int]:
        """APIs whose requests are read."""
        if not self.dispatch.active:
            return _NONE
        return _FETCHES_AND_GROUPS if self.dispatch.by_subscription else _FETCHES

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

    def broker(self, address: tuple[str, int]) -> str:
        """What a broker at an address is called in events; until its id is known, by the address."""
        node_id = self._brokers.node_at(address)
        return "broker-{}:{}".format(*address) if node_id is None else f"broker-{node_id}"
