"""Who waits for an account: first come, first served, each step at the same cost."""

from meter_kit import Waiting

from enforcer.core.waiting import RESERVED_MS, WaitingLine


def test_first_come_first_served() -> None:
    """Whoever leaves from the front wakes the next one; from elsewhere nobody is woken."""
    line, waiters = WaitingLine(), [Waiting() for _ in range(4)]
    for place, waiter in enumerate(waiters):
        assert line.is_next(waiter) is (place == 0)
        line.join(waiter, 10.0)
    line.join(waiters[0], 99.0)
    assert (len(line), line.queued_ms, line.busy) == (4, 40.0, True)
    line.leave(waiters[2])
    line.leave(waiters[2])
    assert [waiter.woken for waiter in waiters] == [0, 0, 0, 0]
    line.leave(waiters[0])
    assert [waiter.woken for waiter in waiters] == [0, 1, 0, 0]
    assert line.is_next(waiters[1]) and list(line) == [waiters[1], waiters[3]]
    line.leave(waiters[1])
    line.leave(waiters[3])
    assert (line.queued_ms, line.busy) == (0.0, False)


def test_what_is_on_its_way_counts_until_it_has_come() -> None:
    """Or for a moment, if it does not come; once for each, with its newest cost."""
    line, waiters, waiting = WaitingLine(), [Waiting() for _ in range(3)], Waiting()
    for now_ms, waiter in enumerate(waiters):
        line.reserve(waiter, 100.0, float(now_ms))
    line.reserve(waiters[0], 50.0, 3.0)
    line.join(waiting, 0.0)
    assert line.reserved_ms(3.0) == 250.0
    line.settle(waiters[1])
    line.settle(waiters[1])
    assert waiting.woken == 1 and line.reserved_ms(3.0) == 150.0
    assert line.reserved_ms(2.0 + RESERVED_MS) == 50.0
    assert line.reserved_ms(3.0 + RESERVED_MS) == 0.0
    line.leave(waiting)
    assert not line.busy


def test_old_reservations_are_looked_at_a_few_at_a_time() -> None:
    """A step stays short; in the end all are gone."""
    line = WaitingLine()
    for _ in range(100):
        line.reserve(Waiting(), 1.0, 0.0)
    left = [line.reserved_ms(RESERVED_MS) for _ in range(13)]
    assert left[0] == 92.0 and left[-1] == 0.0 and not line.busy
