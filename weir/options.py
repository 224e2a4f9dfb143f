"""Options that several commands share."""

import argparse
import time

from streaming.contract.topics import Cluster, Topics
from streaming.policy.settings import read_settings
from weir.logs.times import parse_time
from weir.settings import KafkaSettings


def add_cluster_options(parser: argparse.ArgumentParser) -> None:
    """Add --kafka and --settings."""
    parser.add_argument(
        "--kafka", metavar="HOST:PORT", help="the cluster (default: kafka.bootstrap of the settings)"
    )
    parser.add_argument("--settings", metavar="FILE", help="settings file, such as conf/weir.yaml")


def cluster_of(args: argparse.Namespace) -> Cluster:
    """What --kafka and --settings say together; raises ConfigError if the file is wrong."""
    settings = read_settings(KafkaSettings, "kafka", args.settings)
    return Cluster(
        bootstrap=args.kafka or settings.bootstrap,
        topics=Topics(settings.topic_prefix),
        client=settings.client,
        topics_check_ms=settings.topics_check_ms,
    )


def time_argument(text: str) -> int:
    """A TIME on the command line as ms since the epoch; relative ones count back from now."""
    try:
        return parse_time(text, int(time.time() * 1000))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
