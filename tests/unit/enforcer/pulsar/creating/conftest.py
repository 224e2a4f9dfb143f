"""Waits are short here."""

import pytest

from enforcer.pulsar.creating import creation


@pytest.fixture(autouse=True)
def _soon_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was refused is soon looked at again."""
    monkeypatch.setattr(creation, "_SURE_AFTER_S", 0.01)
