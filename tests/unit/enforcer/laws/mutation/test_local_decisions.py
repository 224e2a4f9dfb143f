"""What local decisions do step by step: statements, parts, questions."""

from typing import Any

import orjson
import pytest
from law_kit import T0, quota
from mutation_kit import INITIAL, SUBJECT, ask, own, quota_of, state, told

from enforcer.laws.mutation import subject as subject_module
from enforcer.laws.mutation.local_decisions import QUESTION_EVERY_MS, LocalDecisions
from enforcer.laws.mutation.subject import CREDIT, LOST_MS, SHORT, take
from streaming.contract.client_answer import decided_of
from streaming.policy.timeline import PolicyTimeline


@pytest.fixture
def walked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids of the events that a balance was taken through again."""
    ids: list[str] = []

    def counted(balance: Any, sent: Any, *about: Any) -> None:
        ids.append(sent.id)
        take(balance, sent, *about)

    monkeypatch.setattr(subject_module, "take", counted)
    return ids


@pytest.fixture
def timeline() -> PolicyTimeline:
    """What is in force."""
    return PolicyTimeline(INITIAL)


@pytest.fixture
def local(timeline: PolicyTimeline) -> LocalDecisions:
    """Nothing has been asked yet."""
    return LocalDecisions(timeline, subjects_max=1_000, tail_max=100_000)


def test_a_request_is_answered_as_the_law_does(local: LocalDecisions) -> None:
    """Items in order, the wait, what its event says."""
    assert told(ask(local, "e1", 0, 20, 5, 1)) == ("reject", ("t2",), 1500, -3.0)
    assert told(ask(local, "e2", 1_000, 1, strict=False)) == ("throttle", (), 1000, -2.0)
    assert told(ask(local, "e3", 1_000, 1, dry=True)) == ("reject", ("t0",), 1000, -2.0)
    answer = ask(local, "e4", 3_000, 1)
    assert answer is not None
    assert answer.decided() == {"outcome": "allow", "rejected": [], "throttle_time_ms": 0, "tokens": 1.0}


def test_it_says_without_moving_anything_when_a_dry_run_is_surely_admitted(local: LocalDecisions) -> None:
    """Not in debt; nor where the balance has to be walked again, or time may have paid it."""
    assert local.surely_admits(SUBJECT)
    ask(local, "e1", 0, 22)
    assert local.surely_admits(SUBJECT)
    ask(local, "e2", 0, 1)
    assert not local.surely_admits(SUBJECT)
    assert told(ask(local, "d", 10_000, 1, dry=True))[0] == "allow"
    assert local.surely_admits(SUBJECT)
    state(local, "e2", 0, -50.0)
    assert not local.surely_admits(SUBJECT)
    ask(local, "d2", 40_000, 1, dry=True)
    assert local.surely_admits(SUBJECT)
    local.set_proxies(2)
    assert not local.surely_admits(SUBJECT)


def test_time_never_goes_back_within_a_subject(local: LocalDecisions) -> None:
    """An event carries no time before the subject's last one, a refund neither."""
    ask(local, "e1", 1_000, 30)
    answer = ask(local, "e2", 0, 1)
    assert answer is not None and answer.ts == T0 + 1_000
    assert local.refunded(SUBJECT, "r", T0, 30) == T0 + 1_000
    assert told(ask(local, "e3", 0, 1)) == ("allow", (), 0, 21.0)


def test_a_foreign_statement_counts_with_the_own_tail(local: LocalDecisions) -> None:
    """What others took, and what of ours it does not hold yet; what was read already is passed over."""
    ask(local, "e1", 0, 10)
    state(local, "other1", 0, 2.0)
    assert told(ask(local, "e2", 0, 1)) == ("reject", ("t0",), 4_000, -8.0)
    state(local, "e1", 0, -8.0)
    state(local, "other1", 0, 2.0)
    state(local, "before", -1, 22.0)
    assert told(ask(local, "e4", 0, 1, dry=True))[3] == -8.0


def test_an_event_older_than_the_statement_is_applied_at_its_time(local: LocalDecisions) -> None:
    """A subject's time never goes back."""
    ask(local, "e1", 0, 12)
    state(local, "other", 5_000, 5.0)
    assert told(ask(local, "d", 5_000, 1, dry=True))[3] == -7.0


def test_a_policy_that_is_read_late_moves_the_walk(timeline: PolicyTimeline, local: LocalDecisions) -> None:
    """What was walked by the one before it is walked again."""
    ask(local, "e1", 0, 12)
    assert told(ask(local, "d1", 1_000, 1, dry=True))[3] == 12.0
    timeline.apply("quotas[user=alice]", quota(4, 22), T0)
    local.policies_changed(T0)
    assert told(ask(local, "d2", 1_000, 1, dry=True))[3] == 14.0


