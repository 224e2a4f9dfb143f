"""Spark's own settings for checkpoints that are far away."""

from pathlib import Path

import pytest

from streaming.contract.errors import WeirError
from streaming.job.spark.remote import S3A_JARS, further_jars, remote_conf


def test_a_local_checkpoint_needs_nothing(tmp_path: Path) -> None:
    """As before: no jar and no setting more."""
    assert remote_conf(str(tmp_path)) == {}
    jars = tmp_path / "spark"
    assert further_jars("file:///c", jars) == further_jars("hdfs://n/c", jars) == []


def test_s3a_renames_nothing(tmp_path: Path) -> None:
    """Its rename is a copy and a deletion; and its jars are named when they are missing."""
    manager = remote_conf("s3a://b/c")["spark.sql.streaming.checkpointFileManagerClass"]
    assert manager.endswith("AbortableStreamBasedCheckpointFileManager")
    with pytest.raises(WeirError, match=f"{S3A_JARS}; run `weir setup --s3a`"):
        further_jars("s3a://b/c", tmp_path / "spark")
    (tmp_path / S3A_JARS).mkdir()
    (tmp_path / S3A_JARS / "hadoop-aws.jar").touch()
    assert further_jars("s3a://b/c", tmp_path / "spark") == [str(tmp_path / S3A_JARS / "hadoop-aws.jar")]
