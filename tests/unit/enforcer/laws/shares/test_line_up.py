"""When a request may go on while somebody owes, one connection among many."""

import pytest
from meter_kit import Waiting

from enforcer.core.account import DISPATCH, PUBLISH, Account
from enforcer.core.lines import Lines
from enforcer.core.settings import ProxySettings
from enforcer.laws.shares.line_up import LineUp
from enforcer.laws.shares.topic_accounts import BillItem
from streaming.policy.groups import GroupLimits

SPLIT_MS = 25_000.0
LINES = Lines(lambda: 0.0)


@pytest.fixture(autouse=True)
def nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has lines of its own."""
    monkeypatch.setitem(globals(), "LINES", Lines(lambda: 0.0))


def account(name: str = "g", shadow: bool = False) -> Account:
    """100 records a second both ways, 50 in stock."""
    limits = GroupLimits(rates=(100.0, None, 100.0, None), shadow=shadow)
    return Account(name, limits, ProxySettings(), LINES, 0.0, part=1.0)


class Line(Waiting):
    """A connection (line_up.Pause)."""

    def __init__(self) -> None:
        super().__init__()
        self.line_up = LineUp(LINES, self, SPLIT_MS, 250.0)

    def produce(self, one: Account, records: int, now_ms: float) -> bool:
        """Produce if that may be."""
        admitted = self.line_up.admits([BillItem(one, b"t", records, 0)], now_ms)
        if admitted:
            one.charge(PUBLISH, records, 0, now_ms)
        return admitted

    def fetch(self, one: Account, now_ms: float) -> bool:
        """Fetch if that may be."""
        return self.line_up.admits_fetch({one}, now_ms)

    def answer(self, one: Account, records: int, now_ms: float) -> bool:
        """So many records come; whether they may pass."""
        passes = self.line_up.fetched([BillItem(one, b"t", records, 0)], now_ms) is None
        if passes:
            one.charge(DISPATCH, records, 0, now_ms)
        return passes


def test_one_after_the_other() -> None:
    """However many come at once, the next one looks when the one before has been charged."""
    one, lines = account(), [Line() for _ in range(50)]
    passed = [0.0 for line in lines if line.produce(one, 100, 0.0)]
    assert len(passed) == 1
    for second in range(1, 20):
        now_ms = second * 1000.0
        passed += [now_ms for line in lines[len(passed) :] if line.produce(one, 100, now_ms)]
    assert len(passed) == 20 and one.used[0] == 2_000


def test_who_pauses_is_told_when_to_look() -> None:
    """The one in front by its own timer, the others when they are woken."""
    one, first, second = account(), Line(), Line()
    assert Line().produce(one, 100, 0.0)
    assert not first.produce(one, 100, 0.0) and not second.produce(one, 100, 0.0)
    assert (first.pauses, second.pauses) == ([500.0], [SPLIT_MS])
    assert first.produce(one, 100, 500.0) and second.woken == 1
    assert not second.produce(one, 100, 500.0) and second.pauses[-1] == 1_000.0


def test_one_passes_in_a_long_debt_but_not_one_of_each_connection() -> None:
    """After 25 s, one for all, and if it will be waited off."""
    one, lines = account(), [Line() for _ in range(30)]
    assert Line().produce(one, 5_050, 0.0)
    for line in lines:
        assert not line.produce(one, 10, 0.0)
    assert lines[0].pauses == [SPLIT_MS]
    assert [line.produce(one, 10, SPLIT_MS) for line in lines] == [True] + [False] * 29
    assert [line.produce(one, 10, SPLIT_MS + 1) for line in lines[1:]] == [False] * 29
    assert lines[1].pauses[-1] == SPLIT_MS - 1


def test_what_would_be_forgiven_does_not_pass_in_a_debt() -> None:
    """Or a large request every 25 s would cost nothing."""
    one, large = account(), Line()
    assert Line().produce(one, 5_050, 0.0)
    assert not large.produce(one, 5_000, 0.0)
    assert not large.produce(one, 5_000, SPLIT_MS) and large.pauses[-1] == 1_000.0
    assert large.produce(one, 5_000, 40_000.0)
    bucket = one.buckets[0]
    assert bucket is not None and bucket.forgiven == 0


def test_a_fetch_passes_after_a_while_and_brings_nothing_in_debt() -> None:
    """A client hears something within its time limit, from each connection."""
    one, lines = account(), [Line() for _ in range(3)]
    one.charge(DISPATCH, 5_050, 0, 0.0)
    for line in lines:
        assert not line.fetch(one, 0.0)
        assert not line.fetch(one, 10_000.0) and line.pauses[-1] == 15_000.0
    for line in lines:
        assert line.fetch(one, SPLIT_MS) and not line.answer(one, 10, SPLIT_MS)
    assert one.used[2] == 5_050


def test_fetches_on_their_way_are_reckoned_with() -> None:
    """What each brought last; who got nothing last time keeps nobody waiting."""
    one, first, second, third, idle = account(), Line(), Line(), Line(), Line()
    assert first.fetch(one, 0.0) and second.fetch(one, 0.0)
    assert third.fetch(one, 0.0) and not idle.fetch(one, 0.0)
    for line in (first, second, third):
        assert line.answer(one, 0, 1.0)
    assert idle.woken and idle.fetch(one, 1.0) and idle.answer(one, 0, 1.0)
    assert all(line.fetch(one, 2.0) for line in (first, second, third, idle))
    assert len(LINES) == 0


def test_who_leaves_keeps_nobody_waiting() -> None:
    """Neither those behind it nor those who reckon with what it fetched."""
    one, first, second, fetching, other = account(), Line(), Line(), Line(), Line()
    one.charge(PUBLISH, 100, 0, 0.0)
    assert not first.produce(one, 1, 0.0) and not second.produce(one, 1, 0.0)
    assert len(LINES) == 2
    first.line_up.close()
    assert second.woken == 1 and len(LINES) == 1
    one.charge(DISPATCH, 49, 0, 0.0)
    assert fetching.fetch(one, 0.0) and not other.fetch(one, 0.0)
    fetching.line_up.close()
    assert other.woken == 1 and other.fetch(one, 0.0)


def test_who_steps_aside_keeps_nobody_waiting() -> None:
    """It could not go on even if it were its turn; it joins again when it can, behind the others."""
    one, first, second = account(), Line(), Line()
    one.charge(PUBLISH, 100, 0, 0.0)
    assert not first.produce(one, 1, 0.0) and not second.produce(one, 1, 0.0)
    first.line_up.step_aside()
    assert second.woken == 1 and LINES.waiting(one.counters[0]) == 1
    assert not first.produce(one, 1, 1.0) and second.produce(one, 1, 500.0) and first.woken == 1
    assert first.produce(one, 1, 510.0) and not LINES.busy(one.counters[0])


def test_a_request_of_two_groups_waits_for_both() -> None:
    """In one line at a time."""
    one, two, line = account(), account("h"), Line()
    one.charge(PUBLISH, 100, 0, 0.0)
    two.charge(PUBLISH, 150, 0, 0.0)
    owed = [BillItem(one, b"t", 1, 0), BillItem(two, b"u", 1, 0)]
    assert not line.line_up.admits(owed, 0.0) and LINES.waiting(one.counters[0]) == 1
    assert not line.line_up.admits(owed, 500.0)
    assert [LINES.waiting(each.counters[0]) for each in (one, two)] == [0, 1]
    assert line.line_up.admits(owed, 1_000.0) and not LINES.busy(two.counters[0])


def test_a_request_of_several_topics_or_groups_passes_in_a_long_debt() -> None:
    """It waited for the turn that its own first topic had just taken, or took one and was held by another."""
    one, two, line = account(), account("h"), Line()
    for each in (one, two):
        assert Line().produce(each, 5_050, 0.0)
    owed = [BillItem(one, b"t", 10, 0), BillItem(one, b"u", 10, 0), BillItem(two, b"v", 10, 0)]
    assert not line.line_up.admits(owed, 0.0)
    two.split_from_ms = SPLIT_MS + 10
    assert not line.line_up.admits(owed, SPLIT_MS) and line.pauses[-1] == 10.0
    assert line.line_up.admits(owed, SPLIT_MS + 10)
    assert one.split_from_ms == two.split_from_ms == 2 * SPLIT_MS + 10


def test_what_would_be_forgiven_of_several_topics_together_does_not_pass_in_a_debt() -> None:
    """Each by itself would be waited off."""
    one, large = account(), Line()
    assert Line().produce(one, 5_050, 0.0)
    owed = [BillItem(one, topic, 2_500, 0) for topic in (b"t", b"u")]
    assert not large.line_up.admits(owed, 0.0)
    assert not large.line_up.admits(owed, SPLIT_MS) and large.pauses[-1] == 1_000.0
    assert large.line_up.admits(owed, 40_000.0)


def test_in_shadow_nobody_waits() -> None:
    """Neither for a debt nor for others."""
    one, line = account(shadow=True), Line()
    one.charge(PUBLISH, 1_000, 0, 0.0)
    one.charge(DISPATCH, 1_000, 0, 0.0)
    assert line.produce(one, 1, 0.0) and line.fetch(one, 0.0) and line.answer(one, 1, 0.0)
    assert Line().fetch(one, 0.0) and not line.pauses
