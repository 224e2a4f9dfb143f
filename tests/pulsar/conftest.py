"""One real Pulsar for the session."""

from collections.abc import Iterator

import pytest
from pulsar_kit import Admin, running_pulsar

from weir.stack.pulsar import LocalPulsar


@pytest.fixture(scope="session")
def pulsar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPulsar]:
    """Standalone, with the broker's defaults: topics are created when they are first used."""
    with running_pulsar(tmp_path_factory.mktemp("pulsar")) as running:
        yield running


@pytest.fixture(scope="session")
def admin(pulsar: LocalPulsar) -> Admin:
    """Its own admin API."""
    return Admin(pulsar.admin)
