"""What is told of each limited partition."""

import pytest
from clock_kit import Waiter
from concurrency_kit import FIXED_2, Times, partitions_at
from prometheus_client import CollectorRegistry

from enforcer.laws.concurrency.partitions import ConcurrencyMetrics


def test_numbers_are_those_of_the_limiter() -> None:
    """Requests that did not wait are in the histogram too, and refused ones are not."""
    times = Times()
    partitions, _ = partitions_at(times, {"broker-1": {**FIXED_2, "exempt": ["heartbeat"]}})
    found = partitions.find("broker-1")
    assert found is not None
    limiter = found.limiter
    registry = CollectorRegistry()
    ConcurrencyMetrics(registry, partitions)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, {"partition": "broker-1", **labels})

    tickets = [limiter.begin("produce"), limiter.begin("heartbeat")]
    waiter = Waiter()
    limiter.wait(waiter)
    limiter.refuse()
    times.pass_ms(300)
    assert value("weir_concurrency_queue_length") == 1
    assert value("weir_concurrency_queue_age_seconds") == pytest.approx(0.3)
    limiter.end(tickets[0])
    assert limiter.admits(waiter)
    limiter.begin("produce", by=waiter)
    assert value("zeebe_received_request_count_total") == 4
    assert value("zeebe_dropped_request_count_total") == 1
    assert value("zeebe_backpressure_inflight_requests_count") == 2
    assert value("zeebe_backpressure_requests_limit") == 2
    assert value("zeebe_stream_processor_latency_count") == 3
    assert value("zeebe_stream_processor_latency_bucket", le="0.25") == 2
    assert value("zeebe_stream_processor_latency_sum") == pytest.approx(0.3)
    assert value("weir_concurrency_exempt_requests_total", **{"class": "heartbeat"}) == 1
    assert value("weir_concurrency_local") == 0
