"""Whatever clients, brokers and policies do, in whatever order: permits and messages are conserved."""

from hypothesis import given
from hypothesis import strategies as st
from property_kit import tries
from pulsar_delivery_kit import NAMESPACE, per_subscription, reading

from enforcer.wire.pulsar import frames
from enforcer.wire.pulsar.commands import command

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("run"), st.integers(1, 1_500)), st.tuples(st.just("publish"), st.integers(1, 60)),
        st.tuples(st.just("limit"), st.sampled_from([3, 10, 100, 1_000])),
        st.tuples(st.just("free"), st.just(0)), st.tuples(st.just("redeliver"), st.just(0)),
        st.tuples(st.just("again"), st.just(0)),
    ),
    min_size=1,
    max_size=25,
)


@tries(150)
@given(STEPS, st.sampled_from([1, 6, 30]), st.sampled_from([1, 10, 1_000]), st.booleans())
def test_whatever_happens_nothing_is_lost_doubled_or_out_of_order(
    steps: list[tuple[str, int]], batch: int, queue: int, batched: bool
) -> None:
    """Permits are those that the client gave; while one limit stands it is passed by one entry at most."""
    world, link = reading(batched=batched, queue=queue)
    returned = highest = 0
    for step, count in steps:
        if step == "run":
            world.run(count)
        elif step == "publish":
            link.publish(1, count, batch)
        elif step == "limit":
            world.put(per_subscription(count), ms=30)
        elif step == "free":
            world.put({NAMESPACE: None})
        else:
            # The wire is empty: what is on it would come twice without us, too.
            link.still = True
            world.run(10)
            if step == "redeliver":
                (consumer,) = link.part._consumers.values()
                returned += sum(came.msgs for _, came in consumer._queue if came is not None)
                link.redeliver(1)
                world.run(5)
            else:
                link.from_client(command(frames.CLOSE_CONSUMER, consumer_id=1, request_id=5))
                world.run(5)
                link.subscribe(1, queue=queue)
                returned = 0
            link.still = False
            link.publish(1, 0)
        highest = max(highest, count if step == "limit" else 0)
        world.run(3)
        for counter in world.dispatch.table.counters.values():
            assert counter.acquired[0] < highest + batch
        bank = world.desk.banked
        assert link.forwarded[1] + bank == link.given[1] + returned
        numbers = [number for _, number, _ in link.got[1]]
        assert numbers == list(range(len(numbers)))
    world.put({NAMESPACE: None}, ms=2_000)
    link.part.check(world.now_ms)
    world.run(20)
    assert not link.backlogs[1] or link.permits[1] <= 0
    assert link.part.held == world.desk.held_frames == world.desk.banked == 0
    assert link.forwarded[1] == link.given[1] + returned
