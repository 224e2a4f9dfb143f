"""What is read takes its turn."""

from clock_kit import Rounds
from connection_kit import FakeTransport
from hypothesis import given
from hypothesis import strategies as st
from property_kit import tries

from enforcer.host.turns import TURN_S
from enforcer.pulsar.inlet import Inlet
from enforcer.wire.pulsar import frames
from enforcer.wire.pulsar.commands import command

FLOW = command(frames.FLOW, consumer_id=1, message_permits=1)
PING = command(frames.PING)
LOOKUP = command(frames.LOOKUP, topic="t" * 500, request_id=1)
MANY = 200


class Reading(Rounds):
    """An inlet whose frames take a tenth of a turn each."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1.0
        self.passed, self.taken, self.all = b"", 0, b""
        self.transport = FakeTransport()
        self.inlet = Inlet(self.turns, self._pass, self._take, lambda: self.feed(b""), 1_000)
        self.inlet.splitter.wanted = frozenset({frames.FLOW, frames.LOOKUP})
        self.inlet.open(self.transport)  # type: ignore[arg-type]

    def feed(self, data: bytes) -> None:
        """Bytes come."""
        self.inlet.feed(data)

    def busy(self) -> None:
        """Others use this round of the loop up."""
        begun_s = self.turns.begin()
        if begun_s is not None:
            self.now_s += 2 * TURN_S
            self.turns.end(begun_s)

    def _pass(self, data: bytes, unfinished: bool) -> None:
        self.passed += data
        self.all += data

    def _take(self, kind: int, frame: bytes) -> None:
        self.taken += 1
        self.all += frame
        self.now_s += TURN_S / 10


def test_a_long_run_is_shown_in_turns() -> None:
    """In each round so much as a turn allows, while the socket is not read; in the end all, in order."""
    one = Reading()
    one.feed((FLOW + PING) * MANY)
    assert 10 <= one.taken <= 32 and not one.transport.reading
    rounds = 0
    while one.taken < MANY:
        before = one.taken
        one.round()
        assert one.taken - before <= 32
        rounds += 1
        assert rounds < MANY
    one.round()
    assert one.passed == PING * MANY and one.transport.reading


def test_others_have_their_turn_first() -> None:
    """What comes in a round that is used up waits whole, also what comes after it."""
    one = Reading()
    # What came before in two parts has no say in it.
    one.feed(LOOKUP[:40])
    one.feed(LOOKUP[40:])
    assert one.taken == 1
    one.taken = 0
    one.round()
    one.busy()
    one.feed(FLOW)
    one.feed(PING)
    assert one.taken == 0 and one.passed == b"" and not one.transport.reading
    one.round()
    assert one.taken == 1 and one.passed == PING and one.transport.reading


FRAME, CUT = st.sampled_from([FLOW, PING, LOOKUP]), st.sampled_from([0, 9, 40])


@tries(1_200)
@given(st.lists(st.tuples(FRAME, CUT, st.booleans(), st.booleans(), st.booleans()), min_size=5))
def test_when_nobody_objects_any_more_all_whole_frames_are_through(
    steps: list[tuple[bytes, int, bool, bool, bool]],
) -> None:
    """However they come, are stopped and wait for a turn: in order, and none waits for what comes next."""
    one, sent = Reading(), b""
    for frame, cut, busy, stop, rest in [*steps, (PING, 0, False, False, True)]:
        one.feed(frame[:cut])
        if busy:
            one.busy()
        if stop:
            one.inlet.stop("dial")
        one.feed(frame[cut:])
        sent += frame
        if rest:
            one.inlet.go("dial")
            one.feed(b"")
            while one.soon:
                one.round()
            assert one.all == sent and one.transport.reading
        assert sent.startswith(one.all)


def test_an_end_waits_for_no_turn() -> None:
    """What the other side said before its end is shown at once."""
    one = Reading()
    one.feed((FLOW + PING) * MANY)
    assert one.taken < MANY
    one.inlet.finish()
    assert one.taken == MANY and one.passed == PING * MANY
    one.round()
    assert one.taken == MANY


def test_who_stops_it_holds_what_was_read() -> None:
    """A pause lets pass what was read, a stop keeps it; all must agree before it is read again."""
    one = Reading()
    one.inlet.pause("a part")
    one.feed(PING)
    assert one.passed == PING and not one.transport.reading
    one.inlet.stop("dial")
    one.feed(FLOW)
    one.inlet.resume("a part")
    assert one.taken == 0 and not one.transport.reading
    one.inlet.go("dial")
    one.feed(b"")
    assert one.taken == 1 and one.transport.reading
    one.inlet.close()
    one.feed(FLOW)
    assert one.taken == 1
