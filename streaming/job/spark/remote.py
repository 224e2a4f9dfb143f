"""What Spark's own files of a checkpoint need when it is on hdfs:// or s3a://."""

from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from streaming.contract.errors import WeirError

S3A_JARS: Final = "spark_s3a"
_STREAMS: Final = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"
_NO_CHECKSUMS: Final = {"spark.sql.streaming.checkpoint.fileChecksum.enabled": "false"}
"""Each would be a second file beside each file. HDFS keeps checksums of blocks, S3 of objects."""


_HDFS: Final = _NO_CHECKSUMS | {
    # A file may be closed some milliseconds before its datanode has told the namenode of its block. Then the
    # client waits so long, 400 ms by default, which a batch of several files pays several times.
    "spark.hadoop.dfs.client.block.write.locateFollowingBlock.initial.delay.ms": "20",
    "spark.hadoop.dfs.client.block.write.locateFollowingBlock.retries": "9",
}


def remote_conf(checkpoint: str) -> dict[str, str]:
    """Settings of Spark for a checkpoint at this URI; a local one needs none of them."""
    scheme = urlsplit(checkpoint).scheme
    if scheme == "hdfs":
        return _HDFS
    if scheme == "s3a":
        # A rename on S3 is a copy and a deletion, which may end between them. A stream that becomes an object
        # when it is closed, or is aborted, needs none.
        return _NO_CHECKSUMS | {"spark.sql.streaming.checkpointFileManagerClass": _STREAMS}
    return {}


def further_jars(checkpoint: str, jars: Path) -> list[str]:
    """Jars that such a checkpoint needs beside those of weir/jars/poms/spark.

    Args:
        checkpoint: folder or URI.
        jars: folder of those; the others' is beside it.

    Raises:
        WeirError: they are not there; says how to get them.
    """
    if urlsplit(checkpoint).scheme != "s3a":
        return []
    folder = jars.parent / S3A_JARS
    found = sorted(str(path.absolute()) for path in folder.glob("*.jar"))
    if not found:
        raise WeirError(f"no jars for checkpoints on s3a:// in {folder}; run `weir setup --s3a`")
    return found
