"""What local decisions keep, fold and forget: every bound, and what is said of that afterwards."""

import pytest
from law_kit import T0, quota
from mutation_kit import INITIAL, SUBJECT, ask, local_of, own, quota_of, state, statement, told

from enforcer.laws.mutation import local_decisions as book_module
from enforcer.laws.mutation.local_decisions import LocalDecisions
from enforcer.laws.mutation.request import Answer
from enforcer.laws.mutation.subject import SAID_MS
from streaming.laws.mutation.statements import LISTED_MS
from streaming.policy.policy_set import PolicySet
from streaming.policy.timeline import MAX_CACHED_SETS, PolicyTimeline


def test_what_a_timeline_forgets_is_settled_before() -> None:
    """Buckets that were full at a change stay full; those full by now go, and long tails are folded."""
    timeline = PolicyTimeline(INITIAL)
    local = LocalDecisions(timeline, subjects_max=10, tail_max=100)
    ask(local, "e1", 0, 12)
    state(local, "e1", 0, 10.0)
    local.stated(statement("user=bob", "b1", T0, 0.0))
    local.stated(statement("user=carol", "c1", T0, -1000.0))
    local.refunded("user=dora", "r1", T0, 1)
    assert len(local._subjects) == 4
    timeline.apply("quotas[user=alice]", quota(2, 100), T0 + 60_000)
    timeline.apply("quotas[user=dora]", quota(2, 100), T0 + 60_000)
    local.sweep(T0 + 61_000)
    timeline.forget_before(T0 + 61_000)
    assert len(local._subjects) == 1
    assert (local.tail, local.counts.folded) == (0, 1)
    assert told(ask(local, "e2", 62_000, 0))[3] == 100.0


