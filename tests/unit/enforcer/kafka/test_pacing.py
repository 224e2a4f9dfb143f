"""The mute of one connection: pure, with times as arguments."""

from enforcer.kafka.pacing import Mute


def test_a_short_mute_ends() -> None:
    """Nothing passes until the time is over."""
    mute = Mute(split_ms=1_000)
    assert mute.may_pass and not mute.pass_one()
    mute.begin(0, 400)
    assert mute.active and not mute.may_pass and mute.wake_ms == 400
    mute.advance(399)
    assert not mute.may_pass
    mute.advance(400)
    assert mute.may_pass and not mute.active and not mute.pass_one()


def test_a_long_mute_lets_one_pass_after_each_split() -> None:
    """One request after each split, however long the next one takes to come, and the mute goes on."""
    mute = Mute(split_ms=1_000)
    mute.begin(0, 2_500)
    mute.advance(1_000)
    assert mute.active and mute.may_pass
    assert mute.pass_one() and not mute.may_pass
    mute.advance(2_000)
    assert mute.pass_one() and mute.wake_ms == 2_500
    mute.advance(2_500)
    assert not mute.active


def test_a_mute_only_grows() -> None:
    """A second throttle cannot shorten the first; it starts the split anew."""
    mute = Mute(split_ms=1_000)
    mute.begin(0, 5_000)
    mute.advance(1_000)
    mute.begin(1_100, 100)
    assert not mute.may_pass and mute.wake_ms == 2_100
    mute.begin(1_200, 9_000)
    mute.advance(5_000)
    assert mute.active
