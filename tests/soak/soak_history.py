"""What was seen in a run: entries, each a JSON object with its `kind`, kept as lines."""

import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

Entry = dict[str, Any]


def now_ms() -> int:
    """Since the epoch."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class History:
    """All entries, by their kinds.

    Kinds, beside what names itself:
        made       a request for a topic: who (NAME-PROXY), subject, name, begun, ended, code (None: nothing)
        sent       a producer's record: who, topic, value, begun, ended, offset (None: not acknowledged), code
        read       a consumer's record: who, group, topic, offset, value, at
        committed  where a consumer that lags stands: group, topic, offset, begun, ended
        topic      one that the broker has in the end: name
        record     what a topic holds in the end: topic, offset (of Pulsar ledger and entry), value
        event      of weir.requests: event
        decision   of weir.decisions: decision, without `repeat`, and at: when it was written first
        limit      what holds: law, subject, rate, burst, bound, topics (of a group)
        quota      of a backlog: topic, group, policy, bytes, bound_s
        doubt      answers of a proxy before Kafka had their events: part, pid, count, at
        policies   the version that a proxy has now: part, pid, version, at
        expired    slots that a proxy gave back by their deadline: part, pid, count, at
        held       a request that waits at the broker: who, begun, ended, code
        flight     a request at a broker, as the relay before it saw that: broker, begun, ended, over (the
                   connection was, before an answer)
        slots      of a proxy when the load was over: part, taken, waiting
        load       what a client wants all the time: who, what (made, sent, read, held), begun, ended
        failed     a client that ended by an error: who, why
        planned    a fault of the schedule, each once: what, target, long
        fault      what was done: all of Fault, begun, ended (as it came), pid (of a kill)
        not_done   a fault that could not be made: what, target, why
        ended      a part that was found to have ended: part, pid, at, why
        stopped    a part that was asked to end when the load was over: part, at
        back       a part, or a path, is there again: what, target, at, took_s (None: never within the limit)
        sample     of a process: part, pid, at, rss, descriptors
        replay     of the dump: status, said
        left       a process that outlived the run: part, pid
        watched    for how long Prometheus evaluated the rules: begun, ended
        alert      fired: name, part, severity, begun, ended
    """

    by_kind: dict[str, list[Entry]]

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> "History":
        """Of entries in the order in which they came."""
        by_kind = defaultdict(list)
        for entry in entries:
            by_kind[entry["kind"]].append(entry)
        return cls(dict(by_kind))

    @classmethod
    def read(cls, file: Path) -> "History":
        """From a file of lines."""
        with file.open("rb") as lines:
            return cls.of(map(orjson.loads, lines))

    def __getitem__(self, kind: str) -> list[Entry]:
        return self.by_kind.get(kind, [])


class Recorder(AbstractContextManager[Any]):
    """Writes entries to a file, from any thread; a context manager."""

    def __init__(self, file: Path) -> None:
        self._lines = file.open("ab")
        self._lock = threading.Lock()

    def note(self, kind: str, **fields: Any) -> None:
        """One entry."""
        line = orjson.dumps({"kind": kind, **fields}) + b"\n"
        with self._lock:
            self._lines.write(line)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._lines.close()
