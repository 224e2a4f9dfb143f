"""A toy limit in the chain of a connection: it names what it wants, and all else passes without it."""

import struct
from types import SimpleNamespace

from connection_kit import METADATA, Rig, framed, header, opaque
from lane_kit import BODIES, asked, numbered

from enforcer.core import bounds
from enforcer.kafka.part import Limit, Link, Part, Request, Slot

LIST_GROUPS = 16


class ToyLimit(Limit):
    """Wants requests for lists of groups while its law is active."""

    keys = frozenset({LIST_GROUPS})

    def __init__(self) -> None:
        super().__init__(SimpleNamespace(active=False))
        self.parts: list[ToyPart] = []

    def reads(self, key: int, user: str, client_id: str) -> bool:
        """Not those of one client."""
        return client_id != "free"

    def part(self, link: Link) -> Part:
        """Kept for the test."""
        self.parts.append(ToyPart(link))
        return self.parts[-1]


class ToyPart(Part):
    """Does what the last byte of a request says."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.taken, self.closed = 0, False

    def take(self, request: Request) -> bool:
        """Answers, holds, or reads the response."""
        self.taken += 1
        what = request.frame[-1:]
        if what == b"a":
            self._link.answer(request, struct.pack(">i", request.header.correlation_id) + b"ours")
        elif what == b"h" and self.taken < 3:
            self._link.hold(request)
            self._link.pacer.pause(1.0)
        else:
            request.readers.append(self._read)
            return True
        return False

    def close(self) -> None:
        """Noted."""
        self.closed = True

    def _read(self, _slot: Slot, response: bytes) -> bytes:
        return response + b"read"


class EndingPart(ToyPart):
    """Lets all pass, as the last of its connection."""

    def take(self, request: Request) -> bool:
        """See there."""
        request.ends = "toy"
        return True


class AmendingPart(ToyPart):
    """Lets all pass, and adds to each answer."""

    def take(self, request: Request) -> bool:
        """See there."""
        request.amend(lambda response: response + b"amended")
        return True


def said(number: int, what: bytes) -> bytes:
    """A request that the toy is to treat so."""
    return framed(header(LIST_GROUPS, 0, number) + what)


def test_a_limit_is_one_concern() -> None:
    """It sees what it wants while it is active, answers in turn, holds and reads; it ends with all."""
    rig, toy = Rig(), ToyLimit()
    rig.concerns = (*rig.concerns, toy)
    rig.connect()
    rig.connection.data_received(opaque(1) + opaque(2))
    assert not toy.parts and len(rig.upstream.sent) == 2
    toy.law.active = True
    rig.connection.data_received(said(3, b"a") + said(4, b"h") + said(5, b"r"))
    (part,) = toy.parts
    assert part.taken == 2 and len(rig.upstream.sent) == 2
    rig.run_timers()
    assert [frame[-1:] for frame in rig.upstream.sent[2:]] == [b"h", b"r"]
    rig.answer([struct.pack(">i", number) for number in (1, 2, 4, 5)])
    assert rig.client.answered() == [1, 2, 3, 4, 5]
    assert rig.client.data.count(b"ours") == 1 and rig.client.data.count(b"read") == 2
    rig.connection.data_received(framed(struct.pack(">hhih", LIST_GROUPS, 0, 6, 4) + b"free"))
    assert part.taken == 4
    rig.lose_client()
    rig.answer([struct.pack(">i", 6)])
    assert part.closed


def test_an_answer_of_ours_behind_others_keeps_nothing() -> None:
    """What a part keeps for it, as what was taken out of it, would stay as long as those before it wait."""
    rig, amending, toy = Rig(), ToyLimit(), ToyLimit()
    amending.part = AmendingPart  # type: ignore[method-assign, assignment]
    amending.law.active = toy.law.active = True
    rig.concerns = (*rig.concerns, amending, toy)
    rig.connect()
    rig.connection.data_received(said(1, b"r") + said(2, b"a"))
    assert rig.connection._responses.answers[-1].finish is None
    rig.answer([struct.pack(">i", 1)])
    assert rig.client.answered() == [1, 2] and rig.client.data.count(b"amended") == 2


def test_who_is_held_by_a_later_part_is_not_ended_by_an_earlier_one() -> None:
    """As a Produce without acks that is blocked in part, and whose rest has to wait: that would be lost."""
    rig, ending, toy = Rig(), ToyLimit(), ToyLimit()
    ending.part = EndingPart  # type: ignore[method-assign, assignment]
    ending.law.active = toy.law.active = True
    rig.concerns = (*rig.concerns, ending, toy)
    rig.connect()
    rig.connection.data_received(said(1, b"h"))
    rig.run_timers()
    assert toy.parts[0].taken == 2 and not rig.client.closed and not rig.upstream.sent
    rig.run_timers()
    assert toy.parts[0].taken == 3 and rig.client.closed and len(rig.upstream.sent) == 1


def test_what_is_kept_until_the_answer_is_bounded() -> None:
    """As of what was taken out of requests: a broker may take its time, and there may be a thousand."""
    rig = Rig()
    names = [b"weir.%0100d" % number for number in range(400)] + [b"mine"]
    rows = b"".join(struct.pack(">h", len(name)) + name for name in names)
    request = asked(METADATA, 4, struct.pack(">i", len(names)) + rows + b"\1")
    for number in range(3):
        rig.connection.data_received(numbered(request, number))
    assert len(rig.upstream.sent) == 2 and rig.connection.held_bytes > bounds.HELD_BYTES_MAX
    for number in range(3):
        rig.answer([struct.pack(">i", number) + BODIES[struct.pack(">hh", METADATA, 4)]])
    assert rig.client.answered() == [0, 1, 2] and rig.connection._chain.held_bytes == 0
    rig.connection.data_received(asked(20, 1, struct.pack(">i", len(names)) + rows + bytes(4)))
    assert rig.connection._chain.held_bytes > bounds.HELD_BYTES_MAX // 2
