"""`weir top`: who uses most of its limit, waits or is refused, over all laws (docs/contract.md 4)."""

import argparse
from typing import Final

from weir.options import add, add_cluster_options, add_flag, add_watch, cluster_of, whole

_BY: Final = ("used", "wait", "refused")
EPILOG: Final = """\
examples:
  weir top                                who is nearest to its limit, or over it
  weir top --by wait --watch              who waits longest, again every 2 s until Ctrl-C
  weir top --name persistent://acme/      the topics of one tenant
  weir top --json | jq '.[] | select(.waiting_ms > 0) | .entity'

Reads the last ten minutes of Weir's topics; no other part of it need run. The same list as
GET /weir/v1/entities of `weir admin` (docs/admin_api.md). `weir explain` says more of one of them.
"""
DESCRIPTION = (
    "Show the entities of all laws: what they use beside their limit, whether they wait or"
    " are refused and since when, and the policy that says so."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    add_cluster_options(parser)
    add(parser, "--by", "what to sort by (default: used)", choices=_BY, default=_BY[0])
    add(parser, "--limit", "rows at most (default: 50)", metavar="N", type=whole(1, 100_000), default=50)
    add(parser, "--name", "only entities whose name has this in it", metavar="TEXT", default="")
    add_flag(parser, "--json", "print an array of objects")
    add_watch(parser, 2.0)


def run(args: argparse.Namespace) -> int:
    """Show it once or until a signal; raises WeirError: the cluster does not answer or has no such topics."""
    # Here and not above: `weir --help` must not load a Kafka client.
    from weir.foreground import StopSignal, unless_interrupted
    from weir.top.screen import RecentPast, show, watch

    asked = {"by": args.by, "name": args.name, "limit": args.limit}
    past = RecentPast(cluster_of(args))
    with unless_interrupted(past.close, quietly=args.watch is not None):
        if args.watch is None:
            show(past, asked, as_json=args.json)
        else:
            watch(past, asked, args.watch, StopSignal().install(), as_json=args.json)
    return 0
