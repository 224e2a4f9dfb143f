"""What a proxy that starts makes of the topics; a quota that is removed (docs/contract.md 3.1)."""

import pytest
from law_kit import T0, quota
from mutation_kit import (
    EPOCH_MS,
    INITIAL,
    SUBJECT,
    Desk,
    ask,
    asked,
    decision,
    local_of,
    state,
    statement,
    told,
)

from enforcer.core.feeds.peers import Charge
from enforcer.laws.mutation import events
from enforcer.laws.mutation.events import ReadBack
from enforcer.laws.mutation.law import BACK_MAX_MS, BACK_MS, back_ms
from streaming.policy.policy_set import PolicySet


def test_so_far_is_read_back() -> None:
    """As long as an empty bucket takes to be full, one minute to ten; sampled windows do not count."""
    assert back_ms(PolicySet(INITIAL)) == BACK_MS
    assert back_ms(PolicySet(INITIAL | {"quotas[user=<default>]": quota(0.5, 100)})) == 200_000
    assert back_ms(PolicySet({"quotas[user=bob]": quota(0.5, 100, algorithm="sampled_rate")})) == BACK_MS
    assert back_ms(PolicySet({"quotas[user=bob]": quota(1e-300), "broker": {}})) == BACK_MS
    for rate, burst in ((0.01, 500), (1e-300, 1e300)):
        assert back_ms(PolicySet({"quotas[user=bob]": quota(rate, burst)})) == BACK_MAX_MS


def test_what_no_admission_holds_is_in_the_tail() -> None:
    """Whoever sent it, refunds too."""
    local = local_of(INITIAL)
    back = ReadBack(local)
    assert back.newest_ts is None
    back.admission(statement(SUBJECT, "a1", T0, 10.0, ("r0",)))
    assert back.newest_ts == T0
    back.event(Charge(SUBJECT, "r0", T0 - 1, (7,), True))
    back.event(Charge(SUBJECT, "a1", T0, (12,), False))
    back.event(Charge(SUBJECT, "a2", T0, (3, 4), False))
    back.event(Charge(SUBJECT, "b1", T0, (), False))
    back.event(Charge(SUBJECT, "r1", T0, (1,), True))
    assert told(ask(local, "d", 0, 1, dry=True))[3] == 4.0
    state(local, "a2", 0, 3.0)
    assert local.tail > 0


def test_what_stands_there_twice_counts_once() -> None:
    """librdkafka may write an event once more as brokers fall, and the job leaves it out."""
    local = local_of(INITIAL)
    back = ReadBack(local)
    back.admission(statement(SUBJECT, "a1", T0, 10.0))
    for _ in range(2):
        back.event(Charge(SUBJECT, "a2", T0, (3,), False))
    assert told(ask(local, "d", 0, 1, dry=True))[3] == 7.0
    state(local, "a2", 0, 7.0)
    state(local, "d", 0, 7.0)
    assert local.tail == 0


def test_the_ids_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they were let go, what is as old is taken to be held."""
    monkeypatch.setattr(events, "INCLUDED_MAX", 10)
    local = local_of(INITIAL)
    back = ReadBack(local)
    for number in range(11):
        back.admission(statement(SUBJECT, f"a{number}", T0 + number, 10.0))
    for number in range(12):
        back.event(Charge(SUBJECT, f"a{number}", T0 + number, (1,), False))
    assert local.tail == 2


@pytest.mark.parametrize("decide", ["local", "strict"])
def test_what_is_decided_under_no_quota_is_not_awaited_any_more(decide: str) -> None:
    """The quota was removed while it was under way; one of another proxy, and who never had one, aside."""
    desk = Desk()
    desk.stand_alone()
    desk.limit(controller_mutation_rate=1, decide=decide)
    local, others = desk.coordinator.local_decisions, (asked({"y": 1}), asked({"z": 1}))
    request = asked({"x": 2})
    desk.coordinator.report(request, desk.quota)
    if decide == "local":
        desk.coordinator.decide(others[0], desk.quota, lambda _: None, lambda _: None)
    else:
        desk.coordinator.ask(others[0], desk.quota, lambda _: None)
    desk.limit()
    desk.coordinator.report(others[1], None)
    assert local.tail > 0
    for one in (request, *others):
        desk.decide(one, subject="", tokens=None, limit=None)
    assert local.tail == 0


def test_what_was_decided_under_no_quota_is_read_back_as_decided() -> None:
    """By whichever proxy; and of nobody nothing is known."""
    desk = Desk()
    desk.coordinator.take([decision(id="p2-1", proxy="p2", subject="", tokens=None, limit=None)])
    reading = desk.coordinator.reading
    assert reading is not None
    reading.event(Charge("user=a", "p2-1", EPOCH_MS, (5,), False))
    assert (desk.coordinator.local_decisions.tail, len(desk.coordinator.local_decisions._subjects)) == (0, 0)
