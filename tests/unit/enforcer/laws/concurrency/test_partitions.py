"""Which partitions are limited, how much of each limit is this enforcer's, and what is told of them."""

from collections.abc import Mapping

import pytest
from clock_kit import Waiter
from concurrency_kit import AIMD, FIXED_2, Times, decided, limited, partitions_at, policies_of
from prometheus_client import CollectorRegistry

from enforcer.core import bounds
from enforcer.laws.concurrency.partitions import IDLE_MS, UNLIMITED, ConcurrencyMetrics
from streaming.contract.broker_events import Sample
from streaming.policy.policy_set import PolicySet


def test_what_no_policy_matches_is_not_limited() -> None:
    """By its own name or the star."""
    partitions = partitions_at(Times())
    assert not partitions.active
    assert partitions.find("broker-1") is None
    partitions = partitions_at(Times(), {"broker-1": FIXED_2})
    assert partitions.active
    assert partitions.find("broker-2") is None
    assert limited(partitions).limiter.limit == 2
    partitions = partitions_at(Times(), {"*": AIMD, "broker-1": FIXED_2})
    assert [limited(partitions, name).limiter.limit for name in ("broker-1", "broker-9")] == [2, 40]


def test_a_part_of_the_limit_is_this_enforcers_and_one_at_least() -> None:
    """Of the limit that is in force now: the job's moves each second, the share each round."""
    fraction = 0.25
    partitions = partitions_at(Times(), {"*": AIMD}, lambda _: fraction)
    found = limited(partitions)
    assert found.limiter.limit == 10
    partitions.take([decided(21)])
    partitions.look()
    assert found.limiter.limit == 5
    partitions.take([decided(2, ts=2_000), decided(99, partition="broker-7")])
    partitions.look()
    assert found.limiter.limit == 1
    fraction = 1.0
    partitions.look()
    assert found.limiter.limit == 2


def test_a_partition_that_nobody_uses_is_forgotten_after_an_hour() -> None:
    """Not while a request is under way, nor while somebody is connected, whose connection counts by it."""
    times = Times()
    partitions = partitions_at(times, {"*": AIMD})
    used = limited(partitions)
    assert partitions.find("broker-2") is not None
    times.now_ms += IDLE_MS - 1
    partitions.forget_idle(lambda: pytest.fail("nobody is idle yet"))
    used.limiter.begin("produce")
    times.now_ms += 1
    partitions.look()
    partitions.forget_idle(lambda: {None, "broker-2"})
    assert partitions.known.keys() == {"broker-1", "broker-2"}
    times.now_ms += IDLE_MS
    partitions.forget_idle(lambda: {"broker-1"})
    assert partitions.known.keys() == {"broker-1"} and partitions.find("broker-1") is used


def test_tracked_nobody_waits_and_the_limit_is_learned_on() -> None:
    """What is tracked of the partition is the law's own limit."""
    partitions = partitions_at(Times(), {"*": AIMD})
    found = limited(partitions)
    entries = {"backpressure.partitions.*": AIMD}
    partitions.set_policies(PolicySet({**entries, "mode": "track"}))
    partitions.take([decided(21)])
    partitions.look()
    assert (found.in_force.limit, found.limiter.limit) == (21, UNLIMITED)
    other = limited(partitions, "broker-2")
    assert other.limiter.limit == UNLIMITED
    partitions.set_policies(PolicySet(entries))
    partitions.look()
    assert (found.limiter.limit, other.limiter.limit) == (21, 40)


