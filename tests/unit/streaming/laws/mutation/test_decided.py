"""Requests that proxies have decided: charged as they say, and admissions say what proxies go on from."""

from typing import Any, SupportsIndex

import orjson
import pytest
from event_kit import tick
from law_kit import T0, Event, Shard, policy, quota, refund, request

from streaming.laws.mutation import statements
from streaming.laws.mutation.statements import (
    LISTED_BYTES,
    LISTED_MAX,
    LISTED_MS,
    REPEAT_MS,
    SAID_BYTES,
    OrphanRefund,
)

ALICE = "quotas[user=alice]"
BUCKET = {ALICE: quota(5, 100)}
NOTHING = {"outcome": "allow", "rejected": []}
"""The law would have let all pass."""


def told(outcome: str = "allow", *rejected: str, wait_ms: int | None = None) -> dict[str, Any]:
    """What a proxy says that it has decided."""
    wait = (0 if outcome == "allow" else 1000) if wait_ms is None else wait_ms
    said = {"outcome": outcome, "rejected": list(rejected), "throttle_time_ms": wait, "tokens": 1.5}
    return {"decided": said}


def live(initial: dict[str, Any] = BUCKET) -> Shard:
    """A shard of the live job: batches have a time, and what stands is said again."""
    return Shard(initial, replay=False, processed_ts=T0)


def own(event: Event) -> Event:
    return event | {"subject": "user=alice"}


def test_what_the_law_says_too_is_confirmed_without_a_word() -> None:
    """The admission is as if it had been asked."""
    events = [request("a", 0, 60, 60), request("b", 0, 5, strict=True), request("c", 1000, 2, strict=False)]
    said = [told(), told("reject", "b-0", wait_ms=4000), told("throttle", wait_ms=3400)]
    confirmed = Shard(BUCKET).step([event | one for event, one in zip(events, said, strict=True)])
    assert confirmed == Shard(BUCKET).step(events)


@pytest.mark.parametrize(
    ("fields", "said", "tokens", "mutations", "law"),
    [
        ({}, told(), 20.0, 80, None),
        # Rejected though there was a balance: nothing of it is charged.
        ({}, told("reject", "x-0", "x-1"), 100.0, 0, NOTHING),
        ({}, told("reject", "x-1"), 60.0, 40, NOTHING),
        ({"strict": False}, told("throttle"), 20.0, 80, NOTHING),
        ({"validate_only": True}, told(), 100.0, 0, None),
        ({"validate_only": True}, told("reject", "x-0", "x-1"), 100.0, 0, NOTHING),
    ],
)
def test_what_was_decided_stands_whatever_the_law_says(
    fields: dict[str, Any], said: dict[str, Any], tokens: float, mutations: int, law: Any
) -> None:
    """With its outcome, list and time, but the job's own balance; the difference is told."""
    (decision,) = live().step([own(request("x", 0, 40, 40) | fields | said)])
    decided = said["decided"]
    assert {name: decision[name] for name in ("outcome", "rejected", "throttle_time_ms")} == {
        name: decided[name] for name in ("outcome", "rejected", "throttle_time_ms")
    }
    assert (decision["tokens"], decision["mutations"], decision.get("law")) == (tokens, mutations, law)
    assert decision["limit"] == 5.0 and decision["policy_version"] == 1


@pytest.fixture
def shard() -> Shard:
    """Events come as they are."""
    return live()


def test_the_law_goes_on_from_what_was_charged(shard: Shard) -> None:
    """Two proxies admit what one burst holds once; the law would have refused the second."""
    decisions = shard.step([own(request(name, 0, 101) | told()) for name in "ab"])
    assert [decision["tokens"] for decision in decisions] == [-1.0, -102.0]
    assert "law" not in decisions[0]
    assert decisions[1]["law"] == {"outcome": "reject", "rejected": ["b-0"]}
    (asked,) = shard.step([own(request("c", 0, 1))])
    assert (asked["outcome"], asked["throttle_time_ms"]) == ("reject", 20_400)


