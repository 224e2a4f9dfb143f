"""Bounds of what waits, of a connection and of the process."""

from enforcer.pulsar.publish.room import EACH_BYTES, HeldBytes, Room


class Reader:
    """A connection."""

    def __init__(self) -> None:
        self.read = True
        self.held = HeldBytes(self.stop_reading, self.read_on)

    def stop_reading(self) -> None:
        """See room.HeldBytes."""
        assert self.read
        self.read = False

    def read_on(self) -> None:
        """See room.HeldBytes."""
        assert not self.read
        self.read = True


SIZE = 1_000 - EACH_BYTES
"""With what it takes beside its bytes one of these is 1,000."""


def test_a_connection_is_read_again_when_half_is_gone() -> None:
    """Not at once, or it would be stopped with each SEND."""
    room, one = Room(10_000, 100_000), Reader()
    for _ in range(10):
        room.take(one.held, SIZE)
    assert one.read
    room.take(one.held, SIZE)
    assert (one.read, room.unread, room.size, room.sends) == (False, 1, 11_000, 11)
    for _ in range(5):
        room.give(one.held, SIZE)
    assert not one.read
    room.give(one.held, SIZE)
    assert (one.read, room.unread) == (True, 0)


def test_where_all_hold_too_much_those_are_stopped_that_hold_most() -> None:
    """Who has little that waits is read on, or a few that are throttled for long would stop everybody."""
    room = Room(10_000, 20_000)
    greedy, modest = [Reader() for _ in range(2)], [Reader() for _ in range(8)]
    for each in greedy:
        for _ in range(10):
            room.take(each.held, SIZE)
    for each in modest:
        room.take(each.held, SIZE)
    assert all(each.read for each in modest)
    room.take(greedy[0].held, SIZE)
    room.take(greedy[1].held, SIZE)
    assert not greedy[0].read
    assert not greedy[1].read
    # A tenth of the room for each of ten; one with more than that is stopped at its next SEND.
    room.take(modest[0].held, SIZE)
    assert modest[0].read
    room.take(modest[0].held, SIZE)
    assert not modest[0].read
    for _ in range(3):
        room.give(modest[0].held, SIZE)
    assert modest[0].read


def test_all_may_go_on_when_there_is_room_for_all_again() -> None:
    """Also those whose own SENDs still wait, if that is less than half of what they may keep."""
    room = Room(10_000, 8_000)
    small, large = Reader(), Reader()
    for _ in range(3):
        room.take(small.held, SIZE)
    for _ in range(6):
        room.take(large.held, SIZE)
    room.take(small.held, SIZE)
    room.take(small.held, SIZE)
    assert (small.read, large.read) == (False, False)
    for _ in range(3):
        room.give(large.held, SIZE)
    assert (small.read, large.read) == (True, True)
