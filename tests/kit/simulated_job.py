"""The job of simulated histories: the law's own step over what stands on the topics, batch by batch.

It keeps its state as Spark does: a batch that was begun and is not over when the job dies is run again, of
the same records, from the same state, as of the same time, and what it says is written again.
"""

from collections.abc import Mapping
from functools import partial
from random import Random
from typing import Any, Protocol

import orjson
from confluent_kafka import Message
from law_kit import T0
from simulated_case import END_MS, Fault

from enforcer.core.feeds.decisions import Read, decisions_in
from enforcer.laws.mutation.law import READER
from streaming.columns.outputs import DEAD_LETTER
from streaming.laws.law import StepContext
from weir.simulate.agenda import Agenda
from weir.simulate.failures.world import TOPICS, stepped

TICK_MS = 1_000
READERS = {READER.type: READER}


class Reader(Protocol):
    """Whose decisions they are."""

    def decided(self, said: list[tuple[bytes, Read]]) -> None:
        """These stand on the topic now."""

    def note(self, what: str, **fields: Any) -> None:
        """Put something into its history."""


class Job:
    """It, and the topics that it reads.

    Attributes:
        agenda: simulated time.
        log: topic, time and bytes of each record.
        readers: of what was decided, by the head of proxies' names.
        batch_ms: how often it looks for records.
        doubts: answers that proxies gave before Kafka had their events, so far.

    Args:
        number: of the company of histories.
        initial: policies in force from the start.
        faults: that befall it.
    """

    def __init__(self, number: int, initial: Mapping[str, Any], faults: list[Fault]) -> None:
        random = Random(f"host {number}")
        self.agenda = Agenda(T0)
        self.log: list[tuple[str, int, bytes]] = []
        self.readers: dict[str, Reader] = {}
        self.doubts = 0.0
        self.batch_ms = random.choice((200, 500, 1_000))
        self._skew_ms = random.choice((0, -700, 2_500))
        self._initial = initial
        self._body: bytes | None = None
        self._taken = 0
        # A batch that was begun and is not over: its records, and when it began by the host's clock.
        self._planned: tuple[int, int, int] | None = None
        self._said: list[bytes] | None = None
        self._dies: Fault | None = None
        self._back_at = 0
        self._late: list[Fault] = []
        self._written_at = 0
        for fault in faults:
            self.agenda.at(T0 + fault.at, partial(self._befall, fault))
        self._tick()
        self.agenda.every(TICK_MS, self._tick)
        self.agenda.every(self.batch_ms, self._batch)

    def stand(self, topic: str, value: bytes) -> None:
        """A record stands on a topic now."""
        self.log.append((topic, self.agenda.now, value))

    def run(self) -> None:
        """Let all of it happen."""
        self.agenda.run(T0 + END_MS)

    @property
    def _away(self) -> bool:
        return self.agenda.now < self._back_at

    def _befall(self, fault: Fault) -> None:
        if fault.what == "die":
            self._dies = fault
        else:
            self._late.append(fault)

    def _tick(self) -> None:
        if not self._away:
            # It has learnt what the brokers' clock says, as a rule somewhat too little.
            self.stand(TOPICS.usage, b'{"type":"tick","brokers_ahead_ms":%d}' % (-self._skew_ms - 20))

    def _batch(self) -> None:
        if self._away:
            return
        if self._planned is None:
            if self._taken == len(self.log):
                return
            self._planned = self._taken, len(self.log), self.agenda.now + self._skew_ms
        body, said = self._decide(*self._planned)
        if self._said is not None and self._said != said:
            for reader in self.readers.values():
                reader.note("again", why="a batch that was run again says something else")
        self._said = said
        if self._dies is not None:
            fault, self._dies = self._dies, None
            self._back_at = self.agenda.now + fault.for_ms
            written = {"before": 0, "half": len(said) // 2, "after": len(said)}[fault.how]
            self._write(said[:written])
            return
        self._over(body)
        self._write(said)

    def _over(self, body: bytes) -> None:
        """The batch is in the checkpoint."""
        assert self._planned is not None
        self._body, self._taken = body, self._planned[1]
        self._planned = self._said = None

    def _decide(self, begin: int, end: int, processed_ts: int) -> tuple[bytes, list[bytes]]:
        context = StepContext(initial=self._initial, processed_ts=processed_ts, fail_fast=True)
        body, outputs = stepped("mutation", self._body, begin, self.log[begin:end], context)
        rows = list(zip(outputs.type, outputs.value, strict=True))
        for kind, value in rows:
            if kind == DEAD_LETTER:
                for reader in self.readers.values():
                    reader.note("buried", value=value.decode())
        return body, [value for kind, value in rows if kind != DEAD_LETTER]

    def _write(self, said: list[bytes]) -> None:
        late_ms = max(
            (late.how for late in self._late if late.at <= self.agenda.now - T0 < late.at + late.for_ms),
            default=0,
        )
        # In order.
        self._written_at = max(self._written_at, self.agenda.now + late_ms)
        self.agenda.at(self._written_at, partial(self._stand, said))

    def _stand(self, said: list[bytes]) -> None:
        now, by_reader = self.agenda.now, dict[str, list[tuple[bytes, Read]]]()
        for value in said:
            for read in decisions_in(Message(value=value, timestamp=(2, now)), READERS):
                head = read[1].proxy.partition(".")[0]
                by_reader.setdefault(head, []).append((value, read))
        for head, own in by_reader.items():
            self.readers[head].decided(own)


def policy_event(number: str, ts: int, path: str, value: Any) -> bytes:
    """A change of policy that is in force two seconds after it was written."""
    return orjson.dumps(
        {"type": "policy", "id": number, "ts": ts, "effective_ts": ts + 2_000, "path": path, "value": value}
    )
