"""Places for large messages."""

from enforcer.host.pool import LARGE_BYTES, Pool, Seat

LARGE = 2 * LARGE_BYTES


def test_places_are_taken_in_turn() -> None:
    """Who finds no room is woken in the order of asking, when there is some."""
    pool, woken = Pool(LARGE), list[int]()
    seats = [Seat(pool, lambda number=number: woken.append(number)) for number in range(3)]  # type: ignore[misc]
    assert seats[0].fits(LARGE) and not seats[1].fits(LARGE) and not seats[2].fits(LARGE)
    assert pool.crowded and seats[1].waiting and not seats[2].fits(LARGE)
    assert seats[0].fits(10) and woken == [1]
    assert not seats[2].fits(LARGE) and seats[1].fits(LARGE) and not seats[1].waiting
    seats[1].leave()
    assert woken == [1, 2] and seats[2].fits(LARGE) and not pool.crowded


def test_who_leaves_the_queue_makes_room_for_the_next() -> None:
    """A connection that ends while it waits holds up nobody."""
    pool, woken = Pool(LARGE), list[str]()
    first, large, other = (Seat(pool, lambda name=name: woken.append(name)) for name in "abc")  # type: ignore[misc]
    assert first.fits(LARGE - 1) and not large.fits(LARGE) and not other.fits(LARGE)
    large.leave()
    assert woken == ["c"] and not other.fits(LARGE)
    first.leave()
    assert other.fits(LARGE)


def test_small_messages_need_no_place() -> None:
    """They pass however crowded it is."""
    pool = Pool(0)
    assert Seat(pool, lambda: None).fits(LARGE_BYTES) and not pool.crowded


def test_one_as_large_as_the_pool_finds_room_alone() -> None:
    """Its length counts too; who is so large waits until nobody else has a place."""
    pool = Pool(LARGE)
    alone, other = Seat(pool, lambda: None), Seat(pool, lambda: None)
    assert alone.fits(LARGE + 4) and not other.fits(LARGE)
    alone.leave()
    assert other.fits(LARGE) and not alone.fits(LARGE + 4)
    other.leave()
    assert alone.fits(LARGE + 4) and not pool.crowded


def test_all_who_fit_are_woken() -> None:
    """Not only the first: what a large one leaves is enough for several small ones."""
    pool, seats = Pool(48 * LARGE_BYTES), dict[str, Seat]()
    for name in "cabd":
        size = 47 * LARGE_BYTES if name in "cd" else LARGE
        seats[name] = Seat(pool, lambda name=name, size=size: seats[name].fits(size))  # type: ignore[misc,arg-type]
        seats[name].wake()
    assert [name for name, seat in seats.items() if seat.held] == ["c"]
    seats["c"].leave()
    assert [name for name, seat in seats.items() if seat.held] == ["a", "b"] and seats["d"].waiting


def test_who_is_woken_and_leaves_lets_the_next_one_in() -> None:
    """One that cannot use its turn is not waited for, however many are like that."""
    pool, leaving = Pool(LARGE), list[Seat]()
    holder, last = Seat(pool, lambda: None), Seat(pool, lambda: None)
    assert holder.fits(LARGE)
    for number in range(2_000):
        leaving.append(Seat(pool, lambda number=number: leaving[number].leave()))  # type: ignore[misc]
        assert not leaving[-1].fits(LARGE)
    assert not last.fits(LARGE)
    holder.leave()
    assert not any(seat.waiting for seat in leaving)
    assert last.fits(LARGE) and not pool.crowded
