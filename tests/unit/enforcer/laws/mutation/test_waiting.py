"""What is remembered of requests and their subjects, how far a balance is off, and every bound."""

from functools import partial
from typing import Any

import pytest
from each_kit import each
from mutation_kit import decision, quota

from enforcer.laws.mutation import waiting as waiting_module
from enforcer.laws.mutation.request import NotBefore, Request
from enforcer.laws.mutation.waiting import LATE_RECORD_MS, REFUSAL_FACTOR, Allowance, PendingRequests


def ask(name: str = "p1-1", **fields: Any) -> Request:
    """A strict request for x and y."""
    default: dict[str, Any] = {
        "id": name, "subject": "user=a", "user": "a", "client_id": "c", "strict": True, "dry_run": False,
        "items": {"x": 5, "y": 3}, "api": "CreateTopics", "api_version": 7,
    }  # fmt: skip
    return Request(**{**default, **fields})


REJECT_Y = {"rejected": frozenset({"y"}), "throttle_time_ms": 100}
ALL = {"x": 5, "y": 3}


@each(
    ("fields", "decided", "executed", "refund", "charge"),
    [
        ({}, {}, ALL, {}, {}),
        ({}, {}, {"x": 5}, {"y": 3}, {}),
        ({}, REJECT_Y, {"x": 5}, {}, {}),
        ({}, REJECT_Y, {}, {"x": 5}, {}),
        # Let through by the time limit, then rejected by a decision that was made in time.
        ({}, REJECT_Y, ALL, {}, {"y": 3}),
        # The default partition count was guessed too high, and too low.
        ({}, {}, {"x": 2, "y": 3}, {"x": 3}, {}),
        ({}, {}, {"x": 9, "y": 3}, {}, {"x": 4}),
        ({"strict": False}, {"throttle_time_ms": 100}, {"x": 5}, {"y": 3}, {}),
        ({"dry_run": True}, {}, {}, {}, {}),
        ({}, {"late": True}, {"x": 5}, {"y": 3}, {}),
        ({"on_late_reject": True}, {"late": True}, {}, {}, {}),
        ({"shadow": True}, REJECT_Y, ALL, {}, {}),
        ({"shadow": True}, REJECT_Y, {"y": 3}, {"x": 5}, {}),
    ],
)
def test_corrections(
    fields: dict[str, Any], decided: dict[str, Any], executed: dict[str, int], refund: dict[str, int],
    charge: dict[str, int],
) -> None:
    """Charged but not done is refunded, done but not charged is charged."""
    request = ask(**fields)
    request.decision = decision(**decided)
    request.executed = executed
    assert request.corrections() == (refund, charge)


def test_nothing_is_corrected_before_both_are_known() -> None:
    """A decision alone, or an execution alone, says nothing."""
    assert ask(decision=decision()).corrections() == ({}, {})
    assert ask(executed={}).corrections() == ({}, {})


def test_a_wait_ends_with_time_and_with_its_quota() -> None:
    """A not-before time holds until it passes or the subject has another quota."""
    waits = NotBefore(2, lambda: 0.0)
    waits.postpone("user=a", 500.0, quota())
    assert waits.until_ms("user=a", quota(), 499.0) == 500.0
    assert waits.until_ms("user=a", quota(rate=2.0), 499.0) is None
    assert waits.until_ms("user=a", quota(), 499.0) is None
    waits.postpone("user=a", 500.0, quota())
    assert waits.until_ms("user=a", quota(), 500.0) is None
    waits.postpone("user=a", 500.0, quota())
    waits.drop("user=a")
    assert waits.until_ms("user=a", quota(), 0.0) is None
    # The newest counts, even if it is shorter; what has passed takes no room.
    for until_ms in (500.0, 300.0):
        waits.postpone("user=a", until_ms, quota())
    assert waits.until_ms("user=a", quota(), 0.0) == 300.0
    waits.expire(300.0)
    assert len(waits) == 0


