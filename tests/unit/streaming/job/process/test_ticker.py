"""How often the job ticks: each round, as the policies say it; and what that tells of the host's clock."""

import logging
from functools import partial
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from confluent_kafka import KafkaError, KafkaException
from prometheus_client import CollectorRegistry, Gauge

from streaming.contract.errors import WeirError
from streaming.contract.topics import Cluster, Topics
from streaming.job.process import ticker
from streaming.job.process.ticker import ROUND_DEFAULT_S, HostClock, Ticker, _round_ms

DAY_MS = 86_400_000
KNOWN = 7000
SAID = {"query": "q", "host": "h", "pid": 7}


def broker(value: object) -> bytes:
    return orjson.dumps({"type": "policy", "path": "broker", "value": value})


@pytest.mark.parametrize(
    ("record", "round_ms"),
    [
        (broker({"resourceUsagePublishIntervalInSecs": 2}), 2000),
        (broker({"preciseBacklogSize": True}), ROUND_DEFAULT_S * 1000),
        (broker({"raise": {"resourceUsagePublishIntervalInSecs": 2}}), 2000),
        (broker({"raise": {"resourceUsagePublishIntervalInSecs": 90}}), ROUND_DEFAULT_S * 1000),
        (broker(None), ROUND_DEFAULT_S * 1000),
        (broker({"resourceUsagePublishIntervalInSecs": "soon"}), KNOWN),
        (broker({"resourceUsagePublishIntervalInSecs": 0}), KNOWN),
        (orjson.dumps({"path": "tenants.acme", "value": {}}), KNOWN),
        (b"garbage", KNOWN),
        (b"[]", KNOWN),
        (None, KNOWN),
    ],
)
def test_the_round_follows_the_broker_policy(record: bytes | None, round_ms: int) -> None:
    """What is no usable policy changes nothing; what leaves the key out has the default; a raise counts."""
    assert _round_ms(record, KNOWN) == round_ms


class Host:
    """A host whose wall clock is ahead of the brokers' by so much."""

    def __init__(self, ahead_ms: int = 0) -> None:
        self.now_ms, self.ahead_ms = 20_000 * DAY_MS, ahead_ms
        self.gauge = Gauge("ahead", "", registry=CollectorRegistry())
        self.clock = HostClock(self.gauge, lambda: float(self.now_ms), lambda: self.now_ms + self.ahead_ms)

    @property
    def shown(self) -> Any:
        return self.gauge.collect()[0].samples[0].value


class Log:
    """A topic whose broker has the time of a host without its error (confluent_kafka.Producer)."""

    def __init__(self, host: Host | None = None) -> None:
        self.host = host or Host()
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


def a_ticker(monkeypatch: pytest.MonkeyPatch, *producers: Any, host: Host | None = None) -> Ticker:
    """One where there are events, and the policies cannot be read; with these producers, in turn."""

    def spans(topic: str, limit_s: float) -> list[Any]:
        if topic == Topics().policies:
            raise WeirError("no leader")
        return [SimpleNamespace(end=1)]

    reader = SimpleNamespace(spans=spans, close=lambda: None)
    turns = iter(producers)
    monkeypatch.setattr(ticker, "connected", lambda client, own: next(turns))
    monkeypatch.setattr(ticker, "Reader", lambda bootstrap, client: reader)
    return Ticker(Cluster("nowhere:1"), 10_000, (host or Host()).clock, SAID)


def test_it_ticks_though_the_policies_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last known length of a round holds: other rounds must not stay open for that."""
    log = Log()
    a_ticker(monkeypatch, log).poll(0.0)
    assert len(log.values) == 2


@pytest.mark.parametrize("broken", [
    KafkaException(KafkaError(KafkaError._FATAL, "Unable to produce message: Local: Fatal error")),
    SystemError("<method> returned a result with an exception set"),
])  # fmt: skip
def test_it_ticks_again_after_its_producer_has_broken(
    monkeypatch: pytest.MonkeyPatch, broken: Exception
) -> None:
    """With another one: the first takes nothing any more, and rounds would stay open until a restart."""

    def flush(_limit_s: float) -> int:
        raise broken

    well = Log()
    its = a_ticker(monkeypatch, SimpleNamespace(produce=lambda *record, **_: None, flush=flush), well)
    its.poll(0.0)
    assert not well.values
    its.poll(10_000.0)
    assert len(well.values) == 2


def test_it_goes_on_where_no_other_producer_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the limit of threads, say: it is tried again with the next tick, and the job goes on."""
    error = KafkaException(KafkaError(KafkaError._FATAL))

    def refuse(*_: object, **_settings: object) -> None:
        raise error

    its = a_ticker(monkeypatch, SimpleNamespace(produce=refuse))
    monkeypatch.setattr(its, "_connect", refuse)
    its.poll(0.0)
    its.poll(10_000.0)


def test_its_last_tick_says_that_the_job_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose they are stands in all: who starts on another checkpoint waits for none that has left."""
    log = Log()
    its = a_ticker(monkeypatch, log, host=log.host)
    its.close(leaving=True)
    assert not log.values
    its.poll(0.0)
    its.close(leaving=False)
    assert len(log.values) == 2
    its.close(leaving=True)
    first = {"type": "tick", **SAID}
    known = {**first, "since": log.host.now_ms, "brokers_ahead_ms": 0}
    assert log.values == [first, known, {**known, "leaving": True}]


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


def test_a_slow_broker_is_no_clock_that_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """A late acknowledgement looked like a clock of ours seconds ahead, and the batches went by that."""
    host = Host()
    monkeypatch.setattr(ticker, "time", SimpleNamespace(monotonic=lambda: host.now_ms / 1000))
    a_ticker(monkeypatch, Slow(host), host=host).poll(0.0)
    assert host.clock.ahead_ms is None


def test_ticks_tell_the_batches_how_far_the_clocks_are_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """And when the job began: the very first one shows it, so that the next one, at once, can say it."""
    host = Host(2_500)
    log = Log(host)
    ticks = a_ticker(monkeypatch, log, host=host)
    ticks.poll(0.0)
    ticks.poll(9_999.0)
    host.ahead_ms, host.now_ms = 0, host.now_ms + 10_000
    ticks.poll(10_000.0)
    known = {"type": "tick", **SAID, "since": host.now_ms - 10_000}
    said = [{**known, "brokers_ahead_ms": ahead_ms} for ahead_ms in (-2_500, 0)]
    assert log.values == [{"type": "tick", **SAID}, *said]
