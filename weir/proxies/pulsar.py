"""The Pulsar proxy in the foreground."""

from pathlib import Path

from enforcer.pulsar.proxy import PulsarProxy, PulsarProxyConfig
from weir.proxies.serving import run_proxy


def run_pulsar_proxy(config: PulsarProxyConfig, ready_file: Path | None) -> None:
    """Run until SIGINT or SIGTERM; raises WeirError if it cannot start."""
    run_proxy(lambda: PulsarProxy(config), ready_file, lambda proxy: {})
