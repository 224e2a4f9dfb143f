"""A Pulsar proxy in a thread of the test, without Weir's topics: what it passes, not what it limits."""

from collections.abc import Mapping
from typing import Any

import pytest
from backlog_kit import decision
from cluster_kit import LOOPBACK, address
from proxy_kit import ProxyThread
from pulsar_kit import Admin, fresh

from benchmarks.kit.lone_proxy import enforce
from enforcer.core.settings import ProxySettings
from enforcer.host.sockets import Address
from enforcer.laws.backlog.blocks import Blocks
from enforcer.laws.concurrency.limits import ConcurrencyLimits
from enforcer.laws.dispatch.dispatch import Dispatch
from enforcer.laws.enforcement import Enforcement
from enforcer.laws.shares.groups import Groups
from enforcer.laws.shares.meter import Meter
from enforcer.pulsar.proxy import PulsarProxy, PulsarProxyConfig
from enforcer.pulsar.settings import PulsarSettings
from weir.stack.kafka import free_port
from weir.stack.pulsar import LocalPulsar

# None is the parameter of tests that name none: these have the same proxy.
BOTH_WAYS, TLS_IN_SOAK = (
    pytest.mark.parametrize(
        "proxy", [pytest.param(None, id="plain"), pytest.param("tls", marks=marks)], indirect=True
    )
    for marks in ([], pytest.mark.soak)
)


class PulsarThread(ProxyThread):
    """A proxy with an event loop in a thread.

    Args:
        lone: all of each limit is its own, though it hears of nobody.
    """

    def __init__(self, config: Any, lone: bool = False) -> None:
        super().__init__(config)
        self._lone = lone

    def _make(self) -> Any:
        proxy = PulsarProxy(self.config)
        if self._lone:
            proxy.enforcement.meter.newcomers.part = lambda _group, _now_ms: 1.0  # type: ignore[method-assign]
        return proxy

    def _meter(self) -> Meter:
        meter: Meter = self.proxy.enforcement.meter
        return meter

    @property
    def way(self) -> dict[str, str]:
        """How `pulsar_kit.client` comes to it; whom to trust says the client_ca of its own settings."""
        tls = self.proxy.pulsar.tls
        if tls is None:
            return {"service": self.bootstrap}
        return {"service": f"pulsar+ssl://{self.bootstrap}", "tls_trust_certs_file_path": tls.client_ca}

    def count(self, name: str, **labels: str) -> float:
        """A metric of its own, `weir_pulsar_...`."""
        return self.sample(f"weir_pulsar_{name}", **labels)

    def set(self, policies: Mapping[str, Any]) -> None:
        """Put these policies in force, as if they had been read; a value of None removes one."""
        self.do(lambda: follow(self.proxy.enforcement, policies))

    def backlog(self, topic: str, size: float) -> None:
        """Let a topic's backlog be so large, as if that had been decided and read."""
        own = self.proxy.enforcement
        self.do(lambda: own.of(Blocks).take([decision(topic, size, ts=own.context.brokers_ms())]))

    def used(self, group: str) -> tuple[int, int]:
        """Messages and bytes that a group published here."""
        account = self.proxy.enforcement.meter.accounts.get(group)
        return (0, 0) if account is None else (account.used[0], account.used[1])


def follow(enforcement: Enforcement, policies: Mapping[str, Any]) -> None:
    """Put policies in force, in the loop of a proxy."""
    enforce(enforcement.context.policies, enforcement.context.brokers_ms(), policies)
    for law in (Groups, Dispatch, ConcurrencyLimits, Blocks):
        enforcement.of(law).look()


def limited(
    proxy: PulsarThread, admin: Admin, limits: Mapping[str, float], **policies: Any
) -> tuple[str, str]:
    """A new namespace in a group of its own with these limits; what its topics begin with, and the group."""
    group = fresh("limited")
    namespace = admin.namespace(f"public/{group}")
    own = {"resourcegroup": group, **policies}
    proxy.set({f"resourcegroups.{group}": limits, f"namespaces.{namespace}": own})
    return f"persistent://{namespace}", group


def joined(company: Any, pulsar: LocalPulsar, name: str) -> PulsarThread:
    """A proxy with this id before a broker that follows an installation (Cluster or Company)."""
    return PulsarThread(
        PulsarProxyConfig(
            pulsar=(address(pulsar.service),), kafka=(address(company.kafka.bootstrap),),
            listen=(LOOPBACK, 0), topics=company.topics, settings=ProxySettings(id=name),
        )
    )  # fmt: skip


def bare(
    service: str, *, own: dict[str, Any] | None = None, listen: Address = (LOOPBACK, 0), **settings: Any
) -> PulsarProxyConfig:
    """A proxy before the broker at HOST:PORT whose Kafka is away, so that nothing is limited.

    Args:
        own: settings of section `pulsar`.
        listen: where it listens.
        settings: of section `proxy`.
    """
    return PulsarProxyConfig(
        pulsar=(address(service),), kafka=((LOOPBACK, free_port()),), connection={"log_level": "0"},
        listen=listen, settings=ProxySettings(start_timeout_ms=0, **settings),
        own_settings=PulsarSettings(**(own or {})),
    )  # fmt: skip


def bare_proxy(service: str, lone: bool = False, **given: Any) -> PulsarThread:
    """The same, to be run."""
    return PulsarThread(bare(service, **given), lone)
