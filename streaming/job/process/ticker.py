"""Ticks: the job tells its own log that time has passed (docs/contract.md 3.2).

Rounds of resource groups close and standing decisions are repeated by event time. Where nobody reports any
more, a record on `weir.usage` must say so; being a record, it is in a dump too and a replay closes the same
rounds. Where nobody has ever reported or asked, nothing stands and nothing ticks. A tick also tells the
batches, which run on any machine, how far the clock of the job's host is from the brokers'.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import orjson
from confluent_kafka import KafkaError, KafkaException, Message
from prometheus_client import Gauge

from streaming.contract.errors import WeirError
from streaming.contract.topics import Cluster
from streaming.kafka_io.brokers_clock import BrokersClock
from streaming.kafka_io.reader import NoTopic, Reader, Span
from streaming.kafka_io.writer import connected
from streaming.policy.policy_set import RAISE

_LOG = logging.getLogger("weir.job")
ROUND_DEFAULT_S: Final = 60
"""resourceUsagePublishIntervalInSecs where no policy sets it (docs/contract.md 2)."""
_LIMIT_S: Final = 5.0
"""Of one question to the cluster."""
_ROUND_LIMIT_S: Final = 0.5
"""Of each question for the length of a round, asked with every tick: the job's watch waits for it."""
_ACK_S: Final = 0.5
"""For how long an acknowledgement is waited for. One that comes later is heard of with the next tick, as if
the brokers' clock were so far behind."""
_FAR_MS: Final = 1000
_AGAIN_MS: Final = 600_000
"""So far a clock is wrong, and how often that is said."""