def test_changes_for_others_clients_cost_a_subject_no_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more sets than are kept each subject had all made anew, where each is a copy of all entries."""
    timeline, build, made = PolicyTimeline(INITIAL), PolicyTimeline._build, list[int]()
    local = LocalDecisions(timeline, subjects_max=10, tail_max=100)
    ask(local, "e1", 0, 12)
    for number in range(2 * MAX_CACHED_SETS):
        timeline.apply(f"quotas[user=u{number},client-id=<default>]", quota(1), T0 + 1000 + number)

    def counted(self: PolicyTimeline, changes: int) -> PolicySet:
        made.extend([changes] if self is timeline else [])
        return build(self, changes)

    monkeypatch.setattr(PolicyTimeline, "_build", counted)
    assert told(ask(local, "e2", 5000, 1))[3] == 19.0
    assert made == [2 * MAX_CACHED_SETS]


def test_the_tail_has_a_bound() -> None:
    """In events and items of all; the oldest are folded, and statements without them passed over."""
    local = local_of(INITIAL, tail_max=12)
    for number in range(6):
        assert told(ask(local, f"a{number}", number, 1, 1))[0] == "allow"
        ask(local, f"b{number}", number, 1, 1, subject="user=bob")
        assert local.tail <= 12
    assert local.counts.folded == 8
    state(local, "a0", 0, 20.0)
    state(local, "other", 0, 20.0)
    assert local.counts.passed_over == 2
    assert told(ask(local, "d1", 5, 1, dry=True))[3] == pytest.approx(10.01)
    state(local, "a5", 5, 14.0)
    assert local.counts.passed_over == 2
    assert told(ask(local, "d2", 5, 1, dry=True))[3] == 14.0


def test_a_statement_on_which_a_folded_event_says_nothing_any_more_is_taken() -> None:
    """The bucket is full again by then, or it lists what was folded, or what was sent later."""
    for said in (
        statement(SUBJECT, "other", T0 + 60_000, 3.0),
        statement(SUBJECT, "other", T0 + 1, 3.0, ("r0",)),
        statement(SUBJECT, "other", T0 + 1, 3.0, ("r1",)),
    ):
        local = local_of(INITIAL, tail_max=2)
        local.refunded(SUBJECT, "r0", T0, 0)
        ask(local, "e0", 0, 30, subject="user=bob")
        local.stated(statement(SUBJECT, "before", T0, 1.0))
        local = local_of(INITIAL, tail_max=3)
        local.stated(statement(SUBJECT, "before", T0 - 1, 1.0))
        local.refunded(SUBJECT, "r0", T0, 0)
        local.refunded(SUBJECT, "r1", T0, 0)
        assert local.counts.folded == 1
        local.stated(said)
        assert local.counts.passed_over == 0
        assert local.decide(
            quota_of(PolicyTimeline(INITIAL), T0), *own("d", said.at, {"x": 1}, dry=True)
        ) == Answer("allow", (), 0, 3.0, said.at)


def test_a_statement_of_before_is_passed_over_though_what_was_folded_fills_the_bucket() -> None:
    """A refund at its very time made it full; nothing says that refund again."""
    local = local_of(INITIAL, tail_max=3)
    ask(local, "e1", 0, 1)
    local.refunded(SUBJECT, "r1", T0, 1)
    ask(local, "e2", 0, 0)
    assert local.counts.folded == 2
    state(local, "e1", 0, 21.0)
    assert told(ask(local, "d1", 0, 0, dry=True))[3] == 22.0


def test_the_subjects_have_a_bound() -> None:
    """Those with nothing to say leave first; very long names count for more."""
    local = local_of(INITIAL, subjects_max=3)
    for number, tokens in enumerate((-5.0, 22.0, 21.9, -5.0)):
        local.stated(statement(f"user=u{number}", f"e{number}", T0, tokens))
    assert (len(local._subjects), local.counts.forgotten) == (3, 0)
    local.stated(statement("user=u4", "e4", T0 + 1_000, -5.0))
    assert (len(local._subjects), local.counts.forgotten) == (3, 0)
    local.stated(statement("user=u5", "e5", T0 + 1_000, -5.0))
    assert (len(local._subjects), local.counts.forgotten) == (3, 1)
    assert told(ask(local, "d", 1_000, 1, dry=True, subject="user=u3"))[3] == -3.0
    ask(local, "long", 1_000, 1, subject="user=" + "x" * 600)
    assert (len(local._subjects), local.tail) == (1, 2)


def test_the_ids_of_admissions_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of one applied time are known, so many; of older ones none need be."""
    monkeypatch.setattr(book_module, "IDS_MAX", 5)
    local = local_of(INITIAL)
    for number in range(8):
        state(local, f"e{number}", 0, 10.0 - number)
    assert local.counts.unnamed == 3
    state(local, "e0", 0, 10.0)
    assert told(ask(local, "d", 0, 1, dry=True))[3] == 3.0
    state(local, "e8", 1, 2.0)
    assert local.counts.unnamed == 3


def test_a_refund_that_nobody_lists_is_given_once_for_an_hour_at_most() -> None:
    """The job lists it for an hour; else each statement of others would give it again."""
    local = local_of(INITIAL)
    ask(local, "e1", 0, 12)
    state(local, "e1", 0, 10.0)
    local.refunded(SUBJECT, "r1", T0, 5)
    state(local, "o1", SAID_MS, 0.0)
    assert told(ask(local, "d1", SAID_MS, 1, dry=True))[3] == 5.0
    state(local, "o2", SAID_MS + 1, 0.0)
    assert told(ask(local, "d2", SAID_MS + 1, 1, dry=True))[3] == 0.0
    assert SAID_MS > LISTED_MS and local.counts.lost == 0


def test_a_statement_without_a_bucket_is_a_full_one() -> None:
    """Nothing limits, or sampled windows do; and a subject of which nothing is known is full."""
    local = local_of(INITIAL)
    ask(local, "e1", 0, 30)
    state(local, "e1", 0, None)
    assert told(ask(local, "d", 0, 1, dry=True))[3] == 22.0
    local.stated(statement("user=bob", "b", T0, None))
    assert len(local._subjects) == 1
