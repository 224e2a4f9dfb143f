"""Events out, decisions and policies in, metrics: parsing that never raises and bounds that hold."""

import time
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from confluent_kafka import KafkaError, KafkaException

from enforcer.core.feeds.decisions import parse_decision
from enforcer.core.feeds.policies import KEEP_MS, Policies, parse_policy
from enforcer.core.feeds.reports import Reports
from enforcer.core.metrics import Metrics
from streaming.contract.events import PolicyChange

NOW_TS = 1_795_166_668_000
DAY_MS = 86_400_000


class FakeProducer:
    """A producer whose queue holds two events."""

    def __init__(self, properties: dict[str, str]) -> None:
        self.properties = properties
        self.queue: list[tuple[bytes, bytes, Callable[..., None]]] = []
        self.fatal: KafkaError | None = None

    def produce(self, topic: str, *, value: bytes, key: bytes, on_delivery: Callable[..., None]) -> None:
        """As librdkafka: raises instead of waiting."""
        if self.fatal is not None:
            raise KafkaException(self.fatal)
        if len(self.queue) == 2:
            raise BufferError("full")
        self.queue.append((value, key, on_delivery))

    def poll(self, limit_s: float) -> int:
        """Nothing happens by itself."""
        time.sleep(0.001)
        return 0

    def flush(self, limit_s: float) -> int:
        """What is left."""
        return len(self.queue)


class Bench:
    """Reports with fake producers."""

    def __init__(self) -> None:
        self.producers: list[FakeProducer] = []
        self.metrics = Metrics(10)
        self.reports = Reports(
            {"bootstrap.servers": "here"}, "weir.requests", events_max=2, event_timeout_ms=1_000,
            metrics=self.metrics, connect=self._connect,  # type: ignore[arg-type]  # a fake
        )  # fmt: skip

    def _connect(self, properties: dict[str, str]) -> FakeProducer:
        self.producers.append(FakeProducer(properties))
        return self.producers[-1]

    def count(self, result: str) -> float:
        """Events with this result."""
        found = self.metrics.registry.get_sample_value("weir_proxy_events_total", {"result": result})
        return found or 0.0


def test_events_are_bounded_and_counted() -> None:
    """A full buffer drops and counts; delivery reports count; a stop counts what is left."""
    bench = Bench()
    assert not bench.reports.send({"type": "request"}, "early")
    bench.reports.start()
    (producer,) = bench.producers
    assert producer.properties["enable.idempotence"] == "true"
    assert producer.properties["queue.buffering.max.messages"] == "2"
    assert [bench.reports.send({"n": n}, "user=a") for n in range(3)] == [True, True, False]
    assert bench.count("dropped") == 2
    (value, key, first), (_, _, second) = producer.queue
    assert (orjson.loads(value), key) == ({"n": 0}, b"user=a")
    first(None, None)
    second(KafkaError(KafkaError._MSG_TIMED_OUT), None)
    assert (bench.count("sent"), bench.count("failed")) == (1, 1)
    bench.reports.stop(0.1)
    assert bench.count("failed") == 3


def test_a_dead_producer_is_replaced_once() -> None:
    """After a fatal error all of its reports fail, and one new producer takes over."""
    bench = Bench()
    bench.reports.start()
    bench.reports.send({}, "user=a")
    bench.reports.send({}, "user=a")
    dead = KafkaError(KafkaError._FATAL, "out of order", True)
    for _, _, report in bench.producers[0].queue:
        report(dead, None)
    assert len(bench.producers) == 2
    bench.producers[1].fatal = dead
    assert not bench.reports.send({}, "user=a")
    assert len(bench.producers) == 3
    assert bench.reports.send({}, "user=a")
    bench.reports.stop(0.1)


GOOD = {
    "type": "admission", "id": "p1-1", "ts": 5, "proxy": "p1", "subject": "user=a", "outcome": "reject",
    "throttle_time_ms": 7, "rejected": ["x"], "tokens": -1.5, "limit": 2.0, "shadow": False, "late": True,
}  # fmt: skip


def test_a_decision_is_read() -> None:
    """All that the proxy acts on."""
    found = parse_decision(orjson.dumps(GOOD))
    assert found is not None
    assert (found.id, found.throttle_time_ms, found.rejected, found.late) == ("p1-1", 7, frozenset("x"), True)
    assert (found.tokens, found.limit, found.rate) == (-1.5, 2.0, None)