def test_under_another_quota_than_the_proxy_had() -> None:
    """None at all, or a sampled rate: what was decided stands there too."""
    (free,) = Shard({}, replay=False).step([own(request("x", 0, 40)) | told("reject", "x-0")])
    assert (free["outcome"], free["limit"], free["law"]) == ("reject", None, NOTHING)
    shard = live({ALICE: quota(5, 100, algorithm="sampled_rate")})
    decisions = shard.step([own(request(name, 0, 101) | told()) for name in "ab"])
    assert [decision["outcome"] for decision in decisions] == ["allow", "allow"]
    refused = {"outcome": "reject", "rejected": ["b-0"]}
    assert [decision.get("law") for decision in decisions] == [None, refused]
    assert decisions[1]["rate"] == pytest.approx(10.1)


def test_it_was_not_late_whenever_the_job_gets_to_it() -> None:
    """The job may have been away for an hour."""
    event = own(request("x", 0, 1, deadline_ms=1, on_late="reject") | told())
    (decision,) = live().step([event], processed_ts=T0 + 3_600_000)
    assert (decision["outcome"], decision["tokens"], "late" in decision) == ("allow", 99.0, False)


def test_a_replay_decides_anew_unless_it_is_told_not_to() -> None:
    """As if each had been asked at its own time."""
    events = [request(name, 0, 101) for name in "ab"]
    shard = Shard(BUCKET, as_decided=False)
    assert shard.step([event | told() for event in events]) == Shard(BUCKET).step(events)
    assert Shard(BUCKET).step([event | told() for event in events])[1]["outcome"] == "allow"


def test_an_admission_lists_the_refunds_since_the_one_before() -> None:
    """Of its subject, in the order applied, over batches; an unlimited one lists none."""
    shard = live({**BUCKET, "quotas[user=bob]": quota(1)})

    def given(at_ms: int, name: str, user: str = "alice") -> Event:
        return refund(at_ms, 0, 1, user, name=name) | {"subject": f"user={user}"}

    first = shard.step([own(request("a", 0, 50)), given(1, "r1"), given(2, "r2"), given(2, "q", "bob")])
    assert "refunds" not in first[0]
    decisions = shard.step([given(4, "r4"), given(3, "r3"), own(request("b", 5, 1)), own(request("c", 6, 1))])
    assert [decision.get("refunds") for decision in decisions] == [["r1", "r2", "r3", "r4"], None]
    shard.step([policy(7, ALICE, None), given(8, "none")])
    (free,) = shard.step([own(request("d", 9, 1))])
    assert free["limit"] is None and "refunds" not in free


