"""Kafka's frames as the meter sees them: what passed of which topics, whatever a version calls them.

Shared by all connections of a proxy. Produce and Fetch name topics from version 13 on by id alone; ids are
learnt from Metadata responses and looked up where they are not known.
"""

from collections.abc import Iterable
from typing import Final

from cachetools import LRUCache

from enforcer.core import bounds
from enforcer.core.account import DISPATCH, PUBLISH, Account
from enforcer.kafka.part import FETCH_LIMIT_MAX
from enforcer.kafka.share_sessions import Known
from enforcer.laws.shares.meter import Meter
from enforcer.laws.shares.topic_accounts import Bill, BillItem, TopicAccounts
from enforcer.wire.kafka.codec import told
from enforcer.wire.kafka.frames import (
    FETCH,
    METADATA,
    NO_ID,
    PRODUCE,
    SHARE_FETCH,
    TOPIC_NAME_MAX,
    Frame,
    RequestHeader,
    client_name,
)
from enforcer.wire.kafka.traffic import (
    FETCH_IDS_FROM,
    PRODUCE_IDS_FROM,
    FetchSummary,
    Part,
    TopicUse,
    produced,
)

FETCH_SLICE_MS: Final = 250
"""A Fetch of a limited group brings at most so many ms of its share at once, or its debt would be long."""

_DESCRIBED: Final = told(METADATA, "Topics(Name:text? TopicId)", rows=1)
_DIRECTIONS: Final = {PRODUCE: PUBLISH, FETCH: DISPATCH, SHARE_FETCH: DISPATCH}
_FETCH_LIMIT_MIN: Final = 1_024
"""A Fetch is never asked to bring less, bytes: a broker adds the first batch whatever its size."""
_RECORD_BYTES: Final = 128.0
"""Size that a record is taken to have until some were seen."""


class FrameMeter:
    """Says whom to charge for Produce requests and Fetch responses.

    Attributes:
        meter: all accounts.
        names: topic id -> name; the one used longest ago leaves, and is looked up again when needed.
        sessions: of share groups, as far as connections know them.
    """

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.names: LRUCache[bytes, str] = LRUCache(bounds.TOPICS_MAX)
        self.sessions = Known()
        self._by_name = TopicAccounts(meter, _decoded, bounds.TOPICS_MAX, TOPIC_NAME_MAX)
        self._by_id = TopicAccounts(meter, self.names.get, bounds.TOPICS_MAX, TOPIC_NAME_MAX)

    def reads(self, key: int, user: str, client_id: str) -> bool:
        """Whether a client's requests of this API are metered: all where there are groups."""
        if self.meter.grouped:
            return True
        direction = _DIRECTIONS.get(key)
        return direction is not None and self.meter.of_user(user, client_id, direction) is not None

    def learn(self, response: Frame, version: int) -> None:
        """Topic ids and their names, as a Metadata response v10-13 tells them.

        Raises:
            BadFrame: it ends too early or a length in it is impossible.
        """
        found = _DESCRIBED(response, version)
        self.names.update({topic: name for name, topic in found if name and topic != NO_ID})

    def unknown_ids(self, topics: Iterable[bytes]) -> list[bytes]:
        """Those of the topic ids whose name must be looked up."""
        return [topic for topic in topics if topic not in self.names] if self.meter.grouped else []

    def produced(self, frame: Frame, header: RequestHeader, user: str, parts: list[Part]) -> Bill:
        """Whom to charge for a Produce request.

        Args:
            parts: gets what each partition gets, where groups are charged.

        Raises:
            BadFrame: it cannot be read.
        """
        users = self._users(user, header, PUBLISH, len(frame))
        if not self.meter.grouped:
            return Bill([] if users is None else [users], [])
        topics = self._by_name if header.api_version < PRODUCE_IDS_FROM else self._by_id
        return topics.bill(produced(frame, header, parts), users)

    def plain(self, brings: Part, version: int, size: int, user: str, client_id: bytes) -> Bill | None:
        """The same of a plain Produce request; None: it is to be read, since somebody is not known yet.

        Args:
            size: of all of it.
        """
        meter, topic, owed = self.meter, brings.topic, list[BillItem]()
        generation = meter.generation
        users = meter.of_user(user, client_name(client_id), PUBLISH)
        if users is not None:
            owed.append(BillItem(users, None, 0, size))
        if meter.grouped:
            ids = version >= PRODUCE_IDS_FROM
            account = self.of_topic(topic, ids)
            if account is not None:
                owed.append(BillItem(account, topic, brings.records, brings.size))
            elif ids and topic not in self.names:
                return None
            if account is meter.nowhere:
                return None
        # Of who found no room, or made room for another, it is counted when it is read.
        return None if users is meter.nowhere or generation != meter.generation else Bill(owed, [])

    def fetched(self, response: Frame, passed: Iterable[TopicUse], header: RequestHeader, user: str) -> Bill:
        """Whom to charge for a Fetch or ShareFetch response.

        Args:
            passed: what it brings, where groups are charged.
        """
        users = self._users(user, header, DISPATCH, len(response))
        if not self.meter.grouped:
            return Bill([] if users is None else [users], [])
        names = header.api_key == FETCH and header.api_version < FETCH_IDS_FROM
        return (self._by_name if names else self._by_id).bill(passed, users)

    def fetching(self, accounts: set[Account], user: str, client_id: str) -> set[Account]:
        """Whom a Fetch will be charged to: the accounts of its topics, and that of its user."""
        own = self.meter.of_user(user, client_id, DISPATCH)
        return accounts if own is None else {*accounts, own}

    def of_topic(self, topic: bytes, ids: bool) -> Account | None:
        """The account of a topic, by name or id (TopicAccounts.of)."""
        return (self._by_id if ids else self._by_name).of(topic)

    def fetch_limit(self, asked: FetchSummary, accounts: set[Account]) -> int | None:
        """How many bytes a Fetch may bring at once; None: as many as it asks for.

        A consumer that catches up would else get megabytes at once and then wait for minutes. Where its
        topics belong to several groups, the smallest counts, as the wait for the debt would. What is metered
        is read whole, so it is never more than FETCH_LIMIT_MAX; a broker adds the first batch all the same.
        """
        if asked.limit_offset is None:
            return None
        limits = [
            bucket.rate * FETCH_SLICE_MS / 1000 * unit
            for account in accounts
            if not account.limits.shadow
            for bucket, unit in (
                (account.buckets[DISPATCH], _record_bytes(account)),
                (account.buckets[DISPATCH + 1], 1.0),
            )
            if bucket is not None
        ]
        limit = max(_FETCH_LIMIT_MIN, min((FETCH_LIMIT_MAX, *limits)))
        return int(limit) if limit < asked.limit_bytes else None

    def _users(self, user: str, header: RequestHeader, direction: int, size: int) -> BillItem | None:
        account = self.meter.of_user(user, header.client_id or "", direction)
        if account is None:
            return None
        self.meter.unmetered += account is self.meter.nowhere
        return BillItem(account, None, 0, size)


def _decoded(topic: bytes) -> str:
    return topic.decode("utf-8", "replace")


def _record_bytes(account: Account) -> float:
    """Mean size of the records that a group's consumers got."""
    records = account.used[DISPATCH]
    return account.used[DISPATCH + 1] / records if records else _RECORD_BYTES
