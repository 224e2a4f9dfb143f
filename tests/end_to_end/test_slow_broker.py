"""A broker that becomes ten times slower under 64 producers, with Weir before it and without.

The broker serves Produce requests one at a time, each in a real time (slow_relay). Its round trips are
measured there, the records' times at the producers; all is printed.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson
import pytest
from acl_kit import run_tools
from cluster_kit import fresh
from company_kit import Company
from exam_kit import Say
from slow_broker_kit import Producers, Served, SlowBroker
from stack_kit import new_topics, read_all, replayed

pytestmark = pytest.mark.soak
COUNT = 64
CALM_MS, SLOW_MS = 3.0, 30.0
"""The broker takes 333 requests a second, then 33; the producers send without pause."""
WARM_UP_S, CALM_S, FALL_S, SLOW_S, RETURN_S, AFTER_S = 15.0, 15.0, 10.0, 20.0, 20.0, 10.0
LIMITER = {
    "algorithm": "aimd",
    "useWindowed": False,
    "aimd": {"requestTimeout": "100ms", "initialLimit": 20, "minLimit": 1, "maxLimit": 64},
}
"""What a user who wants 100 ms would set; by the sample, since a window a second falls too slowly here."""


@dataclass(frozen=True, slots=True)
class Phase:
    """What was seen in one stretch of time.

    Attributes:
        served: at the broker.
        took_ms: at the producers.
        rate: records acknowledged a second.
    """

    served: Served
    took_ms: list[float]
    rate: float

    def words(self, name: str) -> str:
        """One line."""
        client = self.took_ms[len(self.took_ms) * 99 // 100] if self.took_ms else float("nan")
        return (
            f"{name}: {self.rate:.0f} records/s; at the broker p50 {self.served.quantile(0.5):.1f} ms, "
            f"p99 {self.served.quantile(0.99):.1f} ms, {self.served.most} under way at most; "
            f"at the producers p99 {client:.0f} ms"
        )


@pytest.fixture(scope="module")
def broker() -> SlowBroker:
    """The way to Kafka."""
    return SlowBroker(CALM_MS)


@pytest.fixture(scope="module")
def company(tmp_path_factory: pytest.TempPathFactory, broker: SlowBroker) -> Iterator[Company]:
    """Kafka, the job, and a proxy whose traffic goes by the slow way."""
    with Company(tmp_path_factory.mktemp("slow"), broker) as running:
        running.launch("one", traffic_by_path=True)
        running.await_all()
        yield running


def seen(broker: SlowBroker, producers: Producers, seconds: float) -> Phase:
    """Watch for so long."""
    broker.take()
    producers.take()
    before = producers.sent
    time.sleep(seconds)
    return Phase(broker.take(), producers.take(), (producers.sent - before) / seconds)


def phases(broker: SlowBroker, bootstrap: str, topic: str, say: Say, name: str) -> tuple[Phase, ...]:
    """The whole course: calm, slow, and calm again."""
    with Producers(bootstrap, topic, COUNT) as producers:
        time.sleep(WARM_UP_S)
        calm = seen(broker, producers, CALM_S)
        broker.serve_in(SLOW_MS)
        fall = seen(broker, producers, FALL_S)
        slow = seen(broker, producers, SLOW_S)
        broker.serve_in(CALM_MS)
        back = seen(broker, producers, RETURN_S)
        after = seen(broker, producers, AFTER_S)
    found = (calm, fall, slow, back, after)
    for part, phase in zip(("calm", "falling", "slow", "returning", "after"), found, strict=True):
        say(f"{name}, {phase.words(part)}")
    assert producers.failed == 0
    return found


def test_a_broker_ten_times_slower(company: Company, broker: SlowBroker, say: Say) -> None:
    """In-flight follows it down, what is admitted stays quick, and all comes back."""
    topic = fresh("slow")
    new_topics(company.kafka.bootstrap, topic)
    proxy = company.proxies["one"]
    without = phases(broker, proxy.bootstrap, topic, say, "no limit")
    company.put("backpressure.partitions.broker-1", LIMITER)
    time.sleep(5)
    calm, _, slow, _, after = phases(broker, proxy.bootstrap, topic, say, "Weir")
    company.put("backpressure.partitions.broker-1", None)
    assert slow.served.most < without[2].served.most / 4
    assert slow.served.quantile(0.99) <= 3 * calm.served.quantile(0.99)
    assert after.rate >= 0.9 * calm.rate


def test_a_replay_finds_the_same_limits(company: Company, tmp_path: Path) -> None:
    """Of what was recorded before: each limit that the live job wrote is what a dump is decided to."""
    again = limits(replayed(company.kafka.bootstrap, tmp_path, limit_s=300))
    live = limits(read_all(company.kafka.bootstrap, company.topics.decisions))
    assert len(live) > 10
    assert live == {name: again[name] for name in live}


def limits(values: Sequence[bytes]) -> dict[str, tuple[int, float]]:
    """The limits among decisions, by the sample that each is for."""
    decided = [orjson.loads(value) for value in values if b'"limit"' in value]
    return {one["id"]: (one["limit"], one["estimated_limit"]) for one in decided if one["type"] == "limit"}


def test_beside_kafkas_own_quota(company: Company, broker: SlowBroker, say: Say) -> None:
    """Kafka's request quota counts its threads' time and knows nothing of a slow disk; only printed."""
    topic = fresh("slow")
    new_topics(company.kafka.bootstrap, topic)
    alter = "kafka-configs --bootstrap-server HOST:PORT --alter --entity-type clients --entity-default"
    run_tools(company.kafka.bootstrap, f"{alter} --add-config request_percentage=1")
    phases(broker, broker.address, topic, say, "request_percentage=1")
    run_tools(company.kafka.bootstrap, f"{alter} --delete-config request_percentage")
