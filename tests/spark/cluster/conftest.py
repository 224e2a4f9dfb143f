"""A broker, a Spark cluster and a job on it, for each test its own."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from job_kit import Job
from spark_cluster_kit import WatchedCluster

from weir.stack.kafka import HOST

JobMaker = Callable[..., Job]


@pytest.fixture
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[WatchedCluster]:
    """A master and its workers: two, or as many as the test's parameter says."""
    with WatchedCluster(tmp_path / "cluster", getattr(request, "param", 2)) as running:
        yield running


@pytest.fixture
def make_job(cluster: WatchedCluster, make_job: JobMaker, tmp_path: Path) -> JobMaker:
    """Makes jobs on the cluster that share their checkpoint; they are not started yet."""

    def make(name: str = "job", prefix: Sequence[str] = (), checkpoint: str = "", **settings: Any) -> Job:
        spark = {"spark.driver.host": HOST} | settings.pop("spark_conf", {})
        given = {"shuffle_partitions": 2, "spark_conf": spark} | settings
        return make_job(
            name, "--master", cluster.url, settings=yaml.safe_dump({"job": given}),
            checkpoint=checkpoint or tmp_path / "checkpoint", prefix=prefix,
        )  # fmt: skip

    return make
