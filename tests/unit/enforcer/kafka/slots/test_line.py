"""Random histories of connections before one limit: who waits does so for a slot, and while there is none."""

import random
from collections.abc import Callable

import pytest
from clock_kit import Timer
from concurrency_kit import Times, limiter_at
from connection_kit import API_VERSIONS, Rig, framed, header, opaque
from traffic_kit import batch, produce

from enforcer.host.turns import TURN_S, Turns
from enforcer.kafka.part import Request
from enforcer.laws.concurrency.limiter import Limiter
from enforcer.wire.kafka.frames import parse_header

HEARTBEAT = 12
HELD_MS = 20.0
HISTORY = 400
SILENT = framed(produce(9, {"t1": [batch(1)]}, acks=0)[0])
SENT: tuple[Callable[[int], bytes], ...] = (
    opaque,
    lambda number: opaque(number) + opaque(number) + opaque(number),
    # Read, and so in turns.
    lambda number: framed(header(API_VERSIONS, 0, number)),
    lambda number: framed(header(HEARTBEAT, 0, number)),
    # It takes no slot.
    lambda _number: SILENT,
)


class Timed(Rig):
    """A connection with timers that can be undone, some of whose requests are held for an account's debt."""

    def __init__(self, times: Times, turns: Turns) -> None:
        self.times = times
        super().__init__()
        self.turns = turns
        self.owes = False
        handler = self.connection._chain
        handle = handler.handle

        def handle_or_hold(frame: bytes) -> None:
            if self.owes:
                self.owes = False
                self.connection.hold(Request(frame, parse_header(frame), ""))
                self.connection.pacer.pause(HELD_MS)
            else:
                handle(frame)

        handler.handle = handle_or_hold  # type: ignore[method-assign]

    def call_later(self, delay_ms: float, function: Callable[[], None]) -> Timer:
        """At its time (context.Context)."""
        return self.times.call_later(delay_ms, function)


class History:
    """What may happen to connections before one limit, at random."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.times = Times()
        self.limiter: Limiter = limiter_at(self.times, self.random.randrange(1, 3))
        self.limiter.exempt = frozenset({"heartbeat"})
        self.turns = Turns(lambda go: self.times.call_later(0.0, go), lambda: self.times.ns / 1e9)
        self.rigs = [self._come() for _ in range(6)]
        self.rests: dict[Timed, bytes] = {}
        self.number = 0
        self.waited = 0

    def step(self) -> None:
        """One thing that may happen, and all that follows from it at once."""
        rig = self.random.choice(self.rigs)
        (what,) = self.random.choices(
            (self._send, self._answer, self._hinder, self._hurry, self._replace, self._others),
            (12, 8, 2, 2, 1, 1),
        )
        what(rig)
        self.waited += self.limiter.waiting
        self.times.run()

    def check(self) -> None:
        """Who waits while a slot is free would wait for ever: nobody has it, so nobody gives it back."""
        limiter = self.limiter
        assert limiter.in_flight >= limiter.limit or not limiter.waiting

    def _come(self) -> Timed:
        rig = Timed(self.times, self.turns)
        rig.connection.count_by(self.limiter)
        return rig

    def _send(self, rig: Timed) -> None:
        """A client sends requests, or the half of one, or the rest of that."""
        data = self.rests.pop(rig, b"")
        if not data:
            self.number += 1
            data = self.random.choice(SENT)(self.number)
            if self.random.random() < 0.3:
                cut = self.random.randrange(1, len(data))
                data, self.rests[rig] = data[:cut], data[cut:]
        rig.connection.data_received(data)

    def _answer(self, rig: Timed) -> None:
        """The broker answers what it was asked first."""
        due = [each for each in self.rigs if each.connection._responses.due]
        if due:
            rig = self.random.choice(due)
            slot = rig.connection._responses.due[0]
            rig.answer([slot.correlation_id.to_bytes(4, "big") + bytes(6)])

    def _hinder(self, rig: Timed) -> None:
        """Its client or its broker can take no more, or can again; or its account owes."""
        upstream = rig.upstream
        match self.random.randrange(3):
            case 0:
                upstream.writable = not upstream.writable
                rig.connection.upstream_changed()
            case 1 if rig.connection._full:
                rig.connection.resume_writing()
            case 1:
                rig.connection.pause_writing()
            case _:
                rig.owes = True

    def _hurry(self, _rig: Timed) -> None:
        """All turns of this round are used up; or time passes, but nobody waits too long."""
        if self.random.random() < 0.5:
            self.turns.end(self.times.ns / 1e9 - TURN_S)
        else:
            self.times.pass_ms(self.random.choice((1.0, HELD_MS)))

    def _replace(self, rig: Timed) -> None:
        """It ends, in one way or another, and a new one comes."""
        match self.random.randrange(4):
            case 0:
                rig.connection.upstream_failed("lost")
            case 1:
                rig.lose_client()
                rig.connection.ending.drop("departed")
            case 2:
                rig.connection.end("slow_sender")
                rig.lose_client()
                rig.connection.ending.drop("departed")
            case _:
                rig.connection.count_by(None)
        self.rests.pop(rig, None)
        self.rigs[self.rigs.index(rig)] = self._come()

    def _others(self, _rig: Timed) -> None:
        """Another limit is in force, or other classes pass."""
        if self.random.random() < 0.5:
            self.limiter.set_limit(self.random.randrange(1, 4))
        else:
            self.limiter.exempt = frozenset(self.random.sample(("heartbeat", "api_versions"), 1))


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.soak] * (seed >= 12)) for seed in range(60)]
)
def test_nobody_waits_while_a_slot_is_free(seed: int) -> None:
    """Whatever keeps one that is first in line from its slot, and whoever sends fewer than it could."""
    history = History(seed)
    for _ in range(HISTORY):
        history.step()
        history.check()
    assert history.waited > 0
