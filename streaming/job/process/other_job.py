"""Another job that decides by the same topics, on a checkpoint of its own: it is known by its ticks.

A lease (lease.py) is beside one checkpoint and knows of no other. Two jobs would each write decisions, and
those differ where their states do. The topic of ticks is what all jobs of a cluster share.
"""

import math
import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, Final

from streaming.contract.errors import BadEvent, WeirError
from streaming.contract.events import load_object
from streaming.contract.printable import printable
from streaming.contract.topics import Cluster
from streaming.kafka_io.reader import Reader

SILENT_S: Final = 20.0
"""A job that has not ticked for so long is gone: it ticks at least every 15 s (job.tick_interval_ms)."""
_BACK_MS: Final = 40_000
"""So far back ticks are looked for, by the clock of this host, which may be wrong."""
_LIMIT_S: Final = 5.0
"""Of each question, and of reading."""
_POLL_S: Final = 1.0
_TICK_BYTES: Final = 1_024


def said_of(query: str) -> dict[str, Any]:
    """What this job's ticks say of it; `query` has its checkpoint's id."""
    return {"query": query, "host": socket.gethostname(), "pid": os.getpid()}


def tick_in(value: bytes | None) -> dict[str, Any]:
    """The fields of a tick; none: the record is something else."""
    if value is None or len(value) > _TICK_BYTES or b'"tick"' not in value:
        return {}
    try:
        fields = load_object(value)
    except BadEvent:
        return {}
    return fields if fields.get("type") == "tick" else {}


class Jobs:
    """Which jobs tick.

    Args:
        own: query of one that does not count; None: all do.
    """

    def __init__(self, own: str | None = None) -> None:
        self._own = own
        self._last: dict[str, tuple[int, bool, str, float]] = {}

    def take(self, tick: Mapping[str, Any], ts: int) -> None:
        """A tick and its record's time, ms; those of an earlier Weir do not say whose they are."""
        if type(query := tick.get("query")) is str and query != self._own:
            who = printable(f"pid {tick.get('pid')} on host {tick.get('host')}")
            began = since if type(since := tick.get("since")) is int else math.inf
            told = ts, tick.get("leaving") is True, who, began
            # Of several partitions, which are read one after the other.
            self._last[query] = max(told, self._last.get(query, told))

    def hear(self, reader: Reader, topic: str, since_ms: int) -> None:
        """Take what came on a topic from that time on and since the last call.

        Raises:
            WeirError: it cannot be read, or not within a time.
        """
        until = time.monotonic() + _LIMIT_S
        for message in reader.read_on(reader.spans(topic, since_ms, limit_s=_LIMIT_S), _LIMIT_S):
            if time.monotonic() > until:
                raise WeirError(f"{topic} has too many records for {_LIMIT_S:.0f} s")
            self.take(tick_in(message.value()), message.timestamp()[1])

    def since(self, ts: int, before: tuple[int, str] | None = None) -> dict[str, tuple[int, str]]:
        """By query, but for those that left: when it ticked last, not before `ts`, ms, and who it is.

        With `before`, those whose first tick came before that of this time (ms) and query.
        """
        return {
            query: (last, who)
            for query, (last, leaving, who, began) in self._last.items()
            if last >= ts and not leaving and (before is None or (began, query) < before)
        }


def other_job(
    cluster: Cluster, query: str, pause: Callable[[float], object], say: Callable[[str], object],
    since: int | None = None,
) -> str:  # fmt: skip
    """Who else decides here, for people; empty: nobody.

    At once where nobody else has ticked lately; else that one is listened to until it has ticked again, has
    left, or has been silent for `SILENT_S`, as one that was killed. Jobs that start together hear nobody: so
    each listens for as long once it ticks, and who ticked first goes on, by what both read of the brokers.

    Args:
        cluster: with the topic.
        query: id of our own checkpoint, which an earlier job of it has left in ticks; empty: a new one.
        pause: sleeps for so long; what it raises ends it.
        say: takes a line, where that takes a while.
        since: time of our own first tick, ms on the brokers' clock; None: we do not decide yet.

    Raises:
        WeirError: the topic cannot be read, or not within a time, as nobody else was heard yet.
    """
    jobs, since_ms = Jobs(query), (time.time_ns() // 1_000_000 if since is None else since) - _BACK_MS
    before_us = None if since is None else (since, query)
    # A collector's open transaction would hide what comes behind it.
    own = {"isolation.level": "read_uncommitted"}
    with closing(Reader(cluster.bootstrap, cluster.client, own)) as reader:
        before: dict[str, tuple[int, str]] | None = None
        end, names, failed = time.monotonic() + SILENT_S, "", ""
        while True:
            try:
                jobs.hear(reader, cluster.topics.usage, since_ms)
            except WeirError:
                # Who does not decide yet looks once only.
                if before is None and (since is None or time.monotonic() > end):
                    raise
                # Heard before, and not heard to go.
                failed = names
            else:
                now, failed = jobs.since(since_ms, before_us), ""
                if since is None and not now:
                    return ""
                if before is None:
                    before, end = now, time.monotonic() + SILENT_S
                    if since is None:
                        names = "; ".join(who for _, who in now.values())
                        told = f"a job of another checkpoint ticked lately ({names})"
                        say(f"waiting for at most {SILENT_S:.0f} s: {told}")
                for _, (_, who) in now.items() - before.items():
                    return who
            if before is not None and time.monotonic() >= end:
                return failed
            pause(_POLL_S)
