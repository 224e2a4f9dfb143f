"""What a proxy remembers of names that clients make up levels off, whatever they are."""

import tracemalloc
from collections.abc import Callable

import pytest
from meter_kit import Desk
from traffic_kit import batch, produce

from enforcer.core import bounds
from enforcer.core.account import PUBLISH
from enforcer.wire.kafka.frames import RequestHeader

MIB = 2**20
BATCH = batch(1)
POLICIES = {
    "quotas[user=<default>,client-id=<default>]": {"producer_byte_rate": 10**9},
    "resourcegroups.g": {"publishRateInMsgs": 10**9},
    "tenants.acme": {"resourcegroup": "g"},
}


def by_client_id(number: int) -> tuple[bytes, RequestHeader]:
    """Each request has a client-id of its own, of 32 kB."""
    return produce(9, {"t": [BATCH]}, client_id=f"{number}-".ljust(32_000, "x"))


def by_short_client_id(number: int) -> tuple[bytes, RequestHeader]:
    """The longest that is kept as it is."""
    return produce(9, {"t": [BATCH]}, client_id=f"{number}-".ljust(256, "%"))


def by_topic(number: int) -> tuple[bytes, RequestHeader]:
    """Each names topics that nobody has, as long as topics may be."""
    return produce(9, {f"acme.{number}-{part}.t".ljust(249, "x"): [BATCH] for part in range(20)})


def by_long_topic(number: int) -> tuple[bytes, RequestHeader]:
    """Or much longer."""
    return produce(9, {f"acme.n.{number}".ljust(30_000, "x"): [BATCH]})


@pytest.mark.parametrize(
    "attack",
    [
        by_long_topic,
        *(pytest.param(one, marks=pytest.mark.soak) for one in (by_client_id, by_short_client_id, by_topic)),
    ],
)
def test_names_that_clients_make_up(
    attack: Callable[[int], tuple[bytes, RequestHeader]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten times what the tables hold, with reports in between."""
    monkeypatch.setattr(bounds, "TOPICS_MAX", 2_000)
    desk = Desk(POLICIES, accounts_max=100, subjects_max=100)
    desk.meter.interval_ms = 1_000
    tracemalloc.start()
    taken = []
    for number in range(1_200):
        frame, header = attack(number)
        desk.frames.produced(frame, header, "ANONYMOUS", []).charge(PUBLISH, desk.now_ms)
        desk.now_ms += 10
        if number % 50 == 49:
            desk.reports.report()
            desk.events.clear()
        if number % 300 == 299:
            taken.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert max(taken) < 3 * MIB and taken[-1] - taken[1] < 0.125 * MIB