@pytest.mark.parametrize(
    "value",
    [
        None, b"", b"garbage", b"[]", b"7", b"null", b"\xff", b'{"type":"share"}', b'{"type":"admission"}',
        orjson.dumps({**GOOD, "rejected": 5}), orjson.dumps({**GOOD, "ts": "soon"}),
        orjson.dumps({**GOOD, "tokens": []}), orjson.dumps({**GOOD, "throttle_time_ms": None}),
    ],
)  # fmt: skip
def test_what_is_no_decision_is_skipped(value: bytes | None) -> None:
    """Other types and garbage give None and never raise."""
    assert parse_decision(value) is None


@pytest.mark.parametrize(
    "event",
    [
        {"type": "request", "items": []},
        {"type": "policy", "path": "quotas[user=a]", "value": {"controller_mutation_rate": 0}},
        {"type": "policy", "path": "nonsense", "value": {}},
        {"type": "policy", "path": "quotas[user=a]", "value": {"controler_mutation_rate": 5}},
    ],
)
def test_a_bad_policy_is_not_used(event: dict[str, Any]) -> None:
    """A record that is no valid policy is skipped: it must not take the good ones along."""
    assert parse_policy(orjson.dumps(event), "weir.policies-0-1", 5) is None
    assert parse_policy(None, "weir.policies-0-1", 5) is None


def rate_of(user: str, rate: int, ts: int) -> PolicyChange:
    """A change of one user's quota."""
    value = {"controller_mutation_rate": rate}
    return PolicyChange(id="x", ts=ts, path=f"quotas[user={user}]", value=value, version=None)


def test_policies_take_effect_in_time() -> None:
    """A change is in force from its effective time on, and its time is told."""
    told: list[int] = []
    policies = Policies(told.append, lambda: 100)
    event = {
        "type": "policy", "ts": 100, "effective_ts": 100, "version": 9,
        "path": "quotas[user=a]", "value": {"controller_mutation_rate": 5},
    }  # fmt: skip
    change = parse_policy(orjson.dumps(event), "weir.policies-0-1", 5)
    assert change is not None
    policies.apply([change])
    assert told == [100]
    assert policies.quota("a", "", 99) is None
    quota = policies.quota("a", "", 100)
    assert quota is not None and quota.rate == 5 and policies.at(100).version == 9
    assert policies.quota_of_subject("user=a", 100) == quota


def test_many_changes_are_folded() -> None:
    """Old changes leave memory, and what is in force stays exact."""
    policies = Policies(lambda _ts: None, lambda: 200_000_000)
    for number in range(1, 200):
        event = {"type": "policy", "ts": number * 1_000_000, "path": "quotas[user=a]"}
        event["value"] = {"controller_mutation_rate": number}
        change = parse_policy(orjson.dumps(event), "x", None)
        assert change is not None
        policies.apply([change])
    newest = policies.quota("a", "", 200_000_000)
    assert newest is not None and newest.rate == 199
    assert len(policies._timeline.changes(-1, 200_000_000)) < 100


def test_a_change_dated_ahead_waits_for_its_time() -> None:
    """Also when it is read with many others, as at a start, and one of them is dated later still."""
    policies = Policies(lambda _ts: None, lambda: NOW_TS)
    past = [rate_of("b", number, NOW_TS - 100 + number) for number in range(100)]
    ahead = [rate_of("a", 7, NOW_TS + DAY_MS), rate_of("c", 8, NOW_TS + DAY_MS + KEEP_MS)]
    policies.apply([*past, *ahead])
    assert policies.quota("a", "", NOW_TS + DAY_MS - 1) is None
    tomorrow, now = policies.quota("a", "", NOW_TS + DAY_MS), policies.quota("b", "", NOW_TS)
    assert tomorrow is not None and tomorrow.rate == 7
    assert now is not None and now.rate == 99
    late = policies.quota("b", "", NOW_TS - 50)
    assert late is not None and late.rate == 50


def test_subject_metrics_are_bounded() -> None:
    """The subject decided upon least recently loses its series."""
    metrics = Metrics(2)
    for subject in ("a", "b", "a", "c"):
        metrics.decided(subject, 1.0, None, 0)
    found = {
        sample.labels["subject"]
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "weir_proxy_subject_tokens"
    }
    assert found == {"a", "c"}
