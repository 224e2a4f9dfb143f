"""What a proxy counts on Pulsar is what the job decides from its events, also where several share a limit."""

from dispatch_kit import Job
from pulsar_delivery_kit import EPOCH_MS, NAMESPACE, TOPIC, ModelLink, World

from enforcer.laws.dispatch.decisions import CounterStatement

PLACE = ("pulsar-b:6650", TOPIC, "sub")
POLICIES = {
    NAMESPACE: {
        "subscriptionDispatchRate": {
            "dispatchThrottlingRateInMsg": 50,
            "dispatchThrottlingRateInByte": 20_000,
        },
        "dispatchRate": {"dispatchThrottlingRateInMsg": 70},
    }
}


def test_the_job_counts_the_same_from_the_events() -> None:
    """Each delivery is one event, with the time at which the proxy counted it: a replay says the same."""
    world = World(POLICIES)
    links = [ModelLink(world, batched=False), ModelLink(world)]
    for number, link in enumerate(links):
        link.subscribe(number, "sub" if number else "other")
        link.publish(number, 300, 3 + number)
    world.run(4_321)
    world.dispatch.stop()
    job = Job(world.policies.timeline)
    decided = [job.decide(event) for event in world.events]
    assert len(decided) > 50
    at = world.brokers_ms()
    now = job.at(at)
    for names, counter in world.dispatch.table.counters.items():
        counter.roll(at, world.policies.timeline)
        assert now[names] == (counter.acquired[0], counter.acquired[1])
    world.dispatch.take(decided)
    assert world.dispatch.table.tail == 0


def test_a_decision_wakes_who_waits_for_its_part() -> None:
    """Another proxy has delivered nothing: what it leaves is delivered here, before the period ends."""
    rate = {"dispatchThrottlingRateInMsg": 10, "ratePeriodInSecond": 60}
    world = World({NAMESPACE: {"subscriptionDispatchRate": rate}})
    world.context.membership.peers = 2
    world.dispatch.look()
    link = ModelLink(world)
    link.subscribe(1)
    link.publish(1, 30, ms=500)
    assert len(link.got[1]) == 5
    world.dispatch.stop()
    last = world.events[-1]
    acquired = (None, None, (5, 0))
    world.dispatch.take([CounterStatement(last["id"], EPOCH_MS + 700, "p1", *PLACE, acquired)])
    world.run(20)
    assert len(link.got[1]) == 8
