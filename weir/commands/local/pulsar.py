"""`weir pulsar`: a local Pulsar in the foreground."""

import argparse
from pathlib import Path

from weir.commands.local.foreground import add_local_options, serve
from weir.options import add, port_number, whole
from weir.settings import LOCAL_PULSAR_ADMIN_PORT, LOCAL_PULSAR_PORT
from weir.stack.kafka import HOST
from weir.stack.pulsar import HEAP_MB, KEPT, LocalPulsar, prepare

DESCRIPTION = (
    "Run one standalone Pulsar on the loopback address until Ctrl-C. Its data stay. "
    "The first time its jars are fetched with Maven (231 MB)."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    add_local_options(parser, Path(".weir/data/pulsar"), "{pulsar, pulsar_admin, pid} when messages pass")
    number = {"metavar": "N", "type": port_number}
    port = "of the binary protocol; 0 = any free one (default: %(default)s)"
    add(parser, "--port", port, default=LOCAL_PULSAR_PORT, **number)
    admin = "of the admin API; 0 = any free one (default: %(default)s)"
    add(parser, "--admin-port", admin, default=LOCAL_PULSAR_ADMIN_PORT, **number)
    heap = "limit of its heap, MiB (default: %(default)s)"
    add(parser, "--heap", heap, default=HEAP_MB, metavar="N", type=whole(1, 2**31 - 1))
    token = "a superuser's, by which it is asked whether it is ready where it wants logins"
    add(parser, "--token-file", token, default="", metavar="FILE")


def run(args: argparse.Namespace) -> int:
    """Fetch what is missing, start, wait for a signal, stop; raises WeirError when Pulsar fails."""
    # Here and not above: `weir --help` must not load an HTTP client.
    from streaming.collect.pulsar.rest import read_token

    pulsar = LocalPulsar(
        args.data, port=args.port, admin_port=args.admin_port, properties=dict(args.property),
        token=read_token(args.token_file), heap_mb=args.heap,
    )  # fmt: skip
    where = f"{pulsar.service}, its admin API on {pulsar.admin}"
    described = {"pulsar": pulsar.service, "pulsar_admin": pulsar.admin}
    return serve(pulsar, KEPT, (HOST, args.port), args.ready_file, where, described, prepare)
