"""`weir admin`: the admin API alone."""

import argparse
import asyncio
import logging
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from streaming.contract.errors import WeirError
from streaming.policy.settings import read_settings
from weir.foreground import host_port, write_ready_file
from weir.log import log_to_stderr
from weir.options import add_cluster_options, cluster_of

if TYPE_CHECKING:
    from enforcer.admin.service import AdminService

DEFAULT_ADMIN = "127.0.0.1:18080"

logger = logging.getLogger("weir.admin")


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "admin",
        help="run the admin API",
        description="Pulsar's REST API for resource groups, for pulsar-admin and others. Without tokens it "
        "answers clients on this machine only.",
    )
    add_cluster_options(parser)
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        type=host_port,
        default=host_port(DEFAULT_ADMIN),
        help=f"port 0: any free one (default {DEFAULT_ADMIN})",
    )
    parser.add_argument(
        "--metrics", metavar="HOST:PORT", type=host_port, help="serve /metrics there; port 0: any"
    )
    parser.add_argument("--tokens", metavar="FILE", help="tokens with roles (default: admin.tokens_file)")
    parser.add_argument(
        "--ready-file", metavar="FILE", type=Path, help="written as JSON when the policies have been read"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run until SIGINT or SIGTERM.

    Raises:
        ConfigError: settings or tokens are wrong.
        WeirError: a port is taken, or a topic of Weir is not as it must be.
    """
    # Imported here: `weir --help` need not wait for FastAPI and librdkafka.
    import uvloop

    from enforcer.admin.service import AdminService, read_grants
    from enforcer.admin.settings import AdminSettings
    from weir.stack.topics import check_topics

    log_to_stderr("admin")
    settings = read_settings(AdminSettings, "admin", args.settings)
    grants = read_grants(args.tokens or settings.tokens_file, settings.tokens_env, os.environ)
    cluster = cluster_of(args)
    check_topics(cluster)

    async def serve() -> None:
        service = AdminService(cluster, settings, grants, args.listen, args.metrics)
        await _serve(service, args.ready_file)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())
    return 0


async def _serve(service: "AdminService", ready_file: Path | None) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    await service.start()
    ends = {loop.create_task(stopping.wait()), loop.create_task(service.ended())}
    read = loop.create_task(service.read.wait())
    try:
        await asyncio.wait({*ends, read}, return_when=asyncio.FIRST_COMPLETED)
        if read.done():
            logger.info("ready on %s", service.url)
            if ready_file is not None:
                write_ready_file(ready_file, _described(service))
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (*ends, read):
            task.cancel()
        await service.stop()
    if not stopping.is_set():
        raise WeirError("the server of the admin API ended by itself")


def _described(service: "AdminService") -> dict[str, object]:
    return {
        "pid": os.getpid(),
        "admin": service.url,
        "metrics": service.metrics_url,
        "tokens": service.has_tokens,
    }
