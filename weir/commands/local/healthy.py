"""`weir healthy`: whether a part on this machine is well."""

import argparse
from pathlib import Path

from streaming.contract.errors import WeirError
from weir.options import add, number

_LIMIT_S = 4.0
_MORE_S = 0.5
"""Who is silent until the limit is named."""
DESCRIPTION = (
    "Exit status 0: the part that wrote this ready file runs, and its metrics, or its broker,"
    " answer in time; a line says so if it serves without the job. 1: one line says what is wrong. For"
    " health checks of containers and the like."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    parser.add_argument("ready_file", metavar="FILE", type=Path, help="what the part got as --ready-file")
    limit = number(0, 86_400)
    add(parser, "--limit", "limit, s (default: %(default)s)", metavar="S", type=limit, default=_LIMIT_S)


def run(args: argparse.Namespace) -> int:
    """Ask; raises WeirError if it is not well."""
    # Here and not above: `weir --help` need not load what asks brokers.
    from streaming.kafka_io.threads import Threads
    from weir.health import check_health

    # Who answers byte by byte keeps to the limit of each read.
    asked = Threads().submit(check_health, args.ready_file, args.limit)
    try:
        said = asked.result(args.limit + _MORE_S)
    except TimeoutError:
        raise WeirError(f"{args.ready_file}: not all has answered within {args.limit:g} s") from None
    if said:
        print(said)
    return 0
