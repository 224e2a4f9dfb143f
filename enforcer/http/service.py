"""The proxy of an admin API with its own ties to the job."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from prometheus_client import CollectorRegistry

from enforcer.core.control import ControlPlane
from enforcer.core.metrics import Metrics
from enforcer.core.settings import ProxySettings
from enforcer.host.tasks import Tasks
from enforcer.http.filled_answers import Fill
from enforcer.http.metrics import HttpMetrics
from enforcer.http.proxy import HttpProxy
from enforcer.http.settings import HttpSettings
from enforcer.laws.enforcement import Enforcement
from enforcer.laws.mutation.law import MutationQuotas
from enforcer.laws.mutation.mutations import Mutations
from streaming.contract.topics import Cluster

logger = logging.getLogger(__name__)


class HttpService:
    """One enforcer of an HTTP API; made in its event loop, started before it lets clients in.

    Attributes:
        proxy: the application.

    Args:
        enforcer_id: its name in events.
        settings: section `http`, with an upstream.
        deciding: section `proxy`: where and how long requests are decided.
        cluster: where Weir's topics are.
        registry: its metrics become part of it.
        fills: answers of the upstream that are filled in; see Fillings.
        binary_tls: our proxy of Pulsar's binary protocol speaks TLS.
    """

    def __init__(
        self,
        enforcer_id: str,
        settings: HttpSettings,
        deciding: ProxySettings,
        cluster: Cluster,
        registry: CollectorRegistry,
        fills: Mapping[str, Fill],
        *,
        binary_tls: bool = False,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        metrics = Metrics(deciding.metric_subjects, registry)
        # As a proxy's: to another listener where the properties of our own connections name one.
        bootstrap = cluster.client.get("bootstrap.servers", cluster.bootstrap)
        own = replace(cluster, bootstrap=bootstrap)
        control = ControlPlane(enforcer_id, deciding, metrics, own, speaks="http")
        self._enforcement = Enforcement(control, laws=(MutationQuotas,))
        mutations = Mutations(self._enforcement.of(MutationQuotas).coordinator, self._call_later)
        self.proxy = HttpProxy(settings, mutations, HttpMetrics(registry), fills, binary_tls=binary_tls)
        self._tasks = Tasks()

    async def start(self) -> None:
        """Read the policies and what was decided before, for a limited time (`proxy.start_timeout_ms`)."""
        await self._enforcement.start()
        for work in self._enforcement.work():
            self._tasks.spawn(work)

    async def stop(self) -> None:
        """Say what is left to be said, and end."""
        self._tasks.cancel()
        await self.proxy.close()
        await self._enforcement.stop()

    def _call_later(self, delay_ms: float, function: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(delay_ms / 1000, function)
