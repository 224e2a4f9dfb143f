"""Slots, the line before them, deadlines; nothing leaks whatever happens. A sample that prefers nothing."""

import random

import numpy as np
import pytest
from clock_kit import Waiter
from concurrency_kit import MS, Times, limiter_at
from each_kit import each

from enforcer.laws.concurrency.limiter import Limiter, Reservoir, Ticket
from streaming.contract.broker_events import Sample


@pytest.fixture
def times() -> Times:
    """A clock."""
    return Times()


def test_a_request_has_a_slot_until_its_answer(times: Times) -> None:
    """The sample says how long that took, and how many were in flight at its sending, itself included."""
    limiter = limiter_at(times, 2)
    first = limiter.begin("produce")
    second = limiter.begin("produce")
    assert (limiter.in_flight, limiter.spare) == (2, False)
    times.pass_ms(14)
    limiter.end(second)
    limiter.end(first)
    assert (limiter.in_flight, limiter.spare) == (0, True)
    start_ns = times.ns - 14 * MS
    assert limiter.samples.take() == [(start_ns, 14 * MS, 2, False), (start_ns, 14 * MS, 1, False)]


@each(("kind", "holds"), [("produce", True), ("fetch", False)])
def test_a_round_trip_takes_a_nanosecond_at_least(kind: str, holds: bool) -> None:
    """A clock that stood still would make the sample a dead letter.

    A Fetch that may not wait is only measured: its sample says how many were in flight with it.
    """
    limiter = limiter_at(Times(), 1)
    ticket = limiter.begin(kind, holds=holds)
    assert limiter.in_flight == holds
    limiter.end(ticket)
    assert limiter.in_flight == 0
    assert [(sample.rtt_ns, sample.inflight) for sample in limiter.samples.take()] == [(1, 1)]


def test_slots_go_first_come_first_served(times: Times) -> None:
    """Who comes new stands behind those who wait, also when a slot is free at that moment."""
    limiter = limiter_at(times, 1)
    ticket = limiter.begin("produce")
    first, second, newcomer = Waiter(), Waiter(), Waiter()
    for waiter in (first, second):
        assert not limiter.admits(waiter)
        assert limiter.wait(waiter) == 0
    limiter.end(ticket)
    assert (first.woken, second.woken) == (1, 0)
    assert not limiter.admits(newcomer)
    assert not limiter.admits(second)
    assert limiter.admits(first)
    ticket = limiter.begin("produce", by=first)
    assert not limiter.admits(second)
    limiter.end(ticket)
    assert second.woken == 1
    assert limiter.admits(second)
    limiter.begin("produce", by=second)
    assert limiter.waiting == 0


def test_one_who_was_admitted_and_sends_nothing_keeps_nobody_waiting() -> None:
    """As when its account owes: it steps aside without a slot, and the next one is woken."""
    limiter, first, second = limiter_at(Times(), 1), Waiter(), Waiter()
    ticket = limiter.begin("produce")
    limiter.wait(first)
    limiter.wait(second)
    limiter.end(ticket)
    assert limiter.admits(first)
    limiter.leave(first)
    assert second.woken == 1
    assert limiter.admits(second)


def test_the_line_has_an_end() -> None:
    """`INFLIGHT_QUEUE_MAX` waiters, and no more."""
    limiter = limiter_at(Times(), 1, queue_max=2)
    limiter.begin("produce")
    waiters = [Waiter() for _ in range(3)]
    assert [limiter.wait(waiter) for waiter in waiters] == [0, 0, None]
    assert limiter.waiting == 2


def test_waits_are_told(times: Times) -> None:
    """Of those who were sent after a wait; the first in line says how old the line is."""
    limiter = limiter_at(times, 1)
    ticket = limiter.begin("produce")
    waiter = Waiter()
    limiter.wait(waiter)
    times.pass_ms(300)
    assert limiter.oldest_s == pytest.approx(0.3)
    assert limiter.wait(waiter) == 300 * MS
    limiter.end(ticket)
    assert limiter.admits(waiter)
    limiter.begin("produce", by=waiter)
    assert limiter.waits.sum_s == pytest.approx(0.3)
    assert sum(limiter.waits.counts) == 1
    assert limiter.oldest_s == 0.0


