"""Where a checkpoint lies: its name says what Spark would take from an old one in place of the settings."""

import re
from typing import Final

from streaming.job.spark.settings import JobSettings

LAYOUT: Final = 8
"""Version of what a checkpoint holds. Raise it, with a line in the changelog, when sources, subscribed
topics, grouping keys, the set or order of the laws, the numbers of `routes`, or what a shard's body holds
change; the new one is filled by reading the topics from their start."""
NAME: Final = re.compile(r"v(\d+)-shards(\d+)-partitions(\d+)(?:-topics(\w+))?", re.ASCII)
"""Its groups: layout, shards, tasks, digest of the topics."""


def checkpoint_path(settings: JobSettings, sources: str = "") -> str:
    """Where this layout keeps its checkpoint.

    What Spark would silently take from an old checkpoint instead of the settings is part of the path. So are
    the topics that are read: the offsets and the state of one that was deleted and made again are of no use
    for the new one, whose first records Spark would pass over.

    Args:
        settings: the section `job:`.
        sources: stands for the topics as they are now, see `query.sources_of`; empty: whichever they are.
    """
    base = settings.checkpoint_dir.rstrip("/")
    path = f"{base}/v{LAYOUT}-shards{settings.shard_count}-partitions{settings.shuffle_partitions}"
    return f"{path}-topics{sources}" if sources else path
