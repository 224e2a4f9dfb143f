"""`weir dump`: the events of a stretch of time as a file that replays by itself (docs/contract.md 4)."""

import argparse

from streaming.job.spark.settings import JobSettings
from streaming.policy.settings import read_settings
from weir.foreground import terminated_as_interrupted
from weir.log import teller
from weir.options import add_cluster_options, add_file, add_stretch, cluster_of, stretch_of
from weir.paths import check_writable

_say = teller("dump")
DESCRIPTION = (
    "Write requests, usage and policies of a stretch of time as an event file, in the order in "
    "which they were applied. Policies are written from the beginning on, since they set the limits."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    add_cluster_options(parser)
    add_stretch(parser)
    add_file(parser, "--out", "JSON lines; FILE.gz is compressed, FILE.parquet has columns", required=True)


@terminated_as_interrupted()
def run(args: argparse.Namespace) -> int:
    """Write the dump; raises WeirError if the cluster does not answer."""
    # Here and not above: `weir --help` must not load a Kafka client.
    from weir.logs.dump import dump

    stretch, job = stretch_of(args), read_settings(JobSettings, "job", args.settings)
    check_writable(args.out)
    counts = dump(cluster_of(args), *stretch, args.out, progress=_say, max_ahead_ms=job.max_ahead_ms)
    _say(
        f"wrote {counts.events} events and {counts.policies} policy changes to {args.out}"
        f" ({counts.late} decided late, {counts.not_json} not JSON, {counts.left_out} left out: not one line,"
        f" {counts.ahead} left out: buried, too far ahead or on another topic than their own, {counts.copies}"
        " left out: sent twice)"
    )
    return 0
