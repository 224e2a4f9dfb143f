"""`weir admin`: the admin API alone."""

import argparse
import logging
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from streaming.contract.errors import WeirError
from streaming.contract.topics import address_text
from streaming.policy.settings import read_settings
from weir.foreground import forget_ready_file, host_port, http_url, return_memory, write_ready_file
from weir.log import log_to_stderr
from weir.options import add, add_address, add_cluster_options, add_part_options, cluster_of
from weir.settings import DEFAULT_ADMIN
from weir.stopping import run_in_loop, stop_event, unless, until_stopped

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from enforcer.control.parts import Parts
    from enforcer.control.service import AdminService
    from enforcer.core.settings import ProxySettings
    from enforcer.http.service import HttpService
    from enforcer.http.settings import HttpSettings
    from streaming.contract.topics import Cluster

logger = logging.getLogger("weir.admin")

DESCRIPTION = (
    "Limits over Pulsar's REST API, for pulsar-admin and others, all policies and who waits and why over "
    "Weir's own, and the console. Without tokens it answers clients on this machine only. In front of "
    "another admin API it passes on what is not its own, and what changes partitions only within the quotas."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    add_cluster_options(parser)
    listen = f"port 0: any free one (default {DEFAULT_ADMIN})"
    add_address(parser, "--listen", listen, default=host_port(DEFAULT_ADMIN))
    add_part_options(parser, "when the policies have been read")
    add(parser, "--tokens", "tokens with roles (default: admin.tokens_file)", metavar="FILE")
    upstream = "an admin API to stand in front of, such as Pulsar's (default: http.upstream)"
    add(parser, "--upstream", upstream, metavar="URL", type=http_url)
    binary = "proxy of Pulsar's binary protocol that lookups are to name (default: http.binary_address)"
    add_address(parser, "--binary-address", binary)


def run(args: argparse.Namespace) -> int:
    """Run until SIGINT or SIGTERM.

    Raises:
        ConfigError: settings or tokens are wrong.
        WeirError: a port is taken, or a topic of Weir is not as it must be.
    """
    # Imported here: `weir --help` need not wait for FastAPI and librdkafka.
    from enforcer.control.access.tokens import tokens_of
    from enforcer.control.connections import REQUEST_MS
    from enforcer.control.service import AdminService
    from enforcer.control.settings import AdminSettings
    from enforcer.core.settings import ProxySettings
    from enforcer.http.relay.upstream import ANSWER_MS
    from enforcer.http.settings import HttpSettings
    from enforcer.pulsar.settings import PulsarSettings
    from weir.stack.topics import check_topics

    log_to_stderr("admin")
    settings = read_settings(AdminSettings, "admin", args.settings)
    http = read_settings(HttpSettings, "http", args.settings)
    if args.upstream:
        http = http.model_copy(update={"upstream": args.upstream})
    if args.binary_address:
        http = http.model_copy(update={"binary_address": address_text(*args.binary_address)})
    deciding = read_settings(ProxySettings, "proxy", args.settings)
    binary_tls = read_settings(PulsarSettings, "pulsar", args.settings).tls is not None
    tokens = tokens_of(args.tokens or settings.tokens_file, os.environ)
    cluster = cluster_of(args, "admin")
    check_topics(cluster)

    # Others' answers may take longer.
    request_ms = ANSWER_MS + http.wait_ms if http.upstream else REQUEST_MS

    async def serve() -> None:
        fronts: list[HttpService] = []

        def beyond(parts: "Parts") -> "ASGIApp":
            fronts.append(_front(args.listen, http, deciding, cluster, parts, binary_tls))
            return fronts[0].proxy

        made = beyond if http.upstream else None
        service = AdminService(cluster, settings, tokens, args.listen, args.metrics, made, request_ms)
        try:
            await _serve(service, fronts, args)
        finally:
            for front in fronts:
                await front.stop()

    return_memory()
    run_in_loop(serve())
    return 0


def _front(
    listen: tuple[str, int],
    http: "HttpSettings",
    deciding: "ProxySettings",
    cluster: "Cluster",
    parts: "Parts",
    binary_tls: bool,
) -> "HttpService":
    """The proxy of another admin API, which gets what is not ours; Pulsar's answers get what Weir knows."""
    from enforcer.control.backlog.filled_answers import fills
    from enforcer.http.service import HttpService
    from enforcer.http.settings import Table

    # Another one on the same machine has another port; any free one may be another the next time.
    port = listen[1] or f"any-{os.getpid()}"
    name = http.id or f"{socket.gethostname()}-http-{port}"
    filled = fills(parts) if http.table is Table.PULSAR else {}
    registry = parts.metrics.registry
    return HttpService(name, http, deciding, cluster, registry, filled, binary_tls=binary_tls)


async def _serve(service: "AdminService", fronts: "list[HttpService]", args: argparse.Namespace) -> None:
    stop = stop_event()
    # The service listens once all is read, which may take long: who has the port is asked before.
    forget_ready_file(args.ready_file, args.listen)
    for front in fronts:
        # It may take long while Kafka is away: a stop must not wait for it.
        if not await unless(stop, front.start()):
            return
    await service.start()
    try:
        await until_stopped(stop, [_say_ready(service, args.ready_file), _watch_over(service)])
    finally:
        await service.stop()


async def _say_ready(service: "AdminService", ready_file: Path | None) -> None:
    await service.read.wait()
    logger.info("ready on %s", service.url)
    described = {"admin": service.url, "metrics": service.metrics_url, "tokens": service.has_tokens}
    write_ready_file(ready_file, {"pid": os.getpid(), **described})


async def _watch_over(service: "AdminService") -> None:
    await service.ended()
    raise WeirError("the server of the admin API ended by itself")