def test_a_request_is_decided_under_what_is_in_force(timeline: PolicyTimeline, local: LocalDecisions) -> None:
    """Its topics were looked up meanwhile: a raised burst is not full, the wait is of the new rate, and where
    the quota is gone the job can read what was decided.
    """

    def change(value: Any, at_ms: int) -> None:
        timeline.apply("quotas[user=<default>]", value, T0 + at_ms)
        local.policies_changed(T0 + at_ms)

    ask(local, "e1", 0, 22)
    change(quota(100, 1_000), 1)
    assert told(ask(local, "e2", 1_000, 1))[3] == 99.0
    assert told(ask(local, "e3", 1_000, 100, 1)) == ("reject", ("t1",), 10, -1.0)
    change(None, 2_000)
    answer = ask(local, "e4", 2_000, 30, 1)
    assert answer is not None
    said = orjson.loads(orjson.dumps(answer.decided()))
    assert decided_of({"decided": said}, ["t0", "t1"]) is not None
    assert told(answer) == ("allow", (), 0, 22.0)


def test_a_refund_is_in_the_tail_until_it_is_listed(local: LocalDecisions) -> None:
    """By whatever admission lists it."""
    ask(local, "e1", 0, 30)
    local.refunded(SUBJECT, "r1", T0, 5)
    state(local, "e1", 0, -8.0)
    assert told(ask(local, "e2", 0, 1, dry=True))[3] == -3.0
    state(local, "other", 0, -3.0, "r1")
    assert told(ask(local, "e3", 0, 1, dry=True))[3] == -3.0


def test_a_statement_that_agrees_costs_no_walk(local: LocalDecisions, walked: list[str]) -> None:
    """A lone proxy's job comes back after long."""
    answers = [ask(local, f"e{number}", number, 1, 1) for number in range(5_000)]
    for number, answer in enumerate(answers):
        assert answer is not None
        state(local, f"e{number}", number, answer.tokens)
        if number % 50 == 0:
            ask(local, f"more{number}", 5_000, 1)
    assert walked == []
    assert local.counts.lost == 0


def test_many_statements_cost_each_the_same(local: LocalDecisions, walked: list[str]) -> None:
    """Of two proxies' subject every statement begins the walk anew, but not before it is paid for."""
    local.set_proxies(2)
    count = 3_000
    for number in range(count):
        ask(local, f"e{number}", number, 1, strict=False)
    for number in range(count):
        state(local, f"e{number}", number, 5.0)
        ask(local, f"more{number}", count, 1, strict=False)
    assert 0 < len(walked) <= 2 * CREDIT * (2 * count) + SHORT


def test_each_of_several_has_its_part(local: LocalDecisions) -> None:
    """At once while the part lasts, else the whole request is asked, and those after it until the answer."""
    local.set_proxies(2)
    assert told(ask(local, "e1", 0, 11)) == ("allow", (), 0, 11.0)
    assert told(ask(local, "e2", 0, 1)) == ("allow", (), 0, 10.0)
    assert ask(local, "q1", 0, 0, 1) is None
    assert ask(local, "q2", 0, 40) is None
    assert ask(local, "q3", 0, 1) is None
    assert told(ask(local, "d", 0, 1, dry=True))[0] == "reject"
    assert told(ask(local, "p", 0, 1, strict=False))[0] == "throttle"
    state(local, "e1", 0, 11.0)
    state(local, "e2", 0, 10.0)
    assert ask(local, "q4", 0, 1) is None
    for name, tokens in (("q1", 9.0), ("q2", -31.0), ("q3", -31.0), ("p", -32.0), ("q4", -32.0)):
        state(local, name, 0, tokens)
    assert told(ask(local, "e3", 0, 1)) == ("reject", ("t0",), 16_000, -32.0)


def test_a_new_statement_and_a_new_number_begin_the_part_anew(local: LocalDecisions) -> None:
    """Its share of what the statement leaves."""
    local.set_proxies(2)
    ask(local, "e1", 0, 12)
    state(local, "e1", 0, 10.0)
    assert told(ask(local, "e2", 0, 5, 1)) == ("allow", (), 0, 4.0)
    local.set_proxies(1)
    assert told(ask(local, "e3", 0, 1))[0] == "allow"
    local.set_proxies(8)
    assert ask(local, "e4", 0, 1) is None
    assert local.proxies == 8


