"""How a concurrency limit is shared: fractions from shares, use as parts of a million."""

from concurrency_kit import AIMD, Times, limited, partitions_at
from meter_kit import Desk

from enforcer.core.membership import Membership
from enforcer.laws.concurrency.limits import InflightShares

GROUP = "inflight/broker-1"
# The share law has such a group for each partition that a policy limits.
SHARED = {"backpressure.partitions.*": AIMD}


def members(count: int | None) -> Membership:
    """So many are alive; None: it is not known."""
    known = Membership("p1", "kafka", lambda: 0, lambda: None)
    known.blind, known.peers = count is None, count or 1
    return known


def test_without_a_share_those_alive_divide_the_limit() -> None:
    """As many as there were, when it is not known any more."""
    known, found = members(None), []
    shares = InflightShares(Desk({}).meter, known)
    for count in (None, 4, None, 2):
        known.blind, known.peers = count is None, count or 1
        found.append(shares.of("broker-1"))
    assert found == [1.0, 0.25, 0.25, 0.5]


def test_a_share_is_a_fraction() -> None:
    """Of a million parts; above 0 and at most 1."""
    desk = Desk(SHARED)
    desk.meter.newcomers.set_alive(2, 0.0)
    desk.now_ms += 2_000
    shares = InflightShares(desk.meter, members(2))
    assert shares.of("broker-1") == 0.5
    desk.share(GROUP, publishRateInMsgs=300_000.0)
    assert shares.of("broker-1") == 0.3
    desk.share(GROUP, ts=desk.clock.wall_ms() + 1, publishRateInMsgs=0.0)
    assert shares.of("broker-1") == 1e-6


def test_use_is_the_greatest_in_flight_as_parts_of_the_limit() -> None:
    """With the time at the own limit; metering itself stays idle, as no traffic is counted by it."""
    desk, times = Desk(SHARED), Times()
    shares = InflightShares(desk.meter, members(2))
    partitions = partitions_at(times, {"*": AIMD})
    found = limited(partitions)
    found.limiter.set_limit(20)
    desk.meter.before_report(lambda period_ms: shares.fill(partitions.known.values(), period_ms))
    tickets = [found.limiter.begin("produce") for _ in range(20)]
    times.pass_ms(250)
    for ticket in tickets:
        found.limiter.end(ticket)
    desk.report(2_000)
    (event,) = desk.events
    assert event["period_ms"] == 2_000
    assert event["usage"][GROUP]["publishedMsg"] == 1_000_000
    assert event["usage"][GROUP]["throttledMs"]["publishRateInMsgs"] == 250
    assert not desk.meter.active


def test_who_hears_nothing_for_a_moment_keeps_its_part() -> None:
    """The number alive is not known any more, and no share was ever decided: as before, not a twentieth."""
    desk = Desk(SHARED)
    desk.meter.newcomers.set_alive(2, 0.0)
    desk.now_ms += 2_000
    known = members(2)
    shares = InflightShares(desk.meter, known)
    assert shares.of("broker-1") == 0.5
    known.blind = True
    desk.meter.newcomers.set_alive(None, desk.now_ms)
    desk.meter.look()
    assert shares.of("broker-1") == 0.5


def test_a_share_that_is_not_repeated_is_halved() -> None:
    """The job is away for more than three rounds: as of any group, also of those alive."""
    desk = Desk(SHARED)
    shares = InflightShares(desk.meter, members(3))
    shares.of("broker-1")
    desk.share(GROUP, ttl_ms=3_000, publishRateInMsgs=300_000.0)
    found = []
    for _ in range(2):
        found.append(shares.of("broker-1"))
        desk.now_ms += 3_001
        desk.meter.look()
    assert (*found, shares.of("broker-1")) == (0.3, 0.15, 0.15)
