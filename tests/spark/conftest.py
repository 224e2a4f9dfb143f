"""One session for all tests of the job."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from job_broker_kit import Broker
from job_kit import Job
from pyspark.sql import SparkSession

from streaming.contract.topics import Cluster
from streaming.job.spark.session import Session, build_session, stop_session
from streaming.job.spark.settings import JobSettings
from weir.jars.folders import jars_dir
from weir.stack.kafka import LocalKafka
from weir.stack.topics import ensure_topics

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """py4j leaves the sockets of ended streaming threads to the garbage collector, which warns of each."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(scope="session")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A session as the live job has it, on two threads."""
    folder = tmp_path_factory.mktemp("spark")
    settings = JobSettings(master="local[2]", shuffle_partitions=2)
    started = build_session(settings, jars=jars_dir("spark"), work_dir=folder, checkpoint=str(folder))
    try:
        yield started
    finally:
        stop_session(started, 10)


@pytest.fixture
def spark(session: Session) -> SparkSession:
    """The session itself."""
    return session.spark


@pytest.fixture
def bootstrap(tmp_path: Path) -> Iterator[str]:
    """A broker with Weir's topics."""
    with LocalKafka(tmp_path / "kafka") as kafka:
        ensure_topics(Cluster(kafka.bootstrap))
        yield kafka.bootstrap


@pytest.fixture
def broker(bootstrap: str) -> Broker:
    """A connection to it."""
    return Broker(bootstrap)


@pytest.fixture
def make_job(bootstrap: str, tmp_path: Path) -> Iterator[Callable[..., Job]]:
    """Makes jobs, each with a folder of its own; they are not started yet."""
    with ExitStack() as stack:

        def make(name: str = "job", *words: str, **more: Any) -> Job:
            (tmp_path / name).mkdir(exist_ok=True)
            return stack.enter_context(Job(tmp_path / name, bootstrap, *words, **more))

        yield make