def test_a_deadline_gives_slots_back(times: Times) -> None:
    """A lost answer cannot leak capacity, and one that comes after all counts no more."""
    limiter = limiter_at(times, 1, deadline_ms=100)
    ticket = limiter.begin("produce")
    waiter = Waiter()
    limiter.wait(waiter)
    times.pass_ms(99)
    limiter.expire()
    assert (limiter.in_flight, limiter.expired) == (1, 0)
    times.pass_ms(1)
    limiter.expire()
    assert (limiter.in_flight, limiter.expired, waiter.woken) == (0, 1, 1)
    assert limiter.samples.take()[0].did_drop
    limiter.end(ticket)
    assert limiter.in_flight == 0
    assert limiter.samples.take() == []


def test_cancelled_ones_are_nothing() -> None:
    """Their slots come back; nothing is learnt by that."""
    limiter = limiter_at(Times(), 3)
    limiter.cancel([limiter.begin("produce"), limiter.begin("produce")])
    assert limiter.in_flight == 0
    assert limiter.samples.take() == []


def test_exempt_ones_are_counted_and_go_above_the_limit() -> None:
    """As in Zeebe: they take a slot, and give a sample."""
    limiter = limiter_at(Times(), 1)
    limiter.exempt = frozenset({"heartbeat"})
    tickets = [limiter.begin("heartbeat"), limiter.begin("heartbeat")]
    assert (limiter.in_flight, limiter.exempted) == (2, {"heartbeat": 2})
    assert not limiter.admits(Waiter())
    for ticket in tickets:
        limiter.end(ticket)
    assert len(limiter.samples.take()) == 2


def test_another_limit_wakes_as_many_as_it_has_room_for() -> None:
    """A lower one takes nothing from those in flight."""
    limiter = limiter_at(Times(), 1)
    limiter.begin("produce")
    waiters = [Waiter() for _ in range(4)]
    for waiter in waiters:
        limiter.wait(waiter)
    limiter.set_limit(3)
    assert [waiter.woken for waiter in waiters] == [1, 1, 0, 0]
    limiter.set_limit(3)
    assert [waiter.woken for waiter in waiters] == [1, 1, 0, 0]
    limiter.set_limit(1)
    assert not limiter.admits(waiters[0])


def test_use_is_the_greatest_in_flight_and_the_time_at_the_limit(times: Times) -> None:
    """Of each round; what is in flight at its end belongs to the next one too."""
    limiter = limiter_at(times, 2)
    first, second = limiter.begin("produce"), limiter.begin("produce")
    times.pass_ms(30)
    limiter.end(first)
    times.pass_ms(20)
    assert limiter.take_use() == (2, 30 * MS)
    assert limiter.take_use() == (1, 0)
    limiter.set_limit(1)
    times.pass_ms(10)
    assert limiter.take_use() == (1, 10 * MS)
    times.pass_ms(5)
    limiter.set_limit(2)
    limiter.end(second)
    assert limiter.take_use() == (1, 5 * MS)
    assert limiter.take_use() == (0, 0)


def test_who_waits_for_a_limit_that_is_gone_goes_on() -> None:
    """Nobody would wake it any more."""
    limiter = limiter_at(Times(), 1)
    limiter.begin("produce")
    waiter = Waiter()
    limiter.wait(waiter)
    limiter.close()
    assert (waiter.woken, limiter.waiting) == (1, 0)


