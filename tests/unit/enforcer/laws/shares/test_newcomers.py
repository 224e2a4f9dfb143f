"""What proxies use of a group before they have shares of it: together the limit, and a newcomer's part."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from meter_kit import ALICE, EPOCH_MS, GROUPS, Desk, publish, send_bytes
from property_kit import tries

from enforcer.core.account import PUBLISH, State
from enforcer.laws.shares.decisions import SLOTS, Share, slots_of
from enforcer.laws.shares.newcomers import JOINING_FRACTION, SETTLE_MS, Newcomers

LIMIT = 300.0
STEP_MS = 50.0
ROUND_MS = 1_000


@pytest.fixture
def one() -> Newcomers:
    """Nobody has come yet."""
    return Newcomers()


def test_not_known_who_lives(one: Newcomers) -> None:
    """A part of the limit as ever, and again once it is known no more."""
    assert one.part("g", 0.0) == JOINING_FRACTION
    one.set_alive(2, 0.0)
    assert one.part("g", SETTLE_MS) == 0.5
    one.set_alive(None, SETTLE_MS)
    assert one.part("g", SETTLE_MS) == JOINING_FRACTION


def test_more_proxies_count_at_once_fewer_later(one: Newcomers) -> None:
    """And what fell twice counts as it was before both."""
    one.set_alive(1, 0.0)
    one.set_alive(4, 2_000.0)
    assert one.part("g", 2_000.0) == 0.25
    one.set_alive(2, 5_000.0)
    one.set_alive(1, 5_500.0)
    assert [one.part("g", at) for at in (5_500.0, 6_499.0, 6_500.0)] == [0.25, 0.25, 1.0]


@pytest.mark.parametrize(
    ("alive", "lasts_ms", "now_ms", "part"),
    [(1, 180_000.0, SETTLE_MS, 1.0), (2, 2.0**53, 1e9, JOINING_FRACTION)],
)
def test_what_stands_elsewhere(
    one: Newcomers, alive: int, lasts_ms: float, now_ms: float, part: float
) -> None:
    """Nothing for one that is alone: the shares of one that is gone keep nobody back.

    Anybody may write to the topic, so also a time that no clock reaches.
    """
    one.set_alive(alive, 0.0)
    one.stand(slots_of(["g"]), 0.0, lasts_ms)
    assert one.part("g", now_ms) == part


def test_what_is_remembered_is_bounded(one: Newcomers) -> None:
    """However many groups stand elsewhere; one that is taken for another is on the safe side."""
    one.set_alive(2, 0.0)
    for first in range(0, 1_000_000, 100_000):
        names = [f"group-{number}" for number in range(first, first + 100_000)]
        one.stand(slots_of(names), 0.0, 10_000.0)
        assert {one.part(name, SETTLE_MS) for name in names[:1_000]} == {JOINING_FRACTION}
    assert len(one._until_s) == SLOTS
    assert one.part("never heard of", SETTLE_MS) == JOINING_FRACTION
    assert one.part("group-1", 10_001.0) == 0.5


def test_a_lone_proxy_has_the_whole_limit() -> None:
    """From a second after its start, for groups and for byte rates; and nobody is sent away for a round."""
    desk = Desk({**GROUPS, **ALICE, "broker": {"resourceUsagePublishIntervalInSecs": 60}})
    desk.meter.newcomers.set_alive(1, desk.now_ms)
    wait = publish(desk, 200)
    assert wait is not None and desk.meter.told_ms(wait, 0.0) == SETTLE_MS
    desk.now_ms += SETTLE_MS
    desk.meter.look()
    account = desk.meter.accounts["rg1"]
    assert (account.state, account.rate(0)) == (State.JOINING, account.limits.rates[0])
    send_bytes(desk, "alice", "app", PUBLISH, 1)
    own = next(desk.meter.accounts[name] for name in desk.meter.accounts if name.startswith("quota/"))
    assert own.rate(1) == own.limits.rates[1]


@dataclass
class Proxy:
    """One of several: since when it lives, what it has seen, and whether its clients use the group."""

    start_ms: float
    delay_ms: float
    end_ms: float
    name: str
    desk: Desk = field(init=False)

    def __post_init__(self) -> None:
        policies = {
            "resourcegroups.rg1": {"publishRateInMsgs": LIMIT},
            "tenants.acme": {"resourcegroup": "rg1"},
        }
        self.desk = Desk(policies, self.name, self.start_ms)

    def lives(self, now_ms: float) -> bool:
        """Whether its process is there."""
        return self.start_ms <= now_ms < self.end_ms

    def look(self, proxies: list["Proxy"], now_ms: float) -> None:
        """Count who wrote that it lives, as far as that was read, oneself from the first moment on."""
        seen = [
            other
            for other in proxies
            if other.start_ms <= now_ms < other.end_ms + 15_000
            and (other.start_ms <= self.start_ms or other.start_ms + self.delay_ms <= now_ms)
        ]
        self.desk.now_ms = now_ms
        self.desk.meter.newcomers.set_alive(len(seen), now_ms)
        self.desk.meter.look()
        publish(self.desk, 1)

    @property
    def rate(self) -> float:
        """What it may use now."""
        return self.desk.meter.accounts["rg1"].rate(0) or 0.0


def share_out(users: list[Proxy], readers: list[Proxy], now_ms: float) -> None:
    """The job divides the limit among those who reported to use the group, and all read it."""
    for owner in users:
        may = {"publishRateInMsgs": LIMIT / len(users)}
        ts = EPOCH_MS + int(now_ms)
        share = Share(group="rg1", broker=owner.name, ts=ts, ttl_ms=3 * ROUND_MS, limits=may, usage={})
        for reader in readers:
            if reader is owner:
                reader.desk.meter.take_share(share)
            else:
                reader.desk.meter.newcomers.stand(slots_of(["rg1"]), now_ms, share.ttl_ms)


@given(
    st.lists(
        st.tuples(st.sampled_from([0, 0, 0, 100, 900, 2_500, 6_000]), st.integers(0, 900), st.booleans()),
        min_size=1,
        max_size=9,
    ),
    st.booleans(),
)
@tries(30)
def test_together_never_more_than_the_limit_and_a_newcomers_part(
    comers: list[tuple[int, int, bool]], job: bool
) -> None:
    """With a delay of its own for each, starting together or not, with shares and without."""
    proxies = [
        Proxy(float(start), float(delay), 4_000.0 if leaves else 1e9, f"p{number}")
        for number, (start, delay, leaves) in enumerate(comers)
        if start < 4_000 or not leaves
    ]
    now_ms = 0.0
    reported: list[Proxy] = []
    while now_ms <= 30_000:
        living = [proxy for proxy in proxies if proxy.lives(now_ms)]
        for proxy in living:
            proxy.look(proxies, now_ms)
        if job and now_ms % ROUND_MS == 700 and now_ms < 15_000 and reported:
            share_out(reported, living, now_ms)
        if now_ms % ROUND_MS == 300:
            reported = living
        together = sum(proxy.rate for proxy in living)
        assert together <= LIMIT * (1 + JOINING_FRACTION) + 1e-6, now_ms
        now_ms += STEP_MS
    if living and not job:
        # Nothing is left unused either, once those who left are known to be gone.
        assert abs(together - LIMIT) < 1e-6
