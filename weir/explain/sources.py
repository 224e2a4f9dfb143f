"""Where decisions and events are read for `weir explain`: topics, or files."""

import contextlib
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import orjson

from streaming.contract.decisions import CANDIDATE
from streaming.contract.errors import BadEvent
from streaming.contract.events import load_object
from streaming.contract.fields import TS_MAX_MS, integer
from streaming.contract.topics import Cluster
from streaming.kafka_io.policy_topic import read_policies
from streaming.kafka_io.policy_turn import EFFECTIVE_AFTER_MS
from streaming.laws.registry import LAWS
from streaming.log.reading import read_lines
from streaming.policy.timeline import PolicyTimeline
from streaming.replay import read_timeline
from weir.logs.times import wall_ms
from weir.logs.topic_reader import TopicReader

_WINDOWS_MS: Final = (600_000, 3_600_000, 86_400_000)
"""How far back is looked one after the other, until what is wanted is found; then everywhere."""


class Told(NamedTuple):
    """One decision or event.

    Attributes:
        name: its id.
        ts: its time, ms since the epoch.
        fields: its JSON object.
    """

    name: str
    ts: int
    fields: dict[str, Any]

    @property
    def at(self) -> int:
        """When it was applied, ms since the epoch."""
        applied = self.fields.get("applied_ts")
        return applied if type(applied) is int else self.ts


class Source(ABC):
    """What decisions and events are read from.

    Args:
        decisions, events: names of the topics or files that hold them.
    """

    def __init__(self, decisions: Sequence[str], events: Sequence[str]) -> None:
        self._decisions, self._events = decisions, events

    def windows(self, until_ms: int) -> Iterator[int]:
        """Times, ms since the epoch, from which on to look, one after the other; the last is 0."""
        yield 0

    def decisions(self, from_ms: int, to_ms: int, holding: bytes) -> Iterator[Told]:
        """Decisions written between two times that hold some bytes, in order within a subject."""
        return self._read(self._decisions, from_ms, to_ms, holding, event=False)

    def events(self, from_ms: int, to_ms: int, holding: bytes) -> Iterator[Told]:
        """The same of events."""
        return self._read(self._events, from_ms, to_ms, holding, event=True)

    @abstractmethod
    def policies(self) -> PolicyTimeline:
        """The policies over time."""

    @abstractmethod
    def _read(
        self, names: Sequence[str], from_ms: int, to_ms: int, holding: bytes, *, event: bool
    ) -> Iterator[Told]:
        """What they hold."""


class TopicSource(Source):
    """The topics of a cluster.

    Args:
        cluster: whose.
    """

    def __init__(self, cluster: Cluster) -> None:
        topics = cluster.topics
        super().__init__((topics.decisions,), (topics.requests, topics.usage))
        self._cluster = cluster
        self._reader = TopicReader(cluster.bootstrap, cluster.client)

    def close(self) -> None:
        """Close the connection."""
        self._reader.close()

    def windows(self, until_ms: int) -> Iterator[int]:
        """See Source."""
        yield from (max(0, until_ms - back_ms) for back_ms in _WINDOWS_MS)
        yield 0

    def policies(self) -> PolicyTimeline:
        """See Source; what compaction took is known as far as later records tell of it."""
        timeline = PolicyTimeline()
        log = read_policies(self._cluster, told_max=sys.maxsize)
        for path, each in log.told.items():
            *earlier, last = map(orjson.loads, each)
            for change in earlier:
                at = change["at"] + EFFECTIVE_AFTER_MS
                timeline.apply(path, change["value"], at, change["version"] or None)
            timeline.apply(path, last["value"], log.effective[path], last["version"] or None)
        return timeline

    def _read(
        self, names: Sequence[str], from_ms: int, to_ms: int, holding: bytes, *, event: bool
    ) -> Iterator[Told]:
        now_ms = wall_ms()
        for topic in names:
            for span in self._reader.spans(topic, from_ms, to_ms if to_ms <= now_ms else None):
                for record in self._reader.read(span):
                    if holding in record.value:
                        yield from _told(record.value, record.name, record.ts, event=event)


class FileSource(Source):
    """Files of decisions and of events.

    Args:
        decisions, events: their names; a gzip or Parquet file is one by its name's end.
    """

    def policies(self) -> PolicyTimeline:
        """See Source."""
        return read_timeline({}, read_lines(self._events))

    def _read(
        self, names: Sequence[str], from_ms: int, to_ms: int, holding: bytes, *, event: bool
    ) -> Iterator[Told]:
        for line in read_lines(names):
            if holding in line.value:
                for told in _told(line.value, line.name, 0, event=event):
                    if from_ms <= told.at < to_ms:
                        yield told


def _told(value: bytes, name: str, written_ms: int, *, event: bool) -> Iterator[Told]:
    """What a record or line says, if it can be used; what cannot is of no use here."""
    with contextlib.suppress(BadEvent):
        fields = load_object(value)
        ts = integer(fields, "ts", written_ms, maximum=TS_MAX_MS)
        if event:
            # What the job buries explains nothing.
            LAWS.parse(value, default_id=name, default_ts=written_ms)
        # Nor does what is only tried of what happened.
        if fields.get("type") != "policy" and CANDIDATE not in fields:
            own = fields.get("id")
            yield Told(own if isinstance(own, str) else name, ts, fields)
