"""`weir dump`: the events of a stretch of time as a file that replays by itself (docs/contract.md 4)."""

import argparse
import sys
from pathlib import Path

from streaming.contract.printable import printable_lines
from streaming.job.spark.settings import JobSettings
from streaming.policy.settings import read_settings
from weir.logs.times import EXPECTED
from weir.options import add_cluster_options, cluster_of, time_argument
from weir.paths import check_writable


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "dump",
        help="write the topics as event files that replay by themselves",
        description="Write requests, usage and policies of a stretch of time as JSON lines in the order in "
        "which they were applied. Policies are written from the beginning on, since they set the limits.",
    )
    add_cluster_options(parser)
    parser.add_argument(
        "--from", dest="start", default="beginning", type=time_argument, metavar="TIME", help=EXPECTED
    )
    parser.add_argument(
        "--to", dest="end", default="now", type=time_argument, metavar="TIME", help="the same; not included"
    )
    parser.add_argument("--out", required=True, type=Path, metavar="FILE", help="FILE.gz is compressed")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the dump; raises WeirError if the cluster does not answer."""
    # Here and not above: `weir --help` must not load a Kafka client.
    from weir.logs.dump import dump

    job = read_settings(JobSettings, "job", args.settings)
    check_writable(args.out)
    counts = dump(
        cluster_of(args), args.start, args.end, args.out, progress=_say, max_ahead_ms=job.max_ahead_ms
    )
    _say(
        f"wrote {counts.events} events and {counts.policies} policy changes to {args.out}"
        f" ({counts.late} decided late, {counts.not_json} not JSON, {counts.left_out} left out: not one line,"
        f" {counts.ahead} left out: buried as too far ahead)"
    )
    return 0


def _say(text: str) -> None:
    print(printable_lines(f"dump: {text}"), file=sys.stderr, flush=True)