def test_what_is_given_back_shortens_a_wait_by_as_much() -> None:
    """By what the quota's rate takes to fill it up; nobody waits who did not."""
    waits, slow = NotBefore(2, lambda: 0.0), quota(rate=0.5)
    waits.postpone("user=a", 9_000.0, slow)
    waits.give_back("user=a", 2)
    waits.give_back("user=b", 2)
    assert waits.until_ms("user=a", slow, 0.0) == 5_000.0
    assert len(waits) == 1
    waits.give_back("user=a", 3)
    assert waits.until_ms("user=a", slow, 0.0) is None


def test_subjects_are_bounded() -> None:
    """One subject too many pushes out the oldest, which then simply asks again."""
    waits = NotBefore(2, lambda: 0.0)
    for name in ("user=a", "user=b", "user=c"):
        waits.postpone(name, 500.0, quota())
    assert len(waits) == 2
    assert waits.until_ms("user=a", quota(), 0.0) is None


def test_pending_requests_are_bounded() -> None:
    """One question too many is not taken; an answered one makes room."""
    book = PendingRequests(2)
    assert [book.add(ask(f"p1-{i}")) for i in range(3)] == [True, True, False]
    found = book.decide(decision(id="p1-0"))
    assert found is not None and found.decision is not None
    assert book.decide(decision(id="p1-0")) is None
    assert book.add(ask("p1-3"))


def test_late_requests_are_bounded_and_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answered requests are kept for their decision: so many, so long."""
    monkeypatch.setattr(waiting_module, "LATE_RECORDS_MAX", 2)
    book = PendingRequests(2)
    waiting = ask("p1-0")
    book.add(waiting)
    for request in (waiting, ask("p1-1"), ask("p1-2")):
        book.watch(request)
    assert (book.pending, book.late) == ([], 2)
    assert book.decide(decision(id="p1-0")) is None
    book.expire(LATE_RECORD_MS - 1.0)
    assert book.late == 2
    book.expire(LATE_RECORD_MS)
    assert book.late == 0


def test_late_requests_are_bounded_in_bytes() -> None:
    """Of requests with thousands of long names each, far fewer are kept than their number would allow."""
    book = PendingRequests(2)
    names = {f"{number:0249}": 1 for number in range(2_000)}
    for number in range(100):
        book.watch(ask(f"p1-{number}", items=names))
    assert 30 < book.late < 50
    book.expire(LATE_RECORD_MS)
    assert book.late == 0
    for number in (100, 101):
        book.watch(ask(f"p1-{number}", items=names))
    assert book.late == 2


generous = partial(quota, rate=2.0, burst=20.0)


def test_the_burst_is_the_quotas_and_the_rate_a_multiple() -> None:
    """25 of a burst of 20 leave a debt of 5, 250 ms at 10 times 2 a second; it is not made larger."""
    now = 0.0
    free = Allowance(10, 1, 100, lambda: now)
    assert free.take(generous(), 25) == 0
    assert free.take(generous(), 1_000) == free.wait_ms(generous()) == 250
    assert free.take(generous("user=b"), 1) == 0
    now = 250.0
    assert free.take(generous(), 1) == 0
    free.charge(generous(), 10)
    assert free.wait_ms(generous()) > 0
    # Another quota, another balance.
    assert free.wait_ms(generous(rate=3.0)) == 0


def test_balances_are_bounded() -> None:
    """The one used longest ago goes first."""
    free = Allowance(10, 1, 2, lambda: 0.0)
    for subject in ("a", "b", "c"):
        free.charge(generous(subject), 1_000)
    assert len(free._buckets) == 2
    assert free.wait_ms(generous("c")) > 0 and free.wait_ms(generous("a")) == 0


def test_dry_runs_have_rate_and_burst_of_their_factor() -> None:
    """1,000 times 20 at once, then 1,000 times 2 a second; refusals beside them as before."""
    now, factors = 0.0, ((1_000, 1_000), (REFUSAL_FACTOR, 1))
    dry_runs, refusals = (Allowance(*both, 100, lambda: now) for both in factors)
    assert dry_runs.take(generous(), 20_002) == 0
    assert dry_runs.take(generous(), 1) == 1
    assert refusals.take(generous(), 25) == 0
    assert refusals.take(generous(), 1) == 250
    now = 1.0
    assert dry_runs.take(generous(), 1) == 0
