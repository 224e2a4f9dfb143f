"""Blocks beside other limits of the same connection: what waits for several of them, one after the other."""

from blocked_rig import FREE, HELD, Blocked
from connection_kit import Rig, framed
from traffic_kit import batch, produce

from enforcer.kafka.backlog.part import BlocksLimit
from streaming.policy.policy_set import PolicySet


def test_who_is_held_stands_in_no_line_of_its_account() -> None:
    """A topic is blocked while a request to it waits for a debt: others of the account have their turn."""
    rig = Blocked(joining_fraction=1.0)
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
