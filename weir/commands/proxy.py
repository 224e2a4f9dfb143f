"""`weir proxy`: one proxy alone, of Kafka's protocol or of Pulsar's."""

import argparse
import logging
import sys
from typing import TYPE_CHECKING, Any

from streaming.contract.topics import bare_host
from streaming.policy.settings import read_settings
from weir.foreground import host_port
from weir.log import log_to_stderr, teller
from weir.options import add, add_address, add_cluster_options, add_flag, add_part_options, cluster_of, whole
from weir.settings import DEFAULT_LISTEN, DEFAULT_PULSAR_LISTEN, PORT_MAX
from weir.stack.workers import WORKERS_MAX, run_workers

if TYPE_CHECKING:
    from enforcer.core.settings import ProxySettings
    from enforcer.pulsar.settings import PulsarSettings

DESCRIPTION = (
    "Stands between Kafka clients, or with --pulsar Pulsar clients, and their cluster and"
    " enforces what the job decides."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    add_cluster_options(parser)
    pulsar = "stand before this Pulsar broker instead, or several with commas; --kafka then is the cluster of"
    add(parser, "--pulsar", f"{pulsar} Weir's own topics", metavar="HOST:PORT")
    listen = f"address for clients (default {DEFAULT_LISTEN}, with --pulsar {DEFAULT_PULSAR_LISTEN})"
    add_address(parser, "--listen", f"{listen}; Kafka brokers get ports of their own")
    told = "host that Kafka clients are told (default: of --listen)"
    add(parser, "--advertise", told, metavar="HOST", type=bare_host)
    add_part_options(parser, "when a probe was decided")
    own = "name of this proxy in events, of no other one (default: host name and port)"
    add(parser, "--id", own, metavar="ID")
    workers = (
        "processes that share the port, each a proxy of its own: ids ID-1, ID-2 ..., metrics on ports"
        " that follow each other; one that ends is started again"
    )
    add(parser, "--workers", workers, metavar="N", type=whole(1, WORKERS_MAX), default=1)
    add_flag(parser, "--worker", argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    """Run until SIGINT or SIGTERM; raises WeirError if it cannot start."""
    # Imported here: `weir --help` need not wait for uvloop and librdkafka.
    from enforcer.core.settings import ProxySettings
    from weir.proxy_process import run_proxy

    log_to_stderr("proxy", logging.INFO)
    settings = read_settings(ProxySettings, "proxy", args.settings)
    cluster = cluster_of(args, "proxy")
    try:
        kafka = _addresses(
            cluster.bootstrap, "--kafka" if args.kafka else f"{args.settings}: kafka.bootstrap"
        )
        pulsar = _addresses(args.pulsar.removeprefix("pulsar://"), "--pulsar") if args.pulsar else ()
    except ValueError as error:
        print(f"weir proxy: {error}", file=sys.stderr)
        return 2
    if args.listen is None:
        args.listen = host_port(DEFAULT_PULSAR_LISTEN if args.pulsar else DEFAULT_LISTEN)
    if args.workers > 1:
        if args.pulsar and not _pulsar_settings(args).targets:
            # A client that asked one of them where a topic is may come back to another.
            unknown = "none knows what the others' lookups have named"
            args.usage_error(f"--workers with --pulsar needs pulsar.targets: {unknown}")
        return _run_workers(args, settings)
    given = {"advertise": args.advertise, "id": args.id}
    settings = settings.model_copy(update={name: value for name, value in given.items() if value})
    common: dict[str, Any] = {
        "kafka": kafka, "listen": args.listen, "metrics": args.metrics, "topics": cluster.topics,
        "connection": cluster.client, "topics_kept_ms": cluster.topics_kept_ms, "settings": settings,
        "shared": args.worker,
    }  # fmt: skip
    if pulsar:
        from enforcer.pulsar.proxy import PulsarProxy, PulsarProxyConfig

        # Workers have a folder together, for their ready files.
        sign = args.ready_file.with_name("through") if args.worker and args.ready_file else None
        config = PulsarProxyConfig(pulsar=pulsar, own_settings=_pulsar_settings(args), sign=sign, **common)
        run_proxy(lambda: PulsarProxy(config), args.ready_file)
    else:
        from enforcer.host.server import ProxyConfig
        from enforcer.kafka.proxy import KafkaProxy

        run_proxy(lambda: KafkaProxy(ProxyConfig(**common)), args.ready_file, lambda: _asked(kafka, settings))
    return 0


async def _asked(kafka: tuple[tuple[str, int], ...], settings: "ProxySettings") -> None:
    """Ask the brokers for their age; who waits for a PROXY header is not asked without one."""
    from enforcer.core.security.tls import client_context
    from weir.doctor.checks.visit import refuse_old

    tls = None if settings.upstream_tls is None else client_context(settings.upstream_tls)
    if not settings.upstream_proxy_protocol:
        await refuse_old(kafka, tls)


def _pulsar_settings(args: argparse.Namespace) -> "PulsarSettings":
    from enforcer.pulsar.settings import PulsarSettings

    return read_settings(PulsarSettings, "pulsar", args.settings)


def _addresses(text: str, option: str) -> tuple[tuple[str, int], ...]:
    try:
        return tuple(host_port(part) for part in text.split(","))
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from error


def _run_workers(args: argparse.Namespace, settings: "ProxySettings") -> int:
    """As `run`, in several processes; they get what was said here, and then what is their own."""
    if args.metrics and args.metrics[1] + args.workers - 1 > PORT_MAX:
        args.usage_error(f"--metrics: too few ports behind it for {args.workers} workers")
    given = {f"--{name}": getattr(args, name) for name in ("kafka", "pulsar", "settings", "advertise")}
    words = [word for name, value in given.items() if value for word in (name, value)]
    return run_workers(
        args.workers, words, args.listen, teller("weir proxy"),
        metrics=args.metrics, proxy_id=args.id or settings.id or None, ready_file=args.ready_file,
        stop_s=settings.stop_timeout_ms / 1000,
    )  # fmt: skip
