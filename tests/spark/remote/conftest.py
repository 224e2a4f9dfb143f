"""A broker, a file system for checkpoints and jobs on it, for each test its own."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from job_kit import Job
from remote_kit import REMOTES, Remote


@pytest.fixture(params=list(REMOTES))
def remote(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Remote]:
    """HDFS, then S3."""
    with REMOTES[request.param](tmp_path / "remote") as running:
        yield running


@pytest.fixture
def make_job(remote: Remote, make_job: Callable[..., Job], tmp_path: Path) -> Callable[..., Job]:
    """Makes jobs with the same checkpoint, each with a cache of its own; they are not started yet."""

    def make(name: str, **settings: Any) -> Job:
        spark = {"spark.sql.streaming.minBatchesToRetain": "3"}
        given = {"segment_cache_dir": str(tmp_path / name / "cache"), **remote.settings, **settings}
        given["spark_conf"] = spark | given.get("spark_conf", {})
        return make_job(name, settings=yaml.safe_dump({"job": given}), checkpoint=remote.checkpoint)

    return make
