"""In front of Kroxylicious and behind it, admission, byte rates and dispatch limits are felt as without it.

Clients come by TLS and log in by SCRAM, which it passes on. Its jars are fetched: `make soak`.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_fixtures import serving
from cluster_kit import Cluster, fresh
from four_clients import CLIENTS
from proxy_kit import ProxyThread
from tls_kit import Way

from benchmarks.kit.sides import Tls
from benchmarks.peers.kroxylicious import build, kroxylicious
from tests.secure.test_clients import Make, cluster, test_byte_rates, test_dispatch, test_mutations, way

__all__ = ["cluster", "test_byte_rates", "test_dispatch", "test_mutations", "way"]

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module", params=["in front", "behind"])
def doors(
    request: pytest.FixtureRequest, cluster: Cluster, way: Way, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ProxyThread, str]]:
    """Weir, in front of Kroxylicious or behind it; and where clients go."""
    build()
    folder = tmp_path_factory.mktemp("kroxylicious")
    if request.param == "in front":
        with (
            kroxylicious(cluster.kafka.sasl_bootstrap, folder) as (_, peer),
            serving(cluster, id=fresh("front"), kafka=peer, **way.settings) as proxy,
        ):
            yield proxy, proxy.bootstrap
        return
    own = way.settings["tls"]
    tls = Tls(ca=own.client_ca, certificate=own.certificate, key=own.key, broker="", client=Path())
    with (
        serving(cluster, id=fresh("behind"), **way.settings) as proxy,
        kroxylicious(proxy.bootstrap, folder, tls) as (_, peer),
    ):
        yield proxy, peer


@pytest.fixture
def proxy(doors: tuple[ProxyThread, str]) -> ProxyThread:
    """Which decides."""
    return doors[0]


@pytest.fixture(params=["c", "python", "java"])
def client(request: pytest.FixtureRequest, doors: tuple[ProxyThread, str], way: Way, tmp_path: Path) -> Make:
    """Makes clients of one kind before whichever stands in front."""
    return lambda _: CLIENTS[request.param](way, doors[1], fresh(request.param), tmp_path)
