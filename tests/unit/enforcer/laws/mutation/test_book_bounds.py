"""What a book keeps, folds and forgets: every bound, and what is said of that afterwards."""

import pytest
from book_kit import INITIAL, T0, ask, state, told
from law_kit import quota
from mutation_kit import SUBJECT, book_of, own, quota_of, statement

from enforcer.laws.mutation import book as book_module
from enforcer.laws.mutation.book import Book
from enforcer.laws.mutation.request import Answer
from enforcer.laws.mutation.subject import SAID_MS
from streaming.laws.mutation.statements import LISTED_MS
from streaming.policy.timeline import PolicyTimeline


def test_what_a_timeline_forgets_is_settled_before() -> None:
    """Buckets that were full at a change stay full; those full by now go, and long tails are folded."""
    timeline = PolicyTimeline(INITIAL)
    book = Book(timeline, subjects_max=10, tail_max=100)
    ask(book, "e1", 0, 12)
    state(book, "e1", 0, 10.0)
    book.stated(statement("user=bob", "b1", T0, 0.0))
    book.stated(statement("user=carol", "c1", T0, -1000.0))
    book.refunded("user=dora", "r1", T0, 1)
    assert book.subjects == 4
    timeline.apply("quotas[user=alice]", quota(2, 100), T0 + 60_000)
    timeline.apply("quotas[user=dora]", quota(2, 100), T0 + 60_000)
    book.sweep(T0 + 61_000)
    timeline.forget_before(T0 + 61_000)
    assert book.subjects == 1
    assert (book.tail, book.counts.folded) == (0, 1)
    assert told(ask(book, "e2", 62_000, 0))[3] == 100.0


def test_the_tail_has_a_bound() -> None:
    """In events and items of all; the oldest are folded, and statements without them passed over."""
    book = book_of(INITIAL, tail_max=12)
    for number in range(6):
        assert told(ask(book, f"a{number}", number, 1, 1))[0] == "allow"
        ask(book, f"b{number}", number, 1, 1, subject="user=bob")
        assert book.tail <= 12
    assert book.counts.folded == 8
    state(book, "a0", 0, 20.0)
    state(book, "other", 0, 20.0)
    assert book.counts.passed_over == 2
    assert told(ask(book, "d1", 5, 1, dry=True))[3] == pytest.approx(10.01)
    state(book, "a5", 5, 14.0)
    assert book.counts.passed_over == 2
    assert told(ask(book, "d2", 5, 1, dry=True))[3] == 14.0


def test_a_statement_on_which_a_folded_event_says_nothing_any_more_is_taken() -> None:
    """The bucket is full again by then, or it lists what was folded, or what was sent later."""
    for said in (
        statement(SUBJECT, "other", T0 + 60_000, 3.0),
        statement(SUBJECT, "other", T0 + 1, 3.0, ("r0",)),
        statement(SUBJECT, "other", T0 + 1, 3.0, ("r1",)),
    ):
        book = book_of(INITIAL, tail_max=2)
        book.refunded(SUBJECT, "r0", T0, 0)
        ask(book, "e0", 0, 30, subject="user=bob")
        book.stated(statement(SUBJECT, "before", T0, 1.0))
        book = book_of(INITIAL, tail_max=3)
        book.stated(statement(SUBJECT, "before", T0 - 1, 1.0))
        book.refunded(SUBJECT, "r0", T0, 0)
        book.refunded(SUBJECT, "r1", T0, 0)
        assert book.counts.folded == 1
        book.stated(said)
        assert book.counts.passed_over == 0
        assert book.decide(
            quota_of(PolicyTimeline(INITIAL), T0), *own("d", said.at, {"x": 1}, dry=True)
        ) == Answer("allow", (), 0, 3.0, said.at, False)


def test_a_statement_of_before_is_passed_over_though_what_was_folded_fills_the_bucket() -> None:
    """A refund at its very time made it full; nothing says that refund again."""
    book = book_of(INITIAL, tail_max=3)
    ask(book, "e1", 0, 1)
    book.refunded(SUBJECT, "r1", T0, 1)
    ask(book, "e2", 0, 0)
    assert book.counts.folded == 2
    state(book, "e1", 0, 21.0)
    assert told(ask(book, "d1", 0, 0, dry=True))[3] == 22.0


def test_the_subjects_have_a_bound() -> None:
    """Those with nothing to say leave first; very long names count for more."""
    book = book_of(INITIAL, subjects_max=3)
    for number, tokens in enumerate((-5.0, 22.0, 21.9, -5.0)):
        book.stated(statement(f"user=u{number}", f"e{number}", T0, tokens))
    assert (book.subjects, book.counts.forgotten) == (3, 0)
    book.stated(statement("user=u4", "e4", T0 + 1_000, -5.0))
    assert (book.subjects, book.counts.forgotten) == (3, 0)
    book.stated(statement("user=u5", "e5", T0 + 1_000, -5.0))
    assert (book.subjects, book.counts.forgotten) == (3, 1)
    assert told(ask(book, "d", 1_000, 1, dry=True, subject="user=u3"))[3] == -3.0
    ask(book, "long", 1_000, 1, subject="user=" + "x" * 600)
    assert (book.subjects, book.tail) == (1, 2)


def test_the_ids_of_admissions_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of one applied time are known, so many; of older ones none need be."""
    monkeypatch.setattr(book_module, "IDS_MAX", 5)
    book = book_of(INITIAL)
    for number in range(8):
        state(book, f"e{number}", 0, 10.0 - number)
    assert book.counts.unnamed == 3
    state(book, "e0", 0, 10.0)
    assert told(ask(book, "d", 0, 1, dry=True))[3] == 3.0
    state(book, "e8", 1, 2.0)
    assert book.counts.unnamed == 3


def test_a_refund_that_nobody_lists_is_given_once_for_an_hour_at_most() -> None:
    """The job lists it for an hour; else each statement of others would give it again."""
    book = book_of(INITIAL)
    ask(book, "e1", 0, 12)
    state(book, "e1", 0, 10.0)
    book.refunded(SUBJECT, "r1", T0, 5)
    state(book, "o1", SAID_MS, 0.0)
    assert told(ask(book, "d1", SAID_MS, 1, dry=True))[3] == 5.0
    state(book, "o2", SAID_MS + 1, 0.0)
    assert told(ask(book, "d2", SAID_MS + 1, 1, dry=True))[3] == 0.0
    assert SAID_MS > LISTED_MS and book.counts.lost == 0


def test_a_statement_without_a_bucket_is_a_full_one() -> None:
    """Nothing limits, or sampled windows do; and a subject of which nothing is known is full."""
    book = book_of(INITIAL)
    ask(book, "e1", 0, 30)
    state(book, "e1", 0, None)
    assert told(ask(book, "d", 0, 1, dry=True))[3] == 22.0
    book.stated(statement("user=bob", "b", T0, None))
    assert book.subjects == 1
