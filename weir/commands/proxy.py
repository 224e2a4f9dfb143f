"""`weir proxy`: the Kafka proxy alone."""

import argparse
import asyncio
import ctypes
import gc
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from streaming.policy.settings import read_settings
from weir.foreground import host_port, write_ready_file
from weir.log import log_to_stderr
from weir.options import add_cluster_options, cluster_of
from weir.settings import LocalSettings
from weir.stack.workers import WORKERS_MAX, WorkersOptions, run_workers, say_to_stderr

if TYPE_CHECKING:
    from enforcer.core.settings import ProxySettings
    from enforcer.kafka.proxy import KafkaProxy, ProxyConfig

DEFAULT_LISTEN = "127.0.0.1:19092"
# mallopt(3): parameters, and the largest threshold that it takes.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_MAPPED_FROM_BYTES = 32 * 1024 * 1024
_FREE_KEPT_BYTES = 128 * 1024 * 1024


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "proxy",
        help="run the Kafka proxy",
        description="Stands between Kafka clients and the cluster and enforces what the job decides.",
    )
    add_cluster_options(parser)
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        type=host_port,
        default=host_port(DEFAULT_LISTEN),
        help=f"bootstrap address for clients (default {DEFAULT_LISTEN}); brokers get ports of their own",
    )
    parser.add_argument(
        "--advertise", metavar="HOST", help="host that clients are told (default: of --listen)"
    )
    parser.add_argument(
        "--metrics", metavar="HOST:PORT", type=host_port, help="serve /metrics there; port 0: any"
    )
    parser.add_argument(
        "--id", metavar="ID", help="name of this proxy in events (default: host name and port)"
    )
    parser.add_argument(
        "--ready-file", metavar="FILE", type=Path, help="written as JSON when a probe was decided"
    )
    parser.add_argument(
        "--workers",
        metavar="N",
        type=int,
        default=1,
        help="processes that share the port, each a proxy of its own: ids ID-1, ID-2 ..., metrics on ports"
        " that follow each other; one that ends is started again",
    )
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run until SIGINT or SIGTERM; raises WeirError if it cannot start."""
    # Imported here: `weir --help` need not wait for uvloop and librdkafka.
    import uvloop

    from enforcer.core.settings import ProxySettings
    from enforcer.kafka.proxy import ProxyConfig

    log_to_stderr("proxy", logging.INFO)
    cluster = cluster_of(args)
    settings = read_settings(ProxySettings, "proxy", args.settings)
    if not 1 <= args.workers <= WORKERS_MAX:
        print(f"weir proxy: --workers: expected 1 to {WORKERS_MAX}", file=sys.stderr)
        return 2
    if args.workers > 1:
        return _run_workers(args, settings)
    given = {"advertise": args.advertise, "id": args.id}
    settings = settings.model_copy(update={name: value for name, value in given.items() if value})
    try:
        kafka = tuple(host_port(part) for part in cluster.bootstrap.split(","))
    except ValueError as error:
        print(f"weir proxy: --kafka: {error}", file=sys.stderr)
        return 2
    config = ProxyConfig(
        kafka=kafka,
        listen=args.listen,
        metrics=args.metrics,
        topics=cluster.topics,
        connection=cluster.client,
        topics_check_ms=cluster.topics_check_ms,
        settings=settings,
        shared=args.worker,
    )
    _keep_memory()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(config, args.ready_file))
    return 0


def _run_workers(args: argparse.Namespace, settings: "ProxySettings") -> int:
    """As `run`, in several processes; they get what was said here, and then what is their own."""
    given = {"--kafka": args.kafka, "--settings": args.settings, "--advertise": args.advertise}
    options = WorkersOptions(
        count=args.workers,
        words=[word for name, value in given.items() if value for word in (name, value)],
        listen=args.listen,
        metrics=args.metrics,
        proxy_id=args.id or settings.id or None,
        ready_file=args.ready_file,
        stop_s=settings.stop_timeout_ms / 1000,
    )
    return run_workers(options, read_settings(LocalSettings, "local", args.settings), say_to_stderr)


def _keep_memory() -> None:
    """Have glibc use freed memory again instead of giving it back to the kernel.

    A large frame comes in pieces of 256 kB. Each would be mapped anew, and the kernel would clear all its
    pages first: on one busy connection that took two thirds of the proxy's time. Other C libraries are left
    alone.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_MMAP_THRESHOLD, _MAPPED_FROM_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, _FREE_KEPT_BYTES)


async def _serve(config: "ProxyConfig", ready_file: Path | None) -> None:
    from enforcer.kafka.proxy import KafkaProxy

    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    proxy = KafkaProxy(config)
    stopped = loop.create_task(stopping.wait())
    try:
        # Each step may take long while Kafka or the job is away: a stop must not wait for it.
        for step in (proxy.start, proxy.ready.wait):
            working = loop.create_task(step())
            await asyncio.wait((stopped, working), return_when=asyncio.FIRST_COMPLETED)
            if stopped.done():
                working.cancel()
                return
            await working
            # What the start has made stays for good: a full collection would stop all clients for 10 ms.
            gc.collect()
            gc.freeze()
        if ready_file is not None:
            write_ready_file(ready_file, _described(proxy))
        await stopped
    finally:
        await proxy.stop()


def _described(proxy: "KafkaProxy") -> dict[str, object]:
    metrics = proxy.metrics_address
    return {
        "pid": os.getpid(),
        "listen": "{}:{}".format(*proxy.listen),
        "metrics": None if metrics is None else "http://{}:{}/metrics".format(*metrics),
        "brokers": {str(node): f"{proxy.listen[0]}:{port}" for node, port in proxy.brokers.ports.items()},
    }
