"""Kafka's frames as the meter sees them: what passed of which topics, whatever a version calls them.

Shared by all connections of a proxy. Produce and Fetch name topics from version 13 on by id alone; ids are
learnt from Metadata responses and looked up where they are not known.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from cachetools import LRUCache, TTLCache

from enforcer.core.settings import ProxySettings
from enforcer.kafka.protocol.frames import FETCH, PRODUCE, RequestHeader
from enforcer.kafka.protocol.traffic import (
    FETCH_IDS_FROM,
    PRODUCE_IDS_FROM,
    Fetching,
    Frame,
    fetched,
    produced,
)
from enforcer.metering.account import DISPATCH, PUBLISH, Account
from enforcer.metering.meter import Meter
from enforcer.metering.topic_accounts import Charged, TopicAccounts

_DIRECTIONS: Final = {PRODUCE: PUBLISH, FETCH: DISPATCH}
_FETCH_LIMIT_MIN: Final = 1_024
"""A Fetch is never asked to bring less, bytes: a broker adds the first batch whatever its size."""
_RECORD_BYTES: Final = 128.0
"""Size that a record is taken to have until some were seen."""
_ABSENT_MS: Final = 5_000.0
"""For how long a topic id that a broker does not know is not looked up again."""


class FrameMeter:
    """Charges Produce requests and Fetch responses.

    Attributes:
        meter: all accounts.
        names: topic id -> name; the one used longest ago leaves, and is looked up again when needed.

    Args:
        meter: all accounts.
        settings: bounds.
    """

    def __init__(self, meter: Meter, settings: ProxySettings) -> None:
        topics_max = settings.topics_max
        self.meter = meter
        self.names: LRUCache[bytes, str] = LRUCache(topics_max)
        self._absent: TTLCache[bytes, None] = TTLCache(topics_max, _ABSENT_MS, meter.clock.steady_ms)
        self._by_name = TopicAccounts(meter, _decoded, topics_max)
        self._by_id = TopicAccounts(meter, self.names.get, topics_max)
        self._slice_s = settings.fetch_slice_ms / 1000

    def reads(self, key: int, user: str, client_id: str) -> bool:
        """Whether a client's requests of this API are metered: all where there are groups."""
        if self.meter.grouped:
            return True
        direction = _DIRECTIONS.get(key)
        return direction is not None and self.meter.of_user(user, client_id, direction) is not None

    def learn(self, names: Mapping[bytes, str], asked_for: Iterable[bytes] = ()) -> None:
        """Topic ids and their names.

        Args:
            names: what a broker said.
            asked_for: ids of a look-up. One without a name belongs to nobody for a while: the topic is gone,
                or so new that the broker does not know it yet.
        """
        self.names.update(names)
        for topic in asked_for:
            if topic not in names:
                self._absent[topic] = None

    def unknown_ids(self, topics: Iterable[bytes]) -> list[bytes]:
        """Those of the topic ids whose name must be looked up."""
        if not self.meter.grouped:
            return []
        return [topic for topic in topics if topic not in self.names and topic not in self._absent]

    def produced(self, frame: Frame, header: RequestHeader, user: str) -> Charged:
        """Charge a Produce request.

        Raises:
            BadFrame: it cannot be read.
        """
        meter = self.meter
        wait = meter.charge_user(user, header.client_id or "", PUBLISH, len(frame))
        if not meter.grouped:
            return Charged(wait, ())
        passed = produced(frame, header)
        if header.api_version < PRODUCE_IDS_FROM:
            return self._by_name.charge(passed, PUBLISH, wait)
        charged = self._by_id.charge(passed, PUBLISH, wait)
        return self._without_absent(charged) if charged.unknown else charged

    def fetched(self, response: Frame, header: RequestHeader, user: str) -> Charged:
        """Charge a Fetch response.

        Args:
            response: the broker's.
            header: of its request.
            user: Kafka principal.

        Raises:
            BadFrame: it cannot be read.
        """
        meter = self.meter
        wait = meter.charge_user(user, header.client_id or "", DISPATCH, len(response))
        if not meter.grouped:
            return Charged(wait, ())
        passed = fetched(response, header.api_version)
        if header.api_version < FETCH_IDS_FROM:
            return self._by_name.charge(passed, DISPATCH, wait)
        charged = self._by_id.charge(passed, DISPATCH, wait)
        return self._without_absent(charged) if charged.unknown else charged

    def charge_later(self, passed: Iterable[tuple[bytes, int, int]]) -> Charged:
        """Charge what a Produce request brought, by topic id, once its ids were looked up."""
        return self._without_absent(self._by_id.charge(passed, PUBLISH))

    def of_topic(self, topic: bytes, ids: bool) -> Account | None:
        """The account of a topic, by name or id (TopicAccounts.of)."""
        return (self._by_id if ids else self._by_name).of(topic)

    def fetch_limit(self, asked: Fetching, accounts: set[Account], user: str, client_id: str) -> int | None:
        """How many bytes a Fetch may bring at once; None: as many as it asks for.

        A consumer that catches up would else get megabytes at once and then wait for minutes. Where its
        topics belong to several groups, the smallest counts, as the wait for the debt would.

        Args:
            asked: the request.
            accounts: those of the topics in the connection's fetch session.
            user: Kafka principal.
            client_id: of the request.
        """
        if asked.limit_offset is None or not self._slice_s:
            return None
        own = self.meter.of_user(user, client_id, DISPATCH)
        limits = [
            bucket.rate * self._slice_s * unit
            for account in (accounts if own is None else {*accounts, own})
            if not account.limits.shadow
            for bucket, unit in (
                (account.buckets[DISPATCH], _record_bytes(account)),
                (account.buckets[DISPATCH + 1], 1.0),
            )
            if bucket is not None
        ]
        limit = max(_FETCH_LIMIT_MIN, min(limits, default=float("inf")))
        return int(limit) if limit < asked.limit_bytes else None

    def _without_absent(self, charged: Charged) -> Charged:
        """Only what a look-up may help is unknown; the rest is not metered."""
        unknown = [item for item in charged.unknown if item[0] not in self._absent]
        self.meter.unmetered += len(charged.unknown) - len(unknown)
        return Charged(charged.wait, unknown)


def _decoded(topic: bytes) -> str:
    return topic.decode("utf-8", "replace")


def _record_bytes(account: Account) -> float:
    """Mean size of the records that a group's consumers got."""
    records = account.used[DISPATCH]
    return account.used[DISPATCH + 1] / records if records else _RECORD_BYTES
