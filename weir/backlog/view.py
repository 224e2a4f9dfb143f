"""`weir backlog` as it runs: reads decisions and policies, shows them once or again and again."""

import sys
from contextlib import ExitStack, closing
from typing import Final

from streaming.contract.errors import WeirError
from streaming.contract.printable import printable, printable_array, printable_lines
from streaming.contract.topics import Cluster
from streaming.kafka_io.policy_topic import TIMEOUT_S, PolicyReader
from streaming.kafka_io.reader import Reader
from streaming.policy.topics import check_interval_s
from weir.backlog.decisions import BacklogReader, back_ms
from weir.backlog.table import Row, human_seconds, is_of, ordered, table
from weir.foreground import StopSignal, interruptible
from weir.logs.times import wall_ms

ROWS: Final = 50
"""Rows of the table, unless --limit says otherwise."""
_CLEAR: Final = "\x1b[H\x1b[2J"
_HINT: Final = (
    "are they reported (`weir collect kafka`, `weir collect pulsar` or a part of `weir up`), and does the job"
    " run (`weir job`)?"
)


class TopicUnreported(WeirError):
    """No such topic was reported."""


class View(ExitStack):
    """Decisions and policies of a cluster, read on from where they were read to.

    Args:
        cluster: whose.
        topic: full name, its partitions too; None: all topics.
        limit: rows at most; None: those of the table ROWS, in JSON all.
        as_json: the decisions themselves.
    """

    def __init__(
        self, cluster: Cluster, topic: str | None = None, limit: int | None = None, *, as_json: bool = False
    ) -> None:
        super().__init__()
        self._topic, self._limit, self.as_json = topic, limit, as_json
        self._bootstrap = cluster.bootstrap
        self._policies = self.enter_context(PolicyReader(cluster, told_max=0))
        reader = self.enter_context(closing(Reader(cluster.bootstrap, cluster.client)))
        self._standing = BacklogReader(reader, cluster.topics.decisions)

    def lines(self) -> list[str]:
        """What there is to see now.

        Raises:
            TopicUnreported: nothing was said of the topic that is asked for.
            WeirError: the cluster does not answer or has no such topics.
        """
        now_ms = wall_ms()
        policies = self._policies.read(TIMEOUT_S).timeline.at(now_ms)
        interval_s = check_interval_s(policies)
        newest = self._standing.read(interval_s)
        rows = ordered(
            Row.of(found, policies)
            for topic, found in newest.of_topic.items()
            if self._topic is None or is_of(topic, self._topic)
        )
        within = f"in the last {human_seconds(back_ms(interval_s) // 1000)} on {self._bootstrap}"
        if not rows and self._topic is not None:
            raise TopicUnreported(f"nothing was decided on the backlog of {self._topic} {within}: {_HINT}")
        if self.as_json:
            return [printable_array(row.found.value for row in rows[: self._limit])]
        if not rows:
            return [f"nothing was decided on backlogs {within}: {_HINT}"]
        return table(rows, now_ms, ROWS if self._limit is None else self._limit)

    def remarks(self) -> list[str]:
        """What is not among the lines, for stderr."""
        newest, said = self._standing.newest, []
        if newest.bad:
            said.append(f"{newest.bad} records could not be used, such as: {newest.last_bad}")
        if dropped := newest.of_topic.dropped:
            said.append(f"{dropped} decisions were on topics for which there was no room")
        return [printable(f"weir: {words}") for words in said]


def show(view: View) -> None:
    """Print it once; raises WeirError as View.lines."""
    print("\n".join(interruptible(view.lines)))
    for remark in view.remarks():
        print(remark, file=sys.stderr)


def watch(view: View, every_s: float, stop: StopSignal) -> None:
    """Print it every so often until a stop; what cannot be read once is tried again."""
    terminal = sys.stdout.isatty()
    # Tables stand apart from each other, where nothing is overwritten.
    begin, end = (_CLEAR, "\n") if terminal else ("", "\n" if view.as_json else "\n\n")
    told: list[str] = []
    while not stop.asked:
        try:
            print(begin + "\n".join(stop.unless(view.lines)), end=end, flush=True)
        except TopicUnreported as nothing:
            print(begin + ("[]" if view.as_json else printable(str(nothing))), end=end, flush=True)
        except WeirError as failure:
            print(printable_lines(f"weir: {failure}"), file=sys.stderr, flush=True)
        if view.remarks() != told:
            told = view.remarks()
            print(*told, sep="\n", file=sys.stderr, flush=True)
        stop.wait(every_s)