class History:
    """A random history, and what must be true of a limiter after each step."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.times = Times()
        self.limiter = limiter_at(self.times, 4, queue_max=6, deadline_ms=50)
        self.limiter.exempt = frozenset({"heartbeat"})
        self.open: dict[Ticket, str] = {}
        self.waiters = [Waiter() for _ in range(10)]
        self.sent = 0

    def step(self) -> None:
        """One thing that may happen."""
        limiter, any_of = self.limiter, self.random
        what = any_of.randrange(8)
        if what < 3:
            self._ask(any_of.choice(self.waiters))
        elif what == 3 and self.open:
            limiter.end(self._one())
        elif what == 4 and self.open:
            limiter.cancel([self._one()])
        elif what == 5:
            self.times.pass_ms(any_of.choice((1, 5, 30)))
            limiter.expire()
        elif what == 6:
            limiter.leave(any_of.choice(self.waiters))
        else:
            limiter.set_limit(any_of.randrange(1, 8))
            self.open[limiter.begin("heartbeat")] = "heartbeat"

    def check(self) -> None:
        """What must be true."""
        limiter = self.limiter
        assert limiter.in_flight == len(limiter._open) >= 0
        assert limiter.in_flight <= len(self.open)
        assert limiter.waiting <= 6
        assert limiter.spare == (limiter.in_flight < limiter.limit and not limiter.waiting)

        # A slot that is free is promised to who is first, and who has that promise knows of it.
        free = max(0, limiter.limit - limiter.in_flight)
        assert all(place.woken for place in list(limiter._queue.values())[:free])

    def finish(self) -> None:
        """All answers come, or never do."""
        for ticket in list(self.open):
            if self.random.random() < 0.5:
                self.limiter.end(ticket)
        self.times.pass_ms(51)
        self.limiter.expire()

    def _ask(self, waiter: Waiter) -> None:
        limiter: Limiter = self.limiter
        if limiter.admits(waiter):
            assert limiter.in_flight < limiter.limit
            # As many as there is room for, as a connection that holds several requests does.
            sent = self.random.randrange(0, limiter.room(waiter) + 1)
            for _ in range(sent):
                assert limiter.in_flight < limiter.limit
                self.open[limiter.begin("produce", by=waiter)] = "produce"
            if not sent:
                limiter.leave(waiter)
        else:
            limiter.wait(waiter)

    def _one(self) -> Ticket:
        ticket = self.random.choice(list(self.open))
        del self.open[ticket]
        return ticket


@each("seed", range(40))
def test_nothing_leaks_whatever_happens(seed: int) -> None:
    """Never below 0, never above the limit but for exempt ones, and in the end nobody has a slot."""
    history = History(seed)
    for _ in range(400):
        history.step()
        history.check()
    history.finish()
    assert history.limiter.in_flight == 0
    history.limiter.set_limit(7)
    # Whoever is first in line can go on: nothing that was lost keeps it.
    for waiter in list(history.limiter._queue):
        assert history.limiter.admits(waiter)
        history.limiter.begin("produce", by=waiter)


def sample(number: int, rtt_ns: int = 1, inflight: int = 1) -> Sample:
    """A sample that says its number as its start."""
    return Sample(number, rtt_ns, inflight, False)


def test_few_are_all_kept_in_order() -> None:
    """Where there is room nothing is left out."""
    reservoir = Reservoir(5)
    for number in range(5):
        reservoir.add(sample(number))
    assert [one.start_ns for one in reservoir.take()] == [0, 1, 2, 3, 4]
    assert reservoir.take() == []
    assert (reservoir.sent, reservoir.discarded) == (5, 0)


def test_of_many_so_many_are_kept_in_order_and_the_others_counted() -> None:
    """In the order in which they came, since the law goes by that."""
    reservoir = Reservoir(20, seed=7)
    for number in range(1_000):
        reservoir.add(sample(number))
    starts = [one.start_ns for one in reservoir.take()]
    assert len(starts) == 20
    assert starts == sorted(starts)
    assert (reservoir.sent, reservoir.discarded) == (20, 980)


def test_two_runs_choose_alike_and_two_seeds_do_not() -> None:
    """No randomness but that of a counter."""

    def chosen(seed: int) -> list[int]:
        reservoir = Reservoir(10, seed)
        for number in range(500):
            reservoir.add(sample(number))
        return [one.start_ns for one in reservoir.take()]

    assert chosen(1) == chosen(1) != chosen(2)


def test_each_place_is_chosen_equally_often() -> None:
    """The first, the middle and the last of a linger time: within 5 standard deviations of their chance."""
    rounds, size, count = 4_000, 10, 100
    reservoir = Reservoir(size, seed=3)
    times = [0] * count
    for _ in range(rounds):
        for number in range(count):
            reservoir.add(sample(number))
        for one in reservoir.take():
            times[one.start_ns] += 1
    chance = size / count
    deviation = (rounds * chance * (1 - chance)) ** 0.5
    assert max(abs(found - rounds * chance) for found in times) < 5 * deviation


@pytest.mark.parametrize("shape", ["rising", "bursts", "slow when full"])
def test_means_are_not_moved(shape: str) -> None:
    """The mean round trip and the mean in flight of the chosen are those of all."""
    rounds, size, count = 500, 20, 400
    reservoir = Reservoir(size, seed=11)
    all_rtt: list[int] = []
    all_inflight: list[int] = []
    kept: list[Sample] = []
    for _ in range(rounds):
        for number in range(count):
            inflight = {"rising": number, "bursts": 300 if number % 20 == 0 else 5}.get(
                shape, number % 50
            ) + 1
            rtt = 1_000 * (inflight if shape != "bursts" else 1 + number % 7)
            all_rtt.append(rtt)
            all_inflight.append(inflight)
            reservoir.add(sample(number, rtt, inflight))
        kept += reservoir.take()
    for every, chosen in (
        (all_rtt, [one.rtt_ns for one in kept]),
        (all_inflight, [one.inflight for one in kept]),
    ):
        error = np.std(every) / len(chosen) ** 0.5
        assert abs(np.mean(chosen) - np.mean(every)) < 5 * error
