"""Whatever is blocked, however slow client and broker are: each message is stored once, in order."""

from collections import deque
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from publish_kit import FREE, LIMITED, TEN, World, send_frame

from enforcer.wire.pulsar import frames

TOPICS = {1: FREE, 2: LIMITED, 3: FREE}
SLOW_MS = 2_000.0
"""Where a broker takes longer than `shutting.TOLD_MS` some may be stored twice, as without a proxy."""
ids = st.sampled_from(sorted(TOPICS))
steps = st.one_of(
    st.tuples(st.just("send"), ids, st.integers(1, 12)),
    st.tuples(st.just("send"), ids, st.integers(1, 12)),
    st.tuples(st.just("broker"), st.just(0), st.integers(1, 12)),
    st.tuples(st.just("client"), st.just(0), st.integers(1, 12)),
    st.tuples(st.just("block"), ids, st.just(0)),
    st.tuples(st.just("block"), ids, st.just(0)),
    st.tuples(st.just("lift"), ids, st.just(0)),
    st.tuples(st.just("time"), st.just(0), st.sampled_from([1, 400, 1_000, 1_500])),
)


class Client:
    """A Pulsar client's producer: what has no receipt it sends again with the next one.

    Attributes:
        made: it may send.
        asked: its PRODUCER is under way.
        pending: sequence ids without a receipt.
    """

    def __init__(self) -> None:
        self.made = self.asked = False
        self.count = 0
        self.pending: deque[int] = deque()


class Rounds:
    """One connection between such a client and a broker that both read when they are told to."""

    def __init__(self) -> None:
        self.world = World(TEN)
        self.link = self.world.join()
        self.clients = {producer_id: Client() for producer_id in TOPICS}
        self.requests: dict[int, int] = {}
        self.seen = self.taken = 0
        self.slow_ms = 0.0
        self.at_broker: set[int] = set()
        self.stored: dict[int, list[int]] = {producer_id: [] for producer_id in TOPICS}
        self.time(1)
        self.broker(len(TOPICS))
        self.client(len(TOPICS))

    def do(self, what: str, which: int, count: int) -> None:
        """One step."""
        if what == "send":
            self.send(which, count)
        elif what == "broker":
            self.broker(count)
        elif what == "client":
            self.client(count)
        elif what == "time":
            self.time(count)
        else:
            getattr(self.world, what)(TOPICS[which])

    def send(self, producer_id: int, count: int) -> None:
        """The application sends so many more."""
        client = self.clients[producer_id]
        for _ in range(count):
            client.count += 1
            client.pending.append(client.count)
            if client.made:
                self.link.from_client(send_frame(producer_id, client.count))

    def time(self, ms: float) -> None:
        """Time passes, and clients ask for what they miss."""
        if self.world.now_ms - self.slow_ms >= SLOW_MS:
            self.slow_ms = self.world.now_ms
            self.broker(10**6)
            self.client(10**6)
        for producer_id, client in self.clients.items():
            if not client.made and not client.asked:
                client.asked = True
                # Refused at once, it has its answer before this returns.
                self.requests[self.link.ask(producer_id, TOPICS[producer_id])] = producer_id
        self.world.run(ms)

    def broker(self, count: int) -> None:
        """The broker takes so many frames, and answers."""
        for _ in range(min(count, len(self.link.sent) - self.seen)):
            _, kind, body = self.link.sent[self.seen]
            self.seen += 1
            if kind == frames.SEND:
                assert body.producer_id in self.at_broker, "such a SEND ends the connection"
                self.stored[body.producer_id].append(body.sequence_id)
                self.link.receipt(body.producer_id, body.sequence_id)
            elif kind == frames.PRODUCER:
                assert body.producer_id not in self.at_broker
                self.at_broker.add(body.producer_id)
                self.link.down(frames.PRODUCER_SUCCESS, request_id=body.request_id)
            else:
                assert kind == frames.CLOSE_PRODUCER
                self.at_broker.remove(body.producer_id)
                self.link.down(frames.SUCCESS, request_id=body.request_id)

    def client(self, count: int) -> None:
        """The client takes so many."""
        for _ in range(min(count, len(self.link.got) - self.taken)):
            kind, body = self.link.got[self.taken]
            self.taken += 1
            self._take(kind, body)

    def _take(self, kind: int, body: Any) -> None:
        if kind == frames.SEND_RECEIPT:
            assert self.clients[body.producer_id].pending.popleft() == body.sequence_id
        elif kind == frames.CLOSE_PRODUCER:
            self.clients[body.producer_id].made = False
        else:
            assert kind in (frames.PRODUCER_SUCCESS, frames.ERROR)
            producer_id = self.requests[body.request_id]
            client = self.clients[producer_id]
            client.asked, client.made = False, kind == frames.PRODUCER_SUCCESS
            for number in client.pending if client.made else ():
                self.link.from_client(send_frame(producer_id, number))


@given(st.lists(steps, min_size=15, max_size=40))
def test_any_blocks_lose_nothing_and_double_nothing(history: list[tuple[str, int, int]]) -> None:
    """Nor does a SEND reach a broker that has closed its producer; in the end all is stored."""
    rounds = Rounds()
    for step in history:
        rounds.do(*step)
        for numbers in rounds.stored.values():
            assert numbers == list(range(1, len(numbers) + 1))
    for topic in TOPICS.values():
        rounds.world.lift(topic)
    for _ in range(400):
        rounds.time(1_000)
        if not any(client.pending for client in rounds.clients.values()):
            break
    assert {each: client.count for each, client in rounds.clients.items()} == {
        each: len(numbers) for each, numbers in rounds.stored.items()
    }
    assert rounds.world.desk.room.sends == 0
