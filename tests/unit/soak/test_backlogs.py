"""What a producer may get through beyond a backlog's quota (tests/soak)."""

import pytest
from soak_backlogs import kept as kept_rule
from soak_backlogs import outcome
from soak_histories import GOOD, backlog, kept, killed
from soak_history import Entry, History


def cut_off(until: int) -> Entry:
    """A proxy hears nothing of the brokers."""
    return {**killed(29_000, "broker-one"), "what": "cut", "ended": until}


@pytest.mark.parametrize(
    ("more", "wrong"),
    [
        pytest.param([], False, id="its decision was too old"),
        pytest.param([backlog("refuse", -18_000, 6_000)], True, id="it was not"),
        pytest.param([backlog("refuse", 0, 35_999)], True, id="there was a newer one"),
        pytest.param([backlog("refuse", 0, 36_001)], False, id="which the proxy did not know yet"),
        pytest.param([backlog("refuse", 0, 30_000), cut_off(35_999)], True, id="cut off until then"),
        pytest.param([backlog("refuse", 0, 30_000), cut_off(36_001)], False, id="or longer"),
        pytest.param([backlog("refuse", 0, 30_000), killed(38_000)], False, id="it was killed"),
        pytest.param([backlog("refuse", 0, 30_000), killed(38_000, "two")], True, id="another one was"),
    ],
)  # fmt: skip
def test_what_waits_may_be_taken_once_the_decision_on_its_topic_is_too_old(
    more: list[Entry], wrong: bool
) -> None:
    """Beyond 60 s, and until the next is known; what was sent is taken at any time until its answer."""
    (asked, stands) = kept("refuse", 10, 30_000, 9)
    found = kept_rule(History.of([*GOOD, {**asked, "ended": 41_001}, stands, *more]))
    assert bool(list(found)) == wrong


@pytest.mark.parametrize(
    ("more", "at", "wrong"),
    [
        pytest.param([], 29_000, True, id="by a decision that is not too old"),
        pytest.param([], 24_999, False, id="it may not have heard of it yet"),
        pytest.param([backlog("refuse", 0, 28_000, False)], 29_000, False, id="it was freed"),
        pytest.param([backlog("refuse", -1, 28_000, False)], 29_000, True, id="by an older decision"),
        pytest.param([killed(28_000)], 29_000, False, id="it was killed"),
    ],
)
def test_what_its_proxy_knows_to_be_too_much_is_not_taken(more: list[Entry], at: int, wrong: bool) -> None:
    """Even where others had to be in trouble for it to become known so late."""
    away = {**killed(2_000, "collect"), "what": "down", "ended": 99_000}
    taken = kept("refuse", 10, at, 9)
    found = kept_rule(History.of([*GOOD, away, backlog("refuse", 0, 20_000), *taken, *more]))
    assert bool(list(found)) == wrong


@pytest.mark.parametrize(
    ("what", "target", "begun", "wrong"),
    [
        ("kill", "cluster", 39_800, False), ("kill", "cluster", 41_000, True),
        ("kill", "cluster", 30_000, True), ("kill", "one", 39_800, False), ("kill", "two", 39_800, True),
        ("halve", "client-one", 39_800, False), ("delay", "client-one", 39_800, True),
    ],
)  # fmt: skip
def test_what_was_under_way_as_its_way_broke_may_be_refused_by_its_second_try(
    what: str, target: str, begun: int, wrong: bool
) -> None:
    """Brokers, its proxy or a connection between them; another proxy's is no excuse."""
    written = {**kept("refuse", 9, 62_000, 8)[1], "value": "refuse-one 8", "offset": 9}
    away = {**killed(begun, target), "what": what, "ended": begun + 500}
    assert bool(list(outcome(History.of([*GOOD, written, away])))) == wrong
