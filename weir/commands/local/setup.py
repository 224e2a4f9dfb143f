"""`weir setup`: what this machine needs before Weir runs on it."""

import argparse

from weir.foreground import StopSignal
from weir.jars.folders import BY_DEFAULT, OPTIONS, jars_base
from weir.jars.installation import REPOSITORY
from weir.log import teller
from weir.options import add, add_flag

_say = teller("setup", stdout=True)
DESCRIPTION = (
    "Fetches jars, each checked against the SHA-256 that is part of Weir, compiles the laws "
    "and archives Java's classes. Without an option: what `weir up` needs, as --job --kafka; with some, "
    "only those. A machine with proxies, admin API or collector alone needs none. A second time "
    "nothing is done."
)
EPILOG = (
    "The jars go to $WEIR_JARS; without it to .weir/jars of a clone, else to weir/jars in "
    "$XDG_DATA_HOME (~/.local/share). That folder may be copied to machines without a network."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    add_flag(parser, "--job", "for weir job, replay: Spark's jars, laws")
    add_flag(parser, "--kafka", "for a local cluster: Kafka's jars")
    add_flag(parser, "--pulsar", "for weir pulsar: a broker's, pulsar-admin's jars")
    add_flag(parser, "--tools", "Pulsar's client tools, for soak tests and benchmarks")
    add_flag(parser, "--s3a", "for weir job with a checkpoint on s3a://")
    where = f"a Maven repository to fetch from, not with Maven (default: ${REPOSITORY} where Maven is not)"
    add(parser, "--repository", where, metavar="URL", default="")


def run(args: argparse.Namespace) -> int:
    """Set up; raises WeirError if something could not be brought."""
    # Here and not above: `weir --help` must not wait for it.
    from weir.stack.setup import set_up

    chosen = [kind for kind, option in OPTIONS.items() if getattr(args, option.removeprefix("--"))]
    stop = StopSignal().install()
    did = set_up(chosen or BY_DEFAULT, _say, lambda: stop.asked, args.repository)
    _say(f"{'all is there now' if did else 'all was there already'}: {jars_base()}")
    print("next: weir up")
    return 0
