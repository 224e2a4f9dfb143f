"""A quota that is removed while requests under it are under way (docs/contract.md 3.1)."""

import pytest
from mutation_kit import EPOCH_MS, Desk, asked, decision

from enforcer.core.feeds.peers import Charge


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
