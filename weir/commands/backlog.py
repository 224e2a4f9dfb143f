"""`weir backlog`: topics by how near they are to their backlog quotas (docs/contract.md 4)."""

import argparse

from weir.options import add, add_cluster_options, add_flag, add_watch, cluster_of, topic_argument, whole

EPILOG = """\
examples:
  weir backlog                                  all topics, the nearest to its quota first
  weir backlog --topic clicks                   persistent://public/default/clicks, all its partitions
  weir backlog --watch 2                        again every 2 s until Ctrl-C
  weir backlog --json | jq '.[] | select(.exceeded != [])'

A line that begins with ! is beyond its quota. Topics are known if somebody reports them: `weir collect kafka`
and `weir collect pulsar`, both parts of `weir up`. Exit status: 0 done, 1 that topic was not reported or the
cluster does not answer, 2 bad usage.
"""
DESCRIPTION = (
    "Show size and age of each topic's backlog beside its quotas, the subscription that holds"
    " most back, what the policies ask for, and what would be evicted."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    add_cluster_options(parser)
    only = "only this one, in short too, and its partitions"
    add(parser, "--topic", only, metavar="T", type=topic_argument)
    rows = whole(1, 2**63 - 1)
    add(parser, "--limit", "rows at most (default: 50; with --json: all)", metavar="N", type=rows)
    add_flag(parser, "--json", "print the decisions as they are, as an array")
    add_watch(parser, 5.0)


def run(args: argparse.Namespace) -> int:
    """Show it once or until a signal; raises WeirError as `view.show` does."""
    # Here and not above: `weir --help` must not load a Kafka client.
    from weir.backlog.view import View, show, watch
    from weir.foreground import StopSignal, unless_interrupted

    view = View(cluster_of(args), args.topic, args.limit, as_json=args.json)
    with unless_interrupted(view.close, quietly=args.watch is not None):
        if args.watch is None:
            show(view)
        else:
            watch(view, args.watch, StopSignal().install())
    return 0