class HostClock:
    """What acknowledgements of our records tell of the brokers' clock.

    Attributes:
        ahead_ms: the brokers' clock less ours, ms; None: none was acknowledged yet.

    Args:
        gauge: shows it, s.
        steady_ms, wall_ms: our own clocks.
    """

    def __init__(
        self,
        gauge: Gauge,
        steady_ms: Callable[[], float] = lambda: time.monotonic() * 1000,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._gauge = gauge
        self._steady_ms, self._wall_ms = steady_ms, wall_ms
        self._brokers = BrokersClock(steady_ms, wall_ms)
        self._said_ms = float("-inf")

    @property
    def ahead_ms(self) -> int | None:
        """See there. Of now, since our clock may have been set."""
        return self._brokers.now_ms() - self._wall_ms() if self._brokers.known else None

    def learn(self, record_ms: int) -> None:
        """A record of ours was acknowledged; its broker gave it this time, ms since the epoch."""
        now_ms = self._steady_ms()
        self._brokers.learn(record_ms, now_ms)
        ahead_ms = self._brokers.now_ms() - self._wall_ms()
        self._gauge.set(ahead_ms / 1000)
        if abs(ahead_ms) >= _FAR_MS and now_ms >= self._said_ms + _AGAIN_MS:
            self._said_ms = now_ms
            _LOG.warning(
                "the clock of this host is %.1f s %s the brokers': decisions go by theirs, but one of both is"
                " wrong (NTP?)",
                abs(ahead_ms) / 1000,
                "behind" if ahead_ms > 0 else "ahead of",
            )


class Ticker:
    """Writes a tick each round, and at least every `interval_ms`, once there is any usage or request.

    Attributes:
        since: time of the first one, ms on the brokers' clock; None: none was acknowledged yet.

    Args:
        cluster: where ticks go and policies come from.
        interval_ms: the longest time between two ticks.
        clock: learns from their acknowledgements.
        said: what each says of this job (other_job.py).
    """

    def __init__(self, cluster: Cluster, interval_ms: int, clock: HostClock, said: Mapping[str, Any]) -> None:
        self._topics = cluster.topics
        self._said = said
        self._interval_ms = interval_ms
        self._clock = clock
        self._round_ms = ROUND_DEFAULT_S * 1000
        self._next_ms = 0.0
        # A tick that cannot be sent in time is of no use later: the next one says more.
        own = {"message.timeout.ms": 5000, "queue.buffering.max.messages": 10}
        self._connect = partial(connected, cluster.properties, own)
        self._producer = self._connect()
        self._reader = Reader(cluster.bootstrap, cluster.client)
        self._in_use = False
        self.since: int | None = None

    def poll(self, now_ms: float) -> None:
        """Send a tick if one is due; never waits long, never raises: the job goes on without ticks.

        Args:
            now_ms: a steady clock.
        """
        if now_ms < self._next_ms:
            return
        self._next_ms = now_ms + min(self._round_ms, self._interval_ms)
        try:
            self._in_use = self._in_use or self._has_events()
            if not self._in_use:
                return
            with contextlib.suppress(WeirError):
                # As long as it is not known, the last one holds.
                self._read_round()
            if self._clock.ahead_ms is None:
                # It only shows what the next one says.
                self._send()
            self._send()
        except (WeirError, KafkaException, SystemError, BufferError) as error:
            if isinstance(error, KafkaException | SystemError):
                # It has broken for good, as a rule: the library tells so once, and refuses ever after.
                with contextlib.suppress(KafkaException):
                    self._producer = self._connect()
            _LOG.warning("no tick: %s; rounds without reports stay open until the next one", error)

    def close(self, *, leaving: bool) -> None:
        """Leave the cluster, within two limits; the last tick says so to who starts on another checkpoint.

        Args:
            leaving: False where another one goes on, on the same checkpoint.
        """
        if leaving and self._in_use:
            with contextlib.suppress(KafkaException, SystemError, BufferError):
                self._send(leaving=True)
        self._reader.close()

    def _send(self, **more: Any) -> None:
        tick: dict[str, Any] = {"type": "tick", **self._said, **more}
        if self._clock.ahead_ms is not None:
            tick["brokers_ahead_ms"] = self._clock.ahead_ms
        if self.since is not None:
            tick["since"] = self.since
        learn = partial(self._learn, time.monotonic() + _ACK_S)
        self._producer.produce(self._topics.usage, orjson.dumps(tick), on_delivery=learn)
        self._producer.flush(_ACK_S)

    def _learn(self, until_s: float, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.since = self.since or message.timestamp()[1]
            if time.monotonic() <= until_s:
                self._clock.learn(message.timestamp()[1])

    def _spans(self, topic: str, limit_s: float = _LIMIT_S) -> list[Span]:
        try:
            return self._reader.spans(topic, limit_s=limit_s)
        except NoTopic:
            return []

    def _has_events(self) -> bool:
        """Whether anything was ever written to `weir.usage` or `weir.requests`."""
        topics = self._topics.usage, self._topics.requests
        return any(span.end > 0 for topic in topics for span in self._spans(topic))

    def _read_round(self) -> None:
        """Follow the length of a round in the policies; a change counts from when it is published."""
        spans = self._spans(self._topics.policies, _ROUND_LIMIT_S)
        for message in self._reader.read_on(spans, _ROUND_LIMIT_S):
            self._round_ms = _round_ms(message.value(), self._round_ms)


def _round_ms(record: bytes | None, known: int) -> int:
    """The length of a round after a policy record; what is no usable policy changes nothing."""
    try:
        policy = orjson.loads(record or b"")
    except orjson.JSONDecodeError:
        return known
    if not isinstance(policy, dict) or policy.get("path") != "broker":
        return known
    value = policy.get("value") or {}
    if not isinstance(value, dict):
        return known
    # Also of a raise, whenever it ends: a tick that comes too soon does no harm.
    raised = value.get(RAISE)
    both = value, {**value, **raised} if isinstance(raised, dict) else value
    seconds = [each.get("resourceUsagePublishIntervalInSecs", ROUND_DEFAULT_S) for each in both]
    return min(seconds) * 1000 if all(type(each) is int and each > 0 for each in seconds) else known
