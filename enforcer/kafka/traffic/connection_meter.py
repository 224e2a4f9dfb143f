"""One connection's part in metering: charges its frames, and holds it back when their groups are in debt."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from enforcer.core.metrics import Metrics
from enforcer.kafka.protocol.frames import RequestHeader
from enforcer.kafka.protocol.traffic import (
    FETCH_IDS_FROM,
    METADATA_IDS_FROM,
    Fetching,
    Frame,
    described,
    fetching,
)
from enforcer.kafka.traffic.frame_meter import FrameMeter
from enforcer.metering.account import Account, Wait
from enforcer.metering.topic_accounts import Charged
from streaming.contract.names import QUOTA_GROUP_PREFIX
from streaming.contract.usage_events import DIMENSIONS

SESSION_TOPICS_MAX: Final = 1_000
"""Topics of one connection's fetch session that are remembered; others do not make its responses smaller."""
LEARN_MAX_BYTES: Final = 262_144
"""Larger Metadata responses are not read for topic ids; they are looked up when needed."""

LookUp = Callable[[list[bytes], Callable[[Mapping[bytes, str]], None]], None]


class Brake(Protocol):
    """What holds a connection back; see pacing.Pacer."""

    def brake(self, wait_ms: float) -> bool:
        """Handle and read nothing for so long; False if it must wait longer anyway."""
        ...

    def hasten(self, factor: float) -> None:
        """Only this part of what is left of that wait is needed."""
        ...


class ConnectionMeter:
    """A connection as the meter sees it.

    Args:
        frames: charges what passes, for all connections.
        metrics: counts throttled answers.
        brake: holds the connection back.
        look_up: asks the broker for the names of topic ids, on this connection, before anything sent later.
    """

    def __init__(self, frames: FrameMeter, metrics: Metrics, brake: Brake, look_up: LookUp) -> None:
        self._frames = frames
        self._meter = frames.meter
        self._metrics = metrics
        self._brake = brake
        self._look_up = look_up
        self._session: dict[bytes, None] = {}
        self._session_ids = False
        self._accounts: set[Account] = set()
        self._generation = -1
        self._waits_for: Wait | None = None

    def produce(self, frame: Frame, header: RequestHeader, user: str, later: Callable[[int], None]) -> int:
        """Charge a Produce request, which is forwarded all the same; the connection waits at once.

        Args:
            frame: the request.
            header: its header.
            user: Kafka principal.
            later: told a throttle time that is known only before the response, if any.

        Returns:
            The throttle time for its response, ms; 0: none.

        Raises:
            BadFrame: it cannot be read.
        """
        charged = self._frames.produced(frame, header, user)
        if charged.unknown:
            self._charge_later(charged.unknown, later)
        return self._wait(charged)

    def fetch(self, frame: bytes, header: RequestHeader, user: str) -> bytes:
        """A Fetch request as it is forwarded: a consumer of a limited group gets less at once.

        Raises:
            BadFrame: it cannot be read.
        """
        asked = fetching(frame, header)
        self._note_session(asked, ids=header.api_version >= FETCH_IDS_FROM)
        limit = self._frames.fetch_limit(asked, self._session_accounts(), user, header.client_id or "")
        if limit is None or asked.limit_offset is None:
            return frame
        end = asked.limit_offset + 4
        return b"".join((frame[: asked.limit_offset], limit.to_bytes(4, "big"), frame[end:]))

    def fetched(self, response: Frame, header: RequestHeader, user: str) -> int:
        """Charge a Fetch response; returns the throttle time for it, ms, 0 for none.

        Raises:
            BadFrame: it cannot be read.
        """
        charged = self._frames.fetched(response, header, user)
        # Looked up when the session began; who has no name then has none.
        self._meter.unmetered += len(charged.unknown)
        return self._wait(charged)

    def described(self, response: Frame, version: int) -> None:
        """Learn topic ids from a Metadata response.

        Raises:
            BadFrame: it cannot be read.
        """
        if version >= METADATA_IDS_FROM and len(response) <= LEARN_MAX_BYTES:
            self._frames.learn(described(response, version))

    def hasten(self, account: Account, dimension: int, factor: float) -> None:
        """The rate that this connection waits for has grown (account.Waiter)."""
        wait = self._waits_for
        if wait is not None and wait.account is account and wait.dimension == dimension:
            self._brake.hasten(factor)

    def close(self) -> None:
        """The connection is gone."""
        self._wait_for(None)

    def _wait(self, charged: Charged) -> int:
        wait = charged.wait
        if wait is None:
            return 0
        by = "user" if wait.account.name.startswith(QUOTA_GROUP_PREFIX) else "group"
        self._metrics.throttled.labels(by, DIMENSIONS[wait.dimension]).inc()
        if self._brake.brake(wait.ms):
            self._wait_for(wait)
        return self._meter.told_ms(wait)

    def _wait_for(self, wait: Wait | None) -> None:
        if self._waits_for is not None:
            self._waits_for.account.waiting.discard(self)
        if wait is not None:
            wait.account.waiting.add(self)
        self._waits_for = wait

    def _charge_later(self, passed: Sequence[tuple[bytes, int, int]], later: Callable[[int], None]) -> None:
        def charge(names: Mapping[bytes, str]) -> None:
            self._frames.learn(names, asked_for)
            told_ms = self._wait(self._frames.charge_later(passed))
            if told_ms:
                later(told_ms)

        asked_for = [topic for topic, _, _ in passed]
        self._look_up(asked_for, charge)

    def _note_session(self, asked: Fetching, ids: bool) -> None:
        if asked.full:
            self._session.clear()
        if not asked.topics:
            return
        self._generation, self._session_ids = -1, ids
        for topic in asked.topics[: SESSION_TOPICS_MAX - len(self._session)]:
            self._session[topic] = None
        unknown = self._frames.unknown_ids(asked.topics) if ids else []
        if unknown:

            def learn(names: Mapping[bytes, str]) -> None:
                self._generation = -1
                self._frames.learn(names, unknown)

            # The answer comes before that of the Fetch, in time for charging it.
            self._look_up(unknown, learn)

    def _session_accounts(self) -> set[Account]:
        if self._generation != self._meter.generation:
            found = {self._frames.of_topic(topic, self._session_ids) for topic in self._session}
            self._accounts = {account for account in found if account is not None}
            self._generation = self._meter.generation
        return self._accounts
