"""Counts traffic per group and says how long its connection must wait (contract 3.2, design.md section 4).

Connections bring frames, the policies say who belongs where, decisions bring shares. One event loop, no
sockets. Where neither a group is attached to a namespace nor a byte rate is set, `active` is False, and
nobody calls anything else.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

from enforcer.core.clock import Clock
from enforcer.core.feeds.shares import Share
from enforcer.core.settings import ProxySettings
from enforcer.kafka.protocol.frames import FETCH, PRODUCE, RequestHeader
from enforcer.kafka.protocol.traffic import (
    FETCH_IDS_FROM,
    PRODUCE_IDS_FROM,
    Fetching,
    Frame,
    Passed,
    fetched,
    produced,
)
from enforcer.metering.account import DISPATCH, PUBLISH, Account, State, Use, Wait
from enforcer.metering.account_table import AccountTable
from enforcer.metering.namespaces import Namespaces
from streaming.contract.names import QUOTA_GROUP_PREFIX
from streaming.policy.groups import (
    QUOTA_DIMENSIONS,
    byte_quota_subject,
    round_rules,
)
from streaming.policy.policy_set import UNLIMITED, PolicySet, Section
from streaming.policy.topics import namespace_group

_Key = TypeVar("_Key")

_RATES: Final = dict(zip((PUBLISH, DISPATCH), QUOTA_DIMENSIONS, strict=True))
_DIRECTIONS: Final = {PRODUCE: PUBLISH, FETCH: DISPATCH}
_FETCH_LIMIT_MIN: Final = 1_024
"""A Fetch is never asked to bring less, bytes: a broker adds the first batch whatever its size."""
_RECORD_BYTES: Final = 128.0
"""Size that a record is taken to have until some were seen."""
_ABSENT_MS: Final = 5_000.0
"""For how long a topic id that a broker does not know is not looked up again."""


class Charged(NamedTuple):
    """What came of a frame.

    Attributes:
        wait: the longest wait, above 0 ms; None: none.
        unknown: what could not be charged, since its topic's name is not known.
    """

    wait: Wait | None
    unknown: list[Passed]


_NOTHING: Final = Charged(None, [])


class Meter:
    """All accounts of this proxy.

    Attributes:
        active: something is to be counted.
        accounts: group -> its account.
        topic_names: topic id -> name.
        unmetered: how often traffic was not counted: no room for its account, or a topic id without a name.
        interval_ms: time between two usage reports.
        generation: goes up when a topic may belong to another account than before.

    Args:
        settings: bounds and rules.
        clock: tells the time.
    """

    def __init__(self, settings: ProxySettings, clock: Clock) -> None:
        self.active = False
        self._table = AccountTable(settings, clock, self._forget_ways)
        self.accounts = self._table.accounts
        self.topic_names: dict[bytes, str] = {}
        self.unmetered = 0
        self.generation = 0
        self._settings = settings
        self._clock = clock
        self._namespaces = Namespaces(settings.namespace_pattern)
        self._policies = PolicySet()
        self.interval_ms = round_rules(self._policies).interval_ms
        self._grouped = False
        self._rated = False
        self._absent: dict[bytes, float] = {}
        self._by_name: dict[bytes, Account | None] = {}
        self._by_id: dict[bytes, Account | None] = {}
        self._by_user: dict[tuple[str, str, int], Account | None] = {}

    def reads(self, key: int, user: str, client_id: str) -> bool:
        """Whether a client's requests of this API are metered: all where there are groups."""
        if self._grouped:
            return True
        direction = _DIRECTIONS.get(key)
        return direction is not None and self._user_account(user, client_id, direction) is not None

    def set_policies(self, policies: PolicySet) -> None:
        """These policies are in force now; balances and debts are kept."""
        if policies is self._policies:
            return
        self._policies = policies
        self.interval_ms = round_rules(policies).interval_ms
        entries = policies.entries
        attached = (f"{Section.NAMESPACES}.", f"{Section.TENANTS}.")
        # Traffic waits while a hundred thousand entries are looked at, so once each and no more.
        self._grouped = any(
            "resourcegroup" in value for path, value in entries.items() if path.startswith(attached)
        )
        self._rated = any(
            value.get(key, UNLIMITED) != UNLIMITED
            for path, value in entries.items()
            if path.startswith("quotas[")
            for key in QUOTA_DIMENSIONS
        )
        self.active = self._grouped or self._rated
        self._forget_ways()
        self._table.set_policies(policies)

    def take_share(self, share: Share) -> None:
        """This proxy's share of a group was decided or repeated."""
        self._table.take_share(share)

    def expire(self) -> None:
        """Called now and then: end shares whose life time has passed."""
        self._table.expire()

    def take_left(self) -> dict[str, Use]:
        """What groups used since the last call and before their accounts made room for others."""
        return self._table.take_left()

    def learn(self, names: Mapping[bytes, str], asked_for: Iterable[bytes] = ()) -> None:
        """Topic ids and their names.

        Args:
            names: what a broker said.
            asked_for: ids of a look-up. One without a name belongs to nobody for a while: the topic is gone,
                or so new that the broker does not know it yet.
        """
        topics_max = self._settings.topics_max
        if len(self.topic_names) + len(names) > topics_max:
            # They are looked up again when needed.
            self.topic_names.clear()
        self.topic_names.update(names)
        until_ms = self._clock.steady_ms() + _ABSENT_MS
        for topic in asked_for:
            if topic not in names:
                if len(self._absent) >= topics_max:
                    self._absent.clear()
                self._absent[topic] = until_ms

    def unknown_ids(self, topics: Iterable[bytes]) -> list[bytes]:
        """Those of the topic ids whose name must be looked up."""
        return [topic for topic in topics if self._is_unknown(topic)] if self._grouped else []

    def _is_unknown(self, topic: bytes) -> bool:
        return topic not in self.topic_names and self._absent.get(topic, 0.0) <= self._clock.steady_ms()

    def produced(self, frame: Frame, header: RequestHeader, user: str) -> Charged:
        """Charge a Produce request.

        Raises:
            BadFrame: it cannot be read.
        """
        wait = self._charge_user(user, header, PUBLISH, len(frame))
        if not self._grouped:
            return Charged(wait, [])
        passed = produced(frame, header)
        return self.charge(passed, PUBLISH, header.api_version >= PRODUCE_IDS_FROM, wait)

    def fetched(self, response: Frame, header: RequestHeader, user: str) -> Charged:
        """Charge a Fetch response.

        Args:
            response: the broker's.
            header: of its request.
            user: Kafka principal.

        Raises:
            BadFrame: it cannot be read.
        """
        wait = self._charge_user(user, header, DISPATCH, len(response))
        if not self._grouped:
            return Charged(wait, [])
        passed = fetched(response, header.api_version)
        return self.charge(passed, DISPATCH, header.api_version >= FETCH_IDS_FROM, wait)

    def charge(self, passed: list[Passed], direction: int, ids: bool, wait: Wait | None) -> Charged:
        """Charge what passed of some topics.

        Args:
            passed: per topic.
            direction: PUBLISH or DISPATCH.
            ids: topics are given by id.
            wait: what the user's own quota asks for.

        Returns:
            The stricter wait.
        """
        now_ms = self._clock.steady_ms()
        unknown: list[Passed] = []
        accounts = self._by_id if ids else self._by_name
        for item in passed:
            topic, records, size = item
            try:
                account = accounts[topic]
            except KeyError:
                if ids and topic not in self.topic_names:
                    if self._is_unknown(topic):
                        unknown.append(item)
                    else:
                        self.unmetered += 1
                    continue
                account = self._account_of_topic(topic, ids)
                self.unmetered += account is self._table.nowhere
            if account is not None:
                own = account.charge(direction, records, size, now_ms)
                if own.ms and (wait is None or own.ms > wait.ms):
                    wait = own
        return Charged(wait, unknown) if wait or unknown else _NOTHING

    def fetch_limit(self, asked: Fetching, accounts: set[Account], user: str, client_id: str) -> int | None:
        """How many bytes a Fetch may bring at once; None: as many as it asks for.

        A consumer that catches up would else get megabytes at once and then wait for minutes. Where its
        topics belong to several groups, the smallest counts, as the wait for the debt would.

        Args:
            asked: the request.
            accounts: those of the topics in the connection's fetch session; topics named now are added.
            user: Kafka principal.
            client_id: of the request.
        """
        slice_s = self._settings.fetch_slice_ms / 1000
        if asked.limit_offset is None or not slice_s:
            return None
        own = self._user_account(user, client_id, DISPATCH)
        limits = [
            bucket.rate * slice_s * unit
            for account in (accounts if own is None else {*accounts, own})
            if not account.limits.shadow
            for bucket, unit in (
                (account.buckets[DISPATCH], record_bytes(account)),
                (account.buckets[DISPATCH + 1], 1.0),
            )
            if bucket is not None
        ]
        limit = max(_FETCH_LIMIT_MIN, min(limits, default=float("inf")))
        return int(limit) if limit < asked.limit_bytes else None

    def account_of(self, topic: bytes, ids: bool) -> Account | None:
        """The account of a topic, by name or id; None: none, or the id's name is not known.

        Where there is no room for it, it is one without limits.
        """
        accounts = self._by_id if ids else self._by_name
        if topic in accounts:
            return accounts[topic]
        if ids and topic not in self.topic_names:
            return None
        return self._account_of_topic(topic, ids)

    def told_ms(self, wait: Wait) -> int:
        """What a client is told of a wait: all of it, but a share that is on its way may make it shorter."""
        longest_ms = self.interval_ms if wait.account.state is State.JOINING else wait.ms
        return max(1, round(min(wait.ms, longest_ms)))

    def _account_of_topic(self, topic: bytes, ids: bool) -> Account | None:
        name = self.topic_names[topic] if ids else topic.decode("utf-8", "replace")
        namespace = self._namespaces.of(name) if self._grouped else None
        found = None if namespace is None else namespace_group(self._policies, namespace)
        account = None if found is None else self._table.find(found[0], self._policies)
        self._keep(self._by_id if ids else self._by_name, topic, account, self._settings.topics_max)
        return account

    def _charge_user(self, user: str, header: RequestHeader, direction: int, size: int) -> Wait | None:
        account = self._user_account(user, header.client_id or "", direction)
        if account is None:
            return None
        self.unmetered += account is self._table.nowhere
        wait = account.charge(direction, 0, size, self._clock.steady_ms())
        return wait if wait.ms else None

    def _user_account(self, user: str, client_id: str, direction: int) -> Account | None:
        if not self._rated:
            return None
        key = (user, client_id, direction)
        try:
            return self._by_user[key]
        except KeyError:
            subject = byte_quota_subject(self._policies, user, client_id, _RATES[direction])
        group = None if subject is None else f"{QUOTA_GROUP_PREFIX}{subject}"
        account = None if group is None else self._table.find(group, self._policies)
        self._keep(self._by_user, key, account, self._settings.subjects_max)
        return account

    def _keep(self, ways: dict[_Key, Account | None], key: _Key, account: Account | None, most: int) -> None:
        """Remember whose traffic it is; who found no room asks again with the next frame."""
        if account is not self._table.nowhere:
            if len(ways) >= most:
                ways.clear()
            ways[key] = account

    def _forget_ways(self) -> None:
        self.generation += 1
        self._by_name.clear()
        self._by_id.clear()
        self._by_user.clear()


def record_bytes(account: Account) -> float:
    """Mean size of the records that a group's consumers got."""
    records = account.used[DISPATCH]
    return account.used[DISPATCH + 1] / records if records else _RECORD_BYTES
