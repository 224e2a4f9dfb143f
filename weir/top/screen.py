"""`weir top`: the view over all laws, from the recent past, as a table that fits the terminal, or as JSON."""

import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from typing import Any, Final

import orjson
from rich.console import Group
from rich.live import Live
from rich.text import Text

from enforcer.control.answers.shown import page, summary
from enforcer.control.entities.feed import REPORTS, REQUESTS, decisions_of, reports_of
from enforcer.control.entities.table import SLOT_MS, SLOTS
from enforcer.control.entities.view import EntityView
from streaming.contract.errors import WeirError
from streaming.contract.printable import printable, printable_array, printable_lines
from streaming.contract.topics import Cluster
from streaming.kafka_io.policy_topic import TIMEOUT_S, PolicyReader
from streaming.kafka_io.reader import Reader
from streaming.policy.policy_set import PolicySet
from weir.backlog.table import human_seconds
from weir.foreground import StopSignal, interruptible
from weir.logs.times import wall_ms
from weir.top.console import TableConsole, table_of

BACK_MS: Final = SLOTS * SLOT_MS
"""So far back is read: what the view keeps of the past, and many life times of what stands."""
Asked = Mapping[str, Any]
Ask = Callable[[Callable[[], int]], int]
"""Does work that waits for Kafka, until a stop."""
_BAR: Final = 10
_NEAR: Final = 0.8
_COLUMNS: Final = ("law", "used", "limit", "", "%", "waits", "refused", "since", "entity", "by")
_TEXTS: Final = {"law": 8, "entity": 12, "by": 12}
_NARROW: Final = ("%", "waits", "refused", "entity")
_SHOWN: Final = (
    (110, _COLUMNS), (90, (*_COLUMNS[:3], *_COLUMNS[4:9])), (76, (*_COLUMNS[:3], *_NARROW)), (0, _NARROW),
)  # fmt: skip
"""From how many columns on there is room for which of them; the first holds."""
_UNITS: Final = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


class RecentPast(ExitStack):
    """Reads what Weir's topics say of it, and later on what has come since; `view` is what is known."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._in_force = PolicySet()
        self.view = EntityView(lambda: self._in_force)
        self.bootstrap = cluster.bootstrap
        self._topics = cluster.topics
        self._policies = self.enter_context(PolicyReader(cluster, told_max=0))
        self._reader = self.enter_context(closing(Reader(cluster.bootstrap, cluster.client)))

    def read(self) -> int:
        """Read to where the topics end now; the time then, ms since the epoch.

        Raises:
            WeirError: no such topics, or the cluster does not answer.
        """
        now_ms = wall_ms()
        self._in_force = self._policies.read(TIMEOUT_S).timeline.at(now_ms)
        since_ms, reader = now_ms - BACK_MS, self._reader
        # Limits before what is measured against them.
        for message in reader.read_on(reader.spans(self._topics.decisions, since_ms)):
            self.view.take_decisions(decisions_of(message))
        for topic, readers in ((self._topics.usage, REPORTS), (self._topics.requests, REQUESTS)):
            for message in reader.read_on(reader.spans(topic, since_ms)):
                self.view.take_reports(reports_of(message, readers))
        return wall_ms()


def show(past: RecentPast, asked: Asked, *, as_json: bool, ask: Ask = interruptible) -> None:
    """Print it once; raises WeirError: the cluster does not answer or has no such topics."""
    now_ms = ask(past.read)
    if as_json:
        print(printable_array(map(orjson.dumps, page(past.view, now_ms, **asked)[0])))
    else:
        console = TableConsole()
        console.print(shown(past, asked, now_ms, console.width))


def watch(past: RecentPast, asked: Asked, every_s: float, stop: StopSignal, *, as_json: bool) -> None:
    """Print it every so often until a stop; what cannot be read once is tried again."""
    if as_json or not sys.stdout.isatty():
        while not stop.asked:
            try:
                show(past, asked, as_json=as_json, ask=stop.unless)
                sys.stdout.flush()
            except WeirError as failure:
                print(printable_lines(f"weir: {failure}"), file=sys.stderr, flush=True)
            stop.wait(every_s)
        return
    console = TableConsole()
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while not stop.asked:
            try:
                live.update(shown(past, asked, stop.unless(past.read), console.width), refresh=True)
            except WeirError as failure:
                live.update(Text(printable_lines(f"weir: {failure}"), style="red"), refresh=True)
            stop.wait(every_s)


def shown(past: RecentPast, asked: Asked, now_ms: int, width: int) -> Group:
    """A line for all, and the table, for a terminal so many columns wide; `asked` as of page."""
    rows, total = page(past.view, now_ms, **asked)
    told = summary(past.view, now_ms)
    if not told["entities"]:
        return Group(Text(printable(
            f"nothing was decided in the last {human_seconds(BACK_MS // 1000)} on {past.bootstrap}: does the"
            " job run (`weir job`), and are there limits (`weir policy get`)?"
        )))  # fmt: skip
    waits = f"{told['waiting']} wait"
    if told["waiting"]:
        waits += f", for {human_seconds(told['oldest_ms'] // 1000)} at most"
    part = "" if len(rows) == total else f", the first {len(rows)} shown"
    first = f"{waits}; {told['refused']} were refused in the last minute; {total} entities{part}"
    columns = next(columns for least, columns in _SHOWN if width >= least)
    return Group(Text(first), table_of(columns, _TEXTS, map(_cells, rows)))


def _cells(row: dict[str, Any]) -> tuple[dict[str, str], str]:
    """What stands in each column, and the style."""
    fraction, held = row["fraction"], row["shadow"] or row
    style = "red" if held["waiting_ms"] or held["refused"] else "yellow" if (fraction or 0) >= _NEAR else ""
    share = 1.0 if fraction is None else min(1.0, fraction)
    filled = round(share * _BAR)
    waits = f"{held['waiting_ms'] / 1000:.1f} s" if held["waiting_ms"] else ""
    since = "" if held["since"] is None else held["since"][11:19]
    shadow = " (shadow)" if row["shadow"] is not None else ""
    words = (
        row["law"] + shadow,
        _short(row["used"]),
        f"{_short(row['limit'])} {row['unit']}",
        "█" * filled + "·" * (_BAR - filled),
        "" if fraction is None else f"{fraction * 100:.0f}",
        waits,
        str(held["refused"] or ""),
        since,
        row["entity"],
        row["entry"] or "",
    )
    return dict(zip(_COLUMNS, words, strict=True)), style


def _short(value: float) -> str:
    """A number in few characters.

    >>> _short(1_500_000), _short(9.25), _short(999.6)
    ('1.5M', '9.25', '1k')
    """
    value = float(f"{value:.3g}")
    for size, name in _UNITS:
        if value >= size:
            return f"{value / size:.3g}{name}"
    return f"{value:g}"
