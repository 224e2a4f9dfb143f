"""What was decided last of each topic's backlog, read back from `weir.decisions` (docs/contract.md 3.5)."""

from dataclasses import dataclass
from typing import Final

from streaming.contract.backlog.decisions import TTL_MS, BacklogDecision, backlog_decision
from streaming.contract.decisions import CANDIDATE
from streaming.contract.errors import BadEvent
from streaming.contract.events import load_object
from streaming.contract.names import namespace_of
from streaming.kafka_io.newest import Newest
from streaming.kafka_io.reader import Reader
from weir.logs.times import wall_ms
from weir.logs.topic_reader import records_of

TYPE: Final = "backlog"
TOPICS_MAX: Final = 200_000
"""Topics that are kept; beyond it those of which nothing was said for longest go, and are counted."""
MARGIN_MS: Final = 5_000
"""Read back more than is needed: our clock and that of who wrote may disagree."""
_NAMED: Final = b'"backlog"'
"""Stands in every decision on a backlog; few others need to be parsed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogView:
    """The newest decision on a topic.

    Attributes:
        decision: what it says.
        value: its JSON object, as it stands on the topic.
        written_ms: when that was written, ms since the epoch.
    """

    decision: BacklogDecision
    value: bytes
    written_ms: int

    def stale(self, now_ms: int) -> bool:
        """Whether nobody goes by it any more, as its life time is over."""
        return now_ms > self.written_ms + self.decision.ttl_ms


class Decisions:
    """The newest decision on each topic; pure.

    Attributes:
        of_topic: by full name.
        bad: records that say they are such decisions, and are none.
        last_bad: why the newest of them is none.
    """

    def __init__(self) -> None:
        self.of_topic: Newest[str, BacklogView] = Newest(TOPICS_MAX)
        self.bad = 0
        self.last_bad = ""

    def take(self, value: bytes, written_ms: int) -> None:
        """Take one record, in the order of its partition; others are passed over."""
        if _NAMED not in value:
            return
        try:
            fields = load_object(value)
            if fields.get("type") != TYPE or CANDIDATE in fields:
                return
            decision = backlog_decision(fields)
            namespace_of(decision.topic)  # no policy can name another
        except BadEvent as error:
            self.bad += 1
            self.last_bad = error.reason
            return
        known = self.of_topic.get(decision.topic)
        # A straggler is about what was before; a repeated one stands anew.
        if known is None or decision.ts >= known.decision.ts:
            newest = BacklogView(decision=decision, value=value, written_ms=written_ms)
            self.of_topic.put(decision.topic, newest)

    def forget_before(self, written_ms: int) -> None:
        """Let go of what was written earlier."""
        for name in [name for name, found in self.of_topic.items() if found.written_ms < written_ms]:
            self.of_topic.remove(name)


class BacklogReader:
    """Reads the decisions, and later on what has come since; `newest` is what was found."""

    def __init__(self, reader: Reader, topic: str) -> None:
        self.newest = Decisions()
        self._reader, self._topic = reader, topic

    def read(self, interval_s: int) -> Decisions:
        """Read to where the topic ends now; only what is old by then is left out.

        Args:
            interval_s: how often topics are looked at; what was said a life time and that ago is read back.

        Raises:
            WeirError: no such topic, or the cluster does not answer.
        """
        since_ms = wall_ms() - back_ms(interval_s)
        for message in self._reader.read_on(self._reader.spans(self._topic, since_ms)):
            for record in records_of(message, (TYPE,)):
                self.newest.take(record.value, record.ts)
        self.newest.forget_before(since_ms)
        return self.newest


def back_ms(interval_s: int) -> int:
    """How far back is read, ms: a life time and a check interval."""
    return TTL_MS + interval_s * 1_000 + MARGIN_MS
