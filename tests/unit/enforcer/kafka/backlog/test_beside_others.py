"""Blocks beside other limits of the same connection: what waits for several of them, one after the other."""

from unittest.mock import Mock

import pytest
from backlog_kit import EXCEPTION
from blocked_rig import FREE, HELD, REFUSED, Blocked
from concurrency_kit import Times, limiter_at
from connection_kit import Rig, framed
from meter_kit import alone
from traffic_kit import batch, produce

from enforcer.kafka.backlog.part import BlocksLimit
from streaming.policy.policy_set import PolicySet


def test_who_is_held_stands_in_no_line_of_its_account() -> None:
    """A topic is blocked while a request to it waits for a debt: others of the account have their turn."""
    rig = Blocked()
    alone(rig.meter)
    other = Rig(rig)
    rig.meter.set_policies(PolicySet({"quotas[user=ANONYMOUS]": {"producer_byte_rate": 10_000}}))
    rig.say(HELD, 0)
    for each in (rig, other):
        each.prove()
        each.part(BlocksLimit, make=True)._naming.proven = True
    large, free = (framed(produce(9, {FREE: [batch(1, size=size)]})[0]) for size in (50_000, 10))
    rig.connection.data_received(large)
    rig.produce(2, {HELD: 1})
    other.connection.data_received(free)
    assert len(rig.upstream.sent) == 1 and other.upstream.data == b""
    rig.say(HELD, 10_240)
    rig.later(20_000)
    other.run_timers()
    assert rig.held_now == 1 and other.upstream.data == free


def test_what_waits_for_its_account_is_counted_once() -> None:
    """It is judged again when the debt is over; what is blocked of it was dropped already."""
    rig = Blocked()
    alone(rig.meter)
    rig.meter.set_policies(PolicySet({"quotas[user=ANONYMOUS]": {"producer_byte_rate": 10_000}}))
    rig.prove()
    rig.part(BlocksLimit, make=True)._naming.proven = True
    rig.connection.data_received(framed(produce(9, {FREE: [batch(1, size=50_000)]})[0]))
    rig.produce(2, {REFUSED: 1, FREE: 1}, acks=0)
    assert len(rig.upstream.sent) == 1 and not rig.client.closed
    rig.later(20_000)
    assert len(rig.upstream.sent) == 2 and rig.closed("blocked_without_acks") == 1
    assert rig.counted("dropped", EXCEPTION) == 1


@pytest.fixture
def times() -> Times:
    """The clock of a limit of requests in flight."""
    return Times()


@pytest.fixture
def rig(times: Times) -> Blocked:
    """A connection whose request is held, before a limit of one, which somebody else has reached since."""
    rig = Blocked()
    limiter = limiter_at(times, 1)
    rig.connection.count_by(limiter)
    rig.patient(1)
    limiter.begin("produce")
    return rig


def test_who_waits_for_a_slot_in_the_end_is_not_asked_again_and_again(
    rig: Blocked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client has ended its side, so nothing is held for it; but it cannot be answered before its turn."""
    rig.connection.eof_received()
    with monkeypatch.context() as patch:
        patch.setattr(rig.connection.pacer, "wake", wake := Mock())
        rig.run_timers()
        assert rig.errors() == [] and not wake.called
    rig.connection.count_by(None)
    rig.run_timers()
    assert rig.errors() == [(1, {HELD: [7]})]


def test_who_found_no_slot_is_held_no_more(rig: Blocked, times: Times) -> None:
    """Of the next request two bytes are here, which nobody takes for the held one."""
    rig.connection.data_received(b"\0\0")
    rig.say(HELD, 0)
    rig.later(0)
    times.pass_ms(10_000)
    rig.run_timers()
    assert rig.errors() == [(1, {HELD: [7]})] and not rig.client.closed
    assert rig.held_now == 0 and rig.counted("failed") == 1
