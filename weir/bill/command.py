"""`weir bill`: what each tenant used, to be shown or charged to it (docs/contract.md 4)."""

import argparse
import sys

from weir.foreground import interruptible
from weir.options import add, add_cluster_options, add_stretch, cluster_of, stretch_of

DESCRIPTION = (
    "Add up a stretch of the log, a line a tenant. Bytes are those of users and resource"
    " groups with a rate, storage that of topics whose backlog is reported."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    add_cluster_options(parser)
    add_stretch(parser, required=True)
    form = parser.add_mutually_exclusive_group()
    for name in ("csv", "json"):
        kept = {"dest": "form", "action": "store_const", "const": name}
        add(form, f"--{name}", f"as {name.upper()}", default="table", **kept)


def run(args: argparse.Namespace) -> int:
    """Print the bill; raises WeirError if the cluster does not answer."""
    # Here and not above: `weir --help` must not load a Kafka client, nor the laws.
    from streaming.job.spark.settings import JobSettings
    from streaming.policy.settings import read_settings
    from weir.bill.adding import bill, lines

    job, stretch = read_settings(JobSettings, "job", args.settings), stretch_of(args)
    added = interruptible(lambda: bill(cluster_of(args), *stretch, job.max_ahead_ms))
    print("\n".join(lines(added.rows(), args.form)))
    if added.bad:
        print(f"weir: {added.bad} records could not be used, as the job's dead letters tell", file=sys.stderr)
    return 0
