"""A broker with Weir's topics, a job for it, and whoever writes to it and reads from it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import orjson
from confluent_kafka import Producer
from job_kit import Job
from stack_kit import records, until

from streaming.columns.packed import CONTENT_TYPE, HEADER
from streaming.contract.topics import Cluster, Topics
from weir.logs.topic_reader import Record
from weir.stack.kafka import LocalKafka
from weir.stack.topics import ensure_topics

WAIT_S = 60.0
TOPICS = Topics()
PACKED = [(HEADER, CONTENT_TYPE.encode())]
Event = dict[str, Any]


class Bench:
    """See `bench`.

    Attributes:
        job: not started yet.
    """

    def __init__(self, folder: Path, bootstrap: str, settings: str, *words: str) -> None:
        self.bootstrap = bootstrap
        self._producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2"})
        self.job = Job(folder, bootstrap, *words, settings=settings)

    def write(self, topic: str, value: Event | bytes, key: str | None = None, **more: Any) -> None:
        """Write a record, and wait for it."""
        written = value if isinstance(value, bytes) else orjson.dumps(value)
        self._producer.produce(topic, written, key, **more)
        assert self._producer.flush(WAIT_S) == 0

    def tell(self, policies: Mapping[str, Any], ts: int = 1) -> None:
        """Change policies, in force from this time on."""
        for path, value in policies.items():
            self.write(TOPICS.policies, {"type": "policy", "ts": ts, "path": path, "value": value}, path)

    def records(self, topic: str) -> list[Record]:
        """All that stands on a topic, of packed records the rows."""
        return list(records(self.bootstrap, topic))

    def until(self, enough: Callable[[list[Event]], Any]) -> list[Event]:
        """The decisions so far, once they are enough."""

        def found() -> list[Event]:
            events = [orjson.loads(record.value) for record in self.records(TOPICS.decisions)]
            return events if enough(events) else []

        decided: list[Event] = until(found, what="decisions", limit_s=WAIT_S)
        return decided


@contextmanager
def bench(folder: Path, settings: str, partitions: int = 2, *words: str) -> Iterator[Bench]:
    """A broker of its own, with so many partitions of everything, and a job with these settings."""
    with LocalKafka(folder / "kafka") as kafka:
        ensure_topics(Cluster(kafka.bootstrap, TOPICS), partitions=partitions)
        made = Bench(folder, kafka.bootstrap, settings, *words)
        with closing(made.job):
            yield made
