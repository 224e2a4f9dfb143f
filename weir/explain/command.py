"""`weir explain`: why a request was decided as it was (docs/contract.md 4)."""

import argparse
from contextlib import closing
from typing import Final

from streaming.contract.errors import WeirError
from weir.foreground import interruptible
from weir.logs.times import EXPECTED
from weir.options import add, add_cluster_options, add_flag, cluster_of, time_argument

EPILOG: Final = """\
examples:
  weir explain --id p1-42                                 the id that a refusal names
  weir explain --subject user=alice --at -10m             the newest decision before that
  weir explain --subject persistent://acme/orders/t1/sub1 --at now
  weir explain --id p1-42 --decisions decisions.jsonl --events dump.jsonl.gz

Subjects are those of `weir tail`: a quota entity, GROUP/BROKER, TOPIC/SUBSCRIPTION, a partition, a topic.
Exit status: 0 done, 1 nothing was found or the cluster does not answer, 2 bad usage.
"""
DESCRIPTION = (
    "Say what was decided, by which policy and version, with the balance before and after and"
    " the events that led to it: of every law, whether the job or a proxy decided."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    whose = parser.add_mutually_exclusive_group(required=True)
    add(whose, "--id", "of the decision, or of the event that it is for")
    add(whose, "--subject", "of the newest decision before --at")
    add(parser, "--at", f"{EXPECTED} (default now)", metavar="TIME", type=time_argument)
    add_cluster_options(parser)
    files = {"metavar": "FILE", "nargs": "+"}
    add(parser, "--decisions", "files of decisions, in place of a cluster", **files)
    add(parser, "--events", "event files, policies among them, as weir dump writes them", **files)
    add_flag(parser, "--json", "print an object")


def run(args: argparse.Namespace) -> int:
    """Explain it; raises WeirError if nothing is found, or what there is cannot be read."""
    if (args.decisions is None) != (args.events is None):
        args.usage_error("--decisions and --events belong together")
    if args.decisions is not None and (args.kafka or args.settings):
        args.usage_error("files take the place of a cluster: give either")
    if args.at is not None and args.subject is None:
        args.usage_error("--at belongs to --subject")
    # Here and not above: `weir --help` must not load a Kafka client, nor the laws.
    from weir.explain.finding import Explanation, find
    from weir.explain.sources import FileSource, TopicSource
    from weir.explain.words import as_json, lines

    at = time_argument("now") if args.at is None else args.at

    def found() -> Explanation:
        if args.decisions is not None:
            return find(FileSource(args.decisions, args.events), args.id, args.subject, at)
        with closing(TopicSource(cluster_of(args))) as source:
            return find(source, args.id, args.subject, at)

    try:
        told = interruptible(found)
        said = as_json(told) if args.json else "\n".join(lines(told))
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
        # Decisions are the job's, but a file may have been written by hand.
        raise WeirError(f"the decision, or the one before it, cannot be read: {error!r}") from error
    print(said)
    return 0
