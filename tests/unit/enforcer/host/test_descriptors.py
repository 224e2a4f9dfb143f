"""How many connections the file descriptors are enough for."""

import logging
import os
import resource

import pytest

from enforcer.host.descriptors import OF_NO_BROKER, PER_ADDRESS, PER_BROKER, Room

OWN = 2 * PER_ADDRESS + OF_NO_BROKER
"""Of our own clients, which begin at two addresses."""


class FakeLimit:
    """The limit of a process, which a test cannot lower for good."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, soft: int, hard: int) -> None:
        self.now = soft, hard
        monkeypatch.setattr(resource, "getrlimit", lambda _which: self.now)
        monkeypatch.setattr(resource, "setrlimit", self._set)
        monkeypatch.setattr(os, "listdir", lambda _path: ["fd"] * 10)

    def _set(self, _which: int, limits: tuple[int, int]) -> None:
        self.now = limits


@pytest.mark.parametrize(
    ("soft", "hard", "raised", "connections"),
    [
        (1_024, 1_000_000, 2_110 + OWN, 1_000), (1_024, resource.RLIM_INFINITY, 2_110 + OWN, 1_000),
        (5_000, 5_000, 5_000, 1_000),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, resource.RLIM_INFINITY, 1_000),
        (1_024, 1_500 + OWN, 1_500 + OWN, 695), (100, 100, 100, 1),
    ],
)
def test_the_limit_is_raised_as_far_as_needed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, soft: int, hard: int, raised: int,
    connections: int,
) -> None:
    """Two a connection, a reserve, our own and those that are open; if that cannot be, it is said."""
    limit = FakeLimit(monkeypatch, soft, hard)
    with caplog.at_level(logging.WARNING):
        room = Room(1_000, 100, 2)
    assert limit.now == (raised, hard) and room.connections(0) == connections
    assert bool(caplog.records) == (connections < 1_000)
    assert not caplog.records or f"raise the hard limit (ulimit -Hn) to {2_110 + OWN}" in caplog.text


def test_brokers_take_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a port, and connections of our own."""
    FakeLimit(monkeypatch, 2_110 + OWN, 2_110 + OWN)
    room = Room(1_000, 100, 2)
    assert room.connections(10) == 1_000 - 10 * PER_BROKER // 2


def test_the_limit_is_raised_for_brokers_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """As they come: with room up to the hard limit each took eleven connections away, 512 more than half."""
    limit = FakeLimit(monkeypatch, 1_024, 1_000_000)
    room = Room(1_000, 100, 2)
    assert (room.connections(10), limit.now[0]) == (1_000, 2_110 + OWN + 10 * PER_BROKER)
