"""What is known of a broker's share, and what it may go by."""

import pytest

from streaming.collect.pulsar import shares as module
from streaming.collect.pulsar.shares import Shares, ShareState

LIMITS = {"publishRateInMsgs": 60.0}


def test_a_share_stands_for_its_life() -> None:
    """Then the job is silent; a newer share goes on."""
    shares = Shares()
    assert shares.standing("g", "b1", 0) is ShareState.NOBODY
    shares.take("g", "b1", LIMITS, 10, ours=True)
    assert [shares.standing("g", "b1", now) for now in (9, 10)] == [ShareState.ACTIVE, ShareState.SILENT]
    shares.take("g", "b1", LIMITS, 20, ours=True)
    assert shares.standing("g", "b1", 10) is ShareState.ACTIVE
    assert shares.limit("g", "b1", "publishRateInMsgs") == 60.0
    assert shares.limit("g", "b1", "publishRateInBytes") is None


@pytest.mark.parametrize("ours", [True, False])
def test_others_may_have_shares(ours: bool) -> None:
    """Brokers of this cluster and any other member alike, as long as theirs live."""
    shares = Shares()
    shares.take("g", "b2", LIMITS, 10, ours=ours)
    assert [shares.standing("g", "b1", now) for now in (9, 10)] == [ShareState.ELSEWHERE, ShareState.NOBODY]


def test_who_is_no_member_any_more_has_none() -> None:
    """It went idle, and may come back."""
    shares = Shares()
    shares.take("g", "b1", LIMITS, 10, ours=True)
    shares.take("g", "b1", None, 20, ours=True)
    assert shares.standing("g", "b1", 0) is ShareState.NOBODY
    assert shares.limit("g", "b1", "publishRateInMsgs") is None


def test_what_is_kept_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond it the one silent longest is forgotten."""
    monkeypatch.setattr(module, "GROUPS_MAX", 2)
    shares = Shares()
    for group in ("g1", "g2", "g3"):
        shares.take(group, "b1", LIMITS, 10, ours=True)
        shares.take(group, "proxy", LIMITS, 10, ours=False)
    states = [shares.standing(group, "b1", 0) for group in ("g1", "g3")]
    assert states == [ShareState.NOBODY, ShareState.ACTIVE]


def test_shares_of_what_pulsar_does_not_know_take_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """With many users of Kafka a group whose shares others have seemed to be our brokers' alone."""
    monkeypatch.setattr(module, "GROUPS_MAX", 2)
    shares = Shares()
    for group in ("g", "quota/a", "quota/b", "inflight/c", "inflight/d"):
        shares.take(group, "proxy", LIMITS, 10, ours=False)
    assert shares.standing("g", "b1", 0) is ShareState.ELSEWHERE
