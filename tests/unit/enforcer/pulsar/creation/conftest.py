"""Waits are short here."""

import pytest
from creation_kit import Client, Yard

from enforcer.pulsar.creation import creation


@pytest.fixture(autouse=True)
def _soon_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was refused is soon looked at again, and others are soon not waited for."""
    monkeypatch.setattr(creation, "_SURE_AFTER_S", 0.01)
    monkeypatch.setattr(creation, "_PATIENCE_S", 0.1)


@pytest.fixture
def yard() -> Yard:
    """A proxy that decides alone."""
    return Yard()


@pytest.fixture
def client(yard: Yard) -> Client:
    """A client of user a."""
    return Client(yard)
