"""What a proxy remembers of names that clients make up levels off, whatever they are."""

import tracemalloc
from collections.abc import Callable

import pytest
from meter_kit import Desk
from traffic_kit import CLIENT_ID, batch, produce

from enforcer.core import bounds
from enforcer.core.account import PUBLISH

MIB = 2**20
BATCH = batch(1)
POLICIES = {
    "quotas[user=<default>,client-id=<default>]": {"producer_byte_rate": 10**9},
    "resourcegroups.g": {"publishRateInMsgs": 10**9},
    "tenants.acme": {"resourcegroup": "g"},
}


@pytest.mark.parametrize(
    "attack",
    [
        lambda number: (CLIENT_ID, [f"acme.n.{number}".ljust(30_000, "x")]),
        *(pytest.param(one, marks=pytest.mark.soak) for one in (
            lambda number: (f"{number}-".ljust(32_000, "x"), ["t"]),
            # The longest that is kept as it is.
            lambda number: (f"{number}-".ljust(256, "%"), ["t"]),
            # Topics that nobody has, as long as topics may be.
            lambda number: (CLIENT_ID, [f"acme.{number}-{part}.t".ljust(249, "x") for part in range(20)]),
        )),
    ],
)  # fmt: skip
def test_names_that_clients_make_up(
    attack: Callable[[int], tuple[str, list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten times what the tables hold, with reports in between."""
    monkeypatch.setattr(bounds, "TOPICS_MAX", 2_000)
    desk = Desk(POLICIES, subjects_max=100)
    desk.meter.interval_ms = 1_000
    tracemalloc.start()
    taken = []
    for number in range(1_200):
        client_id, topics = attack(number)
        frame, header = produce(9, {topic: [BATCH] for topic in topics}, client_id=client_id)
        desk.frames.produced(frame, header, "ANONYMOUS", []).charge(PUBLISH, desk.now_ms)
        desk.now_ms += 10
        if number % 50 == 49:
            desk.reports.report()
            desk.events.clear()
        if number % 300 == 299:
            taken.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert max(taken) < 3 * MIB and taken[-1] - taken[1] < 0.125 * MIB
