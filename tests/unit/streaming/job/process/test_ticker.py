"""How often the job ticks: each round, as the policies say it."""

from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from confluent_kafka import KafkaError, KafkaException
from prometheus_client import Gauge

from streaming.contract.errors import WeirError
from streaming.contract.topics import Cluster, Topics
from streaming.job.process import ticker
from streaming.job.process.host_clock import HostClock
from streaming.job.process.ticker import ROUND_DEFAULT_S, Ticker, _round_ms

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


def test_it_ticks_though_the_policies_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last known length of a round holds: other rounds must not stay open for that."""
    sent = list[Any]()
    producer = SimpleNamespace(produce=lambda *record, **_: sent.append(record), flush=lambda _s: 0)
    a_ticker(monkeypatch, producer).poll(0.0)
    assert [topic for topic, _ in sent] == [Topics().usage] * 2


@pytest.mark.parametrize("broken", [
    KafkaException(KafkaError(KafkaError._FATAL, "Unable to produce message: Local: Fatal error")),
    SystemError("<method> returned a result with an exception set"),
])  # fmt: skip
def test_it_ticks_again_after_its_producer_has_broken(
    monkeypatch: pytest.MonkeyPatch, broken: Exception
) -> None:
    """With another one: the first takes nothing any more, and rounds would stay open until a restart."""
    sent = list[Any]()

    def flush(_limit_s: float) -> int:
        raise broken

    ill = SimpleNamespace(produce=lambda *record, **_: None, flush=flush)
    well = SimpleNamespace(produce=lambda *record, **_: sent.append(record), flush=lambda _s: 0)
    its = a_ticker(monkeypatch, ill, well)
    its.poll(0.0)
    assert not sent
    its.poll(2000.0)
    assert [topic for topic, _ in sent] == [Topics().usage] * 2


def test_it_goes_on_where_no_other_producer_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the limit of threads, say: it is tried again with the next tick, and the job goes on."""
    error = KafkaException(KafkaError(KafkaError._FATAL))

    def refuse(*_: object, **_settings: object) -> None:
        raise error

    its = a_ticker(monkeypatch, SimpleNamespace(produce=refuse))
    monkeypatch.setattr(its, "_connect", refuse)
    its.poll(0.0)
    its.poll(2000.0)


def test_its_last_tick_says_that_the_job_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose they are stands in all: who starts on another checkpoint waits for none that has left."""
    sent = list[Any]()
    producer = SimpleNamespace(produce=lambda *record, **_: sent.append(record), flush=lambda _s: 0)
    its = a_ticker(monkeypatch, producer)
    its.close(leaving=True)
    assert not sent
    its.poll(0.0)
    its.close(leaving=False)
    assert len(sent) == 2
    its.close(leaving=True)
    tick = {"type": "tick", **SAID}
    assert [orjson.loads(value) for _, value in sent] == [tick, tick, {**tick, "leaving": True}]


def a_ticker(monkeypatch: pytest.MonkeyPatch, *producers: Any) -> Ticker:
    """One where there are events, and the policies cannot be read; with these producers, in turn."""

    def spans(topic: str, limit_s: float) -> list[Any]:
        if topic == Topics().policies:
            raise WeirError("no leader")
        return [SimpleNamespace(end=1)]

    reader = SimpleNamespace(spans=spans, close=lambda: None)
    turns = iter(producers)
    monkeypatch.setattr(ticker, "connected", lambda client, own: next(turns))
    monkeypatch.setattr(ticker, "Reader", lambda bootstrap, client: reader)
    return Ticker(Cluster("nowhere:1"), 1000, HostClock(Gauge("ahead", "s", registry=None)), SAID)
