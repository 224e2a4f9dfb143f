"""Whatever clients, brokers and policies do, in any order: nothing is lost, doubled, overtaken or kept."""

from collections.abc import Iterator

import pytest
from concurrency_kit import Times, limiter_at
from hypothesis import given
from hypothesis import strategies as st
from publish_kit import FREE, LIMITED, TEN, FakeLink, World

from enforcer.wire.pulsar.frames import CLOSE_PRODUCER, SEND, BadFrame

TOPICS = (LIMITED, FREE, "non-persistent://acme/limited/n", "short", "persistent://pulsar/system/t")
POLICIES = (TEN, {}, {**TEN, "tenants.acme": {"resourcegroup": "ten"}})
ids = st.integers(1, 3)
steps = st.one_of(
    st.tuples(st.just("make"), ids, st.sampled_from(TOPICS)),
    st.tuples(st.just("ask"), ids, st.sampled_from(TOPICS)),
    st.tuples(st.just("fail"), st.integers(1, 8), st.none()),
    st.tuples(st.just("send"), ids, st.integers(1, 30)),
    st.tuples(st.just("send"), ids, st.integers(1, 30)),
    st.tuples(st.just("answer"), st.integers(1, 40), st.booleans()),
    st.tuples(st.just("close"), ids, st.none()),
    st.tuples(st.just("broker_closes"), ids, st.none()),
    st.tuples(st.just("policies"), st.sampled_from(range(len(POLICIES))), st.none()),
    st.tuples(st.just("limiter"), st.sampled_from([0, 1, 5]), st.none()),
    st.tuples(st.just("time"), st.sampled_from([1, 500, 3_000, 40_000]), st.none()),
)


@pytest.fixture(autouse=True, scope="module")
def small_bounds() -> Iterator[None]:
    """Bounds that histories reach."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("enforcer.pulsar.publish.context.PUBLISH_QUEUE_BYTES", 3_000)
        patch.setattr("enforcer.pulsar.publish.part.PENDING_SENDS_MAX", 20)
        patch.setattr("enforcer.pulsar.publish.part.PRODUCERS_MAX", 6)
        yield


class History:
    """One connection through all of it, with a broker that answers when it is told to.

    Every SEND has a number of its own as its sequence id.
    """

    def __init__(self) -> None:
        self.world = World(TEN)
        self.times = Times()
        self.link: FakeLink = self.world.join()
        self.count = 0
        self.answered = 0

    def do(self, what: str, which: int, more: object) -> None:
        """One step."""
        link = self.link
        if what == "make":
            link.make(which, str(more))
        elif what == "ask":
            link.ask(which, str(more))
        elif what == "fail":
            link.fail(which)
        elif what == "send":
            for _ in range(int(str(more))):
                self.count += 1
                link.send(which, self.count)
        elif what == "answer":
            self._answer(which, bool(more))
        elif what == "close":
            link.close(which)
        elif what == "broker_closes":
            link.down(CLOSE_PRODUCER, producer_id=which, request_id=2**64 - 1)
        elif what == "policies":
            self.world.set(POLICIES[which])
        elif what == "limiter":
            before, link.limiter = link.limiter, limiter_at(self.times, which) if which else None
            if before is not None:
                before.close()
        else:
            self.world.run(which)

    def _answer(self, count: int, well: bool) -> None:
        sends = [body for _, kind, body in self.link.sent if kind == SEND][self.answered :]
        for body in sends[:count]:
            self.answered += 1
            (self.link.receipt if well else self.link.refuse)(body.producer_id, body.sequence_id)


@given(st.lists(steps, max_size=30))
def test_any_history_of_a_connection(history: list[tuple[str, int, object]]) -> None:
    """Of each producer the broker gets what it gets in order and once; at the end nothing is kept."""
    all_of_it = History()
    link, world = all_of_it.link, all_of_it.world
    try:
        for step in history:
            all_of_it.do(*step)
            assert link.read == (world.desk.room.unread == 0)
    except BadFrame:
        # A request id that nobody waits for any more: the connection ends.
        assert any(what in ("ask", "make", "fail") for what, *_ in history)
    for producer_id in (1, 2, 3):
        arrived = link.arrived(producer_id)
        assert arrived == sorted(set(arrived))
    limiter = link.limiter
    link.part.close()
    assert (world.desk.room.size, world.desk.room.sends, world.desk.room.unread) == (0, 0, 0)
    assert link.part.window.count == 0
    assert limiter is None or (limiter.in_flight, limiter.waiting) == (0, 0)
    assert len(world.meter.lines) == 0
    sent = len(link.sent)
    world.links.clear()
    world.run(100_000)
    assert len(link.sent) == sent
