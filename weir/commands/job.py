"""`weir job`: the Spark job alone."""

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from streaming.policy.files import load_policies
from streaming.policy.settings import read_settings
from weir.foreground import forget_ready_file, write_ready_file
from weir.log import log_to_stderr
from weir.options import add, add_cluster_options, add_file, add_part_options, cluster_of
from weir.paths import make_folder
from weir.settings import LocalSettings

if TYPE_CHECKING:
    from streaming.laws.law import CandidatePolicies

CANDIDATES_MAX: Final = 4
"""Each costs the job as much again as the policies in force."""
DESCRIPTION = "Reads events and policies from Kafka, decides and writes decisions, until stopped."


def add_options(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    add_cluster_options(parser)
    add(parser, "--master", "Spark master (default: job.master of the settings)")
    checkpoint = "checkpoints (default: job.checkpoint_dir of the settings)"
    add(parser, "--checkpoint", checkpoint, metavar="DIR")
    add_part_options(parser, "when the query works")
    add_file(parser, "--log-dir", "Spark's own log", metavar="DIR", default=Path(".weir/log"))
    tried = f"policies to try beside those in force, never enforced; may be given {CANDIDATES_MAX} times"
    add_file(parser, "--candidate", tried, action="append", default=[], dest="candidates")


def run(args: argparse.Namespace) -> int:
    """Run the job until SIGINT or SIGTERM; raises WeirError if it cannot start or fails."""
    from streaming.job.process.lease import GONE_S

    forget_ready_file(args.ready_file, args.metrics, GONE_S)
    # Imported here: pyspark and pandas take seconds that `weir job --help` need not wait for.
    from streaming.job.process.service import TOPICS_LIMIT_S, JobOptions, serve
    from streaming.job.spark.settings import JobSettings, local_folder
    from weir.jars.folders import jars_dir
    from weir.stack.topics import ensure_topics

    log_to_stderr("job", times="%H:%M:%S")
    candidates = _candidates(args)
    settings = _overridden(read_settings(JobSettings, "job", args.settings), args)
    local, cluster = read_settings(LocalSettings, "local", args.settings), cluster_of(args, "job")
    make_folder(args.log_dir)
    if (folder := local_folder(settings.checkpoint_dir)) is not None:
        make_folder(folder)
    options = JobOptions(
        cluster=cluster,
        prepare=partial(ensure_topics, cluster, partitions=local.partitions, limit_s=TOPICS_LIMIT_S),
        jars=jars_dir("spark"), work_dir=args.log_dir, metrics=args.metrics,
        announce=partial(write_ready_file, args.ready_file), candidates=candidates,
    )  # fmt: skip
    serve(settings, options)
    return 0


def _candidates(args: argparse.Namespace) -> "tuple[CandidatePolicies, ...]":
    """The policies to be tried; raises ConfigError if they are wrong."""
    from streaming.laws.law import CandidatePolicies
    from streaming.log.reading import as_text

    files: list[Path] = args.candidates
    names = [as_text(file.stem) for file in files]
    if len(files) > CANDIDATES_MAX:
        args.usage_error(f"--candidate: {len(files)} are given; expected at most {CANDIDATES_MAX}")
    if len(set(names)) < len(names):
        args.usage_error("--candidate: two files have one name, which decisions could not tell apart")
    return tuple(
        CandidatePolicies.of(name, load_policies(str(file))) for name, file in zip(names, files, strict=True)
    )


def _overridden(settings: Any, args: argparse.Namespace) -> Any:
    changes = {"master": args.master, "checkpoint_dir": args.checkpoint}
    # An empty word is a variable that is not set, and no folder: the checkpoint lay in the root's.
    return settings.model_copy(update={name: value for name, value in changes.items() if value})
