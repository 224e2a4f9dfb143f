"""The mutes of one connection, by a clock that the test moves."""

import pytest
from connection_kit import Rig, framed, opaque
from meter_kit import TOPIC
from mutation_kit import Desk
from traffic_kit import batch, fetch_request, produce

from enforcer.core import bounds
from enforcer.core.bounds import MUTE_SPLIT_MS
from enforcer.kafka.pacing import Pacer


class Muted(Desk):
    """A connection that is muted; `resumed` counts how often it might go on."""

    def __init__(self) -> None:
        super().__init__()
        self.resumed = 0
        self.pacer = Pacer(self.coordinator, self.call_later, self.resume)

    def resume(self) -> None:
        """Counted."""
        self.resumed += 1

    @property
    def count(self) -> int:
        """The metric."""
        return self.metrics.traffic.muted


def test_a_short_mute_ends() -> None:
    """Nothing passes until the time is over; it is counted while it lasts."""
    desk = Muted()
    pacer = desk.pacer
    assert pacer.may_read and not pacer.pass_one() and desk.count == 0
    pacer.mute(400)
    assert desk.count == 1 and not pacer.may_read and not pacer.idle
    desk.run(399)
    assert not pacer.may_read and desk.resumed == 0
    desk.run(1)
    assert pacer.may_read and pacer.idle and not pacer.pass_one()
    assert (desk.count, desk.resumed, desk.waiting) == (0, 1, 0)


def test_a_long_mute_lets_one_pass_after_each_split() -> None:
    """One request after each split, however long the next one takes to come, and the mute goes on."""
    desk = Muted()
    pacer = desk.pacer
    pacer.mute(2.5 * MUTE_SPLIT_MS)
    desk.run(MUTE_SPLIT_MS - 1)
    assert not pacer.may_read
    desk.run(1)
    assert pacer.may_read and not pacer.idle
    assert pacer.pass_one() and not pacer.may_read and not pacer.pass_one()
    desk.run(MUTE_SPLIT_MS)
    assert pacer.pass_one() and desk.count == 1
    desk.run(0.5 * MUTE_SPLIT_MS - 1)
    assert not pacer.idle
    desk.run(1)
    assert pacer.idle and pacer.may_read and desk.count == 0


def test_a_mute_only_grows() -> None:
    """A second throttle cannot shorten the first; it starts the split anew."""
    desk = Muted()
    pacer = desk.pacer
    pacer.mute(5 * MUTE_SPLIT_MS)
    desk.run(MUTE_SPLIT_MS)
    pacer.mute(100)
    assert not pacer.may_read and desk.count == 1
    desk.run(MUTE_SPLIT_MS - 1)
    assert not pacer.may_read
    desk.run(1)
    assert pacer.may_read
    pacer.mute(9 * MUTE_SPLIT_MS)
    desk.run(5 * MUTE_SPLIT_MS)
    assert not pacer.idle and desk.count == 1


def test_a_connection_that_is_gone_is_muted_no_more() -> None:
    """Nothing is called, and it does not count."""
    desk = Muted()
    desk.pacer.mute(400)
    desk.pacer.close()
    assert (desk.count, desk.waiting) == (0, 0) and desk.pacer.may_read
    desk.run(400)
    assert (desk.count, desk.resumed) == (0, 0)


@pytest.mark.parametrize("acks", [0, 1])
def test_in_a_mute_one_request_passes_as_it_comes(monkeypatch: pytest.MonkeyPatch, acks: int) -> None:
    """One that nobody reads may be longer than what may be kept, and all of it comes; what follows waits."""
    monkeypatch.setattr(bounds, "GATHERED_BYTES", 20_000)
    rig, large = Rig(), framed(produce(9, {TOPIC: [batch(1, size=30_000)]}, acks)[0])
    rig.connection.pacer.mute(10 * MUTE_SPLIT_MS)
    rig.connection.data_received(large + large[:20_000])
    for passed in (b"", large):
        assert rig.upstream.data == passed and not rig.client.reading
        rig.desk.run(MUTE_SPLIT_MS)
    assert rig.upstream.data == large + large[:20_000]
    assert rig.client.reading and not rig.connection.pacer.may_read
    rig.connection.data_received(large[20_000:] + opaque(3))
    assert rig.upstream.data == large * 2 and not rig.client.reading
    rig.desk.run(MUTE_SPLIT_MS)
    assert rig.upstream.data == large * 2 + opaque(3)


@pytest.mark.parametrize("gone", [True, False])
def test_behind_a_mute_not_all_is_carried_out(gone: bool) -> None:
    """Nothing once its session is over, which the broker would close; no Fetch that nobody hears of."""
    rig = Rig()
    rig.connection.pacer.mute(10 * MUTE_SPLIT_MS)
    rig.connection.data_received(framed(fetch_request(12, {TOPIC: 1})[0]))
    if gone:
        rig.connection.connection_lost(None)
    else:
        rig.connection.pacer.session_until_ms = 1.0
    rig.desk.run(MUTE_SPLIT_MS)
    assert rig.upstream.data == b"" and rig.closed("session") == (not gone)
