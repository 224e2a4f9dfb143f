"""How a concurrency limit is shared: fractions from shares, use as parts of a million."""

from concurrency_kit import Parts, Times, partitions_at
from meter_kit import Desk

from enforcer.laws.concurrency.shares import InflightShares

GROUP = "inflight/broker-1"
AIMD = {"algorithm": "aimd", "useWindowed": False, "aimd": {"initialLimit": 40}}
# The share law has such a group for each partition that a policy limits.
SHARED = {"backpressure.partitions.*": AIMD}


def test_without_a_share_those_alive_divide_the_limit() -> None:
    """As many as there were, when it is not known any more."""
    alive: list[int | None] = [None, 4, None, 2]
    shares = InflightShares(Desk({}).meter, lambda: alive.pop(0))
    assert [shares.of("broker-1") for _ in range(4)] == [1.0, 0.25, 0.25, 0.5]


def test_a_share_is_a_fraction() -> None:
    """Of a million parts; above 0 and at most 1."""
    desk = Desk(SHARED)
    desk.meter.newcomers.set_alive(2, 0.0)
    desk.now_ms += 2_000
    shares = InflightShares(desk.meter, lambda: 2)
    assert shares.of("broker-1") == 0.5
    desk.share(GROUP, publishRateInMsgs=300_000.0)
    assert shares.of("broker-1") == 0.3
    desk.share(GROUP, ts=desk.clock.wall_ms() + 1, publishRateInMsgs=0.0)
    assert shares.of("broker-1") == 1e-6


def test_use_is_the_greatest_in_flight_as_parts_of_the_limit() -> None:
    """With the time at the own limit; metering itself stays idle, as no traffic is counted by it."""
    desk, times = Desk(SHARED), Times()
    shares = InflightShares(desk.meter, lambda: 2)
    partitions, _ = partitions_at(times, {"*": AIMD}, Parts())
    found = partitions.find("broker-1")
    assert found is not None
    found.limiter.set_limit(20)
    desk.reports.before = lambda period_ms: shares.fill(partitions.known.values(), period_ms)
    tickets = [found.limiter.begin("produce") for _ in range(20)]
    times.pass_ms(250)
    for ticket in tickets:
        found.limiter.end(ticket)
    desk.now_ms += 2_000
    desk.reports.report()
    (event,) = desk.events
    assert event["period_ms"] == 2_000
    assert event["usage"][GROUP]["publishedMsg"] == 1_000_000
    assert event["usage"][GROUP]["throttledMs"]["publishRateInMsgs"] == 250
    assert not desk.meter.active or desk.meter.grouped is False


def test_who_hears_nothing_for_a_moment_keeps_its_part() -> None:
    """The number alive is not known any more, and no share was ever decided: as before, not a twentieth."""
    desk = Desk(SHARED)
    desk.meter.newcomers.set_alive(2, 0.0)
    desk.now_ms += 2_000
    alive: list[int | None] = [2, None]
    shares = InflightShares(desk.meter, lambda: alive.pop(0))
    assert shares.of("broker-1") == 0.5
    desk.meter.newcomers.set_alive(None, desk.now_ms)
    desk.meter.look()
    assert shares.of("broker-1") == 0.5
