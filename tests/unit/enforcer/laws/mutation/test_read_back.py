"""What a proxy that starts makes of the topics."""

import pytest
from law_kit import quota
from mutation_kit import SUBJECT, local_of, own, quota_of, statement

from enforcer.core.feeds.peers import Charge
from enforcer.laws.mutation import events
from enforcer.laws.mutation.events import ReadBack
from enforcer.laws.mutation.law import BACK_MAX_MS, BACK_MS, back_ms
from streaming.policy.policy_set import PolicySet
from streaming.policy.timeline import PolicyTimeline

T0 = 1_795_166_700_000
INITIAL = {"quotas[user=alice]": quota(2, 22)}


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
    answer = local.decide(quota_of(PolicyTimeline(INITIAL), T0), *own("d", T0, {"x": 1}, dry=True))
    assert answer is not None and answer.tokens == 4.0
    local.stated(statement(SUBJECT, "a2", T0, 3.0))
    assert local.tail > 0


def test_what_stands_there_twice_counts_once() -> None:
    """librdkafka may write an event once more as brokers fall, and the job leaves it out."""
    local = local_of(INITIAL)
    back = ReadBack(local)
    back.admission(statement(SUBJECT, "a1", T0, 10.0))
    for _ in range(2):
        back.event(Charge(SUBJECT, "a2", T0, (3,), False))
    answer = local.decide(quota_of(PolicyTimeline(INITIAL), T0), *own("d", T0, {"x": 1}, dry=True))
    assert answer is not None and answer.tokens == 7.0
    local.stated(statement(SUBJECT, "a2", T0, 7.0))
    local.stated(statement(SUBJECT, "d", T0, 7.0))
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