def test_samples_leave_at_each_look_and_deadlines_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most SAMPLES_MAX a second: here 2 in each linger time; the others are counted."""
    times, told = Times(), list[Mapping[str, list[Sample]]]()
    monkeypatch.setattr("enforcer.laws.concurrency.partitions.SAMPLES_MAX", 20)
    monkeypatch.setattr("enforcer.laws.concurrency.partitions.SAMPLE_LINGER_MS", 100)
    monkeypatch.setattr(bounds, "SLOT_DEADLINE_MS", 1_000)
    partitions = partitions_at(times, {"*": AIMD}, tell=told.append)
    found = limited(partitions)
    for _ in range(5):
        found.limiter.end(found.limiter.begin("produce"))
    found.limiter.begin("produce")
    partitions.look()
    (samples,) = told
    assert [len(samples["broker-1"]), *samples] == [2, "broker-1"]
    assert (found.limiter.samples.sent, found.limiter.samples.discarded) == (2, 3)
    times.pass_ms(1_000)
    partitions.look()
    assert found.limiter.in_flight == 0
    assert [sample.did_drop for sent in told for sample in sent["broker-1"]] == [False, False, True]


def test_while_nothing_is_heard_the_limit_is_learned_here() -> None:
    """And handed back by the first decision."""
    times = Times()
    partitions = partitions_at(times, {"*": AIMD})
    found = limited(partitions)

    def traffic() -> None:
        for ticket in [found.limiter.begin("produce") for _ in range(30)]:
            found.limiter.end(ticket)
        partitions.look()

    traffic()
    times.pass_ms(4_000)
    partitions.take([])
    traffic()
    times.pass_ms(2_000)
    traffic()
    assert not found.in_force.local
    times.pass_ms(5_000)
    traffic()
    assert found.in_force.local
    traffic()
    assert found.limiter.limit > 40
    partitions.take([decided(25)])
    partitions.look()
    assert (found.in_force.local, found.limiter.limit) == (False, 25)


def test_own_samples_are_seen_as_all_enforcers_together() -> None:
    """With a quarter of a limit of 40, 6 in flight are 24 of all: more than half of it is used."""
    times, told = Times(), list[Mapping[str, list[Sample]]]()
    partitions = partitions_at(times, {"*": AIMD}, lambda _: 0.25, told.append)
    found = limited(partitions)
    limits = []
    for in_flight in (6, 6, 4):
        *others, last = [found.limiter.begin("produce") for _ in range(in_flight)]
        found.limiter.end(last)
        found.limiter.cancel(others)
        partitions.look()
        times.pass_ms(5_000)
        partitions.look()
        limits.append(found.in_force.limit)
    assert limits == [40, 41, 41] and found.in_force.local
    assert [sample.inflight for sent in told for sample in sent["broker-1"]] == [24, 24, 16]


def test_policies_that_change_are_followed() -> None:
    """Equal settings keep the limit, others begin anew, and where none are left nobody waits."""
    times = Times()
    partitions = partitions_at(times, {"*": AIMD})
    found = limited(partitions)
    partitions.take([decided(50)])
    before = partitions.generation
    partitions.set_policies(policies_of({"broker-1": AIMD | {"exempt": ["sasl", "admin"]}}))
    assert partitions.generation == before + 1
    assert found.in_force.limit == 50
    assert found.limiter.exempt == {"sasl", "admin"}
    partitions.set_policies(policies_of({"broker-1": FIXED_2}))
    partitions.look()
    assert found.limiter.limit == 2
    partitions.set_policies(policies_of({"broker-1": AIMD}), since_ts=9_000)
    partitions.take([decided(900, ts=8_999)])
    assert found.in_force.limit == 40
    waiter = Waiter()
    found.limiter.wait(waiter)
    partitions.set_policies(policies_of({"broker-2": FIXED_2}))
    assert (partitions.find("broker-1"), waiter.woken) == (None, 1)
    assert partitions.active
    partitions.set_policies(policies_of({}))
    assert not partitions.active


def test_a_limit_that_was_read_before_its_partition_was_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """As at the start of a proxy; of the last BROKERS_MAX partitions, and for its life time."""
    times = Times()
    monkeypatch.setattr(bounds, "BROKERS_MAX", 2)
    partitions = partitions_at(times, {"*": AIMD})
    partitions.take([decided(50, partition=f"broker-{number}") for number in range(3)])
    partitions.take([decided(60, ts=2_000)])
    limits = [limited(partitions, f"broker-{number}").limiter.limit for number in range(3)]
    assert limits == [40, 60, 50]
    partitions.take([decided(50, partition="broker-7")])
    times.pass_ms(60_000)
    late = limited(partitions, "broker-7")
    assert (late.in_force.local, late.limiter.limit) == (True, 50)


@pytest.mark.parametrize(("limit", "count"), [(3, 3), (49, 49), (100, 7), (1_000, 3)])
def test_parts_are_cut_and_not_lost_by_rounding(limit: int, count: int) -> None:
    """Those of all enforcers together are the limit at most, and as near as whole numbers come."""
    entry = {"algorithm": "fixed", "fixed": {"limit": limit}}
    partitions = partitions_at(Times(), {"*": entry}, lambda _: 1 / count)
    assert limited(partitions).limiter.limit == limit // count


def test_numbers_are_those_of_the_limiter() -> None:
    """Requests that did not wait are in the histogram too, and refused ones are not."""
    times = Times()
    partitions = partitions_at(times, {"broker-1": {**FIXED_2, "exempt": ["heartbeat"]}})
    limiter = limited(partitions).limiter
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
