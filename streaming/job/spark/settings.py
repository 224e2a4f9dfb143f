"""Settings of the Spark job: section `job:` of weir.yaml."""

from enum import Enum
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import unquote, urlsplit

from pydantic import Field

from streaming.contract.events import MAX_AHEAD_MS
from streaming.policy.secrets import OpenText, SecretText
from streaming.policy.settings import Settings, setting
from streaming.policy.validation import expected


class Profile(Enum):
    """What the query is tuned for."""

    LATENCY = "latency"
    THROUGHPUT = "throughput"


class JobSettings(Settings):
    """How the streaming query runs; the defaults have the lowest latency on two cores."""

    master: str = setting(
        "local[*]", "Spark master: local[N], spark://HOST:PORT, yarn, k8s://...; --master wins over it"
    )
    profile: Profile = setting(
        Profile.LATENCY,
        "latency: small batches without code generation; throughput: large batches with it",
    )
    shards: int = setting(
        0,
        "state rows per law; 0: as many as shuffle partitions; another number starts a new checkpoint",
        minimum=0,
        maximum=4096,
    )
    shuffle_partitions: int = setting(
        1,
        "tasks of the stateful stage, for throughput one per core; another number starts a new checkpoint",
        minimum=1,
        maximum=4096,
    )
    tick_interval_ms: int = setting(
        10_000,
        "longest time between two ticks, ms; rounds shorter than it have one each, down to 1 s",
        minimum=1000,
        maximum=15_000,
    )
    max_events_per_batch: int = setting(
        500_000,
        "records of requests read in one batch, for catching up; a packed one counts once",
        minimum=1,
    )
    max_usage_per_batch: int = setting(
        20_000,
        "usage records read in one batch; a proxy's may have 512 KiB each, and a "
        "batch must fit into memory",
        minimum=1,
    )
    pack_decisions: bool = setting(
        True, "many decisions of a batch leave as packed records; false: each one as JSON, for any Kafka tool"
    )
    max_ahead_ms: int = setting(
        MAX_AHEAD_MS,
        "how far the time in an event may lie after its record's time, ms; what is beyond is dead-lettered, "
        "since one wrong clock would move the time of others",
        minimum=0,
    )
    checkpoint_dir: Annotated[str, Field(min_length=1), expected("a folder or a URI")] = setting(
        ".weir/checkpoint",
        "folder or URI of checkpoints that driver and executors share; --checkpoint wins over it",
    )
    segment_cache_dir: str = setting(
        "",
        "folder on each machine for segments of hdfs:// and s3a:// checkpoints, which are fetched once and "
        "mapped; empty: weir-segments-UID in the folder for temporary files",
    )
    segment_cache_mb: int = setting(
        4096, "bound of that folder, MiB; what was not used for longest is deleted", minimum=1
    )
    webhdfs: str = setting(
        "",
        "http://HOST:PORT of the namenodes of an hdfs:// checkpoint, commas between them; empty: its own "
        "host at 9870",
    )
    starting_offsets: Literal["earliest", "latest"] = setting(
        "earliest",
        "earliest or latest: where a new checkpoint begins to read requests; policies always earliest",
    )
    stop_timeout_s: int = setting(
        10, "limit for a batch and Spark to end at a stop, then it is killed, s", minimum=1
    )
    fail_fast: bool = setting(False, "a code error in a law ends the query instead of making dead letters")
    spark_conf: dict[str, OpenText] = setting(
        {},
        "Spark properties as text, winning over ours, such as spark.driver.memory (1024m); they are seen in "
        "the list of processes",
    )
    kafka_options: dict[str, SecretText] = setting(
        {},
        "options of Spark's Kafka source and sink, such as kafka.security.protocol; "
        "${dir:/run/secrets:password} stands for the content of that file",
    )

    @property
    def shard_count(self) -> int:
        """State rows per law, where `shards` leaves it to the tasks.

        One a task: each costs a batch milliseconds, and packed records are cut up for each, coming and going.
        """
        return self.shards or self.shuffle_partitions


def local_folder(checkpoint: str) -> Path | None:
    """The folder that a path or URI names; None if that is in no file system of this machine's."""
    parts = urlsplit(checkpoint)
    if parts.scheme not in ("", "file"):
        return None
    return Path(unquote(parts.path) if parts.scheme else checkpoint).absolute()