def test_few_refunds_wait_and_not_for_ever() -> None:
    """The oldest are not listed; after an hour none is, and the row goes."""
    shard = live()
    many = [own(refund(1, 0, 1, name=f"r{number}")) for number in range(LISTED_MAX + 5)]
    (decision,) = shard.step([*many, own(request("a", 2, 1))])
    assert decision["refunds"] == [f"r{number}" for number in range(5, LISTED_MAX + 5)]
    for at, sign in enumerate(("x", "é")):
        rest = sign * ((LISTED_BYTES // 2 - 1) // len(sign.encode()))
        long = [own(refund(3 + at, 0, 1, name=f"{number}{rest}")) for number in range(3)]
        (decision,) = shard.step([*long, own(request(f"b{at}", 3 + at, 1))])
        assert [name[0] for name in decision["refunds"]] == ["1", "2"]
    for shard in (live(), Shard(BUCKET)):
        shard.step([own(request("a", 0, 1)), own(refund(5, 0, 1, name="late"))])
        shard.step([request("x", LISTED_MS, 0, user="bob", subject="user=bob")])
        assert shard.step([own(request("b", 5 + LISTED_MS, 1))])[0]["refunds"] == ["late"]
        shard.step([own(refund(6 + LISTED_MS, 0, 1, name="late"))])
        assert "refunds" not in shard.step([own(request("c", 7 + 2 * LISTED_MS, 1))])[0]


def test_refunds_are_bounded_once_an_admission_and_once_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each looked at the thousand that waited with it."""
    sizes: list[int] = []
    monkeypatch.setattr(statements, "_bound", lambda refunds: sizes.append(len(refunds)))
    refunds = [own(refund(1, 0, 1, name=f"r{number}")) for number in range(5)]
    live().step([*refunds[:3], own(request("a", 1, 1)), *refunds[3:]])
    assert sizes == [3, 2]


def test_refunds_beyond_the_bound_go_together() -> None:
    """Each that goes alone moves all that are left: of a million in one batch that took minutes."""
    alone = list[SupportsIndex]()

    class Refunds(list[OrphanRefund]):
        """Notes what goes alone."""

        def pop(self, index: SupportsIndex = -1, /) -> OrphanRefund:
            alone.append(index)
            return super().pop(index)

    refunds = Refunds(OrphanRefund(0, f"r{number}") for number in range(LISTED_MAX + 5))
    statements._bound(refunds)
    assert not alone and (len(refunds), refunds[0].name) == (LISTED_MAX, "r5")


def test_a_refund_with_a_name_without_end_ends_no_batch() -> None:
    """It is listed by no admission; its subject may leave all the same."""
    shard = live()
    shard.step([own(request("a", 0, 1))])
    shard.step([own(refund(1, 0, 1, name="x" * (LISTED_BYTES + 1)))])
    assert len(shard.step([request("b", LISTED_MS, 1, user="bob", subject="user=bob")])) == 1
    assert "refunds" not in shard.step([own(request("c", LISTED_MS + 1, 1))])[0]


def test_a_subject_that_went_back_in_time_says_when_it_was_applied(shard: Shard) -> None:
    """And so does one of a proxy whose clock is ahead of its record."""
    shard.step([own(request("a", 1000, 1))])
    early, same = shard.step([own(request("b", 500, 1) | told()), own(request("c", 1000, 1))])
    assert (early["ts"], early["applied_ts"]) == (T0 + 500, T0 + 1000)
    assert "applied_ts" not in same


def test_debts_are_said_again_while_they_last(shard: Shard) -> None:
    """Every 30 s, by events and ticks; the same but for `repeat`; paid ones no more."""
    shard.step([own(request("small", 0, 10))])
    (decision,) = shard.step([own(request("a", 0, 450, 1) | told("reject", "a-1"))])
    assert decision["tokens"] == -360.0  # paid after 72 s
    assert shard.step([tick(REPEAT_MS - 1)]) == []
    assert shard.step([tick(REPEAT_MS + 5000)]) == [decision | {"repeat": True}]
    assert shard.step([tick(REPEAT_MS + 11_000)]) == []
    given = own(refund(REPEAT_MS + 12_000, 0, 10, name="r"))
    assert shard.step([given, tick(2 * REPEAT_MS + 5000)]) == [decision | {"repeat": True}]
    assert shard.step([tick(3 * REPEAT_MS + 5000)]) == []
    assert shard.step([tick(9 * REPEAT_MS)]) == []


def test_a_debt_whose_quota_was_removed_is_not_said_again(shard: Shard) -> None:
    """It was for up to six minutes: whoever looked saw somebody in debt without a limit."""
    (decision,) = shard.step([own(request("a", 0, 9000))])
    assert shard.step([tick(REPEAT_MS)]) == [decision | {"repeat": True}]
    (path,) = BUCKET
    assert shard.step([policy(REPEAT_MS + 1, path, None), tick(2 * REPEAT_MS)]) == []


def test_a_long_admission_is_said_again_without_its_names(shard: Shard) -> None:
    """State must not grow with what clients call their topics."""
    items = [{"name": f"{number}-{'x' * SAID_BYTES}", "mutations": 450} for number in range(2)]
    (decision,) = shard.step([own(request("a", 0) | {"items": items})])
    assert len(decision["rejected"]) == 1
    assert shard.step([tick(REPEAT_MS)]) == [decision | {"rejected": [], "repeat": True}]


def test_a_replay_says_nothing_again() -> None:
    """Whoever reads it reads all of it."""
    shard = Shard(BUCKET)
    assert len(shard.step([request("a", 0, 450), tick(REPEAT_MS)])) == 1
    assert shard.step([tick(2 * REPEAT_MS)]) == []


def test_ids_of_refunds_are_any_text() -> None:
    """They come back as they were."""
    name = 'é"\\\n' + "\U0001f600"
    (decision,) = live().step([own(refund(0, 0, 1, name=name)), own(request("a", 0, 1))])
    assert orjson.loads(orjson.dumps(decision))["refunds"] == [name]
    assert statements.waiting_of(statements.waiting_column({1: [statements.OrphanRefund(1, name)]}, 3)) == {
        1: [statements.OrphanRefund(1, name)]
    }
