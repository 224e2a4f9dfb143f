"""Where a command's events come from: files, or the topics of a cluster as `weir dump` would write them."""

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from streaming.job.spark.settings import JobSettings
from streaming.policy.settings import read_settings
from weir.log import teller
from weir.options import add, add_stretch, cluster_of, stretch_of

_KAFKA_ONLY: Final = ("start", "end")


def add_events_options(parser: argparse.ArgumentParser) -> None:
    """Add --events, and in its place --from-kafka with --from, --to and --settings."""
    source = parser.add_mutually_exclusive_group(required=True)
    add(source, "--events", "event files (.jsonl, .jsonl.gz, .parquet)", nargs="+", metavar="FILE")
    add(source, "--from-kafka", "the topics of this cluster instead", dest="kafka", metavar="HOST:PORT")
    add_stretch(parser)
    add(parser, "--settings", "settings file: the topics' names and logins, Spark's cluster", metavar="FILE")


@contextmanager
def events_read(args: argparse.Namespace) -> Iterator[list[str]]:
    """The event files to read, gone again afterwards if they were made for it.

    Raises:
        ConfigError: the settings are wrong.
        WeirError: the cluster does not answer, or there is no room.
        SystemExit: options that say something of a cluster, and none is named.
    """
    if args.events is not None:
        if any(getattr(args, name) is not None for name in _KAFKA_ONLY):
            args.usage_error("--from and --to need --from-kafka HOST:PORT")
        if args.settings is not None and getattr(args, "engine", "local") == "local":
            args.usage_error("--settings needs --from-kafka HOST:PORT or --engine spark")
        yield args.events
        return
    # Here and not above: who replays files need not load a Kafka client.
    from streaming.replay import room_near
    from weir.logs.dump import dump

    job = read_settings(JobSettings, "job", args.settings)
    start, end = stretch_of(args)
    # As what a replay keeps: the folder for temporary files is memory in many places.
    with tempfile.TemporaryDirectory(prefix=".weir-events-", dir=room_near(args.out)) as folder:
        file = Path(folder) / "events.jsonl"
        say = teller(args.command)
        counts = dump(cluster_of(args), start, end, file, progress=say, max_ahead_ms=job.max_ahead_ms)
        say(f"read {counts.events} events and {counts.policies} policy changes from {args.kafka}")
        yield [str(file)]
