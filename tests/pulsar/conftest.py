"""One real Pulsar for the session."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pulsar_backlog_rig import Rig
from pulsar_kit import Admin
from pulsar_proxy_kit import PulsarThread, bare_proxy
from tls_kit import Authority

from weir.stack.pulsar import LocalPulsar


@pytest.fixture(scope="session")
def pulsar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPulsar]:
    """Standalone, with the broker's defaults: topics are created when they are first used. It reads a PROXY
    header where there is one.
    """
    conf = {"haProxyProtocolEnabled": "true"}
    with LocalPulsar(tmp_path_factory.mktemp("pulsar"), properties=conf) as running:
        yield running


@pytest.fixture(scope="session")
def admin(pulsar: LocalPulsar) -> Admin:
    """Its own admin API."""
    return Admin(pulsar.admin)


@pytest.fixture(scope="module")
def proxy(
    request: pytest.FixtureRequest, pulsar: LocalPulsar, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PulsarThread]:
    """A proxy without a job: each limit is all its own. With parameter "tls" that is what clients speak."""
    secured = getattr(request, "param", None) == "tls"
    own = {"tls": Authority(tmp_path_factory.mktemp("ca")).door()} if secured else {}
    with bare_proxy(pulsar.service, own=own, lone=True) as running:
        yield running


@pytest.fixture(scope="module")
def deciding(pulsar: LocalPulsar) -> Iterator[PulsarThread]:
    """A proxy that decides who may create topics."""
    with bare_proxy(pulsar.service, decide="local") as thread:
        yield thread


@pytest.fixture
def rig(pulsar: LocalPulsar) -> Iterator[Rig]:
    """On the Pulsar of the session."""
    with closing(Rig(pulsar.admin)) as made:
        yield made


@pytest.fixture(scope="session")
def rolling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPulsar]:
    """A Pulsar whose ledgers hold ten entries, and which evicts nothing by itself."""
    conf = {
        "managedLedgerMaxEntriesPerLedger": "10",
        "managedLedgerMinLedgerRolloverTimeMinutes": "0",
        "backlogQuotaCheckEnabled": "false",
        "brokerDeleteInactiveTopicsEnabled": "false",
        # It stores a position once a second. One that moved in between is told but not put in order: until
        # the next, or for a minute, it takes a subscription for the oldest that has caught up.
        "managedLedgerDefaultMarkDeleteRateLimit": "1000",
    }
    folder: Path = tmp_path_factory.mktemp("rolling")
    with LocalPulsar(folder, properties=conf) as running:
        yield running


@pytest.fixture
def rolls(rolling: LocalPulsar) -> Iterator[Rig]:
    """On that one."""
    with closing(Rig(rolling.admin)) as made:
        yield made
