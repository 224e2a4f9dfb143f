"""Who is ended when connections hold too much, and who has room for a large message."""

from enforcer.core.metrics import Traffic
from enforcer.host.budget import LARGE_BYTES, Budget, Seat, resident_bytes

LARGE = 2 * LARGE_BYTES


class Held:
    """Somebody who holds bytes."""

    def __init__(self, size: int) -> None:
        self.held_bytes = size
        self.reason = ""

    def cut(self, reason: str) -> None:
        """Ended."""
        self.reason = reason


def look(resident: int, *sizes: int) -> list[bool]:
    """Which of those who hold so much are ended at a bound of 200."""
    held, traffic = [Held(size) for size in sizes], Traffic()
    Budget(200, 0, lambda: held, traffic, lambda: resident).look()
    assert traffic.resident == resident
    return [one.reason == "memory" for one in held]


def test_the_greediest_end_until_the_rest_fits() -> None:
    """Half of the bound is theirs; who holds most goes first, nobody else."""
    assert look(150, 10, 70, 30, 60) == [False, True, False, False]
    assert look(150, 10, 70, 90, 60) == [False, True, True, False]
    assert look(150, 10, 90) == [False, False]


def test_nobody_is_asked_while_the_process_is_small() -> None:
    """Connections cannot hold more than the process has."""
    assert look(100, 500) == [False]


def test_a_large_process_that_does_not_grow_asks_rarely() -> None:
    """To ask all again and again could take all of its time; while it grows they are, and where it shrank."""
    asked, resident = [0], [150]
    budget = Budget(200, 0, lambda: asked.append(resident[0]) or (), Traffic(), lambda: resident[0])
    for resident[0] in (150, *[151] * 30, 153, 153, 151, 153, 90, 150):
        budget.look()
    assert asked == [0, 150, 151, 153, 153, 150]


def test_the_process_is_measured() -> None:
    """A page at least, and less than the machine has."""
    assert 1 << 20 < resident_bytes() < 1 << 40


def rooms(size: int) -> Budget:
    """One with so much room for large messages."""
    return Budget(size, size, tuple, Traffic())


def test_places_are_taken_in_turn() -> None:
    """Who finds no room is woken in the order of asking, when there is some."""
    budget, woken = rooms(LARGE), list[int]()
    seats = [Seat(budget, lambda number=number: woken.append(number)) for number in range(3)]  # type: ignore[misc]
    assert seats[0].fits(LARGE) and not seats[1].fits(LARGE) and not seats[2].fits(LARGE)
    assert budget.crowded and seats[1].waiting and not seats[2].fits(LARGE)
    assert seats[0].fits(10) and woken == [1]
    assert not seats[2].fits(LARGE) and seats[1].fits(LARGE) and not seats[1].waiting
    seats[1].leave()
    assert woken == [1, 2] and seats[2].fits(LARGE) and not budget.crowded


def test_a_larger_message_behind_one_needs_its_own_room() -> None:
    """Else whoever sends 2 MiB first would gather 100 MiB by that; others who wait come before it."""
    budget = rooms(4 * LARGE)
    one, other = Seat(budget, lambda: None), Seat(budget, lambda: None)
    assert one.fits(LARGE) and one.fits(4 * LARGE) and not other.fits(LARGE)
    one.leave()
    other.leave()
    assert one.fits(LARGE) and not other.fits(4 * LARGE)
    assert not one.fits(2 * LARGE) and one.waiting and other.fits(4 * LARGE)


def test_who_leaves_the_queue_makes_room_for_the_next() -> None:
    """A connection that ends while it waits holds up nobody."""
    budget, woken = rooms(LARGE), list[str]()
    first, large, other = (Seat(budget, lambda name=name: woken.append(name)) for name in "abc")  # type: ignore[misc]
    assert first.fits(LARGE - 1) and not large.fits(LARGE) and not other.fits(LARGE)
    large.leave()
    assert woken == ["c"] and not other.fits(LARGE)
    first.leave()
    assert other.fits(LARGE)


def test_small_messages_need_no_seat() -> None:
    """They pass however crowded it is."""
    budget = rooms(0)
    assert Seat(budget, lambda: None).fits(LARGE_BYTES) and not budget.crowded


def test_one_as_large_as_the_budget_finds_room_alone() -> None:
    """Its length counts too; who is so large waits until nobody else has a place."""
    budget = rooms(LARGE)
    alone, other = Seat(budget, lambda: None), Seat(budget, lambda: None)
    assert alone.fits(LARGE + 4) and not other.fits(LARGE)
    alone.leave()
    assert other.fits(LARGE) and not alone.fits(LARGE + 4)
    other.leave()
    assert alone.fits(LARGE + 4) and not budget.crowded


def test_all_who_fit_are_woken() -> None:
    """Not only the first: what a large one leaves is enough for several small ones."""
    budget, seats = rooms(48 * LARGE_BYTES), dict[str, Seat]()
    for name in "cabd":
        size = 47 * LARGE_BYTES if name in "cd" else LARGE
        seats[name] = Seat(budget, lambda name=name, size=size: seats[name].fits(size))  # type: ignore[misc,arg-type]
        seats[name].wake()
    assert [name for name, seat in seats.items() if seat.held] == ["c"]
    seats["c"].leave()
    assert [name for name, seat in seats.items() if seat.held] == ["a", "b"] and seats["d"].waiting


def test_who_is_woken_and_leaves_lets_the_next_one_in() -> None:
    """One that cannot use its turn is not waited for, however many are like that."""
    budget, leaving = rooms(LARGE), list[Seat]()
    holder, last = Seat(budget, lambda: None), Seat(budget, lambda: None)
    assert holder.fits(LARGE)
    for number in range(2_000):
        leaving.append(Seat(budget, lambda number=number: leaving[number].leave()))  # type: ignore[misc]
        assert not leaving[-1].fits(LARGE)
    assert not last.fits(LARGE)
    holder.leave()
    assert not any(seat.waiting for seat in leaving)
    assert last.fits(LARGE) and not budget.crowded
