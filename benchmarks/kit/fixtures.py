"""What the benchmarks of one process stand on: a broker and Spark, each its own, or shared in a smoke run.

Most of what a short run does is starting these, so a smoke run starts them once.
"""

import itertools
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from benchmarks.kit.machine import BOTH_COMPILERS
from streaming.contract.topics import DEFAULT_PREFIX
from streaming.job.spark.session import Session, build_session, stop_session
from streaming.job.spark.settings import JobSettings
from weir.jars.folders import jars_dir
from weir.stack.kafka import LocalKafka, Sasl


class _Shared:
    """Started by whoever asks first, stopped at the end of the process's work.

    Args:
        folder: for logs and data.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running = ExitStack()
        self._kafka: LocalKafka | None = None
        self._session: Session | None = None

    def kafka(self) -> LocalKafka:
        if self._kafka is None:
            self._kafka = self._running.enter_context(LocalKafka(self._folder / "kafka"))
        return self._kafka

    def session(self, settings: JobSettings) -> Session:
        if self._session is None:
            self._session = self._running.enter_context(_own_session(settings, self._folder))
        # What of the settings is not bound to the JVM's start: the rest is as the first one had it.
        own = {"spark.sql.shuffle.partitions": str(settings.shuffle_partitions), **settings.spark_conf}
        for key, value in own.items():
            self._session.spark.conf.set(key, value)
        return self._session

    def stop(self) -> None:
        self._running.close()


_shared: _Shared | None = None
_numbers: Final = itertools.count(1)


@contextmanager
def sharing(folder: Path) -> Iterator[None]:
    """Within this, all benchmarks of the process use one broker and one Spark session.

    Args:
        folder: for logs and data; exists.
    """
    global _shared
    _shared = _Shared(folder)
    try:
        yield
    finally:
        _shared.stop()
        _shared = None


@contextmanager
def broker(
    folder: Path, properties: Mapping[str, str], sasl: Sasl | None = None,
    behind: Mapping[int, int] | None = None,
) -> Iterator[LocalKafka]:  # fmt: skip
    """A broker that runs.

    Args:
        folder: for the data of one of its own.
        properties: of one of its own; the shared one has none.
        sasl: opens a second listener, which properties may have speak something else.
        behind: see LocalKafka.
    """
    if _shared is not None and not (properties or behind):
        yield _shared.kafka()
        return
    with LocalKafka(folder, properties=properties, sasl=sasl, behind=behind, options=BOTH_COMPILERS) as kafka:
        yield kafka


def topic_prefix() -> str:
    """Of one stack's topics: the default one, but on a broker that is shared one of its own."""
    return DEFAULT_PREFIX if _shared is None else f"stack-{next(_numbers)}."


@contextmanager
def spark(settings: JobSettings, folder: Path) -> Iterator[Session]:
    """A Spark session as the job builds it; queries that still run at the end are stopped.

    Args:
        settings: of the job. A shared session has the JVM of whoever came first.
        folder: for checkpoints, and for the log of one of its own; exists.
    """
    if _shared is None:
        with _own_session(settings, folder) as session:
            yield session
        return
    session = _shared.session(settings)
    try:
        yield session
    finally:
        for query in session.spark.streams.active:
            query.stop()


@contextmanager
def _own_session(settings: JobSettings, folder: Path) -> Iterator[Session]:
    session = build_session(settings, jars=jars_dir("spark"), work_dir=folder, checkpoint=str(folder))
    try:
        yield session
    finally:
        stop_session(session, settings.stop_timeout_s)
