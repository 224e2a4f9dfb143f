"""A broker with Weir's topics, a job for it, and whoever writes to it and reads from it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from job_broker_kit import TOPICS, Broker, Event
from job_kit import Job

from streaming.columns.packed import CONTENT_TYPE, HEADER
from streaming.contract.topics import Cluster
from weir.stack.kafka import LocalKafka
from weir.stack.topics import ensure_topics

PACKED = [(HEADER, CONTENT_TYPE.encode())]


class Bench(Broker):
    """See `bench`; it waits for each of its records.

    Attributes:
        job: not started yet.
    """

    def __init__(self, folder: Path, bootstrap: str, settings: str, *words: str, **more: Any) -> None:
        super().__init__(bootstrap, {"partitioner": "murmur2"})
        self.job = Job(folder, bootstrap, *words, settings=settings, **more)

    def write(self, topic: str, value: Event | bytes | None, key: str | None = None, **more: Any) -> None:
        """Write a record, and wait for it."""
        super().write(topic, value, key, **more)
        self.flush()


@contextmanager
def bench(
    folder: Path, settings: str, partitions: int = 2, *words: str, **more: Any
) -> Iterator[Bench]:
    """A broker of its own, with so many partitions of everything, and a job with these settings.

    Args:
        folder: for both.
        settings: text of the job's settings.
        partitions: of each topic.
        words: further options of the job.
        more: see Program.
    """
    with LocalKafka(folder / "kafka") as kafka:
        ensure_topics(Cluster(kafka.bootstrap, TOPICS), partitions=partitions)
        made = Bench(folder, kafka.bootstrap, settings, *words, **more)
        with made.job:
            yield made
