"""Places of large requests among the connections of a proxy: who may not keep one, and for how long."""

import struct

import pytest
from connection_kit import PRODUCE, Rig, framed, header
from meter_kit import TOPIC
from traffic_kit import batch, produce

from enforcer.core import bounds
from enforcer.host.budget import Seat
from enforcer.wire.kafka.frames import FETCH
from streaming.policy.policy_set import PolicySet

LARGE = 40 << 20


def waiting_rig(monkeypatch: pytest.MonkeyPatch, before: bytes = b"") -> tuple[Rig, Seat]:
    """A client whose large request, behind another one, waits for its place, and who has it."""
    monkeypatch.setattr(bounds, "PARTIAL_FRAME_TIMEOUT_MS", 1_200)
    rig = Rig()
    rig.meter.set_policies(PolicySet({"quotas[user=ANONYMOUS]": {"producer_byte_rate": 10**9}}))
    holder = Seat(rig.budget, lambda: None)
    assert holder.fits(LARGE)
    rig.desk.now_ms = 1_000
    rig.prove()
    rig.connection.data_received(before + struct.pack(">i", LARGE) + header(PRODUCE, 9, 1))
    assert rig.budget.crowded and not rig.client.reading
    return rig, holder


def test_who_may_not_read_lets_the_next_one_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """First in line for a place, but it takes no answers: it stands behind the others until it does."""
    rig, holder = waiting_rig(monkeypatch)
    other = Seat(rig.budget, lambda: other.fits(LARGE))  # type: ignore[arg-type]
    assert not other.fits(LARGE)
    rig.connection.pause_writing()
    holder.leave()
    assert other.held == LARGE
    rig.connection.resume_writing()
    assert rig.budget.crowded and not rig.client.reading
    other.leave()
    assert rig.client.reading and not rig.budget.crowded


def test_who_waited_for_a_place_has_all_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """For what is left of the request, counted from when it may be read."""
    rig, holder = waiting_rig(monkeypatch)
    rig.desk.now_ms = 2_100
    holder.leave()
    assert rig.client.reading
    rig.connection.check(3_300)
    assert not rig.client.closed
    rig.connection.check(3_301)
    assert rig.client.closed and rig.closed("slow_sender") == 1


@pytest.mark.parametrize("whole", [False, True])
def test_who_reads_nothing_keeps_no_place_for_long(monkeypatch: pytest.MonkeyPatch, whole: bool) -> None:
    """Begun, or whole and still on its way to a broker that waits for the client: others have their turn."""
    rig, holder = waiting_rig(monkeypatch)
    holder.leave()
    other = Seat(rig.budget, lambda: other.fits(LARGE))  # type: ignore[arg-type]
    assert rig.client.reading and not other.fits(LARGE)
    if whole:
        rig.upstream.full, rig.upstream.writable = True, False
        rig.connection.upstream_changed()
        rig.connection.check(1_000)
    rig.connection.pause_writing()
    for now_ms, ended in ((2_000, False), (2_100, False), (2_101, True)):
        rig.connection.check(now_ms)
        assert rig.client.closed is ended and bool(other.held) is ended
    assert rig.closed("slow_sender") == 1


@pytest.mark.parametrize(
    ("key", "others", "ended"), [(FETCH, 1, True), (FETCH, 0, False), (PRODUCE, 1, False)]
)
def test_who_has_its_broker_wait_keeps_no_place_for_long(
    monkeypatch: pytest.MonkeyPatch, key: int, others: int, ended: bool
) -> None:
    """A broker reads no further until a Fetch has its records, which may take days; data it takes in time."""
    silent = framed(produce(9, {TOPIC: [batch(1)]})[0]) if key == PRODUCE else framed(header(FETCH, 12, 0))
    rig, holder = waiting_rig(monkeypatch, silent)
    holder.leave()
    seats = [Seat(rig.budget, lambda: None) for _ in range(others)]
    assert rig.connection._seat.held and not any(seat.fits(LARGE) for seat in seats)
    rig.upstream.full, rig.upstream.writable = True, False
    rig.connection.upstream_changed()
    for now_ms in (2_000, 2_100, 2_101, 60_000):
        rig.connection.check(now_ms)
        assert rig.client.closed is (ended and now_ms > 2_100)
    assert rig.closed("slow_sender") == ended


def test_who_gave_its_place_back_is_not_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """It read no answers and goes on; then a mute keeps us from reading it for longer than it may take."""
    rig, holder = waiting_rig(monkeypatch)
    holder.leave()
    rig.connection.pause_writing()
    rig.connection.check(1_000)
    rig.connection._seat.leave()
    rig.connection.check(3_600_000)
    assert rig.connection._partial_since is None and not rig.client.closed


def test_what_has_left_keeps_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large request has gone to its broker; its client, which reads no answers, may stay as it is."""
    rig, holder = waiting_rig(monkeypatch)
    holder.leave()
    assert rig.connection._seat.held
    rig.upstream.full = True
    rig.connection.upstream_changed()
    rig.connection._requests.data, rig.connection._requests.need = b"", 0
    rig.connection.pause_writing()
    assert rig.connection._seat.held
    rig.upstream.full = False
    rig.connection.upstream_changed()
    rig.connection.check(3_600_000)
    assert not rig.connection._seat.held and not rig.client.closed
