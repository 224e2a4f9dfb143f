"""`weir pulsar`: a local Pulsar in the foreground."""

import argparse
from pathlib import Path

from weir.commands.local.serving import serve
from weir.settings import LOCAL_PULSAR_ADMIN_PORT, LOCAL_PULSAR_PORT
from weir.stack.pulsar import HEAP_MB, KEPT, LocalPulsar, prepare


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "pulsar",
        help="run a local Pulsar in the foreground",
        description="Run one standalone Pulsar on the loopback address until Ctrl-C. Its data stay. "
        "The first time its jars are fetched with Maven (231 MB).",
    )
    parser.add_argument(
        "--data", metavar="DIR", type=Path, default=Path(".weir/data/pulsar"), help="default: %(default)s"
    )
    parser.add_argument(
        "--port",
        metavar="N",
        type=int,
        default=LOCAL_PULSAR_PORT,
        help="of the binary protocol; 0 = any free one (default: %(default)s)",
    )
    parser.add_argument(
        "--admin-port",
        metavar="N",
        type=int,
        default=LOCAL_PULSAR_ADMIN_PORT,
        help="of the admin API; 0 = any free one (default: %(default)s)",
    )
    parser.add_argument(
        "--heap", metavar="MIB", type=int, default=HEAP_MB, help="limit of its heap (default: %(default)s)"
    )
    parser.add_argument(
        "--property",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a further setting of the broker, such as transactionCoordinatorEnabled=true",
    )
    parser.add_argument(
        "--ready-file",
        metavar="FILE",
        type=Path,
        help="written as JSON {pulsar, pulsar_admin, pid} when messages pass",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Fetch what is missing, start, wait for a signal, stop; raises WeirError when Pulsar fails."""
    pulsar = LocalPulsar(
        args.data,
        port=args.port,
        admin_port=args.admin_port,
        properties=dict(entry.partition("=")[::2] for entry in args.property),
        heap_mb=args.heap,
    )
    return serve(
        pulsar,
        "Pulsar",
        KEPT,
        ready=lambda: f"pulsar is ready on {pulsar.service}, its admin API on {pulsar.admin}",
        described=lambda: {"pulsar": pulsar.service, "pulsar_admin": pulsar.admin, "pid": pulsar.pids[0]},
        ready_file=args.ready_file,
        prepare=prepare,
    )
