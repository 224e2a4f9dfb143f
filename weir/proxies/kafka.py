"""The Kafka proxy in the foreground."""

from pathlib import Path

from enforcer.kafka.proxy import KafkaProxy, ProxyConfig
from weir.proxies.serving import run_proxy


def run_kafka_proxy(config: ProxyConfig, ready_file: Path | None) -> None:
    """Run until SIGINT or SIGTERM; raises WeirError if it cannot start."""
    run_proxy(lambda: KafkaProxy(config), ready_file, _brokers)


def _brokers(proxy: KafkaProxy) -> dict[str, object]:
    """Each broker's id, and our address that leads there."""
    return {
        "brokers": {str(node): f"{proxy.listen[0]}:{port}" for node, port in proxy.brokers.ports.items()}
    }
