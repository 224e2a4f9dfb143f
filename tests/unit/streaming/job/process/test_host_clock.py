"""How far the host's clock is from the brokers': shown, told of, and written into ticks."""

import logging
from functools import partial
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from prometheus_client import CollectorRegistry, Gauge

from streaming.contract.topics import Cluster
from streaming.job.process import ticker
from streaming.job.process.host_clock import HostClock
from streaming.job.process.ticker import Ticker

DAY_MS = 86_400_000
SAID = {"query": "q"}


class Host:
    """A host whose wall clock is ahead of the brokers' by so much."""

    def __init__(self, ahead_ms: int = 0) -> None:
        self.now_ms, self.ahead_ms = 20_000 * DAY_MS, ahead_ms
        self.gauge = Gauge("ahead", "", registry=CollectorRegistry())
        self.clock = HostClock(self.gauge, lambda: float(self.now_ms), lambda: self.now_ms + self.ahead_ms)

    @property
    def shown(self) -> Any:
        return self.gauge.collect()[0].samples[0].value


def test_the_difference_of_clocks_is_shown_and_told_of_from_a_second_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Which of both is ahead, now and then while it lasts."""
    host = Host(999)
    assert host.clock.ahead_ms is None
    host.clock.learn(host.now_ms)
    assert (host.clock.ahead_ms, host.shown, caplog.records) == (-999, -0.999, [])
    host.ahead_ms = 2_500
    assert host.clock.ahead_ms == -2_500, "of now: the clock was set"
    for _ in range(2):
        host.clock.learn(host.now_ms)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "2.5 s ahead of the brokers'" in caplog.text
    host.now_ms, host.ahead_ms = host.now_ms + DAY_MS, -1_500
    host.clock.learn(host.now_ms)
    assert "1.5 s behind the brokers'" in caplog.text and host.shown == 1.5


class Log:
    """A topic whose broker has the time of a host without its error (confluent_kafka.Producer)."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.values: list[dict[str, Any]] = []

    def timestamp(self) -> tuple[int, int]:
        return 2, self.host.now_ms

    def produce(self, topic: str, value: bytes, on_delivery: Any) -> None:
        assert topic == "weir.usage"
        self.values.append(orjson.loads(value))
        on_delivery(None, self)

    def flush(self, limit_s: float) -> int:
        assert limit_s <= 1
        return 0


class Slow(Log):
    """And acknowledges each record three seconds later."""

    def produce(self, topic: str, value: bytes, on_delivery: Any) -> None:
        sent = self.timestamp()
        self.acknowledge = partial(on_delivery, None, SimpleNamespace(timestamp=lambda: sent))

    def flush(self, limit_s: float) -> int:
        self.host.now_ms += 3_000
        self.acknowledge()
        return 0


def ticks_to(log: Log, monkeypatch: pytest.MonkeyPatch) -> Ticker:
    """One of the log's host, where there are events, and no policy says how long a round is."""
    monkeypatch.setattr(ticker, "connected", lambda _client, _own: log)
    monkeypatch.setattr(ticker, "Reader", lambda *_args, **_named: None)
    monkeypatch.setattr(Ticker, "_has_events", lambda _self: True)
    monkeypatch.setattr(Ticker, "_read_round", lambda _self: None)
    return Ticker(Cluster(""), 10_000, log.host.clock, SAID)


def test_a_slow_broker_is_no_clock_that_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """A late acknowledgement looked like a clock of ours seconds ahead, and the batches went by that."""
    host = Host()
    monkeypatch.setattr(ticker, "monotonic", lambda: host.now_ms / 1000)
    ticks_to(Slow(host), monkeypatch).poll(0.0)
    assert host.clock.ahead_ms is None


def test_ticks_tell_the_batches_how_far_the_clocks_are_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """And when the job began: the very first one shows it, so that the next one, at once, can say it."""
    host = Host(2_500)
    log = Log(host)
    ticks = ticks_to(log, monkeypatch)
    ticks.poll(0.0)
    ticks.poll(9_999.0)
    host.ahead_ms, host.now_ms = 0, host.now_ms + 10_000
    ticks.poll(10_000.0)
    known = {"type": "tick", **SAID, "since": host.now_ms - 10_000}
    said = [{**known, "brokers_ahead_ms": ahead_ms} for ahead_ms in (-2_500, 0)]
    assert log.values == [{"type": "tick", **SAID}, *said]
