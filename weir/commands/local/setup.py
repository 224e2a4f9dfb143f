"""`weir setup`: what this machine needs before Weir runs on it."""

import argparse

from streaming.contract.printable import printable_lines
from weir.foreground import StopSignal
from weir.jars.fetching import REPOSITORY
from weir.jars.folders import BY_DEFAULT, OPTIONS, jars_base


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "setup",
        help="fetch the jars and prepare this machine",
        description="Fetches jars, each checked against the SHA-256 that is part of Weir, compiles the laws "
        "and archives Java's classes. Without an option: what `weir up` needs, as --job --kafka; with some, "
        "only those. A machine with proxies, admin API or collector alone needs none. A second time "
        "nothing is done.",
        epilog="The jars go to $WEIR_JARS; without it to .weir/jars of a clone, else to weir/jars in "
        "$XDG_DATA_HOME (~/.local/share). That folder may be copied to machines without a network.",
    )
    parser.add_argument("--job", action="store_true", help="for weir job, replay: Spark's jars, laws")
    parser.add_argument("--kafka", action="store_true", help="for a local cluster: Kafka's jars")
    parser.add_argument(
        "--pulsar", action="store_true", help="for weir pulsar: a broker's, pulsar-admin's jars"
    )
    parser.add_argument(
        "--tools", action="store_true", help="Pulsar's client tools, for soak tests and benchmarks"
    )
    parser.add_argument("--s3a", action="store_true", help="for weir job with a checkpoint on s3a://")
    parser.add_argument(
        "--repository",
        metavar="URL",
        default="",
        help=f"a Maven repository to fetch from, not with Maven (default: ${REPOSITORY} where Maven is not)",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Set up; raises WeirError if something could not be brought."""
    # Here and not above: `weir --help` must not wait for it.
    from weir.stack.setup import set_up

    chosen = [kind for kind, option in OPTIONS.items() if getattr(args, option.removeprefix("--"))]
    stop = StopSignal()
    stop.install()
    did = set_up(chosen or BY_DEFAULT, _say, lambda: stop.requested, args.repository)
    _say(f"{'all is there now' if did else 'all was there already'}: {jars_base()}")
    print("next: weir up")
    return 0


def _say(text: str) -> None:
    print(printable_lines(f"setup: {text}"), flush=True)