def test_after_an_unanswered_question_one_every_five_seconds(local: LocalDecisions) -> None:
    """What lies between is refused, item by item, and said to be so; an answer ends it."""
    local.set_proxies(2)
    ask(local, "e1", 0, 12)
    assert ask(local, "q1", 0, 1) is None
    local.unanswered(SUBJECT, "q1")
    refused = ask(local, "e2", 100, 1)
    assert refused is not None and local.counts.between == 1
    # The part is back at 0 sooner than the next question is due.
    assert told(refused) == ("reject", ("t0",), 900, 10.2)
    assert told(ask(local, "e3", 1_000, 1, 1)) == ("reject", ("t1",), 1_000, 11.0)
    assert told(ask(local, "p", 1_000, 4, strict=False)) == ("allow", (), 0, 7.0)
    assert told(ask(local, "e4", 1_000, 1))[2] == QUESTION_EVERY_MS - 1_000
    assert local.counts.between == 3
    assert ask(local, "q2", QUESTION_EVERY_MS, 9, 9) is None
    assert told(ask(local, "e5", QUESTION_EVERY_MS, 1))[0] == "reject"
    state(local, "q2", QUESTION_EVERY_MS, -3.0)
    assert told(ask(local, "e6", 6_000, 1))[0] == "reject"
    assert ask(local, "q3", 7_000, 1, 9, 1) is None


def test_a_question_that_is_open_is_the_only_one(local: LocalDecisions) -> None:
    """However long it stays without an answer, once one was not answered."""
    local.set_proxies(2)
    local.blind = True
    assert ask(local, "q1", 0, 1) is None
    local.unanswered(SUBJECT, "q1")
    assert ask(local, "q2", QUESTION_EVERY_MS, 1) is None
    assert told(ask(local, "e1", 2 * QUESTION_EVERY_MS, 1))[:3] == ("reject", ("t0",), 1)


def test_who_is_blind_asks_and_then_refuses(local: LocalDecisions) -> None:
    """Nothing is admitted at once beside others; alone it makes no difference."""
    local.blind = True
    assert told(ask(local, "e1", 0, 1))[0] == "allow"
    local.set_proxies(2)
    assert ask(local, "q1", 0, 1) is None
    local.unanswered(SUBJECT, "q1")
    assert told(ask(local, "e2", 0, 1))[:3] == ("reject", ("t0",), QUESTION_EVERY_MS)
    assert told(ask(local, "e3", 0, 1, dry=True))[0] == "allow"
    local.blind = False
    assert told(ask(local, "e4", 0, 1))[0] == "allow"


def test_unanswered_and_withdrawn_events_are_not_charged(local: LocalDecisions) -> None:
    """Of a question the job knows it, of the others nobody will hear; unknown ones are nobody's."""
    local.set_proxies(2)
    ask(local, "e1", 0, 12)
    assert ask(local, "q1", 0, 5) is None
    assert told(ask(local, "d1", 0, 1, dry=True))[3] == 5.0
    local.unanswered(SUBJECT, "q1")
    assert told(ask(local, "d2", 0, 1, dry=True))[3] == 10.0
    local.withdraw(SUBJECT, "e1")
    assert told(ask(local, "d3", 0, 1, dry=True))[3] == 22.0
    for subject in (SUBJECT, "user=nobody"):
        local.unanswered(subject, "unknown")
        local.withdraw(subject, "unknown")


def test_what_was_sent_before_a_decided_event_is_decided_or_lost(local: LocalDecisions) -> None:
    """Questions carry no time, and may be decided after it, but not much later."""
    quota_now = quota_of(PolicyTimeline(INITIAL), T0)
    ask(local, "e1", 0, 1)
    local.asked(*own("s1", T0, {"x": 2}))
    local.asked(*own("s2", T0, {"x": 50}, dry=True))
    ask(local, "e2", 0, 4)
    state(local, "e2", 0, 18.0)
    assert told(ask(local, "d1", 0, 1, dry=True))[3] == 16.0
    assert local.counts.lost == 1
    assert local.decide(quota_now, *own("e3", T0 + LOST_MS, {"x": 1}))
    state(local, "e3", LOST_MS, 21.0)
    assert local.counts.lost == 4
    assert local.tail == 0


def test_a_full_statement_stays_full_as_the_burst_is_raised(
    timeline: PolicyTimeline, local: LocalDecisions
) -> None:
    """Whatever raised it, and whenever that was read."""
    raised = quota(2, 100)
    assert told(ask(local, "e1", 0, 1))[3] == 21.0
    state(local, "e1", 0, 21.0)
    assert told(ask(local, "e2", 500, 0))[3] == 22.0
    state(local, "e2", 500, 22.0)
    assert told(ask(local, "e3", 500, 0))[3] == 22.0
    timeline.apply("quotas[user=alice]", raised, T0 + 500)
    local.policies_changed(T0 + 500)
    assert told(ask(local, "e4", 600, 0))[3] == 100.0
